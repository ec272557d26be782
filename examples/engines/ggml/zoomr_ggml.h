/* SPDX-License-Identifier: Apache-2.0
 *
 * zoomr in place of the KV cache of an engine that is built on ggml: attention as a node of its graphs, sequences and
 * edits in the words of llama.h. Plain C: engines in C and C++ include it, whatever standard they are compiled for.
 *
 *     zoomr_ggml * z = zoomr_ggml_init(&params);                  once for each context
 *     cur = zoomr_ggml_attn(z, ctx, q, k, v, kq_scale, layer);    in each layer, while a graph is built
 *     zoomr_ggml_begin(z, &batch);  compute;  zoomr_ggml_commit(z);      around each graph that is computed
 *
 * Calls return a zoomr_ggml_status; 0 is success. Nothing is thrown. After another one zoomr_ggml_error says why, and
 * nothing has changed unless it is said below. One call at a time for each zoomr_ggml.
 */
#ifndef ZOOMR_GGML_H
#define ZOOMR_GGML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ggml_context;
struct ggml_tensor;

typedef struct zoomr_ggml zoomr_ggml;

enum zoomr_ggml_status {
  ZOOMR_GGML_SUCCESS = 0,
  ZOOMR_GGML_NO_ROOM = 1,   /* too many tokens, sequences or segments: remove some, and call again */
  ZOOMR_GGML_REFUSED = -1,  /* the call cannot be: a mistake, or something that is not supported */
  ZOOMR_GGML_NOT_KEPT = -2, /* of what is to be removed, or gone back to, something is not held any more */
  ZOOMR_GGML_FAILED = -3    /* a damaged state, no memory */
};

/* What a token is for policies that look for sentences and thoughts: flags. */
enum zoomr_ggml_class {
  ZOOMR_GGML_PLAIN = 0,
  ZOOMR_GGML_DELIMITER = 1, /* ends a sentence */
  ZOOMR_GGML_THOUGHT_BEGIN = 2,
  ZOOMR_GGML_THOUGHT_END = 4,
  ZOOMR_GGML_SUMMARY_BEGIN = 8,
  ZOOMR_GGML_SUMMARY_END = 16,
  ZOOMR_GGML_MESSAGE = 128 /* begins a message of a conversation, as <|im_start|> does */
};

/* What tokens of a span are to a policy: docs/engine.md, "Spans". */
enum zoomr_ggml_role {
  ZOOMR_GGML_PINNED = 1,  /* every later token reads them; never evicted: a system message, tools */
  ZOOMR_GGML_QUESTION = 2 /* the same until a later prompt that has a question ends; heads that vote hear it whole */
};

/* How keys are rotated, in the words of llama.cpp's hparams and cparams. */
typedef struct zoomr_ggml_rope {
  int32_t n_rot;               /* rotary dimensions of a key, even; 0: it has none */
  bool neox;                   /* i and i + n_rot / 2 are turned together, not 2 i and 2 i + 1 */
  float freq_base, freq_scale; /* 10000, 1 */
  const float* factors; /* [n_rot / 2] what frequencies are divided by, as the factors of ggml_rope_ext; NULL: 1 */
} zoomr_ggml_rope;

/* Everything is copied by zoomr_ggml_init. What is 0 or NULL after zoomr_ggml_default_params is not needed. */
typedef struct zoomr_ggml_params {
  int32_t n_layer; /* needed: the model */
  int32_t n_head;
  int32_t n_head_kv;
  int32_t n_embd_head_k;
  int32_t n_embd_head_v; /* 0: that of keys */

  int32_t n_ctx_seq;  /* needed: most tokens of one sequence */
  int32_t n_ctx;      /* of all together; 0: n_seq_max * n_ctx_seq */
  int32_t n_seq_max;  /* 1 */
  int32_t n_ubatch;   /* 512: most tokens of one graph */
  int32_t n_draft;    /* 16: more tokens of one sequence, in one graph after its prompt, are a later prompt */
  int32_t n_rollback; /* 16: how many tokens at the end seq_rm can always take back */
  int32_t n_threads;  /* 1: most threads of a graph that attend together */
  int type_kv;        /* GGML_TYPE_F16 (the default), F32, Q8_0 or Q4_0: how keys and values are stored; of the last two
                         rows are multiples of 32 wide, and rounded by zoomr */

  float logit_softcap;   /* 0: none */
  const int32_t* window; /* [n_layer] of sliding-window layers, as llama.cpp's n_swa; 0: none. These attend to all of
                            their window, whatever the policy */

  const char* policy;          /* "full": a name of zoomr-decode --policy */
  int32_t budget;              /* of it, in tokens; 0: its own */
  const char* const* settings; /* [n_settings] "component.option=value", as zoomr-decode --set */
  int32_t n_settings;
  const uint8_t* classes; /* [n_vocab] flags of zoomr_ggml_class, of policies that read them: zoomr_ggml_classify */
  int32_t n_vocab;
  const float* voters; /* [n_layer * n_head] weights of heads, of policies that ask heads */
  float voters_unsure; /* bits: above this entropy of the heads' posterior a choice is unsure, and the tokens that it
                          serves read everything. INFINITY (the default): none is. It belongs to the weights, as: */
  float voters_none;   /* the logit of its class "none of these segments", which makes a choice unsure too where it has
                          the most votes. -INFINITY (the default): there is no such class */
  float voters_none_slope; /* what ln of the number of segments that can be chosen takes off it; 0 by default */

  zoomr_ggml_rope rope;              /* of all layers, for seq_add, and for heads that vote, by which a named question
                                        before a long text scores from its end; n_rot 0: it is not known, and seq_add is
                                        refused */
  const zoomr_ggml_rope* layer_rope; /* [n_layer] in its place, where layers differ: the sliding ones of Gemma 3 have a
                                        base of their own, and keys of n_rot 0 are not turned. NULL: they do not */
} zoomr_ggml_params;

zoomr_ggml_params zoomr_ggml_default_params(void);

/* NULL: zoomr_ggml_error(NULL) says why. All memory is allocated here. */
zoomr_ggml* zoomr_ggml_init(const zoomr_ggml_params* params);
void zoomr_ggml_free(zoomr_ggml* z);
/* The sentence of the last call that did not succeed; of this thread's last zoomr_ggml_init with NULL. Never NULL. */
const char* zoomr_ggml_error(const zoomr_ggml* z);
/* All that zoomr_ggml_init has allocated for keys, values and their index: what a context's memory breakdown lacks. */
size_t zoomr_ggml_bytes(const zoomr_ggml* z);

/* Which tokens end sentences, by their text: fills classes [n_vocab]. `piece` writes the bytes of a token into buf and
 * returns how many they are, or minus that many where size is too small: llama_token_to_piece, for example. 0 for what
 * is no text. Tokens of thoughts are the engine's to mark afterwards. */
int zoomr_ggml_classify(int32_t n_vocab, int32_t (*piece)(void* user, int32_t token, char* buf, int32_t size),
                        void* user, uint8_t* classes);

/* ---- graphs ---- */

/* Attention of one layer, as a node of ctx that only the CPU backend computes:
 *   q [n_embd_head_k, n_head, n_tokens] f32, rotated; k [n_embd_head_k, n_head_kv, n_tokens], rotated, and
 *   v [n_embd_head_v, n_head_kv, n_tokens], both f32, f16 or bf16; rows contiguous, other strides any
 * kq_scale multiplies products of q and k, as in ggml_flash_attn_ext; 0: 1 / sqrt(n_embd_head_k). It is one for each
 * layer: another one in a later graph is refused. For one that is not 1 / sqrt(n_embd_head_k) q is copied.
 * Returns [n_embd_head_v, n_head, n_tokens] f32, as ggml_flash_attn_ext does, or NULL where the shapes are wrong. There
 * is no mask: a token sees what the policy lets it see of its own sequence. The node may be computed many times, each
 * time between begin and commit. Where that fails its result is zeros, and commit says why. */
struct ggml_tensor* zoomr_ggml_attn(zoomr_ggml* z, struct ggml_context* ctx, struct ggml_tensor* q,
                                    struct ggml_tensor* k, struct ggml_tensor* v, float kq_scale, int32_t layer);

/* The tokens of one graph, in the order of its rows. The arrays are those of llama.cpp's llama_ubatch. */
typedef struct zoomr_ggml_batch {
  int32_t n_tokens;
  const int32_t* token;     /* [n_tokens]; NULL: embeddings, which are plain, whatever classes there are */
  const int32_t* pos;       /* [n_tokens] ascending in each sequence, after all that it holds */
  const int32_t* n_seq_id;  /* [n_tokens] 1 each; NULL: 1 */
  int32_t* const* seq_id;   /* [n_tokens][1] */
  const int8_t* prompt_end; /* [n_tokens] a sequence's prompt ends with its part of the graph if the last token of
                               this part is marked; NULL: if the part is a single token */
} zoomr_ggml_batch;

/* Before a graph is computed. A step that was begun before, and not committed, is dropped. A sequence that is not held
 * is opened. Of a sequence whose prompt has ended more than n_draft tokens are a later prompt, which ends as the first
 * one does. Fewer are passed whole: what they make due is chosen once they are held. So are all under policies that
 * free what they do not reach. Policies that evict tokens while decoding take them only up to where some are evicted:
 * REFUSED then, and zoomr_ggml_split tells before. */
int zoomr_ggml_begin(zoomr_ggml* z, const zoomr_ggml_batch* batch);
/* After it: its tokens are held. Where a node has failed, none are, and the status is that of the failure. */
int zoomr_ggml_commit(zoomr_ggml* z);
/* Instead of commit: the tokens never were. Every call below drops a step that is not committed, too. */
void zoomr_ggml_drop(zoomr_ggml* z);
/* Tokens are evicted while decoding (h2o, r_kv), so that zoomr_ggml_split must be asked before a batch is cut. */
bool zoomr_ggml_needs_split(const zoomr_ggml* z);
/* How many tokens at most a graph can have, so that this batch can be passed graph by graph in its order: n_ubatch, or
 * 1 where tokens are evicted in the middle. The batch is all tokens of a decode, before they are cut. A negative
 * status, if it is refused. */
int32_t zoomr_ggml_split(zoomr_ggml* z, const zoomr_ggml_batch* batch);

/* ---- sequences: as llama_memory_*; p0 < 0 is the beginning, p1 < 0 the end ---- */

int zoomr_ggml_clear(zoomr_ggml* z);
/* seq < 0: of all, or of none; only where room for pages that are shared runs out (NO_ROOM) some have lost theirs.
 * SUCCESS is final: what cannot be removed is refused at once (NOT_KEPT where tokens were evicted, or freed), so that
 * an engine asks before it changes its own bookkeeping. Removed tokens in between keep their place until the next call
 * that changes anything: a seq_add of the tokens after them writes rows once. */
int zoomr_ggml_seq_rm(zoomr_ggml* z, int32_t seq, int32_t p0, int32_t p1);
/* A part too, in place of what dst holds. REFUSED if it leaves no token of a prompt that has ended, NOT_KEPT as seq_rm:
 * dst is what it was then. Where room runs out (NO_ROOM) dst is gone. */
int zoomr_ggml_seq_cp(zoomr_ggml* z, int32_t src, int32_t dst, int32_t p0, int32_t p1);
int zoomr_ggml_seq_keep(zoomr_ggml* z, int32_t seq);
/* Any span, as far as its neighbours: REFUSED if tokens would have the positions of others. Right after a seq_rm in
 * between, of all tokens after it, the shift of a context, rows are written once. */
int zoomr_ggml_seq_add(zoomr_ggml* z, int32_t seq, int32_t p0, int32_t p1, int32_t delta);
/* Refused, unless there is nothing to divide. */
int zoomr_ggml_seq_div(zoomr_ggml* z, int32_t seq, int32_t p0, int32_t p1, int32_t d);
/* Names tokens that are still to come of a sequence, which need not be held yet: those with the positions [p0, p1), of
 * a zoomr_ggml_role, however they are cut into graphs. p0 < 0 is the next position, p1 < 0 the end of the next prompt,
 * or of the one that is coming. REFUSED if some are held already, or in another span. seq_rm takes such names back with
 * its positions, seq_cp and state_set all of the sequence that they make: so name spans after them, and again what was
 * removed before it is passed again. Where the policy has no room for a span zoomr_ggml_begin is REFUSED: more is
 * pinned than snapkv, h2o, r_kv or sentence_kv keep, or a question has zones.question = 0. Tokens of a question after a
 * prompt are a later prompt, however few. */
int zoomr_ggml_seq_span(zoomr_ggml* z, int32_t seq, int32_t p0, int32_t p1, int role);
/* A context shift is possible at any time: seq_rm in between, then seq_add. False where no layer's rope is known, under
 * policies that evict tokens (sentence_kv, snapkv, h2o, r_kv, with a budget that n_ctx_seq exceeds) or free what no
 * query reaches (window, summary_only), and with sliding-window layers, whose passed tokens are freed. Both calls may
 * be possible then, and say so themselves. */
bool zoomr_ggml_can_shift(const zoomr_ggml* z);
/* Which sequences hold tokens, ascending: writes the first `size` ids, returns how many there are. */
int32_t zoomr_ggml_seq_ids(const zoomr_ggml* z, int32_t* ids, int32_t size);
/* -1: nothing is held. A copy has positions of its own: those that an engine keeps of cells that sequences share do not
 * know them after a seq_add. */
int32_t zoomr_ggml_seq_pos_min(const zoomr_ggml* z, int32_t seq);
int32_t zoomr_ggml_seq_pos_max(const zoomr_ggml* z, int32_t seq);
/* Its prompt has not ended, so that it attends to everything. */
bool zoomr_ggml_in_prompt(const zoomr_ggml* z, int32_t seq);

/* ---- state of one sequence ---- */

/* Nothing of keys and values is read. 0: nothing is held, or it failed. */
size_t zoomr_ggml_state_size(zoomr_ggml* z, int32_t seq);
/* Bytes written to dst, or 0. */
size_t zoomr_ggml_state_get(zoomr_ggml* z, int32_t seq, void* dst, size_t size);
/* Bytes read of src, or 0: a byte that was changed anywhere is found. What seq holds is removed before. Under the same
 * parameters every later bit is the same. */
size_t zoomr_ggml_state_set(zoomr_ggml* z, int32_t seq, const void* src, size_t size);

typedef struct zoomr_ggml_stats {
  int64_t prompt_tokens;  /* held of the prompt, over its life */
  int64_t tokens;         /* after it */
  double attended_tokens; /* mean of those, layers and heads */
  int64_t choices;
  double unsure_share; /* of the tokens after it, dropped ones too: those that read everything since a choice was
                          unsure (voters_unsure, voters_none) */
  size_t bytes;        /* keys, values and their index, now */
} zoomr_ggml_stats;
int zoomr_ggml_seq_stats(const zoomr_ggml* z, int32_t seq, zoomr_ggml_stats* stats);

#ifdef __cplusplus
}
#endif

#endif
