// SPDX-License-Identifier: Apache-2.0
// The README's program, with an engine around it. check.py compares what lies between the marks.
// [readme]
#include <zoomr/zoomr.hpp>
using namespace zoomr;

// Sentences, found by their mean keys; the best are attended, the last of them in part, until 1,024 tokens are read.
constexpr auto mine = compose(sentences{.longest = 256}, key_mean{}, mean_dot{}, fill_budget{.tokens = 1024},
                              every_token{}, zones{.sinks = 32, .recent = 32, .open = 992});

auto make_cache(const shape& model, class_table classes) {  // classes[id] says which token ids end sentences
  return kv_cache{model, mine, config{.max_tokens = 32768, .classes = classes}};
}

// Passes a chunk of the prompt, a token, or a draft, and returns how many tokens became part of the sequence.
template <class Cache, class Engine>
int pass(Cache& cache, Engine& engine, sequence seq, view<const token_id> ids, bool prompt_ends = false) {
  auto step = cache.begin(seq, ids, prompt_ends);
  int accepted = 0;
  do {  // once, or twice if the policy has a second pass
    for (int layer = 0; layer < cache.model().layers; ++layer) {
      // queries, out [tokens, heads, head_dim]; keys, values [tokens, kv_heads, head_dim]
      auto [queries, keys, values, out] = engine.project(layer, step.tokens());
      step.append(layer, keys, values);  // pending until commit
      step.attend(layer, queries, out);  // to what the policy chooses
      engine.feed_forward(layer, step.tokens());
    }
    if (accepted == 0) accepted = engine.accept(step.taken(0));  // of a draft, what verifies
  } while (step.needs_second_pass(accepted));
  step.commit(accepted);
  return accepted;
}
// [readme]

#include <cstdio>
#include <vector>

namespace {

/// Stands for an engine: its projections are made-up numbers.
struct toy_engine {
  shape model;
  std::vector<float> numbers = std::vector<float>(4096, 0.5f);
  std::vector<float> result = std::vector<float>(4096);
  float sum = 0;

  struct projected {
    view<const float, 3> queries, keys, values;
    view<float, 3> out;
  };
  projected project(int, int tokens) {
    const extents<3> of_heads{{tokens, model.heads, model.head_dim}};
    const extents<3> of_kv_heads{{tokens, model.kv_heads, model.head_dim}};
    return {{numbers.data(), of_heads},
            {numbers.data(), of_kv_heads},
            {numbers.data(), of_kv_heads},
            {result.data(), of_heads}};
  }
  void feed_forward(int, int) { sum += result[0]; }
  int accept(int taken) const { return taken; }
};

}  // namespace

int main() {
  const shape model{.layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 16};
  std::vector<token_class> classes(100);
  classes[7] = token_class::delimiter;
  auto cache = make_cache(model, classes);
  const config limits{.max_tokens = 256, .classes = classes};
  kv_cache<policy_of<mine>, bfloat16> in_16_bits{model, mine, limits};
  const bool halved = in_16_bits.capacity().total() < kv_cache<policy_of<mine>>::bytes(model, mine, limits).total();
  toy_engine engine{model};
  const sequence seq = cache.open();
  pass(cache, engine, seq, std::vector<token_id>{1, 2, 3, 7, 5}, true);
  for (token_id id = 10; id < 20; ++id) pass(cache, engine, seq, std::vector<token_id>{id});
  std::printf("%d tokens, the sum of equal values is %.3f\n", cache.tokens(seq), static_cast<double>(engine.sum));
  const bool averages = engine.sum > 10.999f && engine.sum < 11.001f;  // 11 passes * 2 layers * 0.5
  return cache.tokens(seq) == 15 && averages && halved ? 0 : 1;
}
