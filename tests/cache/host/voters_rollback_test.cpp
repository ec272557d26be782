// SPDX-License-Identifier: Apache-2.0
// What a rollback leaves to heads that vote: the choices and outputs of a cache that was given only the tokens that
// stayed, or it is refused and nothing has changed.
#include <cache/support/players.hpp>
#include <cache/support/saved_bytes.hpp>

#include <doctest/doctest.h>

#include <string>  // std::string, std::to_string

namespace zoomr_test {
namespace {

constexpr shape model{2, 4, 2, 8};
constexpr index_t tokens = 88;

/// Voters with some queries, which choose at every token or at few.
constexpr auto at_each = with(small::sentence_voters, [](auto& p) { p.aggregate.queries = 8, p.select.segments = 1; });
constexpr auto of_thoughts = with(
    small::zoomr_voters, [](auto& p) { p.aggregate.queries = 8, p.aggregate.gate = false, p.select.segments = 1; });
constexpr auto seldom =
    zoomr::compose(zoomr::sentences{.longest = 9}, zoomr::key_mass{}, zoomr::head_posterior{.queries = 8},
                   zoomr::top_p{.share = 0.9f, .segments = 1, .tokens = 30, .neighbours = 1},
                   zoomr::boundaries{.at_most = 5}, zoomr::zones{.sinks = 2, .recent = 6});

zoomr::config limits_with(index_t undo) {
  zoomr::config limits = limits_for(tokens, 3);
  limits.rollback_tokens = undo;
  limits.voters_unsure = 3.1f, limits.voters_none = -4.0f;
  limits.voters_none_slope = 0.8f;  // of policies with a gate
  return limits;
}

/// What happens to a sequence before it is rolled back.
enum class between { nothing, forked, forked_into, loaded, loaded_elsewhere };

/// A sequence that says `gone` up to `longest`, goes back to `to`, and says `says` from there.
struct excursion {
  tape gone;
  tape says;
  index_t longest = 0;
  index_t to = 0;
  index_t undo = 2;
  between before = between::nothing;
};

struct outcomes {
  int taken = 0;
  int deep = 0;  // of them: deeper than promised
  int refused = 0;
};

/// Chunks of a prompt have `chunk` tokens at most; what is generated comes token by token.
template <class Player>
void play_up_to(Player& plays, index_t v, index_t until, index_t chunk) {
  const tape& says = *plays.at(v).says;
  for (index_t now = plays.tokens(v); now < until; now = plays.tokens(v)) {
    plays.play({part_of(says, v, now, says.in_prompt(now) ? std::min(chunk, until - now) : 1)});
  }
}

template <class Policy>
result_log played(const Policy& policy, const tape& says) {
  player<Policy> plays(model, policy, limits_with(0));
  plays.open(says);
  plays.play_plainly();
  const zoomr::statistics counted = plays.cache.stats(plays.at(0).seq);
  CHECK((counted.unsure > 0) == policy.aggregate.gate);
  CHECK(counted.unsure < counted.refreshes);
  return plays.at(0).log;
}

/// The voice in `plays` that goes on with what the first one had.
template <class Player>
index_t carried_on(Player& plays, Player& elsewhere, const excursion& way) {
  voice& of = plays.at(0);
  voice moved{of.seq, of.says, of.log};
  if (way.before == between::forked) moved.seq = plays.cache.fork(of.seq);
  if (way.before == between::forked_into) {
    moved.seq = plays.cache.open();
    plays.cache.fork(of.seq, moved.seq);
  }
  if (way.before == between::loaded) moved.seq = plays.cache.load(memory_source(saved(plays.cache, of.seq)));
  if (way.before == between::loaded_elsewhere) {
    moved.seq = elsewhere.cache.load(memory_source(saved(plays.cache, of.seq)));
    elsewhere.voices.push_back(std::move(moved));
    return 0;
  }
  plays.voices.push_back(std::move(moved));
  return static_cast<index_t>(plays.voices.size()) - 1;
}

template <class Policy>
void check(const Policy& policy, const excursion& way, const result_log& right, outcomes& seen) {
  CAPTURE(way.longest);
  CAPTURE(way.to);
  CAPTURE(way.undo);
  const int before = static_cast<int>(way.before);
  CAPTURE(before);
  player<Policy> first(model, policy, limits_with(way.undo)), elsewhere(model, policy, limits_with(way.undo + 3));
  first.open(way.gone);
  play_up_to(first, 0, way.longest, 7);
  player<Policy>& plays = way.before == between::loaded_elsewhere ? elsewhere : first;
  const index_t v = carried_on(first, elsewhere, way);
  const bool promised = way.to >= way.longest - way.undo;
  try {
    plays.rollback(v, way.to);
  } catch (const zoomr::error& cause) {
    CHECK(cause.code() == zoomr::errc::rollback_depth);
    CHECK_FALSE(promised);
    CHECK(plays.tokens(v) == way.longest);
    ++seen.refused;
    return;
  }
  ++seen.taken;
  seen.deep += promised ? 0 : 1;
  plays.at(v).says = &way.says;
  play_up_to(plays, v, way.says.size(), 11);
  CHECK(difference(right, plays.at(v).log) == "");
}

/// Every depth that is worth a try, of one text.
/// @param least  fewer tokens than these are not tried
/// @param most   nor more
/// @param gone   gone(to)  what came instead of the text from a position on
template <class Policy, class Gone>
void check_depths(const Policy& policy, const tape& says, index_t longest, index_t least, index_t most, Gone gone,
                  outcomes& seen) {
  const result_log right = played(policy, says);
  int number = 0;
  for (const index_t undo : {2, 11}) {
    for (const index_t depth : {1, 2, 3, 7, 9, 12, 13, 33, longest}) {
      const index_t to = longest - depth;
      if (to < least || to > most) continue;
      check(policy, {gone(to), says, longest, to, undo, static_cast<between>(number++ % 5)}, right, seen);
    }
  }
}

tape text(index_t prompt, std::uint64_t seed) {
  return make_tape(model, kind::uniform, markup::sentences, tokens, prompt, seed);
}
/// Calls test(policy, seed) for each policy.
template <class Test>
void for_each_voting(Test test) {
  test(at_each, std::uint64_t{1});
  test(of_thoughts, std::uint64_t{2});
  test(seldom, std::uint64_t{3});
}

}  // namespace

TEST_CASE("a rollback in a prompt that has not ended leaves all queries that its end will count, or is refused") {
  for_each_voting([](const auto& policy, std::uint64_t seed) {
    outcomes seen;
    for (const index_t prompt : {30, 50}) {
      const tape says = text(prompt, seed + static_cast<std::uint64_t>(prompt));
      for (const index_t longest : {9, 29, prompt + 7, prompt + 28}) {
        const auto gone = [&](index_t to) { return with_other_end(says, to, tokens, 77); };
        check_depths(policy, says, longest, 0, prompt - 1, gone, seen);
      }
    }
    CHECK(seen.deep > 10);  // where all of them are remembered, and to nothing
    CHECK(seen.refused > 5);
  });
}

TEST_CASE("a rollback from generated tokens into the prompt does, and so does another one after it") {
  for_each_voting([](const auto& policy, std::uint64_t seed) {
    outcomes seen;
    const tape says = text(44, seed);
    const auto gone = [&](index_t to) { return with_other_end(says, to, 47, 78); };
    check_depths(policy, says, 56, 0, 43, gone, seen);
    check_depths(policy, says, 48, 0, 43, gone, seen);
    CHECK(seen.taken > 5);
    CHECK(seen.refused > 5);

    const result_log right = played(policy, says);
    for (const index_t undo : {2, 11}) {
      for (const index_t second : {1, 2, 5, 9, 11}) {
        player<std::remove_cvref_t<decltype(policy)>> plays(model, policy, limits_with(undo));
        const tape other = with_other_end(says, 43 - second, 44, 79);
        plays.open(other);
        play_up_to(plays, 0, 45, 7);
        plays.rollback(0, 43);
        const std::string refusal = sentence_of([&] { plays.rollback(0, 43 - second); });
        CHECK(refusal.empty() == (45 - (43 - second) <= undo + 1));
        if (!refusal.empty()) continue;
        plays.at(0).says = &says;
        play_up_to(plays, 0, tokens, 11);
        CHECK(difference(right, plays.at(0).log) == "");
      }
    }
  });
}

TEST_CASE("a rollback in a later prompt, or to what was generated before it, does") {
  for_each_voting([](const auto& policy, std::uint64_t seed) {
    outcomes seen;
    tape says = text(30, seed);
    says.later_prompts = {{52, 66}};
    for (const bool ended : {false, true}) {
      const auto gone = [&](index_t to) {
        tape made = with_other_end(says, to, 30, 80);
        made.later_prompts = {{52, ended ? 70 : tokens}};
        return made;
      };
      check_depths(policy, says, 73, 53, 65, gone, seen);
    }
    for (const bool begun : {false, true}) {  // the text has none then
      const tape plain = text(30, seed);
      const auto gone = [&](index_t to) {
        tape made = with_other_end(plain, to, 30, 80);
        if (begun) made.later_prompts = {{52, tokens}};
        return made;
      };
      check_depths(policy, plain, 60, 30, 52, gone, seen);
    }
    CHECK(seen.taken > 5);
    CHECK(seen.refused > 5);
  });
}

namespace {

/// Passes the next tokens of a prompt, whose queries no layer sees.
template <class Player>
void pass_unseen(Player& plays, index_t until) {
  const tape& says = *plays.at(0).says;
  const std::vector<token_id> ids = says.between(plays.tokens(), until);
  const index_t first = plays.tokens(), count = until - first;
  auto step = plays.cache.begin(plays.at(0).seq, view<const token_id>(ids), false);
  std::vector<float> keys(static_cast<std::size_t>(count * model.kv_heads * model.head_dim)), values(keys.size());
  for (index_t layer = 0; layer < model.layers; ++layer) {
    for (index_t row = 0; row < count * model.kv_heads; ++row) {
      const index_t t = first + row / model.kv_heads, head = row % model.kv_heads;
      const token_id id = ids[static_cast<std::size_t>(t - first)];
      says.numbers.fill(role::key, id, t, layer, head, 0, &keys[static_cast<std::size_t>(row * model.head_dim)]);
      says.numbers.fill(role::value, id, t, layer, head, 0, &values[static_cast<std::size_t>(row * model.head_dim)]);
    }
    step.append(layer, {keys.data(), {count, model.kv_heads, model.head_dim}},
                {values.data(), {count, model.kv_heads, model.head_dim}});
  }
  step.commit();
}

}  // namespace

TEST_CASE("behind a chunk that no layer has seen, queries of before do not come back: refused") {
  const tape says = text(60, 4);
  const auto goes_on = [&](index_t seen, index_t unseen, index_t to) {
    player<std::remove_const_t<decltype(at_each)>> plays(model, at_each, limits_with(30)),
        plain(model, at_each, limits_with(0));
    const tape other = with_other_end(says, to, tokens, 81);
    plays.open(other), plain.open(says);
    play_up_to(plays, 0, seen, 7);
    pass_unseen(plays, unseen);
    play_up_to(plays, 0, 48, 7);
    const std::string refusal = sentence_of([&] { plays.rollback(0, to); });
    if (!refusal.empty()) {
      CHECK(refusal.find("those before token " + std::to_string(unseen) + " are not remembered") != std::string::npos);
      return false;
    }
    plays.at(0).says = &says;
    play_up_to(plain, 0, std::min(to, seen), 7);
    if (to > seen) pass_unseen(plain, std::min(to, unseen));
    for (auto* both : {&plays, &plain}) play_up_to(*both, 0, says.size(), 7);
    const auto behind = [](const result_log& log) { return result_log(log.lower_bound({60, 0}), log.end()); };
    CHECK(difference(behind(plain.at(0).log), behind(plays.at(0).log)) == "");
    return true;
  };
  for (const index_t to : {41, 44, 47}) CHECK(goes_on(30, 40, to));
  for (const index_t to : {31, 35, 40}) CHECK(goes_on(30, 40, to));
  for (const index_t to : {20, 26, 30}) CHECK_FALSE(goes_on(30, 40, to));
  CHECK(goes_on(30, 40, 0));
  for (const index_t to : {0, 20, 38, 41, 45}) CHECK(goes_on(0, 40, to));  // none was remembered
}

TEST_CASE("an erased span takes queries that a rollback would need: refused, unless they came long before it") {
  for_each_voting([](const auto& policy, std::uint64_t seed) {
    int taken = 0, refused = 0;
    for (const bool in_prompt : {false, true}) {
      for (const zoomr::token_range span : {zoomr::token_range{10, 16}, {43, 49}, {51, 53}}) {
        for (const index_t to : {0, 8, 30, 36, 44, 48, 49}) {
          CAPTURE(in_prompt);
          CAPTURE(span.first);
          CAPTURE(to);
          if (to >= 54 - span.size()) continue;
          const index_t prompt = in_prompt ? 56 : 24;
          const tape says = text(prompt, seed);
          player<std::remove_cvref_t<decltype(policy)>> plays(model, policy, limits_with(30)),
              plain(model, policy, limits_with(0));
          plays.open(says);
          play_up_to(plays, 0, 54, 7);
          plays.cache.erase(plays.at(0).seq, span);
          const tape rest = says.without(span);
          plays.at(0).says = &rest, plays.at(0).log.clear();
          if (!sentence_of([&] { plays.rollback(0, to); }).empty()) {
            ++refused;
            continue;
          }
          ++taken;
          plain.open(rest);
          play_up_to(plays, 0, rest.size(), 7), play_up_to(plain, 0, rest.size(), 7);
          // What was chosen before the edit stays chosen until the next choice is due.
          const index_t chosen = std::max(to + (in_prompt ? 0 : 5), rest.prompt);
          const auto behind = [&](const result_log& log) {
            return result_log(log.lower_bound({chosen + 1, 0}), log.end());
          };
          CHECK(difference(behind(plain.at(0).log), behind(plays.at(0).log)) == "");
        }
      }
    }
    CHECK(taken > 5);
    CHECK(refused > 5);
  });
}

}  // namespace zoomr_test
