// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <zoomr/zoomr.hpp>

#include <string>  // std::string
#include <vector>  // std::vector

namespace zoomr {

namespace {

template <class Policy>
std::string problem(const Policy& policy) {
  const char* sentence = policy.problem();
  return sentence == nullptr ? "" : sentence;
}

struct loudest : pooled_score {
  constexpr const char* problem() const { return nullptr; }
  friend constexpr bool operator==(const loudest&, const loudest&) = default;
};

}  // namespace

TEST_CASE("the first component with a problem is named") {
  CHECK(problem(compose(sentences{.longest = 0}, key_mean{}, fill_budget{.tokens = 0})) ==
        "sentences: longest must be at least 1");
  CHECK(problem(compose(sentences{}, key_mean{}, fill_budget{.tokens = 0})) ==
        "fill_budget: tokens must be at least 1");
  CHECK(problem(compose(zones{.recent = 0})) == "zones: recent must be at least 1, the token itself");
}

TEST_CASE("a window may begin at whole pages only") {
  constexpr zones whole{.sinks = 3, .recent = 8, .align = 4};
  CHECK(whole.back(10, 0, 0) == 4);  // 11 tokens, of which the last 8 would be from 3 on
  CHECK(whole.back(11, 0, 0) == 4);  // from 4 on
  CHECK(whole.back(12, 0, 0) == 8);  // from 5 on
  CHECK(whole.back(1, 0, 0) == 2);   // all are sinks
  CHECK(whole.back(5, 0, 0) == 3);
  CHECK(problem(compose(whole)) == "");
  const std::string sentence = "zones: align must lie in [1, recent], so that the token itself is attended";
  CHECK(problem(compose(zones{.recent = 8, .align = 9})) == sentence);
  CHECK(problem(compose(zones{.recent = 8, .align = 0})) == sentence);
}

TEST_CASE("a budget that its zones do not fit into is a problem of the pair") {
  const auto with = [](index_t tokens) {
    return compose(sentences{}, key_mean{}, fill_budget{.tokens = tokens}, every_token{},
                   zones{.sinks = 32, .recent = 32});
  };
  CHECK(problem(with(64)) == "");
  CHECK(problem(with(63)) == "the budget is smaller than sinks + window: raise tokens, or lower sinks or recent");
}

TEST_CASE("eviction per KV head needs a selection per KV head or query head") {
  const auto with = [](scope per) {
    return compose(sentences{}, observation_window{.tokens = 64}, key_mean{}, head_votes{.per = per}, fill_budget{},
                   every_token{});
  };
  CHECK(problem(with(scope::head)) == "");
  CHECK(problem(with(scope::kv_head)) == "");
  CHECK(problem(with(scope::layer)) ==
        "each KV head keeps tokens of its own, so the selection must be per KV head or query head");
  CHECK(problem(with(scope::sequence)) != "");
}

TEST_CASE("a question fits what an evictor keeps, and such a policy pins no preamble") {
  const auto with = [](index_t tokens, zones zone) {
    return problem(compose(observation_window{.tokens = tokens, .queries = 8}, zone));
  };
  CHECK(with(32, {.sinks = 4, .question = 20}) == "");
  CHECK(with(32, {.sinks = 4, .question = 21}) ==
        "zones: sinks, question and the last tokens that the evictor keeps in any case must fit what it keeps");
  CHECK(with(32, {.sinks = 40}) == "");
  CHECK(with(unlimited, {.sinks = 4, .question = 21}) == "");
  CHECK(with(32, {.sinks = 4, .preamble = 1}) ==
        "zones: an evictor that observes keeps no preamble: raise sinks, or name a span, and set preamble to 0");
}

TEST_CASE("a placement that frees what is unreachable takes no selector, no eviction and no dense layers") {
  const std::string sentence =
      "a placement that frees what is unreachable evicts for good: it takes no selector, refresh, eviction or dense "
      "layers";
  CHECK(problem(compose(zones{.sinks = 4}, placement{.frees_unreachable = true})) == "");
  CHECK(problem(compose(thoughts{}, key_mean{}, select_none{}, placement{.frees_unreachable = true})) ==
        "");  // summaries alone may be made
  CHECK(problem(compose(thoughts{}, key_mean{}, top_k{}, placement{.frees_unreachable = true})) == sentence);
  CHECK(problem(compose(observation_window{.tokens = 64}, placement{.frees_unreachable = true})) == sentence);
  CHECK(problem(compose(zones{.dense_layers = 1}, placement{.frees_unreachable = true})) == sentence);
}

TEST_CASE("a policy shows its components and their fields, and lets them be set") {
  auto mine = presets::quest;
  std::vector<std::string> names;
  mine.each_component(mine, [&](const auto& part) { names.push_back(part.name); });
  CHECK(names == std::vector<std::string>{"fixed_pages", "keep_all", "key_box", "last_query", "box_bound",
                                          "pooled_score", "top_k", "every_token", "zones", "placement"});
  mine.each_component(mine, [](auto& part) {
    each_field_of(part, [](const std::string& field, auto& value) {
      if constexpr (std::is_same_v<decltype(value), index_t&>) {
        if (field == "segments") value = 7;
      }
    });
  });
  CHECK(mine.select.segments == 7);
  CHECK(mine != presets::quest);
}

TEST_CASE("sentence_kv_with keeps `ratio` times its budget of the prompt, or all of it") {
  CHECK(presets::sentence_kv_with(100, 3.0f).evict.tokens == 300);
  CHECK(presets::sentence_kv_with(100, 0.5f).evict.tokens == 50);
  CHECK(presets::sentence_kv_with(100, 0.0f).evict.tokens == unlimited);
  CHECK(presets::sentence_kv_with(unlimited, 3.0f).evict.tokens == unlimited);
  CHECK(presets::sentence_kv_with(128, 3.0f).select.tokens == 128);
  CHECK(presets::sentence_kv_with(128, 3.0f).zone.open == 96);
  CHECK(problem(presets::sentence_kv_with(0, 3.0f)) != "");
}

TEST_CASE("presets have the published numbers") {
  CHECK(presets::zoomr_one_pass.aggregate.k == 2);
  CHECK(presets::zoomr_one_pass.aggregate.per == scope::sequence);
  CHECK(presets::zoomr_one_pass.select.segments == 2);
  CHECK(presets::zoomr_one_pass.select.tokens == unlimited);
  CHECK_FALSE(presets::zoomr_one_pass.refresh.second_pass);
  CHECK(presets::zoomr_second_pass.refresh.second_pass);
  CHECK(presets::zoomr_second_pass.aggregate.k == 2);
  CHECK(presets::zoomr_second_pass.select.segments == 2);
  CHECK(presets::zoomr_mass.refresh.second_pass);
  CHECK(presets::zoomr_one_pass.zone.prompt);

  CHECK(presets::sentence_kv.select.tokens == 1024);
  CHECK(presets::sentence_kv.evict.tokens == 3072);
  CHECK(presets::sentence_kv.evict.queries == 32);
  CHECK(presets::sentence_kv.evict.pooling == 7);
  CHECK(presets::sentence_kv.zone.sinks == 32);
  CHECK(presets::sentence_kv.zone.recent == 32);
  CHECK(presets::sentence_kv.refresh.everything_until == 0);
  CHECK(presets::sentence_kv_published.refresh.everything_until == 1);

  CHECK(presets::quest.segment.longest == 16);
  CHECK(presets::quest.zone.dense_layers == 2);
  CHECK(presets::window.zone.sinks == 4);
  CHECK(presets::full.zone.recent == unlimited);

  CHECK(presets::arkvale.segment.longest == 32);
  CHECK(presets::arkvale.select.segments == 29);  // and three in the zones
  CHECK(presets::arkvale_with(128).select.segments == 1);
  CHECK(presets::arkvale_with(129).select.segments == 2);
  CHECK(presets::arkvale_with(156, 8).zone.recent == 16);
  CHECK(problem(presets::arkvale_with(96)) != "");
  CHECK(presets::arkvale.aggregate.per == scope::layer);
  CHECK(presets::arkvale.placement.details_on_host);
  CHECK(presets::snapkv.evict.queries == 32);
  CHECK(presets::snapkv.evict.pooling == 7);
  CHECK(presets::snapkv_with(77).evict.tokens == 77);
  CHECK(presets::snapkv.zone.recent == unlimited);
  CHECK(presets::h2o.evict.tokens == 1024);
  CHECK(presets::h2o.evict.recent == 512);
  CHECK(presets::h2o_with(7).evict.recent == 4);
  CHECK(presets::h2o.zone.recent == unlimited);  // all that is kept is attended
  CHECK(presets::r_kv.evict.queries == 8);
  CHECK(presets::r_kv.evict.every == 128);
  CHECK(presets::r_kv.evict.attention == 0.07f);
  CHECK(presets::r_kv_with(300).evict.tokens == 300);
}

TEST_CASE("votes that do not add up are refused for a whole sequence, whoever's aggregator they are") {
  auto mine = compose(fixed_pages{}, key_mean{}, loudest{}, top_k{}, every_token{});
  CHECK(mine.problem() == nullptr);
  mine.aggregate.per = scope::sequence;
  REQUIRE(mine.problem() != nullptr);
  CHECK(std::string(mine.problem()).find("use one whose votes add up") != std::string::npos);
}

}  // namespace zoomr
