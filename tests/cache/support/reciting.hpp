// SPDX-License-Identifier: Apache-2.0
// Says texts to a cache whose layers may differ in shape, in any legal way, and keeps what each committed token got.
#pragma once

#include <cache/support/driving.hpp>

#include <doctest/doctest.h>

#include <algorithm>   // std::max, std::min
#include <functional>  // std::function
#include <map>         // std::map
#include <vector>      // std::vector

namespace zoomr_test {

/// Says texts to a cache whose layers have these shapes, and keeps what each token got in all of them.
template <class Cache>
class reciter {
 public:
  reciter(Cache& cache, std::vector<shape> of_layer) : cache_(cache), of_layer_(std::move(of_layer)) {}

  index_t open(const tape& says) { return take(cache_.open(), says); }
  index_t take(zoomr::sequence seq, const tape& says) {
    voices.push_back({seq, &says, {}});
    return static_cast<index_t>(voices.size()) - 1;
  }
  voice& at(index_t v) { return voices[static_cast<std::size_t>(v)]; }
  index_t tokens(index_t v) { return cache_.tokens(at(v).seq); }
  bool done(index_t v) { return tokens(v) == at(v).says->size(); }
  void rollback(index_t v, index_t to) {
    cache_.rollback(at(v).seq, to);
    at(v).log.erase(at(v).log.lower_bound({to, 0}), at(v).log.end());
  }
  /// The voice loses a span, and goes on in the text without it.
  template <class... Turn>
  void erase(index_t v, zoomr::token_range span, const tape& left, const Turn&... turn) {
    cache_.erase(at(v).seq, span, turn...);
    at(v).says = &left;
    at(v).log.clear();
  }
  part next(index_t v, index_t count) { return part_of(*at(v).says, v, tokens(v), count); }

  /// One step. Of a draft the longest prefix that the tape holds is accepted; of an item that has failed nothing.
  /// @return  false if some item has failed
  bool play(const std::vector<part>& parts, fate until = fate::committed) {
    std::vector<zoomr::step_item> items;
    std::vector<std::vector<zoomr::token_span>> spans;
    for (const part& p : parts) {
      spans.push_back(at(p.voice).says->spans_from(tokens(p.voice), p.ids.size()));
      items.push_back({at(p.voice).seq,
                       view<const token_id>(p.ids),
                       p.prompt_ends,
                       {},
                       p.prompt_begins,
                       {},
                       p.whole,
                       view<const zoomr::token_span>(spans.back())});
    }
    std::vector<index_t> planned(items.size());
    if constexpr (requires { cache_.plan(view<const zoomr::step_item>(items), view<index_t>(planned)); }) {
      cache_.plan(view<const zoomr::step_item>(items), view<index_t>(planned));
    }
    auto step = cache_.begin(view<const zoomr::step_item>(items));
    if constexpr (requires { cache_.plan(view<const zoomr::step_item>(items), view<index_t>(planned)); }) {
      for (index_t i = 0; i < step.items(); ++i) REQUIRE(planned[static_cast<std::size_t>(i)] == step.taken(i));
    }
    if (until == fate::dropped_at_once) return true;
    const index_t passes = step.passes();
    std::vector<index_t> accepted, firsts;
    for (index_t i = 0; i < step.items(); ++i) {
      const tape& says = *at(parts[static_cast<std::size_t>(i)].voice).says;
      const std::vector<token_id>& ids = parts[static_cast<std::size_t>(i)].ids;
      index_t count = 0;
      while (count < step.taken(i) &&
             ids[static_cast<std::size_t>(count)] == says.ids[static_cast<std::size_t>(step.position(i) + count)]) {
        ++count;
      }
      cut_short += step.taken(i) < static_cast<index_t>(ids.size()) ? 1 : 0;
      accepted.push_back(count), firsts.push_back(step.position(i));
    }
    std::vector<result_log> logs(parts.size());
    bool came = pass(step, parts, 0, logs, accepted);
    if (until == fate::dropped_after_pass) return true;
    if (step.needs_second_pass(view<const index_t>(accepted))) {
      ++second_passes;
      REQUIRE(passes == 2);
      REQUIRE_FALSE(step.tokens() == 0);
      if (before_second_pass) before_second_pass();
      const bool came_again = pass(step, parts, 1, logs, accepted);
      failed_again += came && !came_again ? 1 : 0;
      came = came && came_again;
      REQUIRE_FALSE(step.needs_second_pass(view<const index_t>(accepted)));
    }
    if (until == fate::dropped_after_first_pass) return true;
    if (before_commit) {
      came = before_commit([&] { step.commit(view<const index_t>(accepted)); }) && came;
    } else {
      step.commit(view<const index_t>(accepted));
    }
    for (std::size_t i = 0; i < parts.size(); ++i) {
      for (auto& [place, result] : logs[i]) {
        if (place.first < tokens(parts[i].voice)) at(parts[i].voice).log[place] = std::move(result);
      }
    }
    return came;
  }

  /// All texts to their ends, in a random way: in chunks, drafts, batches, steps that are dropped, and rollbacks.
  void recite(std::uint64_t seed, index_t back) {
    dice random(seed);
    for (bool left = true; left;) {
      left = false;
      std::vector<part> parts;
      for (index_t v = 0; v < static_cast<index_t>(voices.size()); ++v) {
        if (done(v)) continue;
        left = true;
        if (random.chance(20)) continue;
        const index_t now = tokens(v);
        index_t& most = furthest[v];  // no deeper than `back` below it
        most = std::max(most, now);
        if (back > 0 && random.chance(12) && now > std::max(most - back, at(v).says->prompt)) {
          rollback(v, random.between(std::max(most - back, at(v).says->prompt), now));
          ++rollbacks;
        }
        const bool prompt = at(v).says->in_prompt(tokens(v));
        part draft = next(v, prompt ? random.between(1, 30) : random.between(1, 6));
        if (random.chance(25) && !prompt) draft.ids.back() = unspoken_id;
        if (longest_whole > 0 && !prompt && random.chance(40)) {
          draft.whole = true;
          draft.ids.resize(std::min(draft.ids.size(), longest_whole));
          ++wholes;
        }
        parts.push_back(draft);
      }
      if (parts.empty()) continue;
      if (random.chance(20)) {
        play(parts, random.one_of(
                        std::array{fate::dropped_at_once, fate::dropped_after_pass, fate::dropped_after_first_pass}));
      }
      play(parts);
    }
  }
  /// The rest of the texts, one token after the other.
  void recite_plainly() {
    for (index_t v = 0; v < static_cast<index_t>(voices.size()); ++v) {
      while (!done(v)) play({next(v, at(v).says->in_prompt(tokens(v)) ? at(v).says->size() : 1)});
    }
  }

  std::vector<voice> voices;
  bool repeats = false;                                             // the second pass has the numbers of the first
  std::size_t longest_whole = 0;                                    // drafts of so many tokens may be passed whole
  std::function<bool(const std::function<void()>&)> before_commit;  // calls it; false if it has failed
  std::function<void()> before_second_pass;
  std::map<index_t, index_t> furthest;  // by voice
  std::int64_t second_passes = 0;
  std::int64_t cut_short = 0;  // drafts of which not all was taken
  std::int64_t wholes = 0;     // that were passed whole
  std::int64_t rollbacks = 0;
  std::int64_t failed_again = 0;  // steps whose second pass has failed, not the first

 private:
  template <class Step>
  bool pass(Step& step, const std::vector<part>& parts, index_t number, std::vector<result_log>& logs,
            std::vector<index_t>& accepted) {
    const index_t tokens = step.tokens();
    for (index_t layer = 0; layer < static_cast<index_t>(of_layer_.size()); ++layer) {
      const shape& m = of_layer_[static_cast<std::size_t>(layer)];
      const auto room = [&](index_t heads, index_t dims) {
        return std::vector<float>(static_cast<std::size_t>(tokens) * static_cast<std::size_t>(heads * dims));
      };
      std::vector<float> keys = room(m.kv_heads, m.head_dim), values = keys, queries = room(m.heads, m.head_dim);
      std::vector<float> out = queries, lse = room(m.heads, 1);
      const view<float, 3> k(keys.data(), {tokens, m.kv_heads, m.head_dim});
      const view<float, 3> v(values.data(), {tokens, m.kv_heads, m.head_dim});
      const view<float, 3> q(queries.data(), {tokens, m.heads, m.head_dim});
      const view<float, 3> o(out.data(), {tokens, m.heads, m.head_dim});
      const view<float, 2> l(lse.data(), {tokens, m.heads});
      for_each_token(step, parts, number, [&](std::size_t i, index_t position, index_t packed, token_id id) {
        tensors numbers = at(parts[i].voice).says->numbers;
        numbers.model = m;
        const index_t place = at(parts[i].voice).says->place(position);
        const index_t of_pass = repeats ? 0 : number;
        for (index_t head = 0; head < m.heads; ++head) {
          numbers.fill(role::query, id, place, layer, head, of_pass, &q(packed, head, 0));
          if (head >= m.kv_heads) continue;
          numbers.fill(role::key, id, place, layer, head, of_pass, &k(packed, head, 0));
          numbers.fill(role::value, id, place, layer, head, of_pass, &v(packed, head, 0));
        }
      });
      step.append(layer, k, v);
      step.attend(layer, q, o, l);
      for_each_token(step, parts, number, [&](std::size_t i, index_t position, index_t packed, token_id) {
        token_result& result = logs[i][{position, number}];
        const auto add = [](std::vector<float>& to, const float* from, index_t count) {
          to.insert(to.end(), from, from + count);
        };
        add(result.out.numbers, &o(packed, 0, 0), m.heads * m.head_dim);
        add(result.lse.numbers, &l(packed, 0), m.heads);
      });
    }
    bool came = true;
    if constexpr (requires { step.failure(0); }) {
      for (index_t i = 0; i < step.items(); ++i) {
        if (step.failure(i) == nullptr) continue;
        accepted[static_cast<std::size_t>(i)] = 0;
        came = false;
      }
    }
    return came;
  }
  template <class Step, class Body>
  void for_each_token(const Step& step, const std::vector<part>& parts, index_t number, Body body) const {
    for (index_t i = 0; i < step.items(); ++i) {
      if (number == 1 && !step.active(i)) continue;
      const index_t first = number == 1 ? step.taken(i) - 1 : 0;
      for (index_t t = first; t < step.taken(i); ++t) {
        body(static_cast<std::size_t>(i), step.position(i) + t - first, step.packed(i) + t - first,
             parts[static_cast<std::size_t>(i)].ids[static_cast<std::size_t>(t)]);
      }
    }
  }

  Cache& cache_;
  std::vector<shape> of_layer_;
};

}  // namespace zoomr_test
