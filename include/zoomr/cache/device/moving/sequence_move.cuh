// SPDX-License-Identifier: Apache-2.0
// L6. How a sequence gets from the arrays of a host's cache to those of a device's, and back (device_transfer.cuh).
// Both keep the same, so that most arrays are copied as they are; where one keeps a thing in another form, a comment
// here describes it.
#pragma once

#include <zoomr/cache/device/forking.cuh>
#include <zoomr/cache/device/moving/choice_move.cuh>
#include <zoomr/cache/device/moving/voter_move.cuh>
#include <zoomr/cache/host/commit.hpp>
#include <zoomr/cache/saving/saved_parts.hpp>
#include <zoomr/cache/state/cache_base.hpp>
#include <zoomr/policy/score/scores.cuh>

#include <algorithm>  // std::any_of, std::fill_n, std::max
#include <cstddef>    // std::byte
#include <cstring>    // std::memcpy
#include <string>     // std::string, std::to_string
#include <vector>     // std::vector

namespace zoomr::inline v0::detail {

/// Reaches into caches, which name it their friend.
struct cache_access {
  template <class Core>
  static Core& core(cache_base<Core>& cache) {
    return *cache.core_;
  }
  /// That of a device cache with this policy.
  template <class Policy, class T>
  static auto& typed(cache_base<any_device_core<T>>& cache) {
    return static_cast<device_core<Policy, T>&>(*cache.core_);
  }
  template <class Core>
  static auto& unused(cache_base<Core>& cache, sequence seq) {
    return cache.expect_unused(seq);
  }
};

/// What of two caches' policies is compared, to find out whether they choose alike.
class text_collector final : public text_taker {
 public:
  void take(std::string_view piece) override { text += piece; }
  std::string text;
};

/// One sequence in both caches.
template <class Policy, class T>
class sequence_move : choice_move<Policy, T> {
  using base = choice_move<Policy, T>;
  using base::host_, base::device_, base::stream_, base::enqueue, base::wait;
  using typename base::host_type, typename base::device_type;
  static_assert(pool_of<decltype(Policy::placement), T>::owns_pages,
                "to_host, to_device: the pages of an engine are the engine's to move");

 public:
  sequence_move(host_type& host, device_type& device, stream_ref stream)
      : base(host, device, stream), record_(query_memory::elements(device.sizes.model, 1)) {
    device.home.expect_current("to_host, to_device");
    text_collector of_host, of_device;
    host.policy.write_text(of_host);
    device.policy.write_text(of_device);
    ZOOMR_EXPECTS(of_host.text == of_device.text, "a sequence moves only between caches of the same policy");
    ZOOMR_EXPECTS(host.sizes.model == device.sizes.model && host.sizes.stored == device.sizes.model,
                  "a sequence moves only between caches of the same model");
    ZOOMR_EXPECTS(same(host.limits.key_scale, device.limits.key_scale) &&
                      same(host.limits.value_scale, device.limits.value_scale),
                  "a sequence moves only between caches whose keys and values have the same scales");
    ZOOMR_EXPECTS(same(host.limits.logits, device.limits.logits, host.sizes.model.head_dim),
                  "a sequence moves only between caches of the same config.logits");
    expect_same_voters(host.voters, device.voters);
    ZOOMR_EXPECTS((host.sizes.kept > 0) == (device.sizes.kept > 0) && host.sizes.noted == device.sizes.noted,
                  "a sequence moves only between caches that evict alike: config.max_tokens of one lets nothing go");
  }

  /// The state `to` of the host's becomes what `from` is on the device.
  void to_host(const device_sequence& from, index_t id, sequence_state& to) {
    expect_room(from, host_.limits, host_.sizes.most_segments, host_.sizes.kept, host_.pool.free_pages());
    become(to, from, host_.limits, host_.sizes.remembered, host_.sizes.query_parts > 0);
    take_pages(from, to, host_.pool);
    each_page(from, to, [&](T* of_device, T* of_host, std::int64_t stride, index_t width, index_t rows) {
      copy_rows(of_host, bytes_of(width), of_device, bytes_of(stride), bytes_of(width), rows, stream_);
    });
    const remembered_parts parts = remembered_of(host_.policy, host_.sizes, to);
    // Where a prompt is pinned its tokens have received nothing, and a device keeps nothing of them.
    std::fill_n(to.received.committed.data(), to.received.committed.size(), 0.0f);
    eviction(id, from, parts, to,
             [&](auto* of_device, auto* of_host, std::int64_t count) { this->enqueue(of_host, of_device, count); });
    sums(id, parts, to, [&](float* of_device, float* of_host) { this->enqueue(of_host, of_device, record_); });
    voters_to_host(device_, id, parts.prompted, to, [&](float* of_device, float* of_host, std::int64_t count) {
      this->enqueue(of_host, of_device, count);
    });
    base::choices_to_host(from, to);
    wait();
    if (!makes_summaries_late(to)) host_.summaries.make(host_.pool, to, 0);
    to.stats.prompt_tokens = to.prompt_tokens();
    to.stats.tokens = to.tokens() - to.stats.prompt_tokens;
  }

  /// The state `to`, of number `id`, of the device's becomes what `from` is on the host.
  void to_device(sequence_state& from, device_sequence& to, index_t id) {
    ZOOMR_EXPECTS(from.moved.plain(), "a sequence moves to a device only where model positions are positions");
    ZOOMR_EXPECTS(!host_.policy.evict.observes || !names_spans(from),
                  "a sequence with spans moves to a device only where the policy evicts nothing by attention");
    expect_room(from, device_.limits, device_.sizes.segments, device_.sizes.kept, device_.stock.free_pages());
    if (makes_summaries_late(from)) {
      host_.summaries.make(host_.pool, from, 0);
    } else {
      renew_summaries(host_, from);
    }
    const remembered_parts parts = remembered_of(host_.policy, host_.sizes, from);
    become(to, from, device_.limits, device_.sizes.remembered, host_.sizes.query_parts > 0);
    take_pages(from, to, device_.stock);
    to.known_pages = static_cast<index_t>(to.pages.size());
    to.know_segments();
    to.sums = {parts.summed, 0};
    each_page(to, from, [&](T* of_device, T* of_host, std::int64_t stride, index_t width, index_t rows) {
      copy_rows(of_device, bytes_of(stride), of_host, bytes_of(width), bytes_of(width), rows, stream_);
    });
    set_pages(device_, id, to.pages, stream_);
    const common_arrays<T>& a = device_.arrays;
    if (device_.sizes.tiered && to.known_pages > 0) {
      launch({dim3(static_cast<unsigned>(to.known_pages), static_cast<unsigned>(device_.sizes.model.layers)),
              dim3(copy_threads)},
             stream_, empty_arena_kernel<T>, a, id);
    }
    enqueue(a.segments + std::int64_t{id} * a.sizes.segments, from.segments.data(), to.known_segments);
    summaries(from, id);
    eviction(id, to, parts, from,
             [&](auto* of_device, auto* of_host, std::int64_t count) { this->enqueue(of_device, of_host, count); });
    sums(id, parts, from, [&](float* of_device, float* of_host) { this->enqueue(of_device, of_host, record_); });
    voters_to_device(
        device_, id, parts.prompted, from, stream_,
        [&](float* of_device, float* of_host, std::int64_t count) { this->enqueue(of_device, of_host, count); });
    base::choices_to_device(from, to, id);
    wait();
  }

 private:
  static bool names_spans(const sequence_state& state) {
    const auto named = [](token_class of_token) { return has(of_token, span_classes); };
    return std::any_of(state.classes.begin(), state.classes.end(), named);
  }
  static bool same(const storage_scale& scale, const storage_scale& other) {
    return scale.each.data() == nullptr && other.each.data() == nullptr && scale.all == other.all;
  }
  // Compares numbers alone: a device has copied the tables.
  static bool same(const logit_rule& rule, const logit_rule& other, index_t head_dim) {
    return rule.scale_of(head_dim) == other.scale_of(head_dim) && rule.soft_cap == other.soft_cap &&
           rule.window == other.window && (rule.sinks.extent(0) > 0) == (other.sinks.extent(0) > 0) &&
           (rule.alibi_slopes.size() > 0) == (other.alibi_slopes.size() > 0);
  }

  void expect_room(const token_state& moved, const config& limits, index_t segments, index_t kept, index_t free) const {
    const auto expect = [](bool fits, const std::string& reason) {
      if (!fits) raise(errc::capacity, "a sequence cannot move: " + reason);
    };
    expect(moved.tokens() <= limits.max_tokens, "it has " + std::to_string(moved.tokens()) +
                                                    " tokens, config.max_tokens is " +
                                                    std::to_string(limits.max_tokens));
    expect(moved.segment_count() <= segments, "it has " + std::to_string(moved.segment_count()) +
                                                  " segments, there is room for " + std::to_string(segments));
    expect(moved.kept_each.committed <= kept, "each KV lane keeps " + std::to_string(moved.kept_each.committed) +
                                                  " tokens, there is room for " + std::to_string(kept));
    const index_t pages = moved.held_pages();
    expect(pages <= free, "it needs " + std::to_string(pages) + " pages of " + std::to_string(page_tokens) +
                              " tokens, " + std::to_string(free) + " are free; raise config.pool_tokens");
  }

  // The tokens of one state in another, which may remember less.
  static void become(token_state& to, const token_state& from, const config& limits, index_t remembered, bool sums) {
    const index_t heard = to.heard;  // by the cache's own limits
    to.become(from);
    to.heard = heard;
    to.rollback_floor = (std::max)(to.rollback_floor, to.tokens() - limits.rollback_depth());
    to.queries_from = (std::max)(to.queries_from, to.known_queries().last - remembered);
    // Sums of queries before a later prompt do not move.
    if (sums && !to.later_prompts.empty())
      to.rollback_floor = (std::max)(to.rollback_floor, to.last_prompt_begin() + 1);
  }

  // Of a first prompt of which tokens will be evicted a host makes them at its end, a device as its segments close.
  bool makes_summaries_late(const token_state& state) const {
    return host_.policy.evict.observes && state.in_first_prompt();
  }

  // Those that were given up have none.
  template <class Stock>
  static void take_pages(const token_state& from, token_state& to, Stock& stock) {
    to.pages.clear();
    for (const index_t page : from.pages) to.pages.push_back(page < 0 ? -1 : stock.take());
  }

  static byte_count bytes_of(std::int64_t numbers) { return numbers * static_cast<byte_count>(sizeof(T)); }

  // visit(on the device, on the host, numbers from row to row on the device, numbers of a row, rows) for the keys of
  // each page and layer, and for its values: both caches have them in the same order, the host without gaps.
  template <class Visit>
  void each_page(const token_state& of_device, const token_state& of_host, Visit visit) {
    const shape& model = device_.sizes.model;
    const index_t rows = model.kv_heads * page_tokens, values = model.stored_value_width();
    for (index_t layer = 0; layer < model.layers; ++layer) {
      const auto lane = host_.pool.kv_lane(layer, 0, view<const index_t>(of_host.pages));
      for (index_t at = 0; at < static_cast<index_t>(of_host.pages.size()); ++at) {
        const index_t page = of_device.pages[static_cast<std::size_t>(at)];
        if (page < 0) continue;
        T* const keys = lane.writable_key(at * page_tokens);
        const paged_layer<T> stored = device_.arrays.in_block(device_.arrays.page(layer, page));
        visit(stored.keys, keys, stored.token_stride, lane.rows.key_width, rows);
        if (values > 0) {
          visit(stored.values, keys + std::int64_t{rows} * lane.rows.key_width, stored.token_stride, values, rows);
        }
      }
    }
  }

  // visit(on the device, on the host, numbers) for what eviction has left, and what it will need.
  template <class Visit>
  void eviction(index_t id, const device_sequence& of_device, const remembered_parts& parts, sequence_state& of_host,
                Visit visit) {
    const shape& model = device_.sizes.model;
    const eviction_arrays& a = device_.arrays.eviction;
    const index_t kept = of_device.kept_each.committed;
    for (index_t lane = 0; kept > 0 && lane < model.kv_lanes(); ++lane) {
      visit(a.kept_of(id, lane, kept).data(), of_host.kept_positions(lane, kept).data(), std::int64_t{kept});
    }
    const index_t summed = of_device.sums.slots;
    for (index_t layer = 0; device_.sizes.carried > 0 && summed > 0 && layer < model.layers; ++layer) {
      const view<float, 2> rows = a.sums_of(id, layer, of_device.sums.half, summed);
      for (index_t head = 0; head < model.heads; ++head) {
        const std::int64_t row = std::int64_t{layer} * model.heads + head;
        visit(rows[head].data(), of_host.received.committed.data() + row * host_.sizes.carried, std::int64_t{summed});
      }
    }
    for (index_t p = parts.noted.first; p < parts.noted.last; ++p) {
      visit(a.noted_of(id, 0)[p % a.noted_tokens].data(), of_host.noted.at(p, 0, 0).data(), record_);
    }
    const index_t first = (std::max)(parts.prompted.first, parts.prompted.last - a.prompt_tokens);
    for (index_t p = first; p < parts.prompted.last; ++p) {
      visit(a.prompted_of(id, 0)[p % a.prompt_tokens].data(), of_host.last_queries.at(p, 0, 0).data(), record_);
    }
  }

  // visit(on the device, on the host) for the sums of queries that later tokens go on from, or a rollback needs.
  template <class Visit>
  void sums(index_t id, const remembered_parts& parts, sequence_state& of_host, Visit visit) {
    if (device_.sizes.records == 0) return;
    const index_t first =
        (std::max)({parts.records.first, of_host.last_prompt_end(), parts.records.last - device_.sizes.records});
    for (index_t p = first; p < parts.records.last; ++p) {
      visit(device_.arrays.sums_of(id, p, 0).data(), of_host.queries.at(p, 0, 0).data());
    }
  }

  // A device has the numbers of each summary in another order, and their scales apart.
  void summaries(sequence_state& from, index_t id) {
    using number = typename device_arrays<Policy, T>::number;
    const device_arrays<Policy, T>& a = device_.arrays;
    const std::int64_t of_one = device_.sizes.summary_numbers, used = from.segment_count() * of_one;
    const index_t lanes = device_.sizes.model.kv_lanes(), head_dim = device_.sizes.model.head_dim;
    const index_t scaled = a.scales_of(device_.sizes, from.segment_count());
    std::vector<number> reordered(static_cast<std::size_t>(lanes * used));
    std::vector<float> scales(static_cast<std::size_t>(lanes) * static_cast<std::size_t>(scaled));
    for (index_t lane = 0; used > 0 && lane < lanes; ++lane) {
      number* to = reordered.data() + lane * used;
      float* const scale = scales.data() + std::int64_t{lane} * scaled;
      for (index_t s = 0; s < from.segment_count(); ++s, to += of_one) {
        const std::byte* const summary = from.summaries_of(host_.sizes, lane) + host_.sizes.kv_lane_summary_bytes(s);
        const auto* of_host = reinterpret_cast<const number*>(summary);
        for (std::int64_t i = 0; i < of_one; ++i) {
          const std::int64_t rows = of_one / head_dim;
          to[summary_place(head_dim, static_cast<index_t>(i / rows)) * rows + i % rows] = of_host[i];
        }
        if (scaled > 0) std::memcpy(scale + s, of_host + of_one, sizeof(float));
      }
      enqueue(a.summaries + a.summaries_at(id, lane), static_cast<const number*>(to - used), used);
      if (scaled > 0) enqueue(a.scales + a.scales_at(id, lane), static_cast<const float*>(scale), scaled);
    }
    wait();
  }

  std::int64_t record_;  // numbers of a token's queries
};

}  // namespace zoomr::inline v0::detail
