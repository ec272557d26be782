// SPDX-License-Identifier: Apache-2.0
// Voters who do not know: what a flat posterior adds, by the second rule.
#include <cache/support/against_reference.hpp>
#include <cache/support/players.hpp>
#include <cache/support/saved_bytes.hpp>
#include <support/voters.hpp>

#include <string>       // std::string
#include <string_view>  // std::string_view

namespace zoomr_test::second_rule_test {
namespace {

constexpr shape model{2, 4, 2, 8};

tape text(std::uint64_t seed = 3) { return make_tape(model, kind::peaked, markup::sentences, 150, 60, seed); }

template <class Policy>
result_log played(const Policy& policy, const tape& says) {
  player<Policy> plays(model, policy, limits_for(says.size()));
  plays.open(says);
  plays.play_plainly();
  return plays.at(0).log;
}
template <class Policy>
auto flat_above(const Policy& policy, float bits) {
  return with(policy, [&](auto& p) { p.select.flat = bits; });
}

/// Choices of a text in which more was attended than by the first rule alone.
template <class Policy>
index_t choices_that_go_on(const Policy& policy, const tape& says) {
  const auto attended = [&](const auto& one) {
    std::vector<std::size_t> counts;
    for (const auto& [at, got] : played(one, says)) counts.push_back(got.attended.empty() ? 0 : got.attended[0].size());
    return counts;
  };
  const auto with_it = attended(policy), without = attended(flat_above(policy, zoomr::infinity));
  index_t more = 0;
  for (std::size_t i = 0; i < with_it.size(); ++i) more += with_it[i] > without[i] ? 1 : 0;
  return more;
}

}  // namespace

TEST_CASE("a flat posterior goes on as the naive reference does, at any threshold") {
  const auto check = [](const char* name, const auto& policy, markup words) {
    for (const float flat : {0.0f, 0.75f, 1.5f, 3.0f, zoomr::infinity}) {
      comparison all;
      for (const kind look : {kind::uniform, kind::peaked, kind::with_infinities}) {
        for (std::uint64_t seed = 1; seed <= 4; ++seed) {
          const tape says = make_tape(model, look, words, 211, 61, seed * 13);
          CAPTURE(name);
          CAPTURE(flat);
          CAPTURE(seed);
          check_against_reference(flat_above(policy, flat), says, limits_for(says.size()), false, all);
        }
      }
      check_rarely_stopped(std::string(name) + " above " + std::to_string(flat), all);
    }
  };
  check("unsure_voters", small::unsure_voters, markup::sentences);
  check("thoughts_or_votes", small::thoughts_or_votes, markup::pairs);
}

TEST_CASE("some choices are sure, and some go on") {
  const tape says = text();
  const index_t choices = says.size() - says.prompt;
  const index_t some = choices_that_go_on(small::unsure_voters, says);
  CHECK(some > choices / 10);
  CHECK(some < choices * 9 / 10);
}

TEST_CASE("a threshold that nothing reaches is the first rule alone") {
  const auto first = zoomr::compose(small::unsure_voters.segment, zoomr::key_mass{}, small::sentence_voters.aggregate,
                                    zoomr::top_p{.share = 0.9f, .segments = 2}, small::unsure_voters.refresh,
                                    small::unsure_voters.zone);
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    const tape says = text(seed);
    CHECK(difference(played(first, says), played(flat_above(small::unsure_voters, zoomr::infinity), says)) == "");
    CHECK(difference(played(first, says), played(flat_above(small::unsure_voters, 64.0f), says)) == "");
    CHECK(difference(played(first, says), played(flat_above(small::unsure_voters, 0.5f), says)) != "");
  }
}

TEST_CASE("a sequence that is saved, forked or rolled back goes on in the same way") {
  const tape says = text();
  using player_type = player<std::remove_const_t<decltype(small::unsure_voters)>>;
  player_type plain(model, small::unsure_voters, limits_for(says.size()));
  plain.open(says);
  plain.play_plainly();
  for (const index_t until : {58, 60, 61, 101}) {
    CAPTURE(until);
    player_type plays(model, small::unsure_voters, limits_for(says.size(), 2));
    plays.open(says);
    plays.play_plainly(0, until);
    player_type other(model, small::unsure_voters, limits_for(says.size()));
    other.voices.push_back({other.cache.load(memory_source(saved(plays.cache, plays.at(0).seq))), &says, {}});
    other.play_plainly();
    const auto later = [&](const result_log& all) {
      return result_log{all.lower_bound({std::max(until, says.prompt), 0}), all.end()};
    };
    CHECK(difference(later(plain.at(0).log), later(other.at(0).log)) == "");
    const index_t v = fork(plays, 0, says);
    plays.play_plainly(v);
    CHECK(difference(later(plain.at(0).log), later(plays.at(v).log)) == "");
    plays.rollback(v, says.size() - 24);
    plays.play_plainly(v);
    CHECK(difference(later(plain.at(0).log), later(plays.at(v).log)) == "");
  }
}

TEST_CASE("what a pair cannot be is said, and its text names both rules") {
  const auto problem = [](auto policy) { return std::string(policy.problem() == nullptr ? "" : policy.problem()); };
  CHECK(problem(small::unsure_voters).empty());
  CHECK(problem(flat_above(small::unsure_voters, -1.0f)) == "otherwise: flat, a number of bits, must be at least 0");
  CHECK(problem(flat_above(small::unsure_voters, zoomr::not_a_number)).find("flat") != std::string::npos);
  auto by_layer = small::unsure_voters;
  static_cast<zoomr::head_mass&>(by_layer.aggregate).per = zoomr::scope::layer;
  CHECK(problem(by_layer).find("serves all layers") != std::string::npos);
  CHECK(problem(with(small::unsure_voters, [](auto& p) { p.aggregate.queries = 0; })).find("queries") !=
        std::string::npos);
  CHECK(problem(with(small::unsure_voters, [](auto& p) { p.select.tokens = 5; })).find("budget") != std::string::npos);
  struct : zoomr::detail::text_taker {
    std::string all;
    void take(std::string_view piece) override { all += piece; }
  } words;
  zoomr::detail::write_policy(small::unsure_voters, words);
  CHECK(words.all.find("key_mass otherwise=box_bound\nhead_posterior otherwise=head_mass queries=3 per=0\ntop_p "
                       "otherwise=fill_budget share=0.9 segments=2 tokens=40 cut=true flat=1.5\n") !=
        std::string::npos);
}

}  // namespace zoomr_test::second_rule_test
