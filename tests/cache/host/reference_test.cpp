// SPDX-License-Identifier: Apache-2.0
// What each preset attends, and what it gives, against the naive reference in double.
#include <cache/support/against_reference.hpp>
#include <cache/support/players.hpp>

namespace zoomr_test {
namespace {

constexpr kind all_kinds[] = {kind::uniform, kind::peaked, kind::ties, kind::integers, kind::with_infinities};
constexpr markup all_markup[] = {markup::pairs, markup::summaries_alone, markup::sentences, markup::no_delimiter,
                                 markup::stray};

template <class Policy>
constexpr bool uses_softmax = std::same_as<decltype(Policy::aggregate), zoomr::head_mass> ||
                              std::same_as<decltype(Policy::aggregate), zoomr::pooled_mass> ||
                              std::same_as<decltype(Policy::aggregate), zoomr::head_posterior>;

/// Integers are exact in float up to means of 8 keys; a softmax never is.
template <class Policy>
bool is_exact(const Policy& policy, kind look, const shape& model) {
  const bool votes_exact = !uses_softmax<Policy>;
  const bool keeps_all = policy.evict.kept(zoomr::unlimited) == zoomr::unlimited;
  return (look == kind::integers || look == kind::ties) && votes_exact && keeps_all && policy.segment.longest <= 8 &&
         model.head_dim <= 16;
}

template <class Policy>
Policy without_close_calls(Policy policy) {
  if constexpr (!std::same_as<decltype(policy.segment), zoomr::unsegmented>) policy.segment.longest = 8;
  if constexpr (decltype(policy.evict)::observes) policy.evict.tokens = zoomr::unlimited;
  return policy;
}

TEST_CASE("every preset attends the positions of the naive reference, and gives its outputs") {
  for_each_preset([](const char* name, const auto& preset) {
    comparison all;
    std::uint64_t seed = 1;
    for (const kind look : all_kinds) {
      for (const markup text : all_markup) {
        for (const index_t head_dim : {8, 40}) {
          const shape model{2, 4, 2, head_dim};
          const tape says = make_tape(model, look, text, 211, 61, ++seed);
          CAPTURE(std::string(name));
          CAPTURE(seed);
          auto policy = preset;
          if (look == kind::ties || look == kind::integers) {  // other ties than exact ones are close calls
            if (head_dim > 16) continue;
            policy = without_close_calls(policy);
          }
          check_against_reference(policy, says, limits_for(says.size()), is_exact(policy, look, model), all);
        }
      }
    }
    check_rarely_stopped(name, all);
  });
}

TEST_CASE("sentences that end at marks before blanks, and blocks of code, are those of the naive reference") {
  const auto check = [](const auto& policy) {
    comparison all;
    for (const std::uint64_t seed : {1u, 2u, 3u}) {
      const tape says = make_tape({2, 4, 2, 8}, kind::uniform, markup::marks, 211, 61, seed);
      check_against_reference(policy, says, limits_for(says.size()), false, all);
    }
  };
  check(zoomr::presets::sentence_kv);
  check(zoomr::presets::sentence_kv_published);
  check(zoomr::presets::zoomr_focus);
  check(zoomr::compose(zoomr::code_segments{.longest = 20, .shortest_block = 6}, zoomr::key_mean{},
                       zoomr::running_mean{}, zoomr::fill_budget{.tokens = 40}, zoomr::every_token{},
                       zoomr::zones{.sinks = 4, .recent = 6, .open = 30}));
}

TEST_CASE("an evictor and a choice in one policy are those of the naive reference, whatever the selector") {
  comparison all;
  const auto check = [&](const auto& select) {
    const auto policy =
        zoomr::compose(zoomr::fixed_pages{.longest = 4}, zoomr::observation_window{.tokens = 60, .queries = 8},
                       zoomr::key_box{}, zoomr::box_bound{}, zoomr::pooled_score{.over_group = zoomr::pool::max},
                       select, zoomr::every_token{}, zoomr::zones{.recent = 6, .open = zoomr::unlimited});
    for (const std::uint64_t seed : {1u, 2u, 3u}) {
      const tape says = make_tape({2, 4, 2, 8}, kind::peaked, markup::sentences, 211, 61, seed);
      check_against_reference(policy, says, limits_for(says.size()), false, all);
    }
  };
  check(zoomr::fill_budget{.tokens = 40});
  check(zoomr::top_k{.segments = 3});
  check_rarely_stopped("an evictor and a choice", all);
}

TEST_CASE("integer inputs leave no close call: every preset that does not use a softmax is exactly the reference") {
  for_each_preset([](const char* name, auto preset) {
    preset = without_close_calls(preset);
    if constexpr (uses_softmax<decltype(preset)>) return;
    comparison all;
    for (std::uint64_t seed = 1; seed <= 15; ++seed) {
      const shape model{2, seed % 4 == 0 ? 6 : 4, seed % 4 == 0 ? 3 : static_cast<index_t>(seed % 2) + 1, 8};
      const kind look = seed % 3 == 0 ? kind::ties : kind::integers;
      const tape says = make_tape(model, look, all_markup[seed % 5], 300, 73, seed * 977);
      CAPTURE(std::string(name));
      CAPTURE(seed);
      check_against_reference(preset, says, limits_for(says.size()), true, all);
    }
    check_rarely_stopped(name, all);
  });
}

TEST_CASE("ugly sizes: prompts and texts around a page, prime lengths, all group sizes and head dimensions") {
  for_each_preset([](const char* name, const auto& preset) {
    comparison all;
    std::uint64_t seed = 5000;
    for (const index_t prompt : {1, 15, 16, 17, 31, 33, 97}) {
      for (const index_t group : {1, 2, 3, 4}) {
        constexpr index_t dims[] = {8, 24, 64, 256};
        const index_t head_dim = dims[seed % 4];
        const shape model{1 + group % 2, 2 * group, 2, head_dim};
        const index_t generated = prompt % 2 == 0 ? 17 : 31;
        ++seed;
        const tape says = make_tape(model, kind::uniform, all_markup[seed % 5], prompt + generated, prompt, seed);
        CAPTURE(std::string(name));
        CAPTURE(seed);
        auto policy = preset;
        if constexpr (decltype(policy.evict)::observes) {
          if constexpr (requires { policy.evict.queries; }) policy.evict.queries = std::min<index_t>(prompt, 8);
          policy.evict.tokens = 19;
        }
        check_against_reference(policy, says, limits_for(says.size()), false, all);
      }
    }
    check_rarely_stopped(name, all);
  });
}

TEST_CASE("a cache in bfloat16 is the reference over rounded keys and values") {
  for_each_preset([](const char* name, const auto& preset) {
    comparison all;
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      const tape says = make_tape({2, 4, 2, 48}, all_kinds[seed % 2], all_markup[seed % 5], 171, 53, seed * 31);
      CAPTURE(std::string(name));
      CAPTURE(seed);
      check_against_reference<zoomr::bfloat16>(preset, says, limits_for(says.size()), false, all);
    }
    check_rarely_stopped(name, all);
  });
}

}  // namespace
}  // namespace zoomr_test
