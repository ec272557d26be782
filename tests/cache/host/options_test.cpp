// SPDX-License-Identifier: Apache-2.0
// The option matrix: each choice that a policy leaves open, against the naive reference.
#include <cache/support/against_reference.hpp>
#include <cache/support/players.hpp>

namespace zoomr_test::options_test {
namespace {

using namespace zoomr;

constexpr shape model{3, 4, 2, 8};

/// One text in each look and in three kinds of markup.
template <class Policy>
void check_option(const std::string& what, const Policy& policy, index_t min_sparse_context = 0) {
  static std::uint64_t seed = 100000;
  comparison all;
  CAPTURE(what);
  REQUIRE(policy.problem() == nullptr);
  for (const kind look : {kind::uniform, kind::peaked, kind::with_infinities}) {
    for (const markup text : {markup::pairs, markup::sentences, markup::stray}) {
      const tape says = make_tape(model, look, text, 151, 47, ++seed);
      zoomr::config limits = limits_for(says.size());
      limits.min_sparse_context = min_sparse_context;
      CAPTURE(seed);
      check_against_reference(policy, says, limits, false, all);
    }
  }
  CHECK(all.stopped <= 1);
  CHECK((all.queries > 1000 || stride() > 1));
}

constexpr scope all_scopes[] = {scope::sequence, scope::layer, scope::kv_head, scope::head};

/// Every scope, zone and limit of a policy that chooses.
template <class Policy>
void check_options_of(const std::string& name, const Policy& base) {
  using agrees = decltype(base.aggregate);
  constexpr bool pools = std::same_as<agrees, pooled_score> || std::same_as<agrees, pooled_mass>;
  const auto check = [&](const std::string& option, auto change) {
    check_option(name + ", " + option, with(base, change));
  };
  for (const scope per : all_scopes) {
    if (pools && per == scope::sequence) continue;
    if (decltype(base.evict)::observes && per == scope::layer) continue;
    const std::string scoped = "scope " + std::to_string(static_cast<int>(per));
    check(scoped, [&](auto& p) { p.aggregate.per = per; });
    check(scoped + ", candidates, no own summary", [&](auto& p) {
      p.aggregate.per = per;
      p.zone.summaries = summaries_attended::candidates, p.zone.own_summary = false;
    });
    check(scoped + ", a dense layer, a segmented prompt, some of the open segment", [&](auto& p) {
      p.aggregate.per = per;
      p.zone.dense_layers = 1, p.zone.prompt = false, p.zone.open = 9, p.zone.recent = 3;
    });
  }
  check("nothing of the open segment, no sinks, the least window",
        [](auto& p) { p.zone.open = 0, p.zone.sinks = 0, p.zone.recent = 1, p.zone.prompt = false; });
  check("a pinned prompt", [](auto& p) { p.zone.prompt = true, p.zone.sinks = 8, p.zone.recent = 20; });
  check_option(name + ", dense below 90", base, 90);
  if constexpr (pools) {
    check("the best head", [](auto& p) { p.aggregate.over_group = pool::max; });
    check("the mean of the heads", [](auto& p) { p.aggregate.over_group = pool::mean; });
  }
  if constexpr (requires { base.aggregate.k; }) check("one vote", [](auto& p) { p.aggregate.k = 1; });
  if constexpr (requires { base.refresh.second_pass; }) {
    if (base.aggregate.per != scope::sequence) return;
    check("asked again", [](auto& p) { p.refresh.second_pass = true; });
    check("asked again, a segmented prompt", [](auto& p) { p.refresh.second_pass = true, p.zone.prompt = false; });
  }
}

constexpr zones small_zones{.sinks = 2, .recent = 6, .open = unlimited};

TEST_CASE("thoughts by votes at boundaries: every option is the reference's") {
  const auto base = with(small::zoomr_one_pass, [](auto& p) { p.segment.longest = 23, p.zone.prompt = false; });
  check_options_of("votes at boundaries", base);
  for (const index_t at_most : {1, 5}) {
    check_option("at most " + std::to_string(at_most) + " tokens",
                 with(base, [&](auto& p) { p.refresh.at_most = at_most; }));
  }
  for (const index_t most : {1, 3}) {
    check_option("c = " + std::to_string(most), with(base, [&](auto& p) { p.select.segments = most; }));
    check_option("a budget of 10", with(base, [&](auto& p) { p.select.segments = most, p.select.tokens = 10; }));
  }
}

TEST_CASE("thoughts by mass at boundaries: every option is the reference's") {
  check_options_of("mass at boundaries", with(small::zoomr_mass, [](auto& p) { p.segment.longest = 23; }));
}

TEST_CASE("thoughts by mass at every token, by the mean query: every option is the reference's") {
  check_options_of("mass at every token",
                   compose(thoughts{.longest = 23, .prompt_piece = 9, .own_cue = true}, key_mean{}, mean_dot{},
                           head_mass{}, running_mean{}, top_k{.segments = 2}, every_token{}, small_zones));
}

TEST_CASE("sentences by votes at boundaries, by the mean query: every option is the reference's") {
  check_options_of("votes of means at boundaries",
                   compose(sentences{.longest = 12}, key_mean{}, mean_dot{}, head_votes{.k = 3}, running_mean{},
                           fill_budget{.tokens = 30}, boundaries{.at_most = 5}, small_zones));
}

TEST_CASE("pages by pooled bounds at boundaries: every option is the reference's") {
  check_options_of("bounds at boundaries",
                   compose(fixed_pages{.longest = 5}, key_box{}, box_bound{}, pooled_score{},
                           top_k{.segments = 3, .tokens = 13}, boundaries{.at_most = 3}, small_zones));
}

TEST_CASE("sentences by pooled means at every token: every option is the reference's") {
  const auto base = with(small::sentence_kv, [](auto& p) { p.evict.tokens = unlimited; });
  check_options_of("pooled means", base);
  for (const bool cut : {false, true}) {
    for (const index_t budget : {10, 24, 100}) {
      check_option("budget " + std::to_string(budget) + (cut ? ", cut" : ", whole"),
                   with(base, [&](auto& p) { p.select.tokens = budget, p.select.cut = cut; }));
    }
  }
}

TEST_CASE("pages by pooled mass at every token: every option is the reference's") {
  check_options_of("pooled mass", compose(fixed_pages{.longest = 5}, key_mean{}, mean_dot{}, pooled_mass{},
                                          top_k{.segments = 3, .tokens = 13}, every_token{}, small_zones));
}

TEST_CASE("pages by the cuboid of their keys at every token: every option is the reference's") {
  check_options_of("cuboids", compose(fixed_pages{.longest = 6}, key_cuboid{}, box_bound{}, pooled_score{},
                                      top_k{.segments = 3}, every_token{}, small_zones));
  check_option("cuboids of kept sentences",
               compose(sentences{.longest = 11}, key_cuboid{}, box_bound{}, top_k{.segments = 3}, every_token{},
                       observation_window{.tokens = 20, .queries = 5, .pooling = 1}, small_zones));
}

TEST_CASE("eviction: every width, group rule and size keeps the reference's tokens") {
  for (const index_t kept : {8, 13, 30, 46, 47}) {
    for (const index_t pooling : {1, 3, 7}) {
      for (const bool mean : {false, true}) {
        const auto policy = with(small::sentence_kv, [&](auto& p) {
          p.evict.tokens = kept, p.evict.pooling = pooling, p.evict.mean_of_group = mean;
          p.select.tokens = 24, p.segment.longest = 6;
          p.aggregate.per = mean ? scope::head : scope::kv_head;
          p.refresh.everything_until = pooling == 3 ? 1 : 0;
        });
        check_option("kept " + std::to_string(kept) + ", pooling " + std::to_string(pooling), policy);
      }
    }
  }
}

TEST_CASE("eviction while decoding, by accumulated attention: every size is the reference's") {
  for (const index_t kept : {1, 16, 17, 46, 47, 200}) {
    for (const index_t every : {1, 5, 16}) {
      for (const index_t recent : {1, 13}) {
        if (recent > kept) continue;
        const auto policy = compose(accumulated_attention{.tokens = kept, .recent = recent, .every = every},
                                    zones{.sinks = every == 5 ? 4 : 0, .recent = unlimited});
        check_option("sums, kept " + std::to_string(kept) + ", every " + std::to_string(every), policy);
      }
    }
  }
}

TEST_CASE("eviction while decoding, by attention and redundancy: every weight is the reference's") {
  for (const index_t kept : {7, 31, 47, 60}) {
    for (const float attention : {0.0f, 0.1f, 1.0f}) {
      for (const bool mean : {false, true}) {
        const auto policy = compose(redundancy_aware{.tokens = kept,
                                                     .queries = mean ? 1 : 7,
                                                     .every = mean ? 10 : 7,
                                                     .pooling = mean ? 1 : 5,
                                                     .mean_of_group = mean,
                                                     .attention = attention,
                                                     .similar = mean ? 0.2f : 0.5f},
                                    zones{.sinks = 1, .recent = unlimited});
        check_option("distinct, kept " + std::to_string(kept) + ", weight " + std::to_string(attention), policy);
      }
    }
  }
}

TEST_CASE("eviction while decoding, behind a pinned prompt: every size is the reference's") {
  for (const index_t kept : {4, 21, 200}) {
    for (const index_t every : {4, 7}) {
      const zones pinned{.sinks = 2, .recent = unlimited, .prompt = true};
      check_option("sums, kept " + std::to_string(kept),
                   compose(accumulated_attention{.tokens = kept, .recent = 3, .every = every}, pinned));
      check_option("distinct, kept " + std::to_string(kept),
                   compose(redundancy_aware{.tokens = kept, .queries = 3, .every = every}, pinned));
    }
  }
}

TEST_CASE("segments of tokens that are evicted now and then: every option is the reference's") {
  check_options_of("evicting", small::evicting);
  check_options_of("evicting, at every token",
                   compose(fixed_pages{.longest = 5}, key_box{}, box_bound{}, top_k{.segments = 3}, every_token{},
                           redundancy_aware{.tokens = 40, .queries = 3, .every = 9}, small_zones));
}

TEST_CASE("eviction without a selection: each KV head attends what it has kept of its window") {
  check_option("prompt compression", compose(observation_window{.tokens = 24, .queries = 5, .pooling = 3},
                                             zones{.sinks = 2, .recent = unlimited}));
  check_option("with a window",
               compose(observation_window{.tokens = 24, .queries = 5, .pooling = 3}, zones{.sinks = 2, .recent = 40}));
}

}  // namespace
}  // namespace zoomr_test::options_test
