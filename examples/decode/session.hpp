// SPDX-License-Identifier: Apache-2.0
// A model and a cache at work: prompts in chunks, then one token after the other, for one or several sequences
// in lock step. This is all that an engine must do to run a policy.
//
// B = sequences, T = tokens of a draft, V = vocab
#pragma once

#include <zoomr/core/function_ref.hpp>
#include <zoomr/grouped_kv_cache.hpp>
#include <zoomr/kv_cache.hpp>
#include <zoomr/policy/compose.hpp>
#include <zoomr/policy/placement/tiered.hpp>
#include <zoomr/presets/full.hpp>

#include <algorithm>  // std::count, std::max, std::min
#include <span>       // std::span
#include <string>     // std::string
#include <utility>    // std::move
#include <variant>    // std::variant, std::visit
#include <vector>     // std::vector

#include "anchors.hpp"
#include "attention_tap.hpp"
#include "input_error.hpp"
#include "model.hpp"
#include "streaming.hpp"
#include "voters.hpp"

namespace decode {

using zoomr::index_t;

/// Of all its layers, for one cache.
/// @throws input_error if layers differ
inline zoomr::shape shape_of(const model& net) {
  expect_layers_alike(net.config(), "one cache for all layers");
  return shape_of(net.config(), net.config().layers);
}

/// The parts of spans that lie in some tokens of a prompt, counted from the first of these.
/// @param spans  counted from the prompt's first token
inline std::vector<zoomr::token_span> spans_in(std::span<const zoomr::token_span> spans, std::size_t first,
                                               std::size_t count) {
  const auto begin = static_cast<index_t>(first), end = static_cast<index_t>(first + count);
  std::vector<zoomr::token_span> parts;
  for (const zoomr::token_span& span : spans) {
    const zoomr::token_range ids{std::max(span.ids.first, begin), std::min(span.ids.last, end)};
    if (ids.first < ids.last) parts.push_back({{ids.first - begin, ids.last - begin}, span.role});
  }
  return parts;
}

/// One for all policies of a placement: it is compiled once for each, in session.cpp.
///
/// The policy is for all layers but those with a sliding window, which attend to all that is in their window. Where the
/// model's config says that some KV heads stream, it is for the others alone.
/// @tparam T  in which keys and values are stored
template <class Placement = zoomr::placement, class T = float>
class session {
 public:
  using cache_type = zoomr::any_kv_cache<T, Placement>;
  using grouped_type = zoomr::grouped_kv_cache<T, Placement>;

  /// @param tokens   of the longest sequence
  /// @param draft    tokens that `follow` passes at once
  /// @param audit    measure what share of its attention each query captures: slow
  /// @param classes  [vocab]  must outlive the session
  /// @param tiers    of a policy whose placement is tiered
  /// @param segments  of the longest sequence; 0: as many as it has tokens
  /// @param threads  that attend; what runs them must outlive the session
  /// @param chunk    tokens of a prompt that pass together; 0: as many as the policy likes
  /// @param parts    of the heads, which several ranks have; must outlive the session; nullptr: all are here
  template <class Policy>
  session(model& net, const Policy& policy, index_t sequences, index_t tokens,
          std::span<const zoomr::token_class> classes, index_t draft = 1, bool audit = false,
          zoomr::tier_bytes tiers = {}, index_t segments = 0, const zoomr::executor& threads = {}, index_t chunk = 0,
          head_parts* parts = nullptr)
      : session(net, chunk_for(policy, chunk), draft, sequences, parts,
                cache_for(net.config(), parts,
                          {.max_sequences = sequences,
                           .max_tokens = tokens,
                           .max_segments = segments > 0 ? segments : tokens,
                           .max_batched_tokens = std::max(chunk_for(policy, chunk), sequences * draft),
                           .max_draft_tokens = draft,
                           .tiers = tiers,
                           .audit = audit,
                           .classes = classes,
                           .threads = threads},
                          zoomr::share_aggregator<decltype(Policy::aggregate)>,
                          [&policy](const zoomr::shape& model, const zoomr::config& limits) -> cache_type {
                            return zoomr::kv_cache<Policy, T>(model, policy, limits);
                          })) {
    frees_ = streams_;
    if constexpr (requires { policy.placement.frees_unreachable; }) frees_ |= policy.placement.frees_unreachable;
    pins_question_ = policy.zone.question > 0;
  }
  session(const session&) = delete;
  ~session();

  /// Passes a prompt of sequence `s`, the first or a later one, chunk by chunk; then `logits(s)` are those of its last
  /// token.
  /// @param passed  called with the number of tokens passed so far
  /// @param spans   of the ids
  template <class Passed>
  void prompt(index_t s, std::span<const token_id> ids, Passed passed, std::span<const zoomr::token_span> spans = {}) {
    for (std::size_t first = 0; first < ids.size();) {
      const std::size_t left = ids.size() - first;
      // the last chunk is never short: retention observes the last tokens of the prompt
      const std::size_t count = left <= chunk_ ? left : std::min(chunk_, left - chunk_ / 2);
      zoomr::step_item item{at(s), ids.subspan(first, count), count == left};
      item.prompt_begins = first == 0;
      const std::vector<zoomr::token_span> within = spans_in(spans, first, count);
      item.spans = {within.data(), {static_cast<index_t>(within.size())}};
      pass({&item, 1}, s, false);
      first += count;
      passed(first);
    }
  }
  void prompt(index_t s, std::span<const token_id> ids) {
    prompt(s, ids, [](std::size_t) {});
  }
  template <class Passed>
  void prompt(std::span<const token_id> ids, Passed passed) {
    prompt(0, ids, passed);
  }
  /// Passes what comes after an answer, such as the next message of a conversation: as a later prompt, or token by
  /// token where the placement has freed what such a prompt would attend to. Then `logits(s)` are those of its last
  /// token.
  /// @param spans  of the ids; no later prompt, no span
  void turn(index_t s, std::span<const token_id> ids, std::span<const zoomr::token_span> spans = {}) {
    if (!frees_)
      return prompt(
          s, ids, [](std::size_t) {}, spans);
    for (std::size_t t = 0; t < ids.size(); ++t) {
      const zoomr::step_item item{at(s), ids.subspan(t, 1), false};
      pass({&item, 1}, s, false);
    }
  }

  /// Passes one token for each sequence; then `logits` are theirs.
  /// @param next  [B]
  void advance(std::span<const token_id> next) {
    std::vector<zoomr::step_item> items;
    for (index_t s = 0; s < static_cast<index_t>(sequences_.size()); ++s) {
      items.push_back({at(s), next.subspan(static_cast<std::size_t>(s), 1), false});
    }
    pass(items, 0, false);
  }

  /// Passes one token in each of several sessions of one model, whose weights are read once for all whose caches are of
  /// one type. Each gets the bits that it would get alone. None has tiers or a tap.
  /// @param runs  [R]  of one sequence each
  /// @param next  [R]
  static void advance_each(std::span<session* const> runs,
                           std::span<const token_id> next) requires(!zoomr::tiered_placement<Placement>) {
    advance_alike<cache_type>(runs, next);
    advance_alike<grouped_type>(runs, next);
  }

  /// Passes tokens that are known already, in one step; then `logits(s, t)` are those of each.
  /// @param texts  [B]  1 to `draft` tokens each
  /// @return how many tokens of each text were passed: a step ends where a segment closes or a choice stays active
  index_t follow(std::span<const std::span<const token_id>> texts) {
    std::vector<zoomr::step_item> items;
    for (index_t s = 0; s < static_cast<index_t>(sequences_.size()); ++s)
      items.push_back({at(s), texts[static_cast<std::size_t>(s)], false});
    return pass(items, 0, true);
  }

  /// [V]  of the last token passed in sequence `s`; after `follow`, of token `t` of those it passed
  std::span<const float> logits(index_t s = 0, index_t t = 0) const {
    const std::size_t vocab = net_.config().vocab;
    return std::span(logits_).subspan(static_cast<std::size_t>(s * draft_ + t) * vocab, vocab);
  }

  /// The cache of a model whose layers are alike.
  /// @throws input_error if layers differ
  cache_type& cache() {
    expect_layers_alike(net_.config(), "one cache for all layers");
    return std::get<cache_type>(cache_);
  }
  /// Calls visit(cache): `cache()`, or the grouped one of a model whose layers differ.
  template <class Visit>
  void with_cache(Visit visit) {
    std::visit(visit, cache_);
  }
  zoomr::sequence at(index_t s) const { return sequences_[static_cast<std::size_t>(s)]; }

  /// Spans may name a question.
  bool pins_question() const { return pins_question_; }

  /// What a sequence has cost in all layers together, whatever caches they have.
  zoomr::statistics stats(index_t s = 0) const {
    return std::visit([&](const auto& cache) -> zoomr::statistics { return cache.stats(at(s)); }, cache_);
  }
  zoomr::memory_use bytes(index_t s = 0) const {
    return std::visit([&](const auto& cache) { return cache.bytes(at(s)); }, cache_);
  }
  /// Tokens, mean over the tokens after the prompt, heads and all layers.
  double attended_mean(index_t s = 0) const {
    return stats(s).attended_mean(shape_here(net_.config(), net_.config().layers, parts_));
  }

  /// Of the layers that the policy is for, alone, with the KV heads there that stream.
  zoomr::statistics policy_stats(index_t s = 0) const {
    if (std::holds_alternative<cache_type>(cache_)) return stats(s);
    const auto& groups = std::get<grouped_type>(cache_);
    const auto of_group = [&](index_t g) { return groups.group(g).stats(groups.in_group(at(s), g)); };
    zoomr::statistics sum = of_group(0);
    if (streams_) sum.add_layers(of_group(streaming_group));
    return sum;
  }
  /// Some KV heads stream.
  bool streams() const { return streams_; }
  /// Of the KV heads of one kind.
  /// @pre  streams()
  zoomr::memory_use bytes_of(kv_head_group g, index_t s = 0) const {
    const auto& groups = std::get<grouped_type>(cache_);
    return groups.group(g).bytes(groups.in_group(at(s), g));
  }
  /// Of the heads, which several ranks have; nullptr: all are here.
  const head_parts* parts() const { return parts_; }
  /// What caches have sent to other ranks, of all sequences: for choices, and for attention to tokens that are dealt
  /// out.
  zoomr::rank_statistics sent_by_caches() const {
    if (const auto* const alike = std::get_if<cache_type>(&cache_)) return alike->ranks();
    const auto& groups = std::get<grouped_type>(cache_);
    const zoomr::rank_statistics first = groups.group(0).ranks(), in_window = groups.group(1).ranks();
    return {first.messages + in_window.messages, first.bytes + in_window.bytes};
  }
  /// Records of the layers that the policy is for, which count among these.
  void trace(zoomr::attention_trace* attended, zoomr::choice_trace* chosen) {
    if (auto* const alike = std::get_if<cache_type>(&cache_))
      return alike->trace(attended), alike->trace_choices(chosen);
    auto& groups = std::get<grouped_type>(cache_);
    groups.trace(0, attended), groups.trace_choices(0, chosen);
  }
  /// What sees all that attention gets from now on, of a session of one sequence; nullptr: nothing.
  void listen(attention_tap* tap) { tap_ = tap; }

 private:
  using any_cache = std::variant<cache_type, grouped_type>;

  session(model& net, index_t chunk, index_t draft, index_t sequences, head_parts* parts, any_cache cache);

  template <class Policy>
  static index_t chunk_for(const Policy& policy, index_t wanted) {
    if (wanted > 0) return wanted;
    if constexpr (requires { policy.evict.queries; }) return std::max(256, 2 * policy.evict.queries);
    return 256;
  }

  /// One cache, or one for each kind of layer.
  /// @param open  the policy's cache
  static any_cache cache_for(const model_config& c, const head_parts* parts, zoomr::config limits, bool asks_voters,
                             zoomr::function_ref<cache_type(const zoomr::shape&, const zoomr::config&)> open);
  /// The same where some KV heads stream.
  static grouped_type cache_of_kinds(const model_config& c, zoomr::config limits,
                                     zoomr::function_ref<cache_type(const zoomr::shape&, const zoomr::config&)> open);
  static zoomr::shape shape_here(const model_config& c, std::size_t layers, const head_parts* parts) {
    return parts == nullptr ? shape_of(c, layers) : parts->own(shape_of(c, layers));
  }

  index_t pass(std::span<const zoomr::step_item> items, index_t first, bool every);
  template <class Cache>
  index_t pass(Cache& cache, std::span<const zoomr::step_item> items, index_t first, bool every);
  // Those that have such a cache.
  template <class Cache>
  static void advance_alike(std::span<session* const> runs, std::span<const token_id> next);
  template <class Cache>
  static void pass_each(std::span<session* const> runs, std::span<const token_id> next);

  model& net_;
  std::size_t chunk_;           // tokens of a prompt that pass together
  index_t draft_;               // tokens that `follow` passes at once
  bool streams_;                // some KV heads
  bool frees_ = false;          // pages that no query reaches
  bool pins_question_ = false;  // zones.question of the policy is more than 0
  head_parts* parts_;
  attention_tap* tap_ = nullptr;
  any_cache cache_;
  std::vector<zoomr::sequence> sequences_;         // [B]
  std::vector<float> logits_, rows_logits_;        // [B, T, V]; [rows of a pass, V]
  std::vector<token_id> ids_;                      // [tokens of a pass]
  std::vector<index_t> positions_, rows_, goals_;  // [tokens of a pass]; [rows]; [rows] into logits_
};

template <class Policy>
session(model&, const Policy&, index_t, index_t, std::span<const zoomr::token_class>, index_t = 1, bool = false,
        zoomr::tier_bytes = {}, index_t = 0, const zoomr::executor& = {}, index_t = 0, head_parts* = nullptr)
    -> session<decltype(Policy::placement)>;

template <class Placement, class T>
session<Placement, T>::session(model& net, index_t chunk, index_t draft, index_t sequences, head_parts* parts,
                               any_cache cache)
    : net_(net),
      chunk_(static_cast<std::size_t>(chunk)),
      draft_(draft),
      streams_(!net.config().streaming.retrieval.empty()),
      parts_(parts),
      cache_(std::move(cache)) {
  const auto open = [](auto& in) { return in.open(); };
  for (index_t s = 0; s < sequences; ++s) sequences_.push_back(std::visit(open, cache_));
  logits_.resize(static_cast<std::size_t>(sequences) * static_cast<std::size_t>(draft) * net.config().vocab);
}

template <class Placement, class T>
session<Placement, T>::~session() = default;

template <class Placement, class T>
typename session<Placement, T>::any_cache session<Placement, T>::cache_for(
    const model_config& c, const head_parts* parts, zoomr::config limits, bool asks_voters,
    zoomr::function_ref<cache_type(const zoomr::shape&, const zoomr::config&)> open) {
  if (parts != nullptr) parts->set_in(limits);
  limits.logits.scale = static_cast<float>(c.attention_scale);
  std::vector<float> voters, frequencies;
  if (asks_voters) {
    voters = policy_voters(c), frequencies = voter_frequencies(c);
    const auto heads = static_cast<index_t>(c.streaming.retrieval.empty() ? c.heads : c.heads / c.kv_heads);
    limits.voters = {voters.data(), {static_cast<index_t>(voters.size()) / heads, heads}};
    limits.voter_keys = c.voter_keys;
    limits.rotary.frequencies = zoomr::view<const float>(frequencies);
    c.bounds.set_in(limits);
  }
  if (!c.streaming.retrieval.empty()) return cache_of_kinds(c, limits, open);
  const layer_tables anchors = policy_anchors(c);
  if (!anchors.layers.empty()) {
    const auto layers = static_cast<index_t>(anchors.layers.size()), kv_heads = static_cast<index_t>(c.kv_heads);
    limits.anchors = {zoomr::view<const index_t>(anchors.layers), {anchors.kv_heads.data(), {layers, kv_heads}}};
  }
  const std::vector<index_t> donors = donors_among(c, false), donors_in_window = donors_among(c, true);
  limits.donors = zoomr::view<const index_t>(donors);
  if (c.window == 0) return open(shape_here(c, c.layers, parts), limits);
  if (limits.tiers.host > 0) expect_layers_alike(c, "tiers");
  const std::size_t with_window = c.layers_in_window();
  std::vector<cache_type> groups;
  groups.push_back(open(shape_here(c, c.layers - with_window, parts), limits));
  limits.logits.window = static_cast<index_t>(c.window), limits.voters = {}, limits.anchors = {};
  limits.donors = zoomr::view<const index_t>(donors_in_window);
  auto all_in_window = with_placement(zoomr::presets::full, Placement{});
  groups.push_back(
      zoomr::kv_cache<decltype(all_in_window), T>(shape_here(c, with_window, parts), all_in_window, limits));
  return grouped_type(std::move(groups), std::vector<index_t>(c.windows.begin(), c.windows.end()));
}

template <class Placement, class T>
typename session<Placement, T>::grouped_type session<Placement, T>::cache_of_kinds(
    const model_config& c, zoomr::config limits,
    zoomr::function_ref<cache_type(const zoomr::shape&, const zoomr::config&)> open) {
  if (!c.anchors.layers.empty()) fail("streaming: anchors need a cache for all KV heads of a layer");
  if (!c.donors.empty()) fail("streaming: layers that share keys need a cache for all KV heads of a layer");
  if (limits.tiers.host > 0) expect_layers_alike(c, "tiers");
  const std::vector<index_t> group_of = kv_head_groups(c);
  const auto kv_heads = static_cast<index_t>(c.kv_heads), layers = static_cast<index_t>(c.layers);
  const auto shape_in = [&](kv_head_group g) {
    zoomr::shape one = shape_of(c, c.layers);
    one.layers = static_cast<index_t>(std::count(group_of.begin(), group_of.end(), g));
    one.heads = one.group(), one.kv_heads = 1;
    return one;
  };
  std::vector<cache_type> groups;
  groups.push_back(open(shape_in(retrieval_group), limits));
  limits.voters = {};
  auto streaming = zoomr::compose(zoomr::zones{.sinks = c.streaming.sinks, .recent = c.streaming.recent}, Placement{});
  if constexpr (requires { streaming.placement.frees_unreachable = true; })
    streaming.placement.frees_unreachable = true;
  groups.push_back(zoomr::kv_cache<decltype(streaming), T>(shape_in(streaming_group), streaming, limits));
  if (c.window > 0) {
    limits.logits.window = static_cast<index_t>(c.window);
    auto all_in_window = with_placement(zoomr::presets::full, Placement{});
    groups.push_back(zoomr::kv_cache<decltype(all_in_window), T>(shape_in(window_group), all_in_window, limits));
  }
  return grouped_type(std::move(groups), zoomr::view<const index_t, 2>(group_of.data(), {layers, kv_heads}));
}

template <class Placement, class T>
index_t session<Placement, T>::pass(std::span<const zoomr::step_item> items, index_t first, bool every) {
  return std::visit([&](auto& cache) { return pass(cache, items, first, every); }, cache_);
}

// One step: a first pass for all items, a second for those whose selection has just changed, then commit. The logits
// of item i, of its last token or of every one, become those of sequence first + i.
//
// Under tiers the pages of a sequence may not come: a matter of that one alone. Its outputs are NaN, so it is asked
// for after each pass, and none of its tokens are accepted; the others are committed (docs/errors.md). Then the reason
// is thrown: the sequence is what it was before the step, which may be tried again. Pages that fail in
// `needs_second_pass` or `commit` throw there.
template <class Placement, class T>
template <class Cache>
index_t session<Placement, T>::pass(Cache& cache, std::span<const zoomr::step_item> items, index_t first, bool every) {
  auto step = cache.begin(zoomr::view<const zoomr::step_item>(items));
  index_t fewest = step.taken(0);
  for (index_t i = 1; i < step.items(); ++i) fewest = std::min(fewest, step.taken(i));
  std::vector<index_t> accepted;
  for (index_t i = 0; i < step.items(); ++i) accepted.push_back(every ? fewest : step.taken(i));
  std::string failed;
  bool second = false;
  do {
    ids_.clear(), positions_.clear(), rows_.clear(), goals_.clear();
    for (index_t i = 0; i < step.items(); ++i) {
      if (!step.active(i)) continue;
      const auto& ids = items[static_cast<std::size_t>(i)].ids;
      const index_t last = step.taken(i) - 1;
      for (index_t t = second ? last : 0; t <= last; ++t) {
        ids_.push_back(ids[t]);
        positions_.push_back(step.position(i) + static_cast<index_t>(positions_.size()) - step.packed(i));
        if (!every && t < last) continue;
        rows_.push_back(static_cast<index_t>(ids_.size()) - 1);
        goals_.push_back((first + i) * draft_ + (every ? t : 0));
      }
    }
    const std::size_t vocab = net_.config().vocab;
    rows_logits_.resize(rows_.size() * vocab);
    if (tap_ != nullptr) tap_->pass({ids_.data(), {static_cast<index_t>(ids_.size())}}, positions_.front());
    if (parts_ != nullptr) parts_->begin(zoomr::view<const token_id>(ids_));
    tapped_step<decltype(step)> tapped{step, tap_, parts_};
    net_.forward(tapped, ids_, positions_, rows_,
                 {rows_logits_.data(), {static_cast<index_t>(rows_.size()), static_cast<index_t>(vocab)}});
    for (std::size_t r = 0; r < rows_.size(); ++r)
      std::copy_n(&rows_logits_[r * vocab], vocab, &logits_[static_cast<std::size_t>(goals_[r]) * vocab]);
    second = true;
    for (index_t i = 0; i < step.items(); ++i) {
      index_t& tokens = accepted[static_cast<std::size_t>(i)];
      if (step.failure(i) == nullptr || tokens == 0) continue;
      tokens = 0;
      if (!failed.empty()) failed += "; ";
      failed += step.failure(i) + zoomr::error::prefix.size();
    }
  } while (step.needs_second_pass(accepted));
  step.commit(accepted);
  if (tap_ != nullptr) tap_->commit(cache.tokens(at(first)));
  if (!failed.empty()) throw zoomr::error(zoomr::errc::storage, failed);
  return fewest;
}

// What model::forward takes for several steps of one token each: to each its row.
template <class Step>
struct steps_in_rows {
  std::vector<Step*> steps;

  void append(index_t layer, attention_tap::rows keys, attention_tap::rows values) {
    for (index_t i = 0; i < keys.extent(0); ++i) at(i).append(layer, row(keys, i), row(values, i));
  }
  void attend(index_t layer, attention_tap::rows queries, zoomr::view<float, 3> out) {
    for (index_t i = 0; i < queries.extent(0); ++i) at(i).attend(layer, row(queries, i), row(out, i));
  }

 private:
  Step& at(index_t i) { return *steps[static_cast<std::size_t>(i)]; }
  template <class Number>
  static zoomr::view<Number, 3> row(zoomr::view<Number, 3> of, index_t i) {
    const index_t heads = of.extent(1), dims = of.extent(2);
    return {of.data() + static_cast<std::ptrdiff_t>(i) * heads * dims, {1, heads, dims}};
  }
};

template <class Placement, class T>
template <class Cache>
void session<Placement, T>::advance_alike(std::span<session* const> runs, std::span<const token_id> next) {
  std::vector<session*> alike;
  std::vector<token_id> passed;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (std::holds_alternative<Cache>(runs[i]->cache_)) alike.push_back(runs[i]), passed.push_back(next[i]);
  }
  for (std::size_t first = 0; first < alike.size(); first += tokens_alike) {
    const std::size_t count = std::min(tokens_alike, alike.size() - first);
    pass_each<Cache>(std::span(alike).subspan(first, count), std::span(passed).subspan(first, count));
  }
}

template <class Placement, class T>
template <class Cache>
void session<Placement, T>::pass_each(std::span<session* const> runs, std::span<const token_id> next) {
  using step_type = typename Cache::step_type;
  model& net = runs.front()->net_;
  const std::size_t vocab = net.config().vocab;
  std::vector<zoomr::step_item> items;
  std::vector<step_type> steps;
  items.reserve(runs.size()), steps.reserve(runs.size());
  std::vector<std::size_t> active;  // sessions that pass
  for (std::size_t i = 0; i < runs.size(); ++i) {
    items.push_back({runs[i]->at(0), next.subspan(i, 1), false});
    steps.push_back(std::get<Cache>(runs[i]->cache_).begin(zoomr::view<const zoomr::step_item>(&items[i], {1})));
    active.push_back(i);
  }
  std::vector<float> logits(runs.size() * vocab);
  while (!active.empty()) {
    steps_in_rows<step_type> together;
    std::vector<token_id> ids;
    std::vector<index_t> positions, rows;
    for (const std::size_t i : active) {
      together.steps.push_back(&steps[i]);
      rows.push_back(static_cast<index_t>(ids.size()));
      ids.push_back(next[i]), positions.push_back(steps[i].position(0));
    }
    net.forward(together, ids, positions, rows,
                {logits.data(), {static_cast<index_t>(rows.size()), static_cast<index_t>(vocab)}});
    for (std::size_t r = 0; r < active.size(); ++r)
      std::copy_n(&logits[r * vocab], vocab, runs[active[r]]->logits_.begin());
    std::erase_if(active, [&](std::size_t i) { return !steps[i].needs_second_pass(1); });
  }
  for (step_type& step : steps) step.commit(1);
}

extern template class session<zoomr::placement>;
extern template class session<zoomr::tiered<>>;

// Those whose keys and values are stored in blocks are compiled in session_in_blocks.cpp.
#define DECODE_IN_BLOCKS(use) use(zoomr::q8_0) use(zoomr::q4_0) use(zoomr::mxfp8)
#define DECODE_DECLARE_SESSION(T) extern template class session<zoomr::placement, T>;
DECODE_IN_BLOCKS(DECODE_DECLARE_SESSION)

}  // namespace decode

// What they call of the library is compiled there too.
extern template class zoomr::any_kv_cache<float, zoomr::placement>;
extern template class zoomr::any_kv_cache<float, zoomr::tiered<>>;
extern template class zoomr::step<float, zoomr::placement>;
extern template class zoomr::step<float, zoomr::tiered<>>;
