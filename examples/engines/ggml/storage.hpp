// SPDX-License-Identifier: Apache-2.0
// A cache of one storage type.
#pragma once

#include <optional>  // std::optional
#include <string>    // std::string, std::to_string
#include <utility>   // std::move

#include "groups.hpp"

namespace adaptor {

/// Layers by their window: a group each, since a cache has one window. Layers without one come first.
struct layer_kinds {
  std::vector<index_t> windows;     // [groups]
  std::vector<index_t> layers;      // [groups]  how many
  std::vector<index_t> group_of{};  // [layers of the model]

  explicit layer_kinds(const cache_settings& settings) {
    for (index_t layer = 0; layer < settings.model.layers; ++layer) {
      const index_t window = settings.windows.empty() ? 0 : settings.windows[static_cast<std::size_t>(layer)];
      std::size_t group = 0;
      while (group < windows.size() && windows[group] != window) ++group;
      if (group == windows.size()) windows.push_back(window), layers.push_back(0);
      ++layers[group];
      group_of.push_back(static_cast<index_t>(group));
    }
  }
};

template <class T>
class typed_cache final : public cache {
  using groups = std::vector<zoomr::any_kv_cache<T>>;

 public:
  explicit typed_cache(const cache_settings& settings) : typed_cache(settings, layer_kinds(settings)) {}

  zoomr::sequence open() override { return cache_.open(); }
  void close(zoomr::sequence seq) override { cache_.close(seq); }
  zoomr::sequence fork(zoomr::sequence from) override { return cache_.fork(from); }
  void rollback(zoomr::sequence seq, index_t tokens) override { cache_.rollback(seq, tokens); }
  void erase(zoomr::sequence seq, zoomr::token_range span, const layer_rotation* turn) override {
    if (turn == nullptr) return cache_.erase(seq, span, zoomr::position_gap{});
    cache_.erase(seq, span, *turn);
  }
  void plan_erase(zoomr::sequence seq, zoomr::token_range span, const layer_rotation* turn) const override {
    if (turn == nullptr) return cache_.plan_erase(seq, span, zoomr::position_gap{});
    cache_.plan_erase(seq, span, *turn);
  }
  void shift(zoomr::sequence seq, zoomr::token_range span, const layer_rotation& turn) override {
    cache_.shift(seq, span, turn.distance(), turn);
  }
  bool holds_all() const override { return cache_.holds_all(); }
  bool evicts_while_decoding() const override { return cache_.evicts_while_decoding(); }
  void save(zoomr::sequence seq, zoomr::byte_sink& to) override { cache_.save(seq, to); }
  zoomr::byte_count save_bytes(zoomr::sequence seq) override { return cache_.save_bytes(seq); }
  zoomr::sequence load(zoomr::byte_source& from) override { return cache_.load(from); }
  index_t tokens(zoomr::sequence seq) const override { return cache_.tokens(seq); }
  index_t model_position(zoomr::sequence seq, index_t token) const override {
    return cache_.model_position(seq, token);
  }
  bool in_prompt(zoomr::sequence seq) const override { return cache_.in_prompt(seq); }
  zoomr::statistics stats(zoomr::sequence seq) const override { return cache_.stats(seq); }
  zoomr::byte_count bytes(zoomr::sequence seq) const override { return cache_.bytes(seq).total(); }
  zoomr::byte_count capacity() const override { return cache_.capacity().total(); }

  index_t longest_whole() const override { return longest_whole_; }
  void plan(const zoomr::step_item& item) const override {
    index_t taken = 0;
    cache_.plan(view<const zoomr::step_item>(&item, {1}), view<index_t>(&taken, {1}));
  }
  void begin(view<const zoomr::step_item> items) override { step_.emplace(cache_.begin(items)); }
  void attend(index_t layer, const rows& q, const rows& k, const rows& v, view<float, 3> out) override {
    switch (k.type) {
      case number::f32:
        step_.value().append(layer, k.as<float>(), v.as<float>());
        break;
      case number::f16:
        step_.value().append(layer, k.as<zoomr::float16>(), v.as<zoomr::float16>());
        break;
      case number::bf16:
        step_.value().append(layer, k.as<zoomr::bfloat16>(), v.as<zoomr::bfloat16>());
        break;
    }
    step_.value().attend(layer, q.as<float>(), out);
  }
  void commit(view<const index_t> accepted) override {
    step_.value().commit(accepted);
    step_.reset();
  }
  void drop() override { step_.reset(); }

 private:
  typed_cache(const cache_settings& settings, const layer_kinds& kinds)
      : longest_whole_(longest_whole(settings)),
        cache_(open_groups(settings, kinds), view<const index_t>(kinds.group_of)) {}

  // Where there are no later prompts, all of a graph.
  static index_t longest_whole(const cache_settings& settings) {
    const zoomr::config& limits = settings.limits;
    return frees_unreachable(settings.policy) ? limits.max_batched_tokens : limits.max_draft_tokens;
  }
  static groups open_groups(const cache_settings& settings, const layer_kinds& kinds) {
    const std::string question = std::to_string(question_tokens(settings.policy));  // which no group may refuse
    groups opened;
    for (std::size_t group = 0; group < kinds.windows.size(); ++group) {
      cache_settings own = settings;
      own.model.layers = kinds.layers[group];
      own.limits.logits.window = kinds.windows[group];
      if (kinds.windows[group] > 0) own.policy = {"full", 0, {"zones.question=" + question}};
      std::vector<float> voters = voters_of(settings, kinds, static_cast<index_t>(group));
      if (!voters.empty()) {
        own.limits.voters = {voters.data(), {own.model.layers, own.model.heads}};
        own.limits.rotary = rotary_in(settings, kinds, static_cast<index_t>(group));
      }
      own.limits.classes = settings.classes;
      own.limits.max_draft_tokens = longest_whole(settings);
      opened.push_back(open_group<T>(own));
    }
    return opened;
  }
  static std::vector<float> voters_of(const cache_settings& settings, const layer_kinds& kinds, index_t group) {
    std::vector<float> own;
    if (settings.voters.empty()) return own;
    for (index_t layer = 0; layer < settings.model.layers; ++layer) {
      if (kinds.group_of[static_cast<std::size_t>(layer)] != group) continue;
      const auto first = settings.voters.begin() + layer * settings.model.heads;
      own.insert(own.end(), first, first + settings.model.heads);
    }
    return own;
  }
  // That of a group's layers; where they differ none is known.
  static zoomr::rotary_embedding rotary_in(const cache_settings& settings, const layer_kinds& kinds, index_t group) {
    const rope* found = nullptr;
    for (index_t layer = 0; layer < settings.model.layers; ++layer) {
      if (kinds.group_of[static_cast<std::size_t>(layer)] != group) continue;
      const rope& own = settings.ropes.at(layer);
      if (found != nullptr && !(own == *found)) return {};
      found = &own;
    }
    return {view<const float>(found->frequencies), found->pairs};
  }

  index_t longest_whole_;
  zoomr::grouped_kv_cache<T> cache_;
  std::optional<typename zoomr::grouped_kv_cache<T>::step_type> step_;
};

}  // namespace adaptor
