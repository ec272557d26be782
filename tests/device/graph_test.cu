// SPDX-License-Identifier: Apache-2.0
// A step that was captured as a graph is replayed for later ones: other tokens, other lengths, other selections, the
// same outputs as stepping.
#include <zoomr/policy/placement/tiered.hpp>
#include <zoomr/zoomr.cuh>

#include <doctest/doctest.h>
#include <support/nightly.hpp>

#include <algorithm>  // std::copy_n
#include <vector>     // std::vector

#include "support/device_memory.hpp"
#include "support/inputs.hpp"
#include "support/voters.hpp"

namespace {

using namespace zoomr;
using zoomr::index_t;
using zoomr_test::device_array;

constexpr index_t layers = 2;
constexpr index_t heads = 4;
constexpr index_t kv_heads = 2;
constexpr index_t dim = 64;
constexpr index_t most = 2;  // tokens of a step after the prompt
#if defined(ZOOMR_SIMT)
constexpr index_t length = 68;  // of the text
constexpr index_t prompt_length = 30;
#else
constexpr index_t length = 298;
constexpr index_t prompt_length = 50;
#endif

/// One cache with buffers that stay where they are.
template <class Policy>
struct cached {
  using cache_type = device_cache<Policy, bfloat16, dim, heads / kv_heads>;
  config limits;
  device_array<std::byte> memory;
  device_array<float> keys, values, queries, out;
  pinned_memory details;  // of a tiered placement
  own_stream stream_of_cache;
  stream_ref on = stream_of_cache.get();
  cache_type cache;
  sequence seq;

  cached(const Policy& policy, const config& with)
      : limits(with),
        memory(cache_type::bytes({layers, heads, kv_heads, dim}, policy, with), std::byte{0xff}),
        keys(layers * with.max_batched_tokens * kv_heads * dim, 0.0f),
        values(layers * with.max_batched_tokens * kv_heads * dim, 0.0f),
        queries(layers * with.max_batched_tokens * heads * dim, 0.0f),
        out(layers * with.max_batched_tokens * heads * dim, 0.0f),
        details(cache_type::host_bytes({layers, heads, kv_heads, dim}, policy, with) + 1),
        cache({layers, heads, kv_heads, dim}, policy, with, memory.data(), on, 8,
              tiered_placement<decltype(policy.placement)> ? details.data() : nullptr),
        seq(cache.open()) {}

  template <class Number>
  view<Number, 3> packed(device_array<float>& all, index_t layer, index_t of_heads) {
    return {all.data() + layer * limits.max_batched_tokens * of_heads * dim,
            {limits.max_batched_tokens, of_heads, dim}};
  }
  void fill(index_t position, const std::vector<token_id>& ids) {
    const zoomr_test::tensors numbers{{layers, heads, kv_heads, dim}, zoomr_test::kind::peaked, 5};
    const auto put = [&](device_array<float>& to, zoomr_test::role of, index_t of_heads) {
      std::vector<float> all(static_cast<std::size_t>(layers * limits.max_batched_tokens * of_heads * dim),
                             not_a_number);
      for (index_t layer = 0; layer < layers; ++layer) {
        for (index_t t = 0; t < static_cast<index_t>(ids.size()); ++t) {
          for (index_t head = 0; head < of_heads; ++head) {
            numbers.fill(of, ids[static_cast<std::size_t>(t)], position + t, layer, head, 0,
                         all.data() + ((layer * limits.max_batched_tokens + t) * of_heads + head) * dim);
          }
        }
      }
      to.write(all);
    };
    put(keys, zoomr_test::role::key, kv_heads);
    put(values, zoomr_test::role::value, kv_heads);
    put(queries, zoomr_test::role::query, heads);
  }
  template <class Step>
  void enqueue(Step& step, bool second_pass) {
    second_pass ? step.restart(on) : step.start(on);
    for (index_t layer = 0; layer < layers; ++layer) {
      const auto k = packed<const float>(keys, layer, kv_heads), v = packed<const float>(values, layer, kv_heads);
      const auto q = packed<const float>(queries, layer, heads);
      const auto o = packed<float>(out, layer, heads);
      if (layer % 2 == 0) {
        step.attend(layer, q, k, v, o, {}, on);
      } else {
        step.append(layer, k, v, on);
        step.attend(layer, q, o, {}, on);
      }
    }
  }
  /// The outputs of the first `tokens` tokens, layer by layer.
  std::vector<float> outputs(index_t tokens) {
    zoomr_test::wait_for(on);
    const std::vector<float> all = out.values();
    std::vector<float> made;
    for (index_t layer = 0; layer < layers; ++layer) {
      const auto first = all.begin() + layer * limits.max_batched_tokens * heads * dim;
      made.insert(made.end(), first, first + tokens * heads * dim);
    }
    return made;
  }
};

/// Bytes for everything but details, and an arena for 2/3 of them: two layers have not the room that they would like.
template <class Policy>
byte_count with_arena(const Policy& policy, const config& limits) {
  const shape model{layers, heads, kv_heads, dim};
  const auto plain = with_placement(policy, placement{});
  const byte_count all = device_cache<Policy, bfloat16, dim, heads / kv_heads>::host_bytes(model, policy, limits);
  using plain_cache = device_cache<std::remove_const_t<decltype(plain)>, bfloat16, dim, heads / kv_heads>;
  return plain_cache::bytes(model, plain, limits) - all / 3 + (16 << 10);
}

/// Stepping: what is enqueued anew for each step. Replaying: two graphs, made at the first step after the prompt.
template <class Policy>
std::vector<std::vector<float>> played(const Policy& policy, bool replayed) {
  config limits;
  limits.max_tokens = 400, limits.max_batched_tokens = 64, limits.max_draft_tokens = most, limits.max_segments = 401;
  limits.classes = zoomr_test::classes;
  if constexpr (tiered_placement<decltype(policy.placement)>) limits.tiers.device = with_arena(policy, limits);
  cached<Policy> with(policy, zoomr_test::with_voters(policy, limits, {layers, heads, kv_heads, dim}));
  const auto text = zoomr_test::text_of(zoomr_test::markup::pairs, length + 2, prompt_length, 3);
  zoomr_test::stream_graph graphs[2];
  std::vector<std::vector<float>> all;
  for (index_t position = 0; position < length;) {
    const index_t wanted = position == 0 ? prompt_length : 1 + position % most;
    const std::vector<token_id> ids(text.begin() + position, text.begin() + position + wanted);
    const bool prompt = position == 0;
    auto step = with.cache.begin(with.seq, view<const token_id>(ids), prompt, replayed && !prompt);
    const index_t taken = step.taken(0);
    with.fill(position, ids);
    for (int pass = 0; pass < 2; ++pass) {
      if (pass == 1 && !step.needs_second_pass(taken)) break;
      if (prompt || !replayed) {
        with.enqueue(step, pass == 1);
      } else {
        step.upload(with.on);
        if (!graphs[pass]) {
          graphs[pass].begin(with.on);
          with.enqueue(step, pass == 1);
          step.join(with.on);
          graphs[pass].end(with.on);
        }
        graphs[pass].launch(with.on);
      }
      all.push_back(with.outputs(pass == 1 ? 1 : taken));
    }
    step.commit(taken, with.on);
    position += taken;
  }
  return all;
}

template <class Policy>
void check(const Policy& policy) {
  const auto stepped = played(policy, false);
  CHECK(stepped.size() > (length - prompt_length) / 2);
  CHECK(played(policy, true) == stepped);
}

}  // namespace

// A step waits for its outputs, not for its commit: what that has enqueued is done when the next graph is launched.
TEST_CASE("a replayed graph gives what stepping gives") {
  auto focus = presets::zoomr_focus;
  focus.segment.longest = 40, focus.segment.prompt_piece = 13, focus.zone.recent = 5;
  check(focus);
  auto mass = presets::zoomr_mass;
  mass.segment.longest = 40, mass.segment.prompt_piece = 13, mass.zone.recent = 5;
  check(mass);
  ZOOMR_NIGHTLY(check(presets::sentence_box_with(40)));
  auto voters = presets::zoomr_voters;
  voters.segment.longest = 40, voters.segment.prompt_piece = 13, voters.zone.recent = 5, voters.zone.turns = 0;
  check(voters);
  ZOOMR_NIGHTLY(check(presets::full));
  check(with_placement(presets::full, tiered<>{}));  // a side stream forks and joins in the graph
  check(with_placement(mass, tiered<>{}));
  check(with_placement(mass, tiered<>{.prefetch = false}));
}
