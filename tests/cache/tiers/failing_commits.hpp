// SPDX-License-Identifier: Apache-2.0
// A text that is said while each transfer of each step fails in turn, and each commit's again: after a failure, and
// after a step that is dropped, the sequence is what it was before; the step that is tried again, and the tokens after
// a rollback, get the bits of a cache that never failed.
#pragma once

#include <cache/support/conversations.hpp>
#include <cache/support/driving.hpp>
#include <cache/support/small_policies.hpp>
#include <cache/support/tiered_limits.hpp>
#include <zoomr/policy/placement/tiered.hpp>

#include <doctest/doctest.h>
#include <paging/engines.hpp>
#include <support/state_digest.hpp>

namespace zoomr_test {

/// What a speaker has met.
struct failures_met {
  std::int64_t calls = 0;      // of begin, append, attend or again
  std::int64_t commits = 0;    // that have failed
  std::int64_t renewals = 0;   // of summaries, at the begin of a step
  std::int64_t rollbacks = 0;  // after a commit that has failed
};

/// Says one text, in chunks of a prompt and short drafts, to a cache in which transfers fail.
template <class Policy>
class speaker {
 public:
  static constexpr shape model{3, 4, 2, 8};
  static constexpr index_t tokens = 76;
  static constexpr index_t prompt = 37;
  static constexpr index_t chunk = 21;  // of the prompt
  static constexpr index_t draft = 3;

  static constexpr zoomr::token_range later{54, 67};  // a later prompt, where it is not refused
  static constexpr index_t later_chunk = 8;

  static tape text(const Policy& policy) {
    tape made = make_tape(model, kind::uniform, markup::pairs, tokens, prompt, 21);
    if (!frees_pages(policy)) made.later_prompts = {later};
    return made;
  }
  static zoomr::config limits(index_t undo) {
    zoomr::config made = limits_for(tokens, 2);
    made.max_batched_tokens = chunk;
    made.rollback_tokens = undo;
    made.pool_tokens = 2 * 80;
    return made;
  }

  speaker(const Policy& policy, const zoomr::config& with, const tape& says)
      : policy_(policy),
        says_(says),
        undo_(with.rollback_tokens),
        cache_(model, policy, with_voters(policy, with, model)) {
    unit::script() = {};
    other_ = cache_.open();
    const std::vector<token_id> ids = says_.between(0, chunk);
    auto step = cache_.begin(other_, view<const token_id>(ids));
    pass(step, 0, 0, zoomr::unlimited);
    step.commit();
    seq_ = cache_.open();
  }

  bool done() const { return now() == tokens; }
  index_t now() const { return cache_.tokens(seq_); }

  /// One step in which nothing fails.
  void say() {
    auto step = begin();
    pass_all(step);
    step.commit();
  }

  /// The same after each failure that it can have, and after being dropped in each place.
  void say_after_failures() {
    drop_everywhere(digest());
    const state_digest before = digest();
    fail_each_call(before);
    if constexpr (zoomr::tiered_placement<decltype(Policy::placement)>) fail_each_commit(before);
    if (now() == first_) say();
    CHECK(zoomr_test::digest_of(cache_, other_).difference(other_digest()) == "");
  }

  /// Says to the end, and what each token got.
  bits_of all() {
    while (!done()) say();
    return out_;
  }

  bits_of out_{std::vector<float>(std::size_t{tokens} * 2 * model.layers * row_size, 0.0f)};
  failures_met met;

 private:
  using step_type = typename zoomr::kv_cache<Policy>::step_type;
  static constexpr std::size_t row_size = model.heads * (model.head_dim + 1);

  // A page that a step has asked for ahead, and has not needed, may have failed to come: whoever needs it then is told.
  state_digest digest() {
    try {
      return digest_of(cache_, seq_);
    } catch (const zoomr::error& why) {
      REQUIRE(why.code() == zoomr::errc::storage);
      return digest_of(cache_, seq_);
    }
  }
  const state_digest& other_digest() {
    if (!other_is_known_) others_ = digest_of(cache_, other_), other_is_known_ = true;
    others_.of[state_digest::free_pages] = digest_of(cache_, other_).of[state_digest::free_pages];
    return others_;
  }

  step_type begin() {
    first_ = now();
    const index_t most = first_ < prompt ? chunk : says_.in_prompt(first_) ? later_chunk : draft;
    const part next = part_of(says_, 0, first_, first_ < prompt ? most : std::min(most, goal_ - first_));
    ids_ = next.ids;
    const zoomr::step_item item{seq_, view<const token_id>(ids_), next.prompt_ends, {}, next.prompt_begins};
    return cache_.begin(view<const zoomr::step_item>(&item, {1}));
  }

  /// @return  false if the item has failed
  bool pass_all(step_type& step) {
    const bool came = pass(step, 0, first_, zoomr::unlimited);
    if (!came || !step.needs_second_pass(step.taken(0))) return came;
    return pass(step, 1, first_ + step.taken(0) - 1, zoomr::unlimited);
  }

  // Layers before `until` of one pass, whose first token is at `first`.
  bool pass(step_type& step, index_t number, index_t first, index_t until) {
    const index_t count = step.tokens();
    const auto room = [&](std::vector<float>& of, index_t heads, index_t dims) {
      of.resize(static_cast<std::size_t>(count) * static_cast<std::size_t>(heads * dims));
      return view<float, 3>(of.data(), {count, heads, dims});
    };
    const auto queries = room(queries_, model.heads, model.head_dim);
    const auto out = room(made_, model.heads, model.head_dim);
    const auto keys = room(keys_, model.kv_heads, model.head_dim);
    const auto values = room(values_, model.kv_heads, model.head_dim);
    const view<float, 2> lse(room(lse_, model.heads, 1).data(), {count, model.heads});
    for (index_t layer = 0; layer < std::min(until, model.layers); ++layer) {
      for (index_t t = 0; t < count; ++t) {
        const token_id id = says_.ids[static_cast<std::size_t>(first + t)];
        for (index_t head = 0; head < model.heads; ++head) {
          says_.numbers.fill(role::query, id, first + t, layer, head, number, &queries(t, head, 0));
          if (head >= model.kv_heads) continue;
          says_.numbers.fill(role::key, id, first + t, layer, head, number, &keys(t, head, 0));
          says_.numbers.fill(role::value, id, first + t, layer, head, number, &values(t, head, 0));
        }
      }
      step.append(layer, keys, values);
      step.attend(layer, queries, out, lse);
      for (index_t t = 0; t < count; ++t) {
        const index_t at = ((first + t) * 2 + number) * model.layers + layer;
        float* to = out_.numbers.data() + static_cast<std::size_t>(at) * row_size;
        std::copy_n(&out(t, 0, 0), model.heads * model.head_dim, to);
        std::copy_n(&lse(t, 0), model.heads, to + model.heads * model.head_dim);
      }
    }
    return step.failure(0) == nullptr;
  }

  void drop_everywhere(const state_digest& before) {
    const auto check = [&](const char* where) {
      CAPTURE(where);
      REQUIRE(digest().difference(before) == "");
    };
    static_cast<void>(begin());
    check("dropped at once");
    {
      auto step = begin();
      pass(step, 0, first_, 1);
    }
    check("dropped between layers");
    {
      auto step = begin();
      pass(step, 0, first_, zoomr::unlimited);
    }
    check("dropped after a pass");
    {
      auto step = begin();
      pass_all(step);
    }
    check("dropped after all passes");
    {
      auto step = begin();
      pass(step, 0, first_, zoomr::unlimited);
      step.commit(0);
    }
    check("nothing accepted");
    refuse(before);
  }

  // Calls that are refused.
  void refuse(const state_digest& before) {
    const std::vector<token_id> many(static_cast<std::size_t>(tokens) + 1, 9);
    const auto refused = [&](auto call) {
      bool threw = false;
      try {
        call();
      } catch (const std::exception&) {
        threw = true;
      }
      CHECK(threw);
    };
    refused([&] { cache_.begin(seq_, view<const token_id>(many).slice(0, first_ < prompt ? tokens + 1 : 0)); });
    refused([&] { cache_.rollback(seq_, now() + 1); });
    if (const index_t to = now() - undo_ - 1; to >= prompt) {
      try {
        cache_.rollback(seq_, to);
        say_up_to(first_);  // it keeps nothing that would have to be rolled back
        return;
      } catch (const zoomr::error& why) {
        CHECK(why.code() == zoomr::errc::rollback_depth);
      }
    }
    REQUIRE(digest().difference(before) == "");
  }

  /// Lets the transfer after `later` others fail.
  static void arm(std::int64_t later) { unit::script().fails = unit::script().made + later; }
  /// @return  whether it came to that
  static bool disarm() {
    const bool reached = unit::script().fails >= 0 && unit::script().made > unit::script().fails;
    unit::script().fails = -1;
    return reached;
  }

  void fail_each_call(const state_digest& before) {
    bool reached = zoomr::tiered_placement<decltype(Policy::placement)>;
    for (std::int64_t later = first_ % 3; reached;
         later += says_.in_prompt(first_) ? 17 : 5) {  // not each one: they are many
      CAPTURE(later);
      arm(later);
      {
        auto step = begin();
        if (!pass_all(step)) ++met.calls;
      }
      reached = disarm();
      REQUIRE(digest().difference(before) == "");
    }
  }

  void fail_each_commit(state_digest before) {
    for (std::int64_t later = 0;; later += 1 + later / 8) {  // each of the first ones
      CAPTURE(first_);
      CAPTURE(later);
      if (now() > first_) {
        begin_anew(first_);
        before = digest();
      }
      bool failed = false;
      {
        auto step = begin();
        REQUIRE(pass_all(step));
        arm(later);
        try {
          step.commit();
        } catch (const zoomr::error& why) {
          REQUIRE(why.code() == zoomr::errc::storage);
          failed = true;
        }
      }
      const bool reached = disarm();
      if (!failed && !reached) return;
      if (!failed) continue;  // what could not be written will be
      ++met.commits;
      REQUIRE(now() == first_);
      fail_each_renewal();
      REQUIRE(digest().difference(before) == "");
      if (later % 2 == 1 || !go_back()) continue;
      const state_digest again = digest();
      for (const auto counted : {state_digest::accounts, state_digest::log}) before.of[counted] = again.of[counted];
      REQUIRE(again.difference(before) == "");
    }
  }

  // What a failed commit has left to be done at the next begin fails too.
  void fail_each_renewal() {
    bool failed = true;
    for (std::int64_t later = 0; failed; ++later) {
      arm(later);
      try {
        static_cast<void>(begin());
        failed = disarm();
      } catch (const zoomr::error& why) {
        REQUIRE(why.code() == zoomr::errc::storage);
        disarm();
        ++met.renewals;
      }
    }
  }

  // As far as it is granted, and forward again. Tokens are counted twice then, and a log may have dropped others.
  bool go_back() {
    const index_t goal = now();
    index_t ended = prompt;
    for (const zoomr::token_range& each : says_.later_prompts) ended = goal > each.first ? each.last : ended;
    const index_t to = std::max({ended, goal - undo_, least_rollback(policy_, ended, goal)});
    if (goal <= to) return false;
    ++met.rollbacks;
    cache_.rollback(seq_, to);
    say_up_to(goal);
    return true;
  }
  void say_up_to(index_t goal) {
    goal_ = goal;
    while (now() < goal) say();
    goal_ = tokens;
    first_ = goal;
  }
  void begin_anew(index_t goal) {
    cache_.close(seq_);
    seq_ = cache_.open();
    say_up_to(goal);
  }

  Policy policy_;
  const tape& says_;
  index_t undo_;
  zoomr::kv_cache<Policy> cache_;
  zoomr::sequence seq_;
  zoomr::sequence other_;  // that nothing happens to
  state_digest others_;
  bool other_is_known_ = false;
  index_t first_ = 0;      // of the step's tokens
  index_t goal_ = tokens;  // no step goes beyond it
  std::vector<token_id> ids_;
  std::vector<float> queries_, keys_, values_, made_, lse_;
};

/// @param limits_of_other  the same, for a cache in which nothing fails
/// @return                 what has failed
template <class Policy>
failures_met say_in_spite_of_failures(const Policy& policy, const zoomr::config& limits,
                                      const zoomr::config& limits_of_other) {
  const tape says = speaker<Policy>::text(policy);
  const bits_of expected = speaker<Policy>(policy, limits_of_other, says).all();
  speaker<Policy> speaks(policy, limits, says);
  while (!speaks.done()) speaks.say_after_failures();
  unit::script() = {};
  CHECK(speaks.out_ == expected);
  return speaks.met;
}

/// Transfers that fail, without rollbacks and with them.
template <class Policy>
void check_failing_commits(const char* name, const Policy& policy) {
  using tiers = zoomr::tiered<zoomr::lru, unit::scripted_transfers>;
  CAPTURE(std::string(name));
  const auto moved = with_placement(policy, tiers{});
  using speaks = speaker<std::remove_const_t<decltype(moved)>>;
  for (const index_t undo : {0, 7}) {
    CAPTURE(undo);
    const zoomr::config limits =
        tiered_limits(speaks::model, moved, with_voters(moved, speaks::limits(undo), speaks::model), 6);
    const failures_met met = say_in_spite_of_failures(moved, limits, limits);
    CHECK(met.calls > 5);
    constexpr bool evicts = decltype(policy.evict)::observes;
    constexpr bool while_decoding = requires { policy.evict.every; };
    constexpr bool makes_summaries = Policy::selects && !asks_voters<Policy>;  // voters' keys are at hand
    if (makes_summaries || evicts) CHECK(met.commits > 1);
    if (Policy::selects && evicts && while_decoding) CHECK(met.renewals > 0);
    if (Policy::selects && undo > 0 && met.commits > 5) CHECK(met.rollbacks > 0);
  }
}

/// Steps that are dropped, and calls that are refused, where all details are at hand: no commit can fail.
template <class Policy>
void check_dropped_steps(const char* name, const Policy& policy) {
  CAPTURE(std::string(name));
  for (const index_t undo : {0, 7}) {
    CAPTURE(undo);
    say_in_spite_of_failures(policy, speaker<Policy>::limits(undo), speaker<Policy>::limits(undo));
  }
}

/// The sources that share the policies, so that each is compiled once.
enum class share { evicts, chooses_thoughts_or_nothing, chooses_segments };
template <class Policy>
constexpr share share_of() {
  if (decltype(Policy::evict)::observes) return share::evicts;
  constexpr bool thoughts = requires(const Policy& of) { of.segment.prompt_piece; };
  const bool all = thoughts || std::same_as<decltype(Policy::segment), zoomr::unsegmented>;
  return all ? share::chooses_thoughts_or_nothing : share::chooses_segments;
}

/// Calls `test(name, policy)` for each policy of a source's share, if it can be in tiers.
template <share Own, class Test>
void for_each_in_tiers(Test test) {
  for_each_policy([&](const char* name, const auto& policy) {
    using policy_type = std::remove_cvref_t<decltype(policy)>;
    if constexpr (share_of<policy_type>() == Own && !reads_all_keys<policy_type>) test(name, policy);
  });
}

}  // namespace zoomr_test
