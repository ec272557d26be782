// SPDX-License-Identifier: Apache-2.0
// L6. The host's half of a device cache: sequences, pages, where choices lie, and the tables that steps upload. Nothing
// here waits for the device.
#pragma once

#include <zoomr/cache/device_layout.cuh>
#include <zoomr/cache/device_sequence.cuh>
#include <zoomr/cache/device_uploads.cuh>
#include <zoomr/cache/evicting.hpp>
#include <zoomr/cache/sequences.hpp>

#include <optional>  // std::optional
#include <vector>    // std::vector

namespace zoomr {
inline namespace v0 {

/// Everything but the public calls.
template <class Policy, class T>
struct device_core {
  Policy policy;
  config limits;
  device_sizes sizes;
  device_arrays<Policy, T> arrays;
  page_stock stock;
  std::vector<device_sequence<Policy>> states;  // [sequences]
  std::vector<planned_token> planned;           // [step_tokens]
  std::vector<device_item> items;               // [sequences]  of the step in progress
  bool stepping = false;
  index prompt_tokens = 0;    // of the step in progress
  index decoding_shares = 0;  // of its first pass: those before the prompts'

  static constexpr index tables = table_ring::of_step;  // first pass, second pass, choices after a prompt
  device_table on_device[std::size_t{tables}];
  table_ring uploads;
  std::optional<side_stream> beside;  // for what the next layer will read
  step_layers layers;                 // of the pass in progress

  device_core(const shape& model, const Policy& with, const config& given, index splits, void* memory, stream on,
              void* details)
      : policy(with),
        limits(given),
        sizes(sized(model, with, given, splits)),
        stock(sizes.pages),
        planned(static_cast<std::size_t>(given.step_tokens)),
        uploads(sizes),
        layers(model.layers) {
    carver from(memory);
    carve(arrays, from, sizes, on_device);
    if constexpr (tiered_store<decltype(Policy::store)>) {
      arrays.pool = static_cast<T*>(details), arrays.arena.clear(on);
      if (policy.store.prefetch && model.layers > 1) beside.emplace();
    }
    zero_on_device(arrays.arrived, sizes.attending_heads() * static_cast<byte_count>(sizeof(unsigned)), on);
    items.reserve(static_cast<std::size_t>(given.sequences));
    states.resize(static_cast<std::size_t>(given.sequences));
    for (device_sequence<Policy>& state : states) {
      state.classes.reserve(static_cast<std::size_t>(given.tokens));
      state.pages.reserve(static_cast<std::size_t>(sizes.sequence_pages));
      state.segments.reserve(static_cast<std::size_t>(sizes.segments));
      state.after_close.reserve(static_cast<std::size_t>(sizes.segments));
      state.choices.reserve(static_cast<std::size_t>(sizes.ring) + 1);
    }
  }

  /// Device memory that such a cache needs.
  static byte_count bytes_of(const device_sizes& of) {
    carver count;
    device_arrays<Policy, T> none;
    device_table none_either[std::size_t{tables}];
    carve(none, count, of, none_either);
    return count.used();
  }

  /// The arena of a tiered store has what is left of `config.tiers.device`.
  static device_sizes sized(const shape& model, const Policy& with, const config& given, index splits) {
    device_sizes made(model, with, given, splits);
    if constexpr (tiered_store<decltype(Policy::store)>) {
      const byte_count slot = made.page_numbers() * static_cast<byte_count>(sizeof(T)) + device_arena<T>::slot_bytes;
      const byte_count others = bytes_of(made) + 5 * carver::alignment;  // of the arena and its four tables
      ZOOMR_EXPECTS(given.tiers.device >= others + slot,
                    "config: tiers.device is " + std::to_string(given.tiers.device) + " bytes; it must be at least " +
                        std::to_string(others + slot) + ", for summaries, tables and a page of one layer");
      made.arena_slots = static_cast<index>(
          std::min<byte_count>((given.tiers.device - others) / slot, std::int64_t{model.layers} * made.pages));
    }
    return made;
  }

  /// Table `t` of the step in progress, pinned.
  const device_table& on_host(index t) const { return uploads.at(t); }

  device_sequence<Policy>& state(index id) { return states[static_cast<std::size_t>(id)]; }

  /// Gives back the pages behind the committed tokens.
  void trim(device_sequence<Policy>& trimmed) { trim_pages(trimmed.pages, trimmed.slots(), stock); }

  /// The place where the next choice of a sequence that stays in force goes.
  index next_place(index id) {
    if (!sizes.persists) return -1;
    const device_sequence<Policy>& of = state(id);
    const index last = of.choices.empty() ? sizes.ring - 1 : of.choices.back().place % sizes.ring;
    return id * sizes.ring + (last + 1) % sizes.ring;
  }

  void put_in_force(const device_item& item) {
    device_sequence<Policy>& of = state(item.plan.seq);
    of.choices.push_back({item.plan.last(), item.place});
    if (static_cast<index>(of.choices.size()) < sizes.ring) return;
    of.choices.erase(of.choices.begin());
    of.dropped = true;
  }

  void roll_back(device_sequence<Policy>& undone, index to) {
    if (to < undone.prompt_end) {
      undone.choices.clear();
      undone.dropped = false;
      undone.undo_floor = std::max(0, to - limits.undo());
      undone.observed_end = std::min(undone.observed_end, to);
    }
    undone.go_back(policy.segment, to);
    undone.known_segments = std::min(undone.known_segments, undone.segment_count());
    while (!undone.choices.empty() && undone.choices.back().position >= to) undone.choices.pop_back();
    trim(undone);
  }

  /// Lists for table `t` the segments that the device does not know yet. It does once the step is committed.
  void list_closings(index t, index id) {
    const device_table& table = on_host(t);
    const device_sequence<Policy>& of = state(id);
    for (index known = of.known_segments; known < of.segment_count(); ++known) {
      ZOOMR_ASSERT(table.counts->closings < sizes.most_closings(), "a table has too few entries for closed segments");
      table.closings[table.counts->closings++] = {id, known, of.segments[static_cast<std::size_t>(known)], held(of)};
    }
  }

  static held_slots held(const device_sequence<Policy>& of) { return {of.kept_each, of.compacted_end}; }

  /// Tokens that each lane will keep of the prompt that an item ends; 0: all of it.
  index kept_of_prompt(const planned_item& plan) const {
    if constexpr (decltype(policy.retain)::observes) {
      const index kept = policy.retain.kept(plan.first + plan.tokens);
      if (sizes.kept > 0 && plan.prompt_ends && !policy.zone.prompt && kept < plan.first + plan.tokens) return kept;
    }
    return 0;
  }

  /// The queries of this chunk of a prompt count: the policy adds up attention, or the prompt ends here.
  bool observes(const planned_item& plan) const {
    return kept_of_prompt(plan) > 0 || (plan.prompt && sizes.carried > 0 && !policy.zone.prompt);
  }

  /// Lists for table `t` the pages of slots [first, last).
  void list_pages(index t, index id, index first, index last) {
    const device_table& table = on_host(t);
    for (index at = first / page_tokens; at < pages_for(last); ++at) {
      ZOOMR_ASSERT(table.counts->pages < sizes.most_pages(), "a table has too few entries for pages");
      table.pages[table.counts->pages++] = {id, at, state(id).pages[static_cast<std::size_t>(at)]};
    }
  }

  /// One token of an item.
  device_token token_of(const device_item& item, const planned_token& known, index position, bool second_pass) {
    const planned_item& plan = item.plan;
    const device_sequence<Policy>& of = state(plan.seq);
    const index prompt_end = of.in_prompt() ? position + 1 : of.prompt_end;
    const bool last = position == plan.last();
    device_token made;
    made.sequence = plan.seq;
    made.position = position;
    made.slot = of.slot_end(position);
    made.held = held(of);
    made.segments = of.segment_count();
    made.sums = position + 1 - std::max(known.asks_from, prompt_end);
    made.reads = of.choices.empty() ? -1 : of.choices.back().place;
    made.zone = {policy.zone.front(position, prompt_end), policy.zone.back(position, prompt_end, plan.open_begin),
                 position + 1};
    made.prompt = plan.prompt;
    made.noted = plan.prompt && plan.chooses && last;
    made.dense = plan.prompt || position < limits.dense_below || known.action == refresh_action::everything;
    if (second_pass) made.reads = item.place;
    if (!second_pass && !plan.prompt && plan.chooses && last) made.chooses = item.place;
    made.if_drifted = known.action == refresh_action::choose_if_drifted;
    return made;
  }

  void clear_table(index t) { *on_host(t).counts = {}; }

  /// Adds a token to table `t`.
  /// @param row  of the queries
  void list_token(index t, const device_item& item, index position, index row, bool second_pass) {
    const device_table& table = on_host(t);
    const planned_token& known = planned[static_cast<std::size_t>(item.plan.planned + position - item.plan.first)];
    device_token made = token_of(item, known, position, second_pass);
    made.row = row;
    const bool for_itself = Policy::selects && !sizes.persists && known.action == refresh_action::choose;
    if (for_itself && !made.dense) made.chooses = table.counts->tokens;
    table.tokens[table.counts->tokens++] = made;
  }
  /// Says that the last `tokens` tokens of table `t` are of one sequence, and read together as far as that goes.
  void list_shares(index t, index tokens) {
    const device_table& table = on_host(t);
    for (index left = tokens; left > 0;) {
      const index shared = std::min(left, sizes.sharing());
      table.shares[table.counts->shares++] = {table.counts->tokens - left, shared};
      left -= shared;
    }
  }

  /// Fills the first pass's table: tokens after the prompt come first.
  void list_step() {
    clear_table(0);
    prompt_tokens = 0;
    for (const bool prompt : {false, true}) {
      for (const device_item& item : items) {
        if (item.plan.prompt != prompt) continue;
        for (index i = 0; i < item.plan.tokens; ++i) {
          list_token(0, item, item.plan.first + i, item.plan.packed + i, false);
        }
        list_shares(0, item.plan.tokens);
        prompt_tokens += prompt ? item.plan.tokens : 0;
      }
      if (!prompt) decoding_shares = on_host(0).counts->shares;
    }
    for (const device_item& item : items) {
      list_closings(0, item.plan.seq);
      const device_sequence<Policy>& of = state(item.plan.seq);
      list_pages(0, item.plan.seq, of.slot_end(item.plan.first), of.slot_end(item.plan.first + item.plan.tokens));
    }
  }

  /// Makes the first `accepted` tokens of an item part of its sequence. What a prompt has closed, and what the first
  /// choice after it needs, is listed in the last table: a step after the prompt closes at most three segments, so that
  /// the next one's table has room for all.
  void commit_item(device_item& item, index accepted) {
    const planned_item& plan = item.plan;
    device_sequence<Policy>& of = state(plan.seq);
    if (accepted == 0) return;
    of.known_segments = of.segment_count();
    commit_tokens(policy, of, view<const planned_token>(planned).slice(plan.planned, plan.planned + accepted),
                  plan.prompt_ends, limits.undo());
    if (plan.prompt) of.queries_from = std::max(of.queries_from, of.tokens() - (plan.heard ? sizes.remembered : 0));
    if (policy.store.evicts) evict_unreachable(policy, limits.undo(), of, stock);
    item.due = retain_now(policy, limits, sizes.kept, sizes.carried > 0, of, of.sums, plan.prompt);
    if (plan.prompt || item.due.kept > 0) {
      list_closings(2, plan.seq);
      of.known_segments = of.segment_count();
    }
    if (!plan.chooses || accepted < plan.tokens) return;
    put_in_force(item);
    if (plan.prompt) list_first_choice(item);
  }

  /// Blocks that share the scoring of one row: enough to spread a long index, few enough for a short one.
  index score_blocks() const { return std::min<index>(64, sizes.segments / 128 + 1); }

 private:
  void list_first_choice(const device_item& item) {
    device_sequence<Policy>& of = state(item.plan.seq);
    const index position = of.tokens() - 1;
    const index open_begin = policy.segment.open_begin(of.segmenting);
    device_token asks;
    asks.sequence = asks.row = item.plan.seq;
    asks.position = position;
    asks.slot = of.slot_end(position);
    asks.held = held(of);
    asks.segments = of.segment_count();
    asks.chooses = item.place;
    asks.zone = {policy.zone.front(position, of.prompt_end), policy.zone.back(position, of.prompt_end, open_begin),
                 position + 1};
    asks.prompt = true;
    const device_table& table = on_host(2);
    table.tokens[table.counts->tokens++] = asks;
  }

  // The first table is that of the arrays; all lie one after the other.
  static void carve(device_arrays<Policy, T>& made, carver& from, const device_sizes& of,
                    device_table (&each)[std::size_t{tables}]) {
    for (device_table& table : each) table = carve_table(from, of);
    made.carve(from, of);
    made.table = each[0];
  }
};

}  // namespace v0
}  // namespace zoomr
