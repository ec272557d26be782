// SPDX-License-Identifier: Apache-2.0
// L6. What a saved sequence says of itself before its tokens: for which model, under which policy, how long it is, and
// whether this cache can go on with it. Nothing is changed here.
#pragma once

#include <zoomr/cache/host/core.hpp>
#include <zoomr/cache/saving/saved_parts.hpp>
#include <zoomr/cache/saving/saved_rule.hpp>
#include <zoomr/cache/saving/section_reader.hpp>

#include <algorithm>    // std::find_if, std::max, std::min
#include <cstring>      // std::memcmp, std::memcpy, std::strlen
#include <string>       // std::string, std::to_string
#include <type_traits>  // std::is_floating_point_v

namespace zoomr::inline v0::detail {

/// Compares a text with the bytes of a section.
class text_comparison final : public text_taker {
 public:
  explicit text_comparison(section_reader& in) : in_(in) {}
  void take(std::string_view piece) override {
    char some[64];
    while (!piece.empty()) {
      const std::size_t count = (std::min)(piece.size(), sizeof some);
      in_.get(some, static_cast<std::int64_t>(count));
      same = same && std::memcmp(some, piece.data(), count) == 0;
      piece.remove_prefix(count);
    }
  }
  bool same = true;

 private:
  section_reader& in_;
};

/// Why a sequence has no room in a cache.
[[noreturn]] inline void no_room_to_load(const std::string& why) { raise(errc::capacity, "load: " + why); }

/// Reads the first section.
template <class Pool>
class header_loader {
  using number = typename Pool::number;

 public:
  header_loader(const cache_core<Pool>& core, section_reader& in)
      : core_(core), policy_(core.policy), sizes_(core.sizes), in_(in) {}

  /// @throws error(format) if it is no saved sequence, is damaged, or cannot be loaded here; error(capacity) if it has
  ///         too many tokens; whatever the source throws
  void load() {
    in_.prologue();
    in_.begin("head");
    const std::string why = model();
    if (why.empty()) {
      policy();
      saved_counts::each(counts_, [&](auto& field) { in_.get(&field, 1); });
    } else {
      in_.skip(in_.left());  // what it is decides how long it is
    }
    in_.end();
    if (!why.empty()) refuse_file(why);
    expect_possible();
    expect_loadable();
  }
  /// Numbers that do not contradict each other.
  const saved_counts& counted() const { return counts_; }
  /// The policy chooses as the one that has saved it.
  bool same_policy() const { return same_; }

 private:
  // Why its keys and values are not of this cache's kind; empty if they are.
  std::string model() {
    const shape& m = sizes_.model;
    shape found;
    for (index_t* each : {&found.layers, &found.heads, &found.kv_heads, &found.head_dim, &found.value_dim}) {
      *each = in_.get<index_t>();
    }
    const auto in_keys = in_.get<index_t>();
    in_.expect(found.value_dim > 0 && (in_keys == 0 || in_keys == 1), "its values have a width that cannot be");
    found.values_in_keys = in_keys == 1;
    char name[16], wanted[16] = {};
    in_.get(name, 16);
    std::memcpy(wanted, storage_name<number>(), std::strlen(storage_name<number>()));
    if (found != m) {
      return "the sequence's model has the shape " + text(found) + ", this cache's " + text(m) +
             " [layers, heads, kv_heads, head_dim, value_dim]" +
             (found.values_in_keys == m.values_in_keys ? ""
              : found.values_in_keys                   ? ", its values lie in its keys"
                                                       : ", this cache's values lie in its keys");
    }
    if (std::memcmp(name, wanted, sizeof name) != 0) {
      const std::string other(
          name, std::find_if(name, name + 16, [](char c) { return c < 'a' && (c < '0' || c > '9') && c != '_'; }));
      return "its keys and values are stored as " + other + ", this cache's as " + storage_name<number>();
    }
    const bool same_keys = same_scales(core_.limits.key_scale);
    const bool same_values = same_scales(core_.limits.value_scale);
    saved_rule rule;
    saved_rule::each(rule, [&](auto& field) { in_.get(&field, 1); });
    if (!same_keys || !same_values) {
      return std::string("its ") + (same_keys ? "values" : "keys") +
             " are stored under other scales than this cache's config says";
    }
    const saved_rule own(core_.limits.logits, m);  // by its name: nvcc takes no braced list here
    const char* const field = rule.difference(own);
    if (field == nullptr) return {};
    return std::string("its keys and values were computed under another config.logits.") + field + " than this cache's";
  }
  static std::string text(const shape& model) {
    return shape_text(extents<5>{{model.layers, model.heads, model.kv_heads, model.head_dim, model.value_width()}});
  }
  bool same_scales(const storage_scale& wanted) {
    const index_t lanes = sizes_.model.kv_lanes();
    const auto count = in_.get<index_t>();
    in_.expect(count == 1 || count == lanes, "there are more scales than KV lanes, or fewer");
    bool same = true;
    float found = 0.0f;
    for (index_t i = 0; i < lanes; ++i) {
      if (i < count) found = in_.get<float>();
      same = same && found == wanted.at(i / sizes_.model.kv_heads, i % sizes_.model.kv_heads);
    }
    return same;
  }

  void policy() {
    const auto bytes = in_.get<byte_count>();
    in_.expect(bytes >= 0 && bytes <= in_.left(), "its policy is longer than the section");
    text_length length;
    policy_.write_text(length);
    text_comparison text(in_);
    if (length.bytes == bytes) {
      policy_.write_text(text);
    } else {
      in_.skip(bytes);
    }
    same_ = length.bytes == bytes && text.same;
  }

  void expect_possible() const {
    const saved_counts& c = counts_;
    bool possible = within(c.tokens, 0, config::most_tokens) && within(c.rollback_floor, 0, config::most_tokens);
    possible = possible && (c.prompt_end == -1 || within(c.prompt_end, 1, c.tokens));
    possible = possible && within(c.observed_end, 0, c.tokens > 0 ? c.tokens : config::most_tokens);
    const bool all_held = c.kept > 0 || (c.prompt_end < 0 && core_.limits.logits.window == 0);
    possible = possible && within(c.freed_pages, 0, all_held ? 0 : c.tokens / page_tokens);
    possible = possible && within(c.unclassified, 0, 1);
    possible =
        possible && (c.prompt_end < 0 ? c.evictions_from == 0 : within(c.evictions_from, c.prompt_end, c.tokens));
    const index_t last_eviction = (std::max)(c.prompt_end, c.observed_end);  // no rollback goes before it
    possible = possible && (c.kept == 0 ? c.compacted_end == 0
                                        : c.prompt_end > 0 && within(c.compacted_end, c.prompt_end, last_eviction) &&
                                              within(c.kept, 1, c.compacted_end));
    saved_counts::each_counter(c.stats, [&](const auto& counter) {
      if constexpr (std::is_floating_point_v<std::remove_cvref_t<decltype(counter)>>) {
        possible = possible && !(counter < 0);  // where keys were not finite it is not, or no number
      } else {
        possible = possible && counter >= 0 && counter < too_many_bytes;
      }
    });
    in_.expect(possible, "its numbers contradict each other");
    if (c.tokens > core_.limits.max_tokens) {
      no_room_to_load("the sequence has " + std::to_string(c.tokens) + " tokens, config.max_tokens is " +
                      std::to_string(core_.limits.max_tokens));
    }
  }
  static bool within(index_t number, index_t least, index_t most) { return number >= least && number <= most; }

  // What the cache's policy cannot go on with: docs/sequence_format.md has the list.
  void expect_loadable() const {
    const auto refuse_if = [](bool it_is, const char* why) {
      if (it_is) refuse_file(why);
    };
    const bool windowed = core_.limits.logits.window > 0;
    refuse_if(
        counts_.freed_pages > 0 && windowed && policy_.selects,
        "pages were freed that the window of its layers had passed, but this cache's policy makes summaries of all "
        "keys");
    refuse_if(
        counts_.freed_pages > 0 && !windowed && !(same_ && policy_.placement.frees_unreachable),
        "pages were freed that no query of its policy can reach: only a cache of the same policy, with a placement "
        "that frees them too, can go on with it");
    refuse_if(counts_.unclassified == 1 && policy_.reads_classes,
              "some of its tokens came without config.classes, but this cache's policy depends on classes of tokens");
    if (same_ || counts_.tokens == 0) return;
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
  section_reader& in_;
  saved_counts counts_;
  bool same_ = false;
};

}  // namespace zoomr::inline v0::detail
