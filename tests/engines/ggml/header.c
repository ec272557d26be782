/* SPDX-License-Identifier: Apache-2.0
 * The header of the adaptor for ggml, as an engine in C99 or C++17 includes it and calls it. It is compiled as both. */
#include <zoomr_ggml.h>

int pass_graph(zoomr_ggml* z, int32_t n_tokens, const int32_t* token, const int32_t* pos, int32_t* const* seq_id);

int pass_graph(zoomr_ggml* z, int32_t n_tokens, const int32_t* token, const int32_t* pos, int32_t* const* seq_id) {
  zoomr_ggml_batch batch = {0, NULL, NULL, NULL, NULL, NULL};
  batch.n_tokens = n_tokens, batch.token = token, batch.pos = pos, batch.seq_id = seq_id;
  if (zoomr_ggml_begin(z, &batch) != ZOOMR_GGML_SUCCESS) return -1;
  return zoomr_ggml_commit(z);
}
