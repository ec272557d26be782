// SPDX-License-Identifier: Apache-2.0
// A program of somebody who has installed zoomr: one token that attends to itself gets its own value back.
#include <zoomr/zoomr.hpp>

#include <vector>  // std::vector

int main() {
  const zoomr::shape model{.layers = 1, .heads = 2, .kv_heads = 1, .head_dim = 8};
  const std::vector<zoomr::token_class> classes(4);
  zoomr::kv_cache cache{model, zoomr::presets::sentence_kv, zoomr::config{.max_tokens = 64, .classes = classes}};
  const std::vector<zoomr::token_id> ids{0};
  const std::vector<float> query(16, 1.0f), key(8, 0.5f), value(8, 0.25f);
  std::vector<float> out(16);
  auto step = cache.begin(cache.open(), ids);
  step.append(0, {key.data(), {1, 1, 8}}, {value.data(), {1, 1, 8}});
  step.attend(0, {query.data(), {1, 2, 8}}, {out.data(), {1, 2, 8}});
  step.commit();
  return out == std::vector<float>(16, 0.25f) ? 0 : 1;
}
