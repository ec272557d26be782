// SPDX-License-Identifier: Apache-2.0
// The least that runs: a cache, a prompt, twenty tokens, by made-up numbers in place of a model. From the root of the
// repository: g++ -std=c++20 -O2 -I include examples/minimal/first.cpp -o first && ./first
#include <zoomr/zoomr.hpp>

#include <cstdio>
#include <vector>

int main() {
  using namespace zoomr;
  constexpr shape model{.layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 16};
  const std::vector<token_class> classes = {token_class::delimiter, {}, {}, {}, {}};  // token 0 is the full stop

  // Sentences, found by their mean keys: the best two are read, beside the first 4 tokens and the last 12.
  constexpr auto policy = compose(sentences{.longest = 16}, key_mean{}, mean_dot{}, top_k{.segments = 2}, every_token{},
                                  zones{.sinks = 4, .recent = 12, .open = 16});
  kv_cache cache(model, policy, config{.max_tokens = 256, .classes = classes});
  const sequence seq = cache.open();

  unsigned state = 1;  // of the numbers
  const auto draw = [&](int heads, int tokens) {
    std::vector<float> rows(static_cast<std::size_t>(tokens * heads * model.head_dim));
    for (float& x : rows) x = static_cast<float>((state = state * 1664525u + 1013904223u) >> 16) / 32768.0f - 1.0f;
    return rows;
  };
  const auto pass = [&](const std::vector<token_id>& ids, bool prompt_ends) {
    auto step = cache.begin(seq, ids, prompt_ends);
    const int tokens = step.tokens();
    for (int layer = 0; layer < model.layers; ++layer) {
      const auto queries = draw(model.heads, tokens), keys = draw(model.kv_heads, tokens);
      const auto values = draw(model.kv_heads, tokens);
      std::vector<float> out(queries.size());
      const extents<3> of_heads{{tokens, model.heads, model.head_dim}};
      const extents<3> of_kv_heads{{tokens, model.kv_heads, model.head_dim}};
      step.append(layer, {keys.data(), of_kv_heads}, {values.data(), of_kv_heads});
      step.attend(layer, {queries.data(), of_heads}, {out.data(), of_heads});  // a model goes on with `out`
    }
    step.commit();
  };

  std::vector<token_id> prompt;
  for (token_id id = 0; id < 100; ++id) prompt.push_back((id + 1) % 5);  // twenty sentences of five tokens
  pass(prompt, true);
  for (token_id id = 0; id < 20; ++id) pass({(id + 1) % 5}, false);

  const statistics cost = cache.stats(seq);
  std::printf("%d tokens are held; a token after the prompt attended to %.1f of them\n", cache.tokens(seq),
              cost.attended_mean(model));
  std::printf("%.1f KiB on a device at the most\n", static_cast<double>(cost.device_peak) / 1024);
}
