// SPDX-License-Identifier: Apache-2.0
// The caches of one storage type, SOAK_TYPE: compiled once for each, since each is a cache of its own.
#include <soak/subject.hpp>

#include <string_view>  // std::string_view
#include <tuple>        // std::tuple

namespace soak {
namespace {

namespace small = zoomr_test::small;

using farthest = zoomr::cyclic_mru;
using recent = zoomr::lru;
using frequent = zoomr::lfu;
using at_once = zoomr::sync_transfers;
using beside = zoomr::async_transfers;

/// Heads that vote by more queries than those of the presets here, at each token, or at few, so that drafts have some.
constexpr auto voters_of_8 = zoomr_test::with(small::sentence_voters, [](auto& p) { p.aggregate.queries = 8; });
constexpr auto seldom_voters = zoomr::compose(
    zoomr::sentences{.longest = 9}, zoomr::key_mass{}, zoomr::head_posterior{.queries = 6},
    zoomr::top_p{.share = 0.9f, .segments = 2}, zoomr::boundaries{.at_most = 5}, zoomr::zones{.sinks = 2, .recent = 5});

/// Adds a policy whose tiers have this order and engine, if its storage type is this one; where the program is built
/// for all of them, in any case.
template <class T, class First, class Order, class Engine, class Policy>
void add_one(std::vector<sort>& all, const char* name, Policy policy) {
#if !defined(ZOOMR_SOAK_ALL)
  if constexpr (std::same_as<T, First>)
#endif
  {
    sort made{.name = name, .type = zoomr::storage_name<T>()};
    if constexpr (zoomr::in_blocks<T>) made.least = {zoomr::numbers_in_block, zoomr::numbers_in_block};
    if constexpr (zoomr_test::reads_keys<Policy>) {
      const zoomr::config voting = zoomr_test::with_voters(policy, {}, model);
      const index_t lanes = zoomr::detail::voter_table::count_kv_lanes(model, voting.voters);
      made.at_hand = zoomr::resident_keys<T>::page_bytes(lanes, made.least.key, false);
    }
    made.frees_unreachable = policy.placement.frees_unreachable;
    made.evicts = decltype(Policy::evict)::observes;
    if constexpr (decltype(Policy::evict)::observes) {
      made.accumulates = policy.evict.accumulates && !policy.zone.prompt;
      policy.zone.question = 5;
      const index_t unchosen = policy.zone.sinks + policy.evict.safe(1 << 20) + policy.zone.question;
      made.pinned_room = policy.evict.kept(1 << 20) - unchosen;
    }
    made.questions = policy.zone.question > 0;
    made.votes = zoomr::share_aggregator<decltype(Policy::aggregate)>;
    if (made.evicts && !policy.zone.prompt) made.kept = policy.evict.kept(1 << 20);
    made.threads = !std::same_as<Engine, zoomr::sync_transfers>;
    made.resident = [policy](const zoomr::config& limits, const widths& stored) {
      return make_subject<T>(policy, zoomr_test::with_voters(policy, limits, stored.shape()), stored);
    };
    if constexpr (!zoomr::scales_rows<T>) {
      made.engine = [policy](const zoomr::config& limits, const widths& stored, const zoomr_test::engine_layout& lies) {
        return std::make_unique<subject_of<zoomr_test::paged_engine<T>>>(
            stored, stored.shape(), policy, zoomr_test::with_voters(policy, limits, stored.shape()), lies);
      };
    }
    if constexpr (!zoomr_test::reads_all_keys<Policy>) {
      const auto tiered = zoomr::with_placement(policy, zoomr::tiered<Order, Engine>{});
      made.tiered = [tiered](const zoomr::config& limits, const widths& stored, const tier_sizes& sizes) {
        return make_subject<T>(tiered,
                               zoomr_test::tiered_limits<T>(stored.shape(), tiered,
                                                            zoomr_test::with_voters(tiered, limits, stored.shape()),
                                                            sizes.frames, sizes.path),
                               stored);
      };
    }
    made.grouped = [policy](const zoomr::config& limits, const widths& stored) {
      return std::make_unique<subject_of<in_groups<T>>>(stored, stored.shape(), policy, limits);
    };
    all.push_back(std::move(made));
  }
}

using zoomr::bfloat16, zoomr::float16, zoomr::float8, zoomr::mxfp8, zoomr::q4_0, zoomr::q8_0, zoomr::scaled_int8;

/// A number that the names of a policy's components give it. By it presets have their storage type, order and engine:
/// all are in use, and a preset needs no line here.
template <class Policy>
constexpr unsigned drawn() {
  unsigned number = 2166136261u;  // FNV-1a
  const auto add = [&](std::string_view name) {
    for (const char letter : name) number = (number ^ static_cast<unsigned char>(letter)) * 16777619u;
  };
  add(decltype(Policy::segment)::name), add(decltype(Policy::evict)::name), add(decltype(Policy::summarize)::name);
  add(decltype(Policy::aggregate)::name), add(decltype(Policy::select)::name), add(decltype(Policy::refresh)::name);
  return number >> 12;
}

template <class T>
void add_each(std::vector<sort>& all) {
  using types = std::tuple<float, bfloat16, float16, float8, scaled_int8, mxfp8>;
  using orders = std::tuple<recent, farthest, frequent>;
  using engines = std::tuple<at_once, at_once, beside>;
  zoomr_test::for_each_preset([&](const char* name, const auto& policy) {
    constexpr unsigned number = drawn<std::remove_cvref_t<decltype(policy)>>();
    constexpr unsigned order = number / 6 % 3;
    add_one<T, std::tuple_element_t<number % 6, types>, std::tuple_element_t<order, orders>,
            std::tuple_element_t<order, engines>>(all, name, policy);
  });
  add_one<T, float, recent, at_once>(all, "pinned_prompt", small::pinned_prompt);
  add_one<T, bfloat16, farthest, at_once>(all, "voters_of_8", voters_of_8);
  add_one<T, float, recent, at_once>(all, "seldom_voters", seldom_voters);
  add_one<T, float16, frequent, beside>(all, "weighted_votes", small::weighted_votes);
  add_one<T, bfloat16, farthest, at_once>(all, "by_mass", small::by_mass);
  add_one<T, bfloat16, farthest, at_once>(all, "evicting", small::evicting);
  add_one<T, float16, frequent, beside>(all, "focus_each_token", small::focus_each_token);
#if defined(ZOOMR_SOAK_ALL)
  add_one<T, float16, recent, at_once>(all, "by_kv_head", small::by_kv_head);
  add_one<T, float8, farthest, at_once>(all, "by_layer", small::by_layer);
#endif
}

}  // namespace

template <>
void add<SOAK_TYPE>(std::vector<sort>& all) {
  add_each<SOAK_TYPE>(all);
}

}  // namespace soak
