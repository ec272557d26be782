// SPDX-License-Identifier: Apache-2.0
// Compiles only if user code can be written as the documentation shows it. Nothing here is run.
#include <zoomr/zoomr.hpp>

#include <vector>  // std::vector

namespace {

constexpr auto mine =
    zoomr::compose(zoomr::sentences{.longest = 256}, zoomr::key_mean{}, zoomr::mean_dot{},
                   zoomr::fill_budget{.tokens = 1024}, zoomr::every_token{}, zoomr::zones{.sinks = 32, .recent = 32});

}  // namespace

// Deduction takes the policy's type from its value; the storage type is float unless it is named.
static_assert(std::same_as<decltype(zoomr::kv_cache{zoomr::shape{}, mine, zoomr::config{}}),
                           zoomr::kv_cache<std::remove_const_t<decltype(mine)>, float>>);
using cache_in_bfloat16 = zoomr::kv_cache<std::remove_const_t<decltype(mine)>, zoomr::bfloat16>;

// A step is passed on, never copied: it is one transaction.
using step_of_mine = zoomr::kv_cache<std::remove_const_t<decltype(mine)>>::step_type;
static_assert(std::is_move_constructible_v<step_of_mine> && !std::is_copy_constructible_v<step_of_mine>);
static_assert(!std::is_copy_assignable_v<step_of_mine>);

// Vectors are views; mutable views are views of constants; temporaries serve for a call.
static_assert(std::is_convertible_v<std::vector<zoomr::token_id>&, zoomr::view<const zoomr::token_id>>);
static_assert(std::is_convertible_v<zoomr::view<float, 3>, zoomr::view<const float, 3>>);
static_assert(!std::is_convertible_v<const std::vector<float>&, zoomr::view<float>>);

void decode(const std::vector<zoomr::token_id>& prompt, std::vector<float>& numbers);
void decode(const std::vector<zoomr::token_id>& prompt, std::vector<float>& numbers) {
  const zoomr::shape shape{.layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 64};
  const std::vector<zoomr::token_class> classes{zoomr::token_class::plain, zoomr::token_class::delimiter};
  zoomr::kv_cache cache{shape, mine, zoomr::config{.max_tokens = 4096, .classes = classes}};
  const zoomr::sequence seq = cache.open();
  auto step = cache.begin(seq, prompt, true);
  const zoomr::view<float, 3> keys(numbers.data(), {step.tokens(), 2, 64});
  const zoomr::view<float, 3> queries(numbers.data(), {step.tokens(), 4, 64});
  for (zoomr::index_t layer = 0; layer < shape.layers; ++layer) {
    step.append(layer, keys, keys);
    step.attend(layer, queries, queries);
  }
  if (!step.needs_second_pass(step.tokens())) step.commit();
  cache.rollback(seq, 1);
}
