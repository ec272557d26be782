/* SPDX-License-Identifier: Apache-2.0
 * The header of the adaptor for ggml, as an engine in C99 or C++17 includes it and calls it. It is compiled as both. */
#include <zoomr_ggml.h>

int pass_graph(zoomr_ggml* z, int32_t n_tokens, const int32_t* token, const int32_t* pos, int32_t* const* seq_id);
struct ggml_tensor* attended(zoomr_ggml** z, const zoomr_ggml_rope* layer_rope, struct ggml_context* ctx,
                             struct ggml_tensor* qkv);

/* A model whose layers have two rotary bases. */
static zoomr_ggml* opened(const zoomr_ggml_rope* layer_rope) {
  zoomr_ggml_params p = zoomr_ggml_default_params();
  p.n_layer = 2, p.n_head = 4, p.n_head_kv = 2, p.n_embd_head_k = 64, p.n_ctx_seq = 512;
  p.rope.n_rot = 64, p.rope.neox = true;
  p.layer_rope = layer_rope;
  return zoomr_ggml_init(&p);
}

struct ggml_tensor* attended(zoomr_ggml** z, const zoomr_ggml_rope* layer_rope, struct ggml_context* ctx,
                             struct ggml_tensor* qkv) {
  *z = opened(layer_rope);
  if (*z && zoomr_ggml_seq_span(*z, 0, 0, 24, ZOOMR_GGML_PINNED) != ZOOMR_GGML_SUCCESS) return NULL;
  return *z ? zoomr_ggml_attn(*z, ctx, qkv, qkv, qkv, 0.125f, 0) : NULL;
}

int pass_graph(zoomr_ggml* z, int32_t n_tokens, const int32_t* token, const int32_t* pos, int32_t* const* seq_id) {
  zoomr_ggml_batch batch = {0, NULL, NULL, NULL, NULL, NULL};
  batch.n_tokens = n_tokens, batch.token = token, batch.pos = pos, batch.seq_id = seq_id;
  if (zoomr_ggml_begin(z, &batch) != ZOOMR_GGML_SUCCESS) return -1;
  return zoomr_ggml_commit(z);
}
