// SPDX-License-Identifier: Apache-2.0
// The caches of one storage type, SOAK_TYPE: compiled once for each, since each is a cache of its own.
#include <soak/subject.hpp>

namespace soak {
namespace {

namespace small = zoomr_test::small;

using farthest = zoomr::cyclic_mru;
using recent = zoomr::lru;
using frequent = zoomr::lfu;
using at_once = zoomr::sync_transfers;
using beside = zoomr::async_transfers;

/// Adds a preset whose tiers have this order and engine, if its storage type is this one; where the program is built
/// for all of them, in any case.
template <class T, class First, class Order, class Engine, class Policy>
void add_one(std::vector<sort>& all, const char* name, const Policy& policy) {
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
    if constexpr (decltype(Policy::evict)::observes) made.accumulates = policy.evict.accumulates && !policy.zone.prompt;
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
        return make_subject<T>(
            tiered,
            with_tiers<T>(tiered, zoomr_test::with_voters(tiered, limits, stored.shape()), sizes, stored.shape()),
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

template <class T>
void add_each(std::vector<sort>& all) {
  add_one<T, float, recent, at_once>(all, "full", small::full);
  add_one<T, float, recent, at_once>(all, "zoomr_one_pass", small::zoomr_one_pass);
  add_one<T, float, recent, at_once>(all, "sentence_kv", small::sentence_kv);
  add_one<T, float, recent, at_once>(all, "pinned_prompt", small::pinned_prompt);
  add_one<T, bfloat16, farthest, at_once>(all, "window", small::window);
  add_one<T, bfloat16, farthest, at_once>(all, "zoomr_focus", small::zoomr_focus);
  add_one<T, bfloat16, farthest, at_once>(all, "sentence_box", small::sentence_box);
  add_one<T, bfloat16, farthest, at_once>(all, "by_mass", small::by_mass);
  add_one<T, bfloat16, farthest, at_once>(all, "evicting", small::evicting);
  add_one<T, bfloat16, farthest, at_once>(all, "sentence_voters", small::sentence_voters);
  add_one<T, float16, frequent, beside>(all, "focus_each_token", small::focus_each_token);
  add_one<T, float16, frequent, beside>(all, "snapkv", small::snapkv);
  add_one<T, float8, farthest, at_once>(all, "summary_only", small::summary_only);
  add_one<T, float8, farthest, at_once>(all, "zoomr_second_pass", small::zoomr_second_pass);
  add_one<T, float8, farthest, at_once>(all, "quest", small::quest);
  add_one<T, float8, farthest, at_once>(all, "h2o", small::h2o);
  add_one<T, scaled_int8, frequent, at_once>(all, "zoomr_mass", small::zoomr_mass);
  add_one<T, scaled_int8, frequent, at_once>(all, "sentence_kv_published", small::sentence_kv_published);
  add_one<T, mxfp8, frequent, at_once>(all, "arkvale", small::arkvale);
  add_one<T, scaled_int8, frequent, at_once>(all, "r_kv", small::r_kv);
  add_one<T, mxfp8, frequent, at_once>(all, "zoomr_voters", small::zoomr_voters);
#if defined(ZOOMR_SOAK_ALL)  // beside the presets
  add_one<T, float16, recent, at_once>(all, "drifting", small::drifting);
  add_one<T, float8, farthest, at_once>(all, "by_layer", small::by_layer);
#endif
}

}  // namespace

template <>
void add<SOAK_TYPE>(std::vector<sort>& all) {
  add_each<SOAK_TYPE>(all);
}

}  // namespace soak
