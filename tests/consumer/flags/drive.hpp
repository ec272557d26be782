// SPDX-License-Identifier: Apache-2.0
// What the programs here do with the library. It is included behind the headers of zoomr, the macros and the
// using-directives that a program is about, and says the library's names alone.
#pragma once

constexpr auto mine = compose(sentences{.longest = 16}, key_mean{}, mean_dot{}, fill_budget{.tokens = 32},
                              every_token{}, zones{.sinks = 4, .recent = 4});
constexpr auto mine_in_tiers =
    compose(fixed_pages{}, key_box{}, box_bound{}, top_k{.segments = 1}, every_token{}, tiered<>{});

constexpr shape small_model{.layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 8};

/// The keys and values of a chunk: all values are the same, and so are the outputs, whatever is attended.
struct chunk {
  explicit chunk(index_t tokens) : length(tokens) {
    keys.resize(static_cast<std::size_t>(tokens * small_model.kv_heads * small_model.head_dim), 0.5f);
    values.resize(keys.size(), 0.25f);
    queries.resize(static_cast<std::size_t>(tokens * small_model.heads * small_model.head_dim), 1.0f);
    out.resize(queries.size());
  }

  template <class Step>
  void append(Step& step, index_t layer) const {
    const extents<3> extent{{length, small_model.kv_heads, small_model.head_dim}};
    step.append(layer, view<const float, 3>(keys.data(), extent), view<const float, 3>(values.data(), extent));
  }
  template <class Step>
  bool attend(Step& step, index_t layer) {
    const extents<3> extent{{length, small_model.heads, small_model.head_dim}};
    step.attend(layer, view<const float, 3>(queries.data(), extent), view<float, 3>(out.data(), extent));
    bool good = true;
    for (const float x : out) good = good && x > 0.2499f && x < 0.2501f;
    return good;
  }

  index_t length;
  std::vector<float> keys, values, queries, out;
};

/// Passes tokens, and says whether their outputs are what they must be.
template <class Cache>
bool pass(Cache& cache, sequence seq, index_t tokens, bool prompt_ends) {
  const std::vector<token_id> ids(static_cast<std::size_t>(tokens), token_id{0});
  auto step = cache.begin(seq, ids, prompt_ends);
  chunk of(step.tokens());
  bool good = true;
  for (index_t layer = 0; layer < small_model.layers; ++layer) {
    of.append(step, layer);
    good = of.attend(step, layer) && good;
  }
  step.commit();
  return good;
}

template <class Cache>
bool decode(Cache& cache) {
  const sequence seq = cache.open();
  bool good = pass(cache, seq, 48, false) && pass(cache, seq, 52, true);
  for (int i = 0; i < 20; ++i) good = pass(cache, seq, 1, false) && good;
  good = good && cache.tokens(seq) == 120;
  cache.close(seq);
  return good;
}

/// Caches of several kinds: of a policy, of a preset, whatever its policy, in tiers, with threads.
inline bool drive() {
  std::vector<token_class> classes{token_class::plain};
  thread_pool pool(2);
  config limits{.max_tokens = 128, .classes = classes};
  limits.threads = pool;
  kv_cache cache{small_model, mine, limits};
  bool good = decode(cache);

  limits.threads = {};
  any_kv_cache<bfloat16> found = kv_cache<policy_of<presets::quest>, bfloat16>{small_model, presets::quest, limits};
  good = decode(found) && good;

  limits.tiers = {.host = 1 << 19, .file = 1 << 20, .path = "/tmp"};
  kv_cache in_tiers{small_model, mine_in_tiers, limits};
  good = decode(in_tiers) && good;
  return good;
}
