// SPDX-License-Identifier: Apache-2.0
// Groups of layers over tiers, in which transfers fail: an item that fails in one group is committed in none, and the
// step that is tried again gets the bits of a cache that never failed.
#include <cache/support/reciting.hpp>
#include <cache/support/saved_bytes.hpp>
#include <cache/support/small_policies.hpp>
#include <cache/support/tiered_limits.hpp>
#include <zoomr/grouped_kv_cache.hpp>
#include <zoomr/policy/placement/tiered.hpp>

#include <memory>  // std::make_unique

#include <paging/engines.hpp>
#include <support/state_digest.hpp>

namespace zoomr_test {
namespace {

using tiers = zoomr::tiered<zoomr::lru, unit::scripted_transfers>;
using tiered_groups = zoomr::grouped_kv_cache<float, tiers>;

constexpr index_t longest = 104;
const std::vector<index_t> group_of{1, 0, 2, 1, 2};

inline constexpr auto evicting = with(small::evicting, [](auto& p) { p.evict.every = 4; });

struct groups {
  explicit groups(bool evicts = true) {
    zoomr::config limits = limits_for(longest, 2);
    limits.rollback_tokens = 0;
    std::vector<zoomr::any_kv_cache<float, tiers>> made;
    add_to(made, {1, 4, 2, 8}, small::zoomr_second_pass, limits);
    if (evicts) {
      add_to(made, {2, 4, 2, 8}, evicting, limits);
      add_to(made, {2, 2, 2, 16}, evicting, limits);  // at the same times
    } else {
      add_to(made, {2, 4, 2, 8}, small::full, limits);
      add_to(made, {2, 2, 2, 16}, small::sentence_kv, limits);
    }
    std::vector<shape> shapes;
    for (const index_t g : group_of) shapes.push_back(made[static_cast<std::size_t>(g)].model());
    cache = std::make_unique<tiered_groups>(std::move(made), view<const index_t>(group_of));
    says = std::make_unique<reciter<tiered_groups>>(*cache, shapes);
    for (index_t s = 0; s < 2; ++s) {
      texts.push_back(make_tape({1, 4, 2, 8}, kind::uniform, s == 0 ? markup::pairs : markup::sentences,
                                longest - s * 7, 20 + s * 9, static_cast<std::uint64_t>(51 + s)));
    }
    for (const tape& text : texts) says->open(text);
  }

  template <class Policy>
  static void add_to(std::vector<zoomr::any_kv_cache<float, tiers>>& made, const shape& model, const Policy& preset,
                     const zoomr::config& limits) {
    const auto policy = with_placement(preset, tiers{});
    made.push_back(zoomr::kv_cache(model, policy, tiered_limits(model, policy, limits, 6)));
  }

  std::vector<tape> texts;
  std::unique_ptr<tiered_groups> cache;
  std::unique_ptr<reciter<tiered_groups>> says;
};

/// The summaries of a sequence in one group. Those that a failed commit has made of other tokens are made again, as the
/// next step would.
std::vector<std::byte> summaries(const tiered_groups& of, zoomr::sequence seq, index_t g) {
  auto& core = zoomr::inspection::core(const_cast<zoomr::any_kv_cache<float, tiers>&>(of.group(g)));
  auto& state = core.states[static_cast<std::size_t>(of.in_group(seq, g).id)];
  zoomr::detail::renew_summaries(core, state);
  std::vector<std::byte> made;
  for (index_t lane = 0; lane < core.sizes.model.kv_lanes(); ++lane) {
    const std::byte* first = state.summaries_of(core.sizes, lane);
    made.insert(made.end(), first, first + core.sizes.kv_lane_summary_bytes(state.segment_count()));
  }
  return made;
}

/// Lets the transfer after `later` others fail; < 0: none does.
void arm(std::int64_t later) { unit::script().fails = later < 0 ? -1 : unit::script().made + later; }

TEST_CASE("transfers fail in some group: no group has what another has not, and all goes on as if none had failed") {
  unit::script() = {};
  std::int64_t commits = 0, passes = 0, second_passes = 0, halves = 0;
  groups never;
  never.says->recite_plainly();
  for (const index_t most : {1, 2, 3, 4}) {  // tokens of a draft
    groups some;
    reciter<tiered_groups>& says = *some.says;
    std::int64_t later = -1, again = -1;
    says.before_second_pass = [&] {
      if (again >= 0) arm(again);
    };
    says.before_commit = [&](const std::function<void()>& commit) {
      if (later >= 0) arm(later);
      try {
        commit();
        return true;
      } catch (const zoomr::error& why) {
        CHECK(why.code() == zoomr::errc::storage);
        ++commits;
        return false;
      }
    };
    const auto tokens = [&](index_t v) {
      const index_t all = says.tokens(v);
      for (index_t g = 0; g < 3; ++g) {
        REQUIRE(some.cache->group(g).tokens(some.cache->in_group(says.at(v).seq, g)) == all);
      }
      return all;
    };
    for (index_t round = 0; !says.done(0) || !says.done(1); ++round) {
      const index_t before[] = {tokens(0), tokens(1)};
      const auto index = [&](index_t v, index_t g) {  // none in a prompt
        const zoomr::sequence seq = says.at(v).seq;
        return some.cache->in_prompt(seq) ? std::vector<std::byte>{} : summaries(*some.cache, seq, g);
      };
      const std::vector<std::byte> held[] = {index(0, 1), index(0, 2), index(1, 1), index(1, 2)};
      for (std::int64_t tries = 0;; ++tries) {
        std::vector<part> parts;
        for (index_t v = 0; v < 2; ++v) {
          if (!says.done(v) && tokens(v) == before[v]) parts.push_back(says.next(v, before[v] < 30 ? 9 : most));
        }
        if (parts.empty()) break;
        // In a commit, in a second pass, or anywhere before it: one transfer later than the time before.
        const bool in_commit = round % 4 < 2;
        const std::int64_t next = tries < 40 ? tries + tries * tries / 8 : -1;
        later = in_commit ? next : -1;
        again = round % 4 == 2 ? next : -1;
        if (round % 4 == 3) arm(next < 0 ? -1 : 2 * next);
        const index_t old[] = {tokens(0), tokens(1)};
        bool came = false;
        try {
          came = says.play(parts);
        } catch (const zoomr::error& why) {  // summaries that cannot be made again yet
          REQUIRE(why.code() == zoomr::errc::storage);
        }
        unit::script().fails = -1;
        for (index_t v = 0; v < 2; ++v) {
          if (came || tokens(v) > before[v]) continue;
          for (index_t g = 1; g < 3; ++g) REQUIRE(index(v, g) == held[v * 2 + g - 1]);
        }
        passes += !came && round % 4 == 3 ? 1 : 0;
        halves += parts.size() == 2 && (tokens(0) == old[0]) != (tokens(1) == old[1]) ? 1 : 0;
      }
    }
    second_passes += says.failed_again;
    for (index_t v = 0; v < 2; ++v) CHECK(difference(never.says->at(v).log, says.at(v).log) == "");
  }
  CHECK(commits > 40);
  CHECK(passes > 20);
  CHECK(second_passes > 5);
  CHECK(halves > 10);  // one item has failed, the other has not
  unit::script() = {};
}

TEST_CASE("a span whose pages do not come in some group is erased from none") {
  unit::script() = {};
  groups never(false), some(false);
  const tape& says = never.texts[0];
  const tape left = says.without({40, 47});
  const auto until = [&](groups& of, index_t to) {
    while (of.says->tokens(0) < to)
      of.says->play({of.says->next(0, of.says->tokens(0) < says.prompt ? says.prompt : 1)});
  };
  until(never, 60), until(some, 60);
  const auto erase = [&](groups& of) { of.cache->erase(of.says->at(0).seq, {40, 47}); };
  erase(never);
  const auto saved = [&] {
    memory_sink into;
    some.cache->save(some.says->at(0).seq, into);
    return into.bytes;
  };
  const saved_bytes before = saved();
  index_t failures = 0;
  for (bool failed = true; failed; failures += failed ? 1 : 0) {
    failed = false;
    arm(failures);
    try {
      erase(some);
    } catch (const zoomr::error& why) {
      CHECK(why.code() == zoomr::errc::storage);
      failed = true;
    }
    arm(-1);
    if (failed) REQUIRE(saved() == before);
  }
  CHECK(failures > 10);
  for (groups* of : {&never, &some}) {
    of->says->at(0).says = &left, of->says->at(0).log.clear();
    until(*of, left.size());
  }
  CHECK(difference(never.says->at(0).log, some.says->at(0).log) == "");
  unit::script() = {};
}

}  // namespace
}  // namespace zoomr_test
