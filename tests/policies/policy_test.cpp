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
  const auto with = [](index tokens) {
    return compose(sentences{}, key_mean{}, fill_budget{.tokens = tokens}, every_token{},
                   zones{.sinks = 32, .recent = 32});
  };
  CHECK(problem(with(64)) == "");
  CHECK(problem(with(63)) == "the budget is smaller than sinks + window: raise tokens, or lower sinks or recent");
}

TEST_CASE("retention per KV head needs a selection per KV head or query head") {
  const auto with = [](scope per) {
    return compose(sentences{}, observed_attention{.tokens = 64}, key_mean{}, head_votes{.per = per}, fill_budget{},
                   every_token{});
  };
  CHECK(problem(with(scope::head)) == "");
  CHECK(problem(with(scope::kv_head)) == "");
  CHECK(problem(with(scope::layer)) ==
        "each KV head retains tokens of its own, so the selection must be per KV head or query head");
  CHECK(problem(with(scope::sequence)) != "");
}

TEST_CASE("an evicting store takes no selector, no retention and no dense layers") {
  const std::string sentence =
      "an evicting store gives tokens up for good: it takes no selector, refresh, retention or dense layers";
  CHECK(problem(compose(zones{.sinks = 4}, evicting{})) == "");
  CHECK(problem(compose(thoughts{}, key_mean{}, evicting{})) == "");  // summaries alone may be made
  CHECK(problem(compose(thoughts{}, key_mean{}, best_segments{}, evicting{})) == sentence);
  CHECK(problem(compose(observed_attention{.tokens = 64}, evicting{})) == sentence);
  CHECK(problem(compose(zones{.dense_layers = 1}, evicting{})) == sentence);
}

TEST_CASE("a policy shows its components and their fields, and lets them be set") {
  auto mine = policies::quest;
  std::vector<std::string> names;
  mine.each_component(mine, [&](const auto& part) { names.push_back(part.name); });
  CHECK(names == std::vector<std::string>{"fixed_pages", "keep_everything", "key_box", "last_query", "box_bound",
                                          "pooled_score", "best_segments", "every_token", "zones", "resident"});
  mine.each_component(mine, [](auto& part) {
    part.each_field(part, [](const std::string& field, auto& value) {
      if constexpr (std::is_same_v<decltype(value), index&>) {
        if (field == "segments") value = 7;
      }
    });
  });
  CHECK(mine.select.segments == 7);
  CHECK(mine != policies::quest);
}

TEST_CASE("sentence_kv_with keeps `ratio` times its budget of the prompt, or all of it") {
  CHECK(policies::sentence_kv_with(100, 3.0f).retain.tokens == 300);
  CHECK(policies::sentence_kv_with(100, 0.5f).retain.tokens == 50);
  CHECK(policies::sentence_kv_with(100, 0.0f).retain.tokens == unlimited);
  CHECK(policies::sentence_kv_with(unlimited, 3.0f).retain.tokens == unlimited);
  CHECK(policies::sentence_kv_with(128, 3.0f).select.tokens == 128);
  CHECK(policies::sentence_kv_with(128, 3.0f).zone.open == 96);
  CHECK(problem(policies::sentence_kv_with(0, 3.0f)) != "");
}

TEST_CASE("presets have the published numbers") {
  CHECK(policies::zoomr_one_pass.agree.k == 2);
  CHECK(policies::zoomr_one_pass.agree.per == scope::sequence);
  CHECK(policies::zoomr_one_pass.select.segments == 2);
  CHECK(policies::zoomr_one_pass.select.tokens == unlimited);
  CHECK_FALSE(policies::zoomr_one_pass.refresh.ask_again);
  CHECK(policies::zoomr_second_pass.refresh.ask_again);
  CHECK(policies::zoomr_second_pass.agree.k == 2);
  CHECK(policies::zoomr_second_pass.select.segments == 2);
  CHECK(policies::zoomr_mass.refresh.ask_again);
  CHECK(policies::zoomr_one_pass.zone.prompt);

  CHECK(policies::sentence_kv.select.tokens == 1024);
  CHECK(policies::sentence_kv.retain.tokens == 3072);
  CHECK(policies::sentence_kv.retain.queries == 32);
  CHECK(policies::sentence_kv.retain.pooling == 7);
  CHECK(policies::sentence_kv.zone.sinks == 32);
  CHECK(policies::sentence_kv.zone.recent == 32);
  CHECK(policies::sentence_kv.refresh.everything_until == 0);
  CHECK(policies::sentence_kv_published.refresh.everything_until == 1);

  CHECK(policies::quest.segment.longest == 16);
  CHECK(policies::quest.zone.dense_layers == 2);
  CHECK(policies::window.zone.sinks == 4);
  CHECK(policies::full.zone.recent == unlimited);

  CHECK(policies::lightthinker.zone.prompt);
  CHECK(policies::lightthinker.zone.recent == 1);  // no window: a thought goes when its summary ends
  CHECK(policies::lightthinker.store.evicts);
  CHECK(policies::arkvale.segment.longest == 32);
  CHECK(policies::arkvale.select.segments == 29);  // and three in the zones
  CHECK(policies::arkvale_with(128).select.segments == 1);
  CHECK(policies::arkvale_with(129).select.segments == 2);
  CHECK(policies::arkvale_with(156, 8).zone.recent == 16);
  CHECK(problem(policies::arkvale_with(96)) != "");
  CHECK(policies::arkvale.agree.per == scope::layer);
  CHECK(policies::arkvale.store.offloads);
  CHECK(policies::snapkv.retain.queries == 32);
  CHECK(policies::snapkv.retain.pooling == 7);
  CHECK(policies::snapkv_with(77).retain.tokens == 77);
  CHECK(policies::snapkv.zone.recent == unlimited);
  CHECK(policies::shadowkv.segment.longest == 8);
  CHECK(policies::shadowkv.agree.over_group == pool::max);
  CHECK(policies::shadowkv.agree.per == scope::kv_head);
  CHECK(policies::shadowkv.select.segments * policies::shadowkv.segment.longest == 2048);
  CHECK(policies::shadowkv.store.offloads);

  CHECK(policies::h2o.retain.tokens == 1024);
  CHECK(policies::h2o.retain.recent == 512);
  CHECK(policies::h2o_with(7).retain.recent == 4);
  CHECK(policies::h2o.zone.recent == unlimited);  // all that is kept is attended
  CHECK(policies::infllm.segment.longest == 128);
  CHECK(policies::infllm.summarize.keys == 4);
  CHECK(policies::infllm.select.segments == 16);
  CHECK(policies::infllm.agree.per == scope::layer);
  CHECK(policies::infllm.zone.sinks == 128);
  CHECK(policies::infllm.zone.recent == 4096);
  CHECK(policies::infllm.store.offloads);
  CHECK(policies::raas.retain.tokens == 1024);
  CHECK(policies::raas.retain.every == 16);
  CHECK(policies::raas.retain.share == 0.5f);
  CHECK(policies::raas.zone.prompt);
  CHECK(policies::raas_with(17).retain.tokens == 32);
  CHECK(policies::r_kv.retain.queries == 8);
  CHECK(policies::r_kv.retain.every == 128);
  CHECK(policies::r_kv.retain.attention == 0.07f);
  CHECK(policies::r_kv_with(300).retain.tokens == 300);
}

}  // namespace zoomr
