/* SPDX-License-Identifier: Apache-2.0
 * The adaptor compiled for one storage type and one policy beside `full`: those are there, others are refused. */
#include <ggml.h>
#include <stdio.h>
#include <string.h>
#include <zoomr_ggml.h>

static int failures = 0;

static void expect(int type, const char* policy, const char* part) {
  static const uint8_t classes[8];
  zoomr_ggml_params p = zoomr_ggml_default_params();
  p.n_layer = 1, p.n_head = 2, p.n_head_kv = 1, p.n_embd_head_k = 64, p.n_ctx_seq = 512;
  p.type_kv = type, p.policy = policy;
  p.classes = classes, p.n_vocab = 8;
  zoomr_ggml* const z = zoomr_ggml_init(&p);
  const char* const sentence = z ? "" : zoomr_ggml_error(NULL);
  if (part ? strstr(sentence, part) == NULL : z == NULL) {
    printf("type %d, %s: \"%s\"\n", type, policy, sentence);
    ++failures;
  }
  zoomr_ggml_free(z);
}

int main(void) {
  expect(GGML_TYPE_F16, "full", NULL);
  expect(GGML_TYPE_F16, "quest", NULL);
  expect(GGML_TYPE_F16, "sentence_kv", "ZOOMR_GGML_POLICIES has full,quest");
  expect(GGML_TYPE_F16, "quest2", "no policy");
  expect(GGML_TYPE_Q8_0, "full", "ZOOMR_GGML_TYPES");
  return failures;
}
