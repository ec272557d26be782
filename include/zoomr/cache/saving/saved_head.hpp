// SPDX-License-Identifier: Apache-2.0
// L6. The first section of a saved sequence: for which model, under which policy, how long it is. Reading it decides
// whether this cache can go on with such a sequence. Nothing is changed here.
#pragma once

#include <zoomr/cache/host/core.hpp>
#include <zoomr/cache/saving/saved_rule.hpp>

#include <algorithm>    // std::find_if, std::max
#include <cstring>      // std::memcmp, std::memcpy, std::strlen
#include <string>       // std::string, std::to_string
#include <string_view>  // std::string_view
#include <type_traits>  // std::is_floating_point_v

namespace zoomr::inline v0::detail {

/// Why a sequence has no room in a cache.
[[noreturn]] inline void no_room_to_load(const std::string& cause) { raise(errc::capacity, "load: " + cause); }

/// Numbers of fixed size, as the section has them. Those of a state, by its names; `tokens` and `prompt_end` come back
/// with the classes of the tokens.
struct saved_counts {
  index_t tokens = 0;
  index_t prompt_end = -1;
  index_t kept = 0;
  index_t compacted_end = 0;
  index_t rollback_floor = 0;
  index_t observed_end = 0;
  index_t freed_pages = 0;
  index_t unclassified = 0;  // 0 or 1: some tokens came without config.classes, to this cache or to one before it
  index_t evictions_from = 0;
  statistics stats;

  saved_counts(const sequence_state& state, const config& limits)
      : tokens(state.tokens()),
        prompt_end(state.prompt_end),
        kept(state.kept_each.committed),
        compacted_end(state.compacted_end),
        rollback_floor(state.rollback_floor),
        observed_end(state.observed_end),
        freed_pages(state.freed_pages),
        unclassified(tokens > 0 && (state.unclassified || limits.classes.size() == 0) ? 1 : 0),
        evictions_from(state.evictions_from),
        stats(state.stats) {}

  /// visit(number) for each, in the order of the file.
  template <class Visit>
  void each(Visit visit) {
    for (index_t* number : {&tokens, &prompt_end, &kept, &compacted_end, &rollback_floor, &observed_end, &freed_pages,
                            &unclassified, &evictions_from}) {
      visit(*number);
    }
    each_counter(stats, visit);
  }
  template <class Stats, class Visit>
  static void each_counter(Stats& stats, Visit visit) {
    for (auto* count : {&stats.prompt_tokens, &stats.tokens, &stats.passes, &stats.taken, &stats.attended,
                        &stats.refreshes, &stats.zooms, &stats.chosen}) {
      visit(*count);
    }
    visit(stats.agreeability_sum);
    visit(stats.agreeability_count);
    visit(stats.entropy_sum);
    visit(stats.entropy_count);
    visit(stats.unsure);
    visit(stats.unsure_tokens);
    visit(stats.captured_sum);
    visit(stats.captured_count);
    visit(stats.device_peak);
  }

  /// They do not contradict each other.
  /// @param windowed  layers have a window: pages are freed in the prompt too
  bool possible(bool windowed) const {
    const bool all_held = kept > 0 || (prompt_end < 0 && !windowed);
    const index_t last_eviction = (std::max)(prompt_end, observed_end);  // no rollback goes before it
    bool fits = within(tokens, 0, config::most_tokens) && within(rollback_floor, 0, config::most_tokens) &&
                (prompt_end == -1 || within(prompt_end, 1, tokens)) &&
                within(observed_end, 0, tokens > 0 ? tokens : config::most_tokens) &&
                within(freed_pages, 0, all_held ? 0 : tokens / page_tokens) && within(unclassified, 0, 1) &&
                (prompt_end < 0 ? evictions_from == 0 : within(evictions_from, prompt_end, tokens)) &&
                (kept == 0 ? compacted_end == 0
                           : prompt_end > 0 && within(compacted_end, prompt_end, last_eviction) &&
                                 within(kept, 1, compacted_end));
    each_counter(stats, [&](auto counter) {
      if constexpr (std::is_floating_point_v<decltype(counter)>) {
        fits = fits && !(counter < 0);  // where keys were not finite it is not, or no number
      } else {
        fits = fits && counter >= 0 && counter < too_many_bytes;
      }
    });
    return fits;
  }

 private:
  static bool within(index_t number, index_t least, index_t most) { return number >= least && number <= most; }
};

/// Adds up the length of a text.
class text_length final : public text_taker {
 public:
  void take(std::string_view piece) override { bytes += static_cast<byte_count>(piece.size()); }
  byte_count bytes = 0;
};

/// A text as bytes of a section: writes it, or compares it with what is read.
template <class Archive>
class archived_text final : public text_taker {
 public:
  explicit archived_text(Archive& archive) : archive_(archive) {}
  void take(std::string_view piece) override {
    char chunk[64];
    while (!piece.empty()) {
      const std::size_t count = piece.copy(chunk, sizeof chunk);
      archive_.numbers(chunk, static_cast<std::int64_t>(count));
      same = same && std::memcmp(chunk, piece.data(), count) == 0;
      piece.remove_prefix(count);
    }
  }
  bool same = true;

 private:
  Archive& archive_;
};

/// @tparam Archive  section_writer or section_reader
template <class Pool, class Archive>
class saved_head {
  using number = typename Pool::number;

 public:
  /// @param state  to write; of one that was just opened nothing is taken
  saved_head(const cache_core<Pool>& core, const sequence_state& state, Archive& archive)
      : core_(core), policy_(core.policy), sizes_(core.sizes), archive_(archive), counts_(state, core.limits) {}

  /// @throws error(format) if it is damaged, or cannot be loaded here; error(capacity) if it has too many tokens;
  ///         whatever the archive throws
  void section() {
    std::string cause;
    archive_.section("head", [&] {
      cause = model();
      if (!cause.empty()) return archive_.skip(archive_.left());  // what it is decides how long it is
      same_policy_ = policy();
      counts_.each([&](auto& count) { archive_.number(count); });
    });
    if (!cause.empty()) refuse_file(cause);
    archive_.expect(counts_.possible(core_.limits.logits.window > 0), "its numbers contradict each other");
    if constexpr (Archive::reads) expect_loadable();
  }
  const saved_counts& counts() const { return counts_; }
  /// The policy chooses as the one that has saved it.
  bool same_policy() const { return same_policy_; }

 private:
  // Flags of the model.
  static constexpr index_t in_keys = 1, share_keys = 2;

  // Why its keys and values are not of this cache's kind; empty if they are.
  std::string model() {
    const shape& m = sizes_.model;
    shape found = m;
    found.value_dim = m.value_width();
    const index_t own_flags = (m.values_in_keys ? in_keys : 0) + (sizes_.stored == m ? 0 : share_keys);
    index_t flags = own_flags;
    for (index_t* size : {&found.layers, &found.heads, &found.kv_heads, &found.head_dim, &found.value_dim, &flags}) {
      archive_.number(*size);
    }
    archive_.expect(found.value_dim > 0 && flags >= 0 && flags <= in_keys + share_keys,
                    "its values have a width that cannot be");
    found.values_in_keys = (flags & in_keys) != 0;
    char own[16] = {}, name[16];
    const std::string stored = std::string(storage_name<number>()) + (core_.hadamard.transforms() ? "_hadamard" : "");
    std::memcpy(own, stored.data(), stored.size());
    std::memcpy(name, own, sizeof name);
    archive_.numbers(name, 16);
    if (found != m) {
      return "the sequence's model has the shape " + text(found) + ", this cache's " + text(m) +
             " [layers, heads, kv_heads, head_dim, value_dim]" +
             (found.values_in_keys == m.values_in_keys ? ""
              : found.values_in_keys                   ? ", its values lie in its keys"
                                                       : ", this cache's values lie in its keys");
    }
    if (std::memcmp(name, own, sizeof name) != 0) {
      const std::string other(
          name, std::find_if(name, name + 16, [](char c) { return c < 'a' && (c < '0' || c > '9') && c != '_'; }));
      return "its keys and values are stored as " + other + ", this cache's as " + stored;
    }
    bool same_donors = flags == own_flags;
    for (index_t layer = 0; same_donors && (flags & share_keys) != 0 && layer < m.layers; ++layer) {
      const index_t own_donor = core_.donors.layer_of(core_.donors.stored(layer));
      index_t donor = own_donor;
      archive_.number(donor);
      same_donors = donor == own_donor;
    }
    if (!same_donors) return "other layers of its model share keys than this cache's config.donors says";
    const bool same_keys = scales(core_.limits.key_scale);
    const bool same_values = scales(core_.limits.value_scale);
    const saved_rule own_rule(core_.limits.logits, m);
    saved_rule rule = own_rule;
    saved_rule::each(rule, [&](auto& field) { archive_.number(field); });
    if (!same_keys || !same_values) {
      return std::string("its ") + (same_keys ? "values" : "keys") +
             " are stored under other scales than this cache's config says";
    }
    const char* const field = rule.difference(own_rule);
    if (field == nullptr) return {};
    return std::string("its keys and values were computed under another config.logits.") + field + " than this cache's";
  }
  static std::string text(const shape& model) {
    return shape_text(extents<5>{{model.layers, model.heads, model.kv_heads, model.head_dim, model.value_width()}});
  }
  // One for all KV lanes, or one for each.
  // @return  they are this cache's
  bool scales(const storage_scale& own) {
    const index_t lanes = sizes_.model.kv_lanes();
    index_t count = own.each.data() == nullptr ? 1 : lanes;
    archive_.number(count);
    archive_.expect(count == 1 || count == lanes, "there are more scales than KV lanes, or fewer");
    bool same = true;
    float scale = 0.0f;
    for (index_t i = 0; i < lanes; ++i) {
      const float expected = own.at(i / sizes_.model.kv_heads, i % sizes_.model.kv_heads);
      if (i < count) {
        scale = expected;
        archive_.number(scale);
      }
      same = same && scale == expected;
    }
    return same;
  }

  // @return  it is this cache's
  bool policy() {
    text_length length;
    policy_.write_text(length);
    byte_count bytes = length.bytes;
    archive_.number(bytes);
    archive_.expect(bytes >= 0 && bytes <= archive_.left(), "its policy is longer than the section");
    if (bytes != length.bytes) {
      archive_.skip(bytes);
      return false;
    }
    archived_text<Archive> text(archive_);
    policy_.write_text(text);
    return text.same;
  }

  // What the cache, and its policy, cannot go on with: docs/sequence_format.md has the list.
  void expect_loadable() const {
    if (counts_.tokens > core_.limits.max_tokens) {
      no_room_to_load("the sequence has " + std::to_string(counts_.tokens) + " tokens, config.max_tokens is " +
                      std::to_string(core_.limits.max_tokens));
    }
    const auto refuse_if = [](bool it_is, const char* cause) {
      if (it_is) refuse_file(cause);
    };
    const bool windowed = core_.limits.logits.window > 0;
    refuse_if(
        counts_.freed_pages > 0 && windowed && policy_.selects,
        "pages were freed that the window of its layers had passed, but this cache's policy makes summaries of all "
        "keys");
    refuse_if(
        counts_.freed_pages > 0 && !windowed && !(same_policy_ && policy_.placement.frees_unreachable),
        "pages were freed that no query of its policy can reach: only a cache of the same policy, with a placement "
        "that frees them too, can go on with it");
    refuse_if(counts_.unclassified == 1 && policy_.reads_classes,
              "some of its tokens came without config.classes, but this cache's policy depends on classes of tokens");
    if (same_policy_ || counts_.tokens == 0) return;
    refuse_if(counts_.kept > 0, "its policy has evicted tokens: only a cache of the same policy can go on with it");
    const bool ended = counts_.prompt_end >= 0;
    const bool evicts = policy_.evict.observes && sizes_.kept > 0;
    refuse_if(evicts && ended,
              "it was saved under another policy, and this cache's would have evicted tokens by queries that are not "
              "known: only a prompt that has not ended can be loaded");
    refuse_if(evicts && policy_.evict.accumulates && !policy_.zone.prompt,
              "it was saved under another policy, and this cache's adds up attention from the first token on, of which "
              "nothing is known");
    refuse_if(ended && policy_.selects && policy_.refresh.only_after_prefill,
              "it was saved under another policy, and this cache's chooses only at the end of the prompt, which has "
              "passed");
  }

  const cache_core<Pool>& core_;
  const any_policy& policy_;
  const layout& sizes_;
  Archive& archive_;
  saved_counts counts_;
  bool same_policy_ = true;
};

}  // namespace zoomr::inline v0::detail
