// SPDX-License-Identifier: Apache-2.0
// From a policy's name to a cache of it, within a limit of memory. All presets are compiled here.
#include <algorithm>  // std::max
#include <array>      // std::array
#include <utility>    // std::move

#include "../decode/input_error.hpp"
#include "../decode/policies.hpp"
#include "../decode/report/observe.hpp"
#include "../studies/evaluate/policy_spec.hpp"
#include "player.hpp"

namespace replay {
namespace {

using decode::fail;

/// To a cache, the id of a token is its class: each byte is one.
constexpr auto classes_by_id = [] {
  std::array<zoomr::token_class, 256> all = {};
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<zoomr::token_class>(i);
  return all;
}();

/// How many segments a policy makes of the trace: classes alone decide.
template <class Segmenter>
index_t segments_in(const Segmenter& segmenter, const trace& from) {
  typename Segmenter::state open{};
  index_t count = 0;
  for (index_t t = 0; t < from.facts().tokens; ++t) {
    const auto plain = zoomr::token_class::plain;
    zoomr::closings closed;
    segmenter.feed(open, from.classes().empty() ? plain : from.classes()[static_cast<std::size_t>(t)], t, closed);
    if (t + 1 == from.facts().prompt) segmenter.end_of_prompt(open, t, closed);
    count += closed.count;
  }
  return count;
}

/// As decode::session has it.
template <class Policy>
index_t chunk_of(const Policy& policy) {
  if constexpr (requires { policy.evict.queries; }) return std::max(256, 2 * policy.evict.queries);
  return 256;
}

template <class Policy>
void expect_classes(const Policy&, const std::string& text, const trace& from) {
  constexpr bool reads =
      zoomr::class_reader<decltype(Policy::segment)> || zoomr::class_reader<decltype(Policy::refresh)>;
  if (reads && from.classes().empty())
    fail(text, " looks for the ends of sentences or thoughts, but the trace has neither token_classes nor text");
}

template <class Policy>
zoomr::config config_of(const Policy& policy, const trace& from, const settings& shared, const std::string& text) {
  const trace_facts& facts = from.facts();
  zoomr::config limits;
  limits.max_tokens = facts.tokens;
  limits.max_segments = facts.tokens;
  limits.max_batched_tokens = chunk_of(policy);
  limits.max_draft_tokens = 1;
  limits.logits.scale = facts.scale;
  limits.logits.soft_cap = facts.soft_cap;
  if (!from.classes().empty()) limits.classes = classes_by_id;
  if constexpr (zoomr::share_aggregator<decltype(Policy::aggregate)>) {
    if (shared.voters.weights.empty()) fail(text, " asks heads that vote: name their weights, --voters FILE");
    limits.voters = {shared.voters.weights.data(), {facts.model.layers, facts.model.heads}};
    shared.voters.bounds.set_in(limits);
  }
  return limits;
}

/// Memory over a file: as much of it as a device has, if one is named.
template <class Policy>
void set_tiers(zoomr::config& limits, const Policy& policy, const zoomr::shape& model, const memory_limits& sizes) {
  limits.tiers = {.host = zoomr::too_many_bytes, .file = zoomr::too_many_bytes, .path = sizes.scratch.c_str()};
  limits.tiers.file = zoomr::kv_cache<Policy>::bytes(model, policy, limits).file;
  limits.tiers.host = sizes.device > 0 ? sizes.device : sizes.memory;
}

template <class Policy>
std::unique_ptr<player> open(const Policy& policy, const std::string& text, const trace& from, const settings& shared) {
  const zoomr::shape& model = from.facts().model;
  expect_classes(policy, text, from);
  zoomr::config limits = config_of(policy, from, shared, text);
  opened known{text, decode::describe(policy), report::facts_of(policy, from.facts().tokens), chunk_of(policy),
               policy.zone.dense_layers >= model.layers};
  known.facts.model = model;
  known.facts.layers = from.facts().layers;
  known.facts.query_heads = model.layers * model.heads;
  const index_t segments = std::max(1, segments_in(policy.segment, from));
  for (const index_t room : {limits.max_segments, segments}) {
    limits.max_segments = room;
    if (shared.limits.device > 0) continue;
    if (zoomr::kv_cache<Policy>::bytes(model, policy, limits).total() > shared.limits.memory) continue;
    return play_on(zoomr::kv_cache(model, policy, limits), std::move(known), from);
  }
  const auto moved = with_placement(policy, zoomr::tiered<>{});
  set_tiers(limits, moved, model, shared.limits);
  return play_on(zoomr::kv_cache(model, moved, limits), std::move(known), from);
}

}  // namespace

std::unique_ptr<player> open_player(const decode::policy_choice& choice, const std::string& text, const trace& from,
                                    const settings& shared) {
  std::unique_ptr<player> ready;
  decode::with_policy(choice, [&](const auto& policy) {
    decode::expect_options(policy, text, choice, {});
    try {
      ready = open(policy, text, from, shared);
    } catch (const decode::input_error&) {
      throw;
    } catch (const std::exception& wrong) {  // a shape, a size or a table that the cache refuses
      fail(text, ", with ", shared.limits.memory, " bytes for its cache: ", wrong.what());
    }
  });
  return ready;
}

}  // namespace replay
