// SPDX-License-Identifier: Apache-2.0
// L6. One item's attention in one layer: a chunk of a prompt page by page, a generated token by what is chosen.
//
//   out = value_scale * sum of softmax(logit) * value,   logit = key_scale / sqrt(head_dim) * q . key
// over the attended slots, with keys and values as they are stored. Each token's slots are added in ascending order,
// page by page, in either way: so the bits are the same for any chunks, drafts and tiers. `step.attend` calls it once
// for each item, layer and pass.
#pragma once

#include <zoomr/attention/gather.hpp>
#include <zoomr/cache/host/audit.hpp>
#include <zoomr/cache/host/choosing.hpp>

#include <algorithm>  // std::fill, std::max, std::min

namespace zoomr {
inline namespace v0 {
namespace detail {

/// Queries and outputs are those of the whole pass; the item reads and writes the rows from `item.packed` on.
/// @param queries, out  [packed tokens, heads, head_dim]  queries rotated and unscaled
/// @param lse           [packed tokens, heads], or empty  natural logarithm of the sum of exp(logit)
template <class Pool>
class attending {
 public:
  attending(cache_core<Pool>& core, planned_item& item, index_t layer, bool second_pass, view<const float, 3> queries,
            view<float, 3> out, view<float, 2> lse)
      : core_(core), item_(item), layer_(layer), second_(second_pass), queries_(queries), out_(out), lse_(lse) {}

  /// Makes the choices that are due in this layer, too.
  /// @pre     the item's keys were appended in this layer, in this pass
  /// @throws  error(storage) if pages do not come; some of the rows are written then
  /// @cost    no allocation; 2 * head_dim numbers read for each attended slot and KV head, or query head where each
  /// chooses alone. In the prompt so much for each few tokens of the chunk, but a page is brought once for all of them
  void attend() {
    core_.pool.begin_layer(layer_);
    item_.prompt ? attend_prompt() : attend_chosen();
  }

 private:
  // An empty state that adds up in the caller's memory.
  // out: [head_dim]
  static void begin(attention_state& made, view<float> out) {
    made = attention_state{};
    made.out = out.data();
    std::fill(out.begin(), out.end(), 0.0f);
  }
  // Normalises, and applies the scale of values.
  // @return  ln of the sum of exp(logit)
  float finish(attention_state& made) const {
    const index_t dims = core_.sizes.model.head_dim;
    const float log_sum = made.finish(dims);
    for (index_t d = 0; d < dims; ++d) made.out[d] *= core_.limits.value_scale;
    return log_sum;
  }

  // Each page is brought once for all tokens and heads: a chunk of a prompt costs its context one visit. For that all
  // tokens and heads have a state of their own, [tokens, heads]. Chunks before this one may lie in other tiers, so that
  // the next two of their pages are asked for ahead.
  void attend_prompt() {
    const shape& model = core_.sizes.model;
    const auto& state = core_.state_of(item_);
    for (index_t t = 0; t < item_.tokens; ++t) {
      for (index_t head = 0; head < model.heads; ++head) begin(state_at(t, head), out_[item_.packed + t][head]);
    }
    const index_t end = item_.first + item_.tokens;
    const float scale = core_.limits.logit_scale(model.head_dim);
    // Over tiers one page at a time: a page that is asked for by one KV head after the other may be gone in between.
    constexpr index_t together = (Pool::may_fail ? 1 : prompt_tile<typename Pool::number>::most_pages) * page_tokens;
    for (index_t first = 0; first < end; first += together) {
      core_.pool.prefetch(layer_, {0, model.kv_heads}, view<const index_t>(state.pages),
                          {first + page_tokens, std::min(first + 3 * page_tokens, item_.first)});
      for (index_t kv_head = 0; kv_head < model.kv_heads; ++kv_head) {
        core_.tile.begin(core_.kv_lane(state, layer_, kv_head), first, std::min(first + together, end));
        for (index_t t = std::max(0, first - item_.first); t < item_.tokens; t += core_.tile.tokens()) {
          const auto asks = [&](index_t token, index_t head_of_group) -> run_query {
            const index_t head = kv_head * model.group() + head_of_group;
            return {queries_[item_.packed + t + token][head].data(), &state_at(t + token, head)};
          };
          core_.tile.attend(item_.first + t, std::min(core_.tile.tokens(), item_.tokens - t), asks, scale);
        }
      }
    }
    for (index_t t = 0; t < item_.tokens; ++t) {
      for (index_t head = 0; head < model.heads; ++head) {
        const float log_sum = finish(state_at(t, head));
        if (lse_.data() != nullptr) lse_(item_.packed + t, head) = log_sum;
      }
    }
  }

  attention_state& state_at(index_t t, index_t head) {
    return core_.heads[static_cast<std::size_t>(t) * static_cast<std::size_t>(core_.sizes.model.heads) +
                       static_cast<std::size_t>(head)];
  }

  // Token by token, since what a token chooses may depend on the one before. In a second pass the last token alone.
  void attend_chosen() {
    const shape& model = core_.sizes.model;
    const auto attend_heads = [&](index_t t, index_t first_kv_head, index_t last_kv_head) {
      const index_t packed = item_.packed + (second_ ? 0 : t);
      choosing<Pool> now{core_, item_, item_.first + t, layer_, second_};
      now.see(queries_[packed]);
      for (index_t kv_head = first_kv_head; kv_head < last_kv_head; ++kv_head) {
        attend_kv_lane(now, kv_head, queries_[packed], out_[packed], lse_.data() ? lse_[packed] : view<float>());
      }
    };
    // Where nothing is chosen, a KV lane's keys and values stay near the processor from token to token.
    for (index_t kv_head = 0; core_.sizes.selection_rows == 0 && kv_head < model.kv_heads; ++kv_head) {
      for (index_t t = 0; t < item_.tokens; ++t) attend_heads(t, kv_head, kv_head + 1);
    }
    for (index_t t = second_ ? item_.tokens - 1 : 0; core_.sizes.selection_rows > 0 && t < item_.tokens; ++t) {
      attend_heads(t, 0, model.kv_heads);
    }
  }

  // One token and KV head.
  // queries, out: [heads, head_dim]; lse: [heads] or empty. What is here already is touched before anything is asked
  // for, so that it does not make room.
  void attend_kv_lane(choosing<Pool>& now, index_t kv_head, view<const float, 2> queries, view<float, 2> out,
                      view<float> lse) {
    const shape& model = core_.sizes.model;
    const float scale = core_.limits.logit_scale(model.head_dim);
    const auto kv_lane = core_.kv_lane(now.state(), now.layer(), kv_head);
    const index_t together = now.heads_together();  // query heads that share their ranges
    const index_t first_head = kv_head * model.group();
    for (index_t first = first_head; first < first_head + model.group(); first += together) {
      const view<const token_range> ranges = now.ranges_of(kv_head, first);
      const token_range reads{kv_head, kv_head + 1};
      const view<const index_t> pages(now.state().pages);
      for (const token_range& r : ranges) core_.pool.touch(layer_, reads, pages, r);
      for (const token_range& r : ranges) core_.pool.prefetch(layer_, reads, pages, r);
      const view<attention_state> states(core_.heads.data(), {together});
      for (index_t g = 0; g < together; ++g) begin(states[g], out[first + g]);
      gather_attend(ranges, kv_lane, queries.slice(first, first + together), scale, states);
      for (index_t g = 0; g < together; ++g) {
        const float log_sum = finish(states[g]);
        if (core_.limits.audit) {
          now.audit(log_sum - log_sum_of_held(kv_lane, now.slots(), queries[first + g].data(), scale));
        }
        if (lse.data() != nullptr) lse[first + g] = log_sum;
      }
    }
    now.count();
  }

  cache_core<Pool>& core_;
  planned_item& item_;
  index_t layer_;
  bool second_;
  view<const float, 3> queries_;
  view<float, 3> out_;
  view<float, 2> lse_;
};

/// What an item will read in a layer comes while the caller makes its queries; after the last layer, what the next
/// token will read in the first. Nothing, where no page can be missing.
///
/// It guesses from the zones and the selection of the item's first token. A wrong guess costs transfers, never bits.
/// @param layer  the one behind that which was attended; behind the last comes the first
template <class Pool>
void prefetch_layer(cache_core<Pool>& core, planned_item& item, index_t layer, bool second_pass) {
  if (!core.policy.placement.prefetch || item.prompt || item.failed) return;
  choosing<Pool> next{core, item, item.first, layer % core.sizes.model.layers, second_pass};
  core.may_fail(item, [&] { next.prefetch(); });
}

}  // namespace detail
}  // namespace v0
}  // namespace zoomr
