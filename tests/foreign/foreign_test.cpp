// SPDX-License-Identifier: Apache-2.0
// A segmenter, a summarizer with a scorer for it, and a selector that the library does not know, alone beside
// library components and all together, against a description of what each policy must attend.
#include <doctest/doctest.h>
#include <zoomr/zoomr.hpp>

#include <algorithm>   // std::stable_sort, std::find
#include <functional>  // std::function
#include <vector>      // std::vector

namespace foreign {

using namespace zoomr;
using zoomr::index;  // there is one in <strings.h> too

constexpr bool prime(index n) {
  for (index d = 2; d * d <= n; ++d) {
    if (n % d == 0) return false;
  }
  return n >= 2;
}

/// Closes at each token whose position is a prime.
struct primes {
  using role = role::segmenter;
  struct state {
    index begin = 0;
    friend constexpr bool operator==(const state&, const state&) = default;
  };
  index longest = 32;

  constexpr void feed(state& open, token_class, index position, closings& out) const {
    const index end = position + 1;
    if (!prime(position) && end - open.begin < longest) return;
    out.add({open.begin, end, end, open.begin, end, position});
    open.begin = end;
  }
  constexpr void end_of_prompt(state&, index, closings&) const {}
  constexpr index open_begin(const state& open) const { return open.begin; }
  friend constexpr bool operator==(const primes&, const primes&) = default;
};

/// What stands for a segment here: row[0] = its first key, row[1] = its largest, elementwise.
struct first_and_largest {
  static constexpr index rows = 2;
};

struct first_key_and_largest {
  using role = role::summarizer;
  using summary = first_and_largest;

  constexpr cells<2> open() const { return {{0.0f, -std::numeric_limits<float>::infinity()}}; }
  constexpr void fold(cells<2>& cell, float key) const {
    if (cell.row[1] == -std::numeric_limits<float>::infinity()) cell.row[0] = key;
    if (key > cell.row[1]) cell.row[1] = key;
  }
  constexpr void close(cells<2>&, index) const {}
  friend constexpr bool operator==(const first_key_and_largest&, const first_key_and_largest&) = default;
};

/// q . (weight * first + largest).
struct dot_of_both {
  using role = role::scorer;
  using summary = first_and_largest;
  float weight = 2.0f;

  float term(float acc, float query, const cells<2>& cell) const {
    return fused(query, weight * cell.row[0] + cell.row[1], acc);
  }
  friend constexpr bool operator==(const dot_of_both&, const dot_of_both&) = default;
};

/// Takes the second best segment, the fourth, and so on.
struct every_second_best {
  using role = role::selector;
  index segments = 3;

  void choose(best_first& order, const selection_input& input, selection_row& row) const {
    for (index taken = 0; taken < segments; ++taken) {
      order.next();
      const index id = order.next();
      if (id < 0 || order.of(id) < input.least) return;
      row.take(id);
    }
  }
  friend constexpr bool operator==(const every_second_best&, const every_second_best&) = default;
};

namespace {

// ---- the model: whole numbers, so that each score is exact and ties are frequent ----

constexpr shape model{.layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 8};
constexpr index prompt_tokens = 23;
constexpr index all_tokens = 90;
constexpr index front = 2;
constexpr index recent = 3;
constexpr zones zone{.sinks = front, .recent = recent};

/// A whole number in [-2, 2] that depends on all arguments.
float number(index what, index position, index layer, index head, index d) {
  std::uint64_t z = 0;
  for (const index part : {what, position, layer, head, d}) {
    z = (z ^ static_cast<std::uint64_t>(part + 1)) * 0xbf58476d1ce4e5b9u;
    z ^= z >> 29;
  }
  return static_cast<float>(z % 5) - 2.0f;
}
float key_at(index position, index layer, index kv_head, index d) { return number(0, position, layer, kv_head, d); }
float query_at(index position, index layer, index head, index d) { return number(2, position, layer, head, d); }

token_id token_at(index position) { return position % 7 == 4 || position % 11 == 3 ? 1 : 0; }
constexpr token_class classes[] = {token_class::plain, token_class::delimiter};

// ---- the description of a policy, and what it must attend ----

struct described {
  std::function<bool(index position)> closes;  // a segment ends with this token
  std::function<float(index layer, index kv_head, run, index d)>
      cell;                               // what a dimension of the query is multiplied by
  std::function<bool(index rank)> takes;  // the segment with this rank, 0 = best
};

bool at_prime(index position) { return prime(position); }
bool at_stop(index position) { return token_at(position) == 1 || position == prompt_tokens - 1; }

float mean_of(index layer, index kv_head, run s, index d) {
  float sum = 0.0f;
  for (index p = s.first; p < s.last; ++p) sum += key_at(p, layer, kv_head, d);
  return sum / static_cast<float>(s.size());
}
float both_of(index layer, index kv_head, run s, index d) {
  float largest = key_at(s.first, layer, kv_head, d);
  for (index p = s.first; p < s.last; ++p) largest = std::max(largest, key_at(p, layer, kv_head, d));
  return 2.0f * key_at(s.first, layer, kv_head, d) + largest;
}
bool first_three(index rank) { return rank < 3; }
bool second_fourth_sixth(index rank) { return rank == 1 || rank == 3 || rank == 5; }

/// Positions that the query heads of one KV head attend at `position`.
std::vector<index> must_attend(const described& policy, index position, index layer, index kv_head) {
  const index back = position + 1 - recent;
  std::vector<run> segments;  // closed before this token
  for (index begin = 0, p = 0; p < position; ++p) {
    if (!policy.closes(p)) continue;
    segments.push_back({begin, p + 1});
    begin = p + 1;
  }
  std::vector<std::pair<float, run>> scored;
  for (const run& s : segments) {
    const run left{std::max(s.first, front), std::min(s.last, back)};
    if (left.size() <= 0) continue;
    float sum = 0.0f;  // over the group
    for (index head = 2 * kv_head; head < 2 * kv_head + 2; ++head) {
      sum += sum_over_dims(8, [&](float acc, index d) {
        return std::fma(query_at(position, layer, head, d), policy.cell(layer, kv_head, s, d), acc);
      });
    }
    scored.push_back({sum / 2.0f, left});
  }
  std::stable_sort(scored.begin(), scored.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<index> positions;
  for (index p = 0; p < front; ++p) positions.push_back(p);
  for (std::size_t rank = 0; rank < scored.size(); ++rank) {
    if (!policy.takes(static_cast<index>(rank))) continue;
    for (index p = scored[rank].second.first; p < scored[rank].second.last; ++p) positions.push_back(p);
  }
  for (index p = back; p <= position; ++p) positions.push_back(p);
  std::sort(positions.begin(), positions.end());
  return positions;
}

// ---- the cache under test ----

template <class Policy>
class decoding {
 public:
  explicit decoding(const Policy& policy)
      : cache_(model, policy, config{.tokens = all_tokens, .classes = view<const token_class>(classes, {2})}),
        seq_(cache_.open()) {
    cache_.trace(&trace_);
  }

  /// Feeds [first, last) in one step, and commits it.
  void feed(index first, index last, bool prompt_ends) {
    std::vector<token_id> ids;
    for (index p = first; p < last; ++p) ids.push_back(token_at(p));
    auto step = cache_.begin(seq_, ids, prompt_ends);
    REQUIRE(step.tokens() == last - first);
    for (index layer = 0; layer < model.layers; ++layer) {
      const std::vector<float> keys = numbers(0, first, last, layer, model.kv_heads);
      const std::vector<float> values = numbers(1, first, last, layer, model.kv_heads);
      const std::vector<float> queries = numbers(2, first, last, layer, model.heads);
      std::vector<float> out(queries.size());
      const extents<3> of_keys{{last - first, model.kv_heads, model.head_dim}};
      const extents<3> of_queries{{last - first, model.heads, model.head_dim}};
      step.append(layer, {keys.data(), of_keys}, {values.data(), of_keys});
      step.attend(layer, {queries.data(), of_queries}, {out.data(), of_queries});
      if (!prompt_ends) check_outputs(first, layer, out);
    }
    step.commit();
  }

  void rollback(index tokens) {
    cache_.rollback(seq_, tokens);
    trace_.clear();
  }
  attention_trace& trace() { return trace_; }

 private:
  static std::vector<float> numbers(index what, index first, index last, index layer, index heads) {
    std::vector<float> made;
    for (index p = first; p < last; ++p) {
      for (index head = 0; head < heads; ++head) {
        for (index d = 0; d < model.head_dim; ++d) made.push_back(number(what, p, layer, head, d));
      }
    }
    return made;
  }

  // What comes out is the softmax over the positions that the trace has just named.
  void check_outputs(index position, index layer, const std::vector<float>& out) const {
    for (index head = 0; head < model.heads; ++head) {
      const attended_record& record = trace_[trace_.size() - static_cast<std::size_t>(model.heads - head)];
      REQUIRE(record.head == head);
      double sum = 0.0;
      double expected[8] = {};
      for (const index p : record.positions) {
        double logit = 0.0;
        for (index d = 0; d < model.head_dim; ++d) {
          logit += static_cast<double>(query_at(position, layer, head, d) * key_at(p, layer, head / 2, d));
        }
        const double weight = std::exp(logit / std::sqrt(8.0));
        sum += weight;
        for (index d = 0; d < model.head_dim; ++d) {
          expected[d] += weight * static_cast<double>(number(1, p, layer, head / 2, d));
        }
      }
      for (index d = 0; d < model.head_dim; ++d) {
        const auto got = static_cast<double>(out[static_cast<std::size_t>(head * model.head_dim + d)]);
        REQUIRE(got == doctest::Approx(expected[d] / sum).epsilon(1e-5));
      }
    }
  }

  kv_cache<Policy> cache_;
  sequence seq_;
  attention_trace trace_;
};

template <class Policy>
void check(const Policy& policy, const described& by) {
  decoding<Policy> decode(policy);
  decode.feed(0, prompt_tokens, true);
  for (index p = prompt_tokens; p < all_tokens; ++p) decode.feed(p, p + 1, false);
  REQUIRE(decode.trace().size() == static_cast<std::size_t>((all_tokens - prompt_tokens) * model.layers * model.heads));
  index different = 0;
  for (const attended_record& record : decode.trace()) {
    CAPTURE(record.position);
    CAPTURE(record.layer);
    CAPTURE(record.head);
    REQUIRE(record.positions == must_attend(by, record.position, record.layer, record.head / 2));
    different += static_cast<index>(record.positions.size()) < record.position + 1 ? 1 : 0;
  }
  CHECK(different > 300);  // it does not simply attend everything

  // after a rollback, the same tokens attend the same
  const attention_trace before(decode.trace().end() - 30 * model.layers * model.heads, decode.trace().end());
  decode.rollback(all_tokens - 30);
  for (index p = all_tokens - 30; p < all_tokens; ++p) decode.feed(p, p + 1, false);
  CHECK(decode.trace() == before);
}

}  // namespace

TEST_CASE("the description and the library agree on library components alone") {
  check(compose(sentences{}, key_mean{}, mean_dot{}, best_segments{.segments = 3}, every_token{}, zone),
        {at_stop, mean_of, first_three});
}

TEST_CASE("a foreign segmenter works beside library components") {
  static_assert(segmenter<primes>);
  check(compose(primes{}, key_mean{}, mean_dot{}, best_segments{.segments = 3}, every_token{}, zone),
        {at_prime, mean_of, first_three});
}

TEST_CASE("a foreign summarizer and the scorer for it work beside library components") {
  static_assert(scorer_for<dot_of_both, first_key_and_largest>);
  static_assert(!scorer_for<box_bound, first_key_and_largest>);  // two rows as well, but of another meaning
  static_assert(!scorer_for<dot_of_both, key_box>);
  check(compose(sentences{}, first_key_and_largest{}, dot_of_both{}, best_segments{.segments = 3}, every_token{}, zone),
        {at_stop, both_of, first_three});
}

TEST_CASE("a foreign selector works beside library components") {
  static_assert(selector<every_second_best>);
  check(compose(sentences{}, key_mean{}, mean_dot{}, every_second_best{}, every_token{}, zone),
        {at_stop, mean_of, second_fourth_sixth});
}

TEST_CASE("four foreign components work together, in any order") {
  constexpr auto mine =
      compose(every_second_best{}, dot_of_both{}, zone, first_key_and_largest{}, every_token{}, primes{});
  static_assert(mine.problem() == nullptr);  // foreign components need no `problem` of their own
  static_assert(mine ==
                compose(primes{}, first_key_and_largest{}, dot_of_both{}, every_second_best{}, every_token{}, zone));
  check(mine, {at_prime, both_of, second_fourth_sixth});
}

}  // namespace foreign
