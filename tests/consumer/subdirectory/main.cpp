// SPDX-License-Identifier: Apache-2.0
// A program that has zoomr in its tree, with a policy of its own: what would a cache of it hold?
#include <zoomr/zoomr.hpp>

#include <cstdio>  // std::printf

using namespace zoomr;

constexpr auto mine = compose(sentences{.longest = 256}, key_mean{}, mean_dot{}, fill_budget{.tokens = 1024},
                              every_token{}, zones{.sinks = 32, .recent = 32});

int main() {
  const shape model{.layers = 4, .heads = 8, .kv_heads = 2, .head_dim = 64};
  const memory_use use = kv_cache<std::remove_const_t<decltype(mine)>>::bytes(model, mine, config{.max_tokens = 4096});
  std::printf("details %lld bytes, summaries %lld bytes\n", static_cast<long long>(use.details),
              static_cast<long long>(use.summaries));
  return use.details == 4096LL * 2 * 4 * 2 * 64 * 4 ? 0 : 1;
}
