// SPDX-License-Identifier: Apache-2.0
// A sequence is loaded under another policy: as one to which the same tokens were passed, as far as
// docs/sequence_format.md says; and where that cannot be right it is refused.
#include <cache/support/players.hpp>
#include <cache/support/saved_bytes.hpp>

#include <doctest/doctest.h>
#include <support/state_digest.hpp>

namespace zoomr_test::saving_elsewhere_test {
namespace {

constexpr shape model{2, 4, 2, 8};
constexpr index_t tokens = 170;
constexpr index_t prompt = 52;

tape text() { return make_tape(model, kind::uniform, markup::pairs, tokens, prompt, 5); }

template <class Policy>
using player_of = player<std::remove_cvref_t<Policy>>;

/// What a cache under `policy` saves of the text's first tokens; the prompt comes in chunks of 19.
template <class Policy>
saved_bytes saved_under(const Policy& policy, const tape& says, index_t until,
                        const zoomr::config& limits = limits_for(tokens)) {
  player_of<Policy> plays(model, policy, limits);
  plays.open(says);
  while (plays.tokens() < std::min(until, prompt)) {
    const index_t last = std::min({plays.tokens() + 19, prompt, until});
    plays.play({{0, says.between(plays.tokens(), last), last == prompt}});
  }
  if (until > prompt) plays.play_plainly(0, until);
  return saved(plays.cache, plays.at(0).seq);
}

/// Why a cache under `policy` refuses to load it; empty if it does not. Nothing is left of it then.
template <class Policy>
std::string refusal(const Policy& policy, const saved_bytes& bytes, const zoomr::config& limits = limits_for(tokens)) {
  player_of<Policy> other(model, policy, limits);
  try {
    other.cache.load(memory_source(bytes));
  } catch (const zoomr::error& why) {
    CHECK(why.code() == zoomr::errc::format);
    CHECK(other.cache.tokens(other.cache.open()) == 0);
    return why.what();
  }
  return "";
}

/// Loads it under `policy`, and plays on: equal to a cache that was passed all tokens, from position `equal_from` on.
template <class Policy>
void check_equal(const char* name, const Policy& policy, const saved_bytes& bytes, index_t equal_from) {
  CAPTURE(std::string(name));
  const tape says = text();
  player_of<Policy> knows_all(model, policy, limits_for(tokens)), other(model, policy, limits_for(tokens));
  knows_all.open(says);
  knows_all.play_plainly();
  other.voices.push_back({other.cache.load(memory_source(bytes)), &says, {}});
  const index_t at = other.tokens();
  CHECK(other.cache.stats(other.at(0).seq).prompt_tokens == std::min(at, prompt));
  CHECK(other.cache.stats(other.at(0).seq).tokens == std::max(at - prompt, 0));
  other.play_plainly();
  const auto from = [&](const result_log& log) { return result_log(log.lower_bound({equal_from, 0}), log.end()); };
  CHECK(difference(from(knows_all.at(0).log), from(other.at(0).log)) == "");
}

}  // namespace

TEST_CASE("a prompt that was saved under full attention goes on under any policy that adds up no attention") {
  const tape says = text();
  const saved_bytes bytes = saved_under(small::full, says, 19);
  for_each_policy([&](const char* name, const auto& policy) {
    using evictor = decltype(policy.evict);
    bool accumulates = false;
    if constexpr (evictor::observes) accumulates = evictor::accumulates && !policy.zone.prompt;
    CAPTURE(std::string(name));
    if (!accumulates) return check_equal(name, policy, bytes, prompt);
    CHECK(refusal(policy, bytes) ==
          "zoomr: load: it was saved under another policy, and this cache's adds up attention from the first token on, "
          "of which nothing is known");
  });
}

TEST_CASE("after the prompt: what looks at nothing but keys and the token's own query is equal at once") {
  const tape says = text();
  const saved_bytes at_end = saved_under(small::full, says, prompt), later = saved_under(small::full, says, 91);
  index_t checked = 0;
  for_each_policy([&](const char* name, const auto& policy) {
    using policy_type = std::remove_cvref_t<decltype(policy)>;
    constexpr bool observes = decltype(policy.evict)::observes || decltype(policy.query)::sums;
    if constexpr (!observes && !asks_voters<policy_type>) {
      const bool for_itself = policy.refresh.each_token() && policy.aggregate.per != zoomr::scope::sequence;
      if (policy.selects && !for_itself) return;
      check_equal(name, policy, at_end, prompt), check_equal(name, policy, later, 91);
      ++checked;
    }
  });
  CHECK(checked > 7);
}

// Those with a second pass have other keys in these tests where they have passed a token twice.
TEST_CASE("after the prompt: until the next choice nothing is chosen, and sums begin with the next segment") {
  const tape says = text();
  const saved_bytes bytes = saved_under(small::quest, says, 91);
  const auto later = [&](const char* name, const auto& policy, index_t equal_from) {
    CAPTURE(std::string(name));
    player_of<decltype(policy)> other(model, policy, limits_for(tokens));
    const auto seq = other.cache.load(memory_source(bytes));
    for (index_t row = 0; row < other.cache.selection_rows(); ++row) {
      CHECK(other.cache.selected(seq, row).levels.size() == 0);
    }
    check_equal(name, policy, bytes, equal_from);
  };
  later("zoomr_one_pass", small::zoomr_one_pass, 130);
  later("zoomr_focus", small::zoomr_focus, 130);
  later("by_layer", small::by_layer, 130);
  later("sentence_box", small::sentence_box, 110);
}

TEST_CASE("queries before the load are not known, so that no rollback goes behind it where sums need them") {
  const tape says = text();
  const saved_bytes bytes = saved_under(small::full, says, 91);
  player_of<decltype(small::sentence_box)> sums(model, small::sentence_box, limits_for(tokens));
  player_of<decltype(small::zoomr_mass)> none(model, small::zoomr_mass, limits_for(tokens));
  const auto seq = sums.cache.load(memory_source(bytes)), other = none.cache.load(memory_source(bytes));
  if (decltype(small::sentence_box.query)::sums) CHECK_THROWS_AS(sums.cache.rollback(seq, 90), zoomr::error);
  none.cache.rollback(other, 60);
  CHECK(none.cache.tokens(other) == 60);
  none.cache.rollback(other, 30);  // the prompt is open again
  CHECK(none.cache.in_prompt(other));
}

TEST_CASE("what cannot be right is refused, with its reason") {
  const tape says = text();
  const saved_bytes in_prompt = saved_under(small::full, says, 19), ended = saved_under(small::full, says, prompt);
  const std::string would_have =
      "zoomr: load: it was saved under another policy, and this cache's would have evicted tokens by queries that are "
      "not known: only a prompt that has not ended can be loaded";
  CHECK(refusal(small::snapkv, ended) == would_have);
  CHECK(refusal(small::h2o, ended) == would_have);
  CHECK(refusal(small::pinned_prompt, ended) == would_have);
  CHECK(refusal(small::pinned_prompt, in_prompt) == "");
  const std::string evicted =
      "zoomr: load: its policy has evicted tokens: only a cache of the same policy can go on with it";
  CHECK(refusal(small::full, saved_under(small::snapkv, says, 60)) == evicted);
  CHECK(refusal(small::quest, saved_under(small::evicting, says, 90)) == evicted);
  CHECK(refusal(small::full, saved_under(small::snapkv, says, 19)) == "");
  tape pinned = says;
  pinned.spans = {{{2, 10}}, {{12, 19}}};
  const saved_bytes with_spans = saved_under(small::full, pinned, 19);  // 15 beside the last 8
  CHECK(refusal(with(small::snapkv, [](auto& p) { p.evict.tokens = 23; }), with_spans) == "");
  CHECK(refusal(with(small::snapkv, [](auto& p) { p.evict.tokens = 22; }), with_spans) ==
        "zoomr: load: with its pinned spans 23 tokens could never be evicted, but each KV lane keeps 22");
  auto roomy = small::snapkv;
  roomy.evict.tokens = zoomr::unlimited;
  CHECK(refusal(roomy, ended) == "");  // it never evicts

  auto once = small::quest;
  const auto chooses_once = zoomr::compose(once.segment, once.summarize, once.score, once.aggregate, once.select,
                                           zoomr::after_prefill{}, once.zone);
  CHECK(refusal(chooses_once, ended) ==
        "zoomr: load: it was saved under another policy, and this cache's chooses only at the end of the prompt, which "
        "has passed");
  CHECK(refusal(chooses_once, in_prompt) == "");

  auto frees = small::window, holds = small::window;
  frees.placement.frees_unreachable = true, holds.placement.frees_unreachable = false;
  const saved_bytes freed = saved_under(frees, says, 150);
  const std::string missing =
      "zoomr: load: pages were freed that no query of its policy can reach: only a cache of the same policy, with a "
      "placement that frees them too, can go on with it";
  CHECK(refusal(holds, freed) == missing);
  CHECK(refusal(small::full, freed) == missing);
  CHECK(refusal(frees, freed) == "");
  CHECK(refusal(frees, saved_under(holds, says, 150)) == "");

  zoomr::config without = limits_for(tokens);
  without.classes = {};
  const saved_bytes unclassified = saved_under(small::quest, says, 60, without);
  const std::string unknown =
      "zoomr: load: some of its tokens came without config.classes, but this cache's policy depends on classes of "
      "tokens";
  CHECK(refusal(small::zoomr_mass, unclassified) == unknown);
  CHECK(refusal(small::full, unclassified) == "");
  CHECK(refusal(small::zoomr_mass, saved_under(small::quest, says, 0, without)) == "");
  {  // it stays so, whatever classes the next tokens have, until no such token is left
    player_of<decltype(small::quest)> other(model, small::quest, limits_for(tokens));
    other.voices.push_back({other.cache.load(memory_source(unclassified)), &says, {}});
    other.play_plainly(0, 70);
    CHECK(refusal(small::zoomr_mass, saved(other.cache, other.at(0).seq)) == unknown);
    other.rollback(0, 0);
    other.play_plainly(0, 70);
    CHECK(refusal(small::zoomr_mass, saved(other.cache, other.at(0).seq)) == "");
  }
}

TEST_CASE("another model, storage type or scale is refused") {
  const tape says = text();
  const saved_bytes bytes = saved_under(small::full, says, 70);
  const auto said = [&](auto& cache) {
    try {
      cache.load(memory_source(bytes));
    } catch (const zoomr::error& why) {
      CHECK(why.code() == zoomr::errc::format);
      return std::string(why.what());
    }
    return std::string();
  };
  zoomr::config limits = limits_for(tokens);
  zoomr::kv_cache wide({2, 4, 2, 16}, small::full, limits);
  CHECK(
      said(wide) ==
      "zoomr: load: the sequence's model has the shape [2, 4, 2, 8, 8], this cache's [2, 4, 2, 16, 16] [layers, heads, "
      "kv_heads, head_dim, value_dim]");
  zoomr::kv_cache<zoomr::policy_of<small::full>, bfloat16> shorter(model, small::full, limits);
  CHECK(said(shorter) == "zoomr: load: its keys and values are stored as float, this cache's as bfloat16");
  limits.value_scale = 2.0f;
  zoomr::kv_cache scaled(model, small::full, limits);
  CHECK(said(scaled) == "zoomr: load: its values are stored under other scales than this cache's config says");
  limits.key_scale = 0.5f;
  zoomr::kv_cache both(model, small::full, limits);
  CHECK(said(both) == "zoomr: load: its keys are stored under other scales than this cache's config says");
  static const float ones[] = {1, 1, 1, 1};
  limits.key_scale = limits.value_scale = view<const float, 2>(ones, {2, 2});
  zoomr::kv_cache table(model, small::full, limits);
  CHECK(said(table) == "");  // a table of the same scales
}

TEST_CASE("a sequence names the rule of its model's logits, and is refused under another") {
  const tape says = text();
  const float sinks[] = {0.5f, -1.0f, -zoomr::infinity, 2.0f, 0.0f, 0.0f, 1.0f, 1.0f};
  const float slopes[] = {0.5f, 0.25f, 0.125f, 0.0f};
  zoomr::logit_rule rule{.scale = 0.25f, .soft_cap = 30.0f, .sinks = {sinks, {2, 4}}, .alibi_slopes = {slopes, {4}}};
  const auto with_rule = [](const zoomr::logit_rule& of) {
    zoomr::config made = limits_for(tokens);
    made.logits = of;
    return made;
  };
  const saved_bytes bytes = saved_under(small::full, says, 70, with_rule(rule));
  const auto refused = [&](auto change) {
    zoomr::logit_rule other = rule;
    change(other);
    return refusal(small::full, bytes, with_rule(other));
  };
  const auto names = [](const std::string& field) {
    return "zoomr: load: its keys and values were computed under another config.logits." + field + " than this cache's";
  };
  CHECK(refused([](auto&) {}) == "");
  CHECK(refused([](auto& r) { r.scale = 0.0f; }) == names("scale"));
  CHECK(refused([](auto& r) { r.soft_cap = 0.0f; }) == names("soft_cap"));
  CHECK(refused([](auto& r) { r.window = 64; }) == names("window"));
  CHECK(refused([](auto& r) { r.sinks = {}; }) == names("sinks"));
  CHECK(refused([](auto& r) { r.alibi_slopes = {}; }) == names("alibi_slopes"));
  // Tables are compared by their numbers, wherever they lie; also one that does nothing.
  float other_sinks[8], other_slopes[4];
  std::copy_n(sinks, 8, other_sinks), std::copy_n(slopes, 4, other_slopes);
  other_sinks[4] = -0.0f, other_slopes[3] = -0.0f;
  const auto tables = [&](auto& r) { r.sinks = {other_sinks, {2, 4}}, r.alibi_slopes = {other_slopes, {4}}; };
  CHECK(refused(tables) == "");
  for (float& each : other_sinks) {
    const float before = std::exchange(each, 3.0f);
    CHECK(refused(tables) == names("sinks"));
    each = before;
  }
  std::swap(other_slopes[0], other_slopes[1]);
  CHECK(refused(tables) == names("alibi_slopes"));
  // Under another policy too; and the scale that is meant where none is named may be named.
  CHECK(refusal(small::window, bytes) == names("scale"));
  const saved_bytes plain = saved_under(small::full, says, 70);
  std::fill_n(other_sinks, 8, -zoomr::infinity), std::fill_n(other_slopes, 4, 0.0f);
  rule = {.scale = zoomr::logit_rule{}.scale_of(model.head_dim),
          .sinks = {other_sinks, {2, 4}},
          .alibi_slopes = {other_slopes, {4}}};
  CHECK(refusal(small::full, plain, with_rule(rule)) == "");
  other_slopes[2] = 1.0f;
  CHECK(refusal(small::full, plain, with_rule(rule)) == names("alibi_slopes"));
}

TEST_CASE("a cache that could evict nothing has not remembered what a larger one needs") {
  const tape says = text();
  zoomr::config small_one = limits_for(100), large = limits_for(1000);
  auto policy = small::h2o;
  policy.evict.tokens = 100;
  const saved_bytes bytes = saved_under(policy, says, 80, small_one);
  zoomr::kv_cache other(model, policy, large);
  try {
    other.load(memory_source(bytes));
    CHECK(false);
  } catch (const zoomr::error& why) {
    CHECK(why.code() == zoomr::errc::capacity);
    CHECK(std::string(why.what()) ==
          "zoomr: load: the sequence was saved without the attention that its tokens got, since no token could ever be "
          "evicted under its config.max_tokens; here that is 1000, and some may be");
  }
  zoomr::kv_cache back(model, policy, small_one);
  CHECK(back.tokens(back.load(memory_source(saved_under(policy, says, 80, large)))) == 80);
}

TEST_CASE("a policy's text names its components and their options, but not its placement") {
  struct taking final : zoomr::detail::text_taker {
    void take(std::string_view piece) override { text += piece; }
    std::string text;
  };
  const auto text_of = [](const auto& policy) {
    taking made;
    zoomr::detail::any_policy_of<std::remove_cvref_t<decltype(policy)>>(policy).write_text(made);
    return made.text;
  };
  constexpr auto mine = zoomr::compose(zoomr::sentences{.longest = 256}, zoomr::stored_as<bfloat16>(zoomr::key_mean{}),
                                       zoomr::mean_dot{}, zoomr::head_votes{.k = 3, .per = zoomr::scope::layer},
                                       zoomr::top_p{.share = 0.3f, .segments = 9}, zoomr::boundaries{.at_most = 7},
                                       zoomr::zones{.sinks = 4, .prompt = true, .open = zoomr::unlimited});
  CHECK(
      text_of(mine) ==
      "sentences longest=256 shortest_line=32\n"
      "keep_all\n"
      "key_mean number=bfloat16\n"
      "last_query\n"
      "mean_dot\n"
      "head_votes k=3 per=1\n"
      "top_p share=0.3 segments=9 tokens=2147483647 neighbours=0\n"
      "boundaries second_pass=false at_most=7\n"
      "zones sinks=4 recent=1 align=1 turns=0 prompt=true open=2147483647 summaries=0 own_summary=true dense_layers=0 "
      "preamble=0 question=0\n");
  auto moved = mine;
  moved.placement.details_on_host = true;
  CHECK(text_of(moved) == text_of(mine));
  CHECK(text_of(with_index<zoomr::float8>(small::quest)).find("\nkey_box number=float8\n") != std::string::npos);
}

}  // namespace zoomr_test::saving_elsewhere_test
