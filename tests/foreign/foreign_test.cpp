// SPDX-License-Identifier: Apache-2.0
// A segmenter, a summarizer with a scorer for it, and a selector that the library does not know, alone beside
// library components and all together, against a description of what each policy must attend.
#include <doctest/doctest.h>
#include <support/naive_attention.hpp>
#include <zoomr/zoomr.hpp>

#include <algorithm>   // std::stable_sort, std::find
#include <functional>  // std::function
#include <vector>      // std::vector

#include "shown.hpp"

namespace foreign {

using namespace zoomr;

constexpr bool prime(index_t n) {
  for (index_t d = 2; d * d <= n; ++d) {
    if (n % d == 0) return false;
  }
  return n >= 2;
}

/// Closes at each token whose position is a prime.
struct primes {
  using role = role::segmenter;
  struct state {
    index_t begin = 0;
    friend constexpr bool operator==(const state&, const state&) = default;
  };
  index_t longest = 32;

  constexpr void feed(state& open, token_class, index_t position, closings& out) const {
    const index_t end = position + 1;
    if (!prime(position) && end - open.begin < longest) return;
    out.add({open.begin, end, end, open.begin, end, position});
    open.begin = end;
  }
  constexpr void end_of_prompt(state&, index_t, closings&) const {}
  constexpr index_t open_begin(const state& open) const { return open.begin; }
  friend constexpr bool operator==(const primes&, const primes&) = default;
};

/// What stands for a segment here: row[0] = its first key, row[1] = its largest, elementwise.
struct first_and_largest {
  static constexpr index_t rows = 2;
};

struct first_key_and_largest {
  using role = role::summarizer;
  using summary = first_and_largest;

  constexpr cells<2> open() const { return {{0.0f, -std::numeric_limits<float>::infinity()}}; }
  constexpr void fold(cells<2>& cell, float key) const {
    if (cell.row[1] == -std::numeric_limits<float>::infinity()) cell.row[0] = key;
    if (key > cell.row[1]) cell.row[1] = key;
  }
  constexpr void close(cells<2>&, index_t) const {}
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
  index_t segments = 3;

  void choose(best_first& order, const selection_input& input, selection_row& row) const {
    for (index_t taken = 0; taken < segments; ++taken) {
      order.next();
      const index_t id = order.next();
      if (id < 0 || order.votes(id) < input.least) return;
      row.take(id);
    }
  }
  friend constexpr bool operator==(const every_second_best&, const every_second_best&) = default;
};

/// The larger of two products: q . first and q . largest.
struct larger_product {
  using role = role::scorer;
  using summary = first_and_largest;
  static constexpr index_t sums = 2;

  score_sums<2> term(score_sums<2> acc, float query, const cells<2>& cell) const {
    return {{fused(query, cell.row[0], acc.at[0]), fused(query, cell.row[1], acc.at[1])}};
  }
  float finish(const score_sums<2>& of) const { return std::max(of.at[0], of.at[1]); }
  friend constexpr bool operator==(const larger_product&, const larger_product&) = default;
};

/// Takes the second best segment, the fourth, and so on, which it has put down before it takes any.
struct noted_second_best {
  using role = role::selector;
  index_t segments = 3;

  static constexpr byte_count work_bytes(index_t of) { return of * static_cast<byte_count>(sizeof(index_t)); }
  void choose(best_first& order, const selection_input& input, selection_row& row) const {
    auto* const ids = reinterpret_cast<index_t*>(input.work);
    index_t count = 0;
    for (index_t id = order.next(); id >= 0 && order.votes(id) >= input.least; id = order.next()) ids[count++] = id;
    for (index_t rank = 1; rank < count && rank < 2 * segments; rank += 2) row.take(ids[rank]);
  }
  friend constexpr bool operator==(const noted_second_best&, const noted_second_best&) = default;
};

namespace {

// ---- the model: whole numbers, so that each score is exact and ties are frequent ----

constexpr shape model{.layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 8};
constexpr index_t prompt_tokens = 23;
constexpr index_t all_tokens = 90;
constexpr index_t front = 2;
constexpr index_t recent = 3;
constexpr zones zone{.sinks = front, .recent = recent};

/// A whole number in [-2, 2] that depends on all arguments.
float number(index_t what, index_t position, index_t layer, index_t head, index_t d) {
  std::uint64_t z = 0;
  for (const index_t part : {what, position, layer, head, d}) {
    z = (z ^ static_cast<std::uint64_t>(part + 1)) * 0xbf58476d1ce4e5b9u;
    z ^= z >> 29;
  }
  return static_cast<float>(z % 5) - 2.0f;
}
float key_at(index_t position, index_t layer, index_t kv_head, index_t d) {
  return number(0, position, layer, kv_head, d);
}
float query_at(index_t position, index_t layer, index_t head, index_t d) { return number(2, position, layer, head, d); }

token_id token_at(index_t position) { return position % 7 == 4 || position % 11 == 3 ? 1 : 0; }
constexpr token_class classes[] = {token_class::plain, token_class::delimiter};

// ---- the description of a policy, and what it must attend ----

struct described {
  std::function<bool(index_t position)> closes;  // a segment ends with this token
  std::function<float(index_t layer, index_t kv_head, token_range, index_t d)>
      cell;                                 // what a dimension of the query is multiplied by
  std::function<bool(index_t rank)> takes;  // the segment with this rank, 0 = best
  decltype(cell) other_cell = {};           // if there is one, the larger of both products is the score
};

bool at_prime(index_t position) { return prime(position); }
/// As docs/extending.md says of its segmenter, with these options.
constexpr shown::long_sentences long_ones{.least = 6, .longest = 12};
bool at_long_stop(index_t position) {
  index_t begin = 0;
  for (index_t p = 0;; ++p) {
    const index_t count = p + 1 - begin;
    const bool ends = (count >= long_ones.least && token_at(p) == 1) || count == long_ones.longest;
    if (!ends && p != prompt_tokens - 1) {
      if (p == position) return false;
      continue;
    }
    if (p == position) return true;
    begin = p + 1;
  }
}
bool at_stop(index_t position) { return token_at(position) == 1 || position == prompt_tokens - 1; }

float mean_of(index_t layer, index_t kv_head, token_range s, index_t d) {
  float sum = 0.0f;
  for (index_t p = s.first; p < s.last; ++p) sum += key_at(p, layer, kv_head, d);
  return sum / static_cast<float>(s.size());
}
float both_of(index_t layer, index_t kv_head, token_range s, index_t d) {
  float largest = key_at(s.first, layer, kv_head, d);
  for (index_t p = s.first; p < s.last; ++p) largest = std::max(largest, key_at(p, layer, kv_head, d));
  return 2.0f * key_at(s.first, layer, kv_head, d) + largest;
}
float first_of(index_t layer, index_t kv_head, token_range s, index_t d) { return key_at(s.first, layer, kv_head, d); }
float largest_of(index_t layer, index_t kv_head, token_range s, index_t d) {
  return both_of(layer, kv_head, s, d) - 2.0f * first_of(layer, kv_head, s, d);
}
bool first_three(index_t rank) { return rank < 3; }
bool second_fourth_sixth(index_t rank) { return rank == 1 || rank == 3 || rank == 5; }

/// Positions that the query heads of one KV head attend at `position`.
std::vector<index_t> must_attend(const described& policy, index_t position, index_t layer, index_t kv_head) {
  const index_t back = position + 1 - recent;
  std::vector<token_range> segments;  // closed before this token
  for (index_t begin = 0, p = 0; p < position; ++p) {
    if (!policy.closes(p)) continue;
    segments.push_back({begin, p + 1});
    begin = p + 1;
  }
  std::vector<std::pair<float, token_range>> scored;
  for (const token_range& s : segments) {
    const token_range left{std::max(s.first, front), std::min(s.last, back)};
    if (left.size() <= 0) continue;
    float sum = 0.0f;  // over the group
    for (index_t head = 2 * kv_head; head < 2 * kv_head + 2; ++head) {
      const auto product = [&](const auto& cell) {
        return sum_over_dims(8, [&](float acc, index_t d) {
          return std::fma(query_at(position, layer, head, d), cell(layer, kv_head, s, d), acc);
        });
      };
      sum += policy.other_cell ? std::max(product(policy.cell), product(policy.other_cell)) : product(policy.cell);
    }
    scored.push_back({sum / 2.0f, left});
  }
  std::stable_sort(scored.begin(), scored.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<index_t> positions;
  for (index_t p = 0; p < front; ++p) positions.push_back(p);
  for (std::size_t rank = 0; rank < scored.size(); ++rank) {
    if (!policy.takes(static_cast<index_t>(rank))) continue;
    for (index_t p = scored[rank].second.first; p < scored[rank].second.last; ++p) positions.push_back(p);
  }
  for (index_t p = back; p <= position; ++p) positions.push_back(p);
  std::sort(positions.begin(), positions.end());
  return positions;
}

// ---- the cache under test ----

template <class Policy>
class decoding {
 public:
  explicit decoding(const Policy& policy)
      : cache_(model, policy, config{.max_tokens = all_tokens, .classes = view<const token_class>(classes, {2})}),
        seq_(cache_.open()) {
    cache_.trace(&trace_);
  }

  /// Feeds [first, last) in one step, and commits it.
  void feed(index_t first, index_t last, bool prompt_ends) {
    std::vector<token_id> ids;
    for (index_t p = first; p < last; ++p) ids.push_back(token_at(p));
    auto step = cache_.begin(seq_, ids, prompt_ends);
    REQUIRE(step.tokens() == last - first);
    for (index_t layer = 0; layer < model.layers; ++layer) {
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

  void rollback(index_t tokens) {
    cache_.rollback(seq_, tokens);
    trace_.clear();
  }
  attention_trace& trace() { return trace_; }
  std::int64_t choices() const { return cache_.stats(seq_).refreshes; }

 private:
  static std::vector<float> numbers(index_t what, index_t first, index_t last, index_t layer, index_t heads) {
    std::vector<float> made;
    for (index_t p = first; p < last; ++p) {
      for (index_t head = 0; head < heads; ++head) {
        for (index_t d = 0; d < model.head_dim; ++d) made.push_back(number(what, p, layer, head, d));
      }
    }
    return made;
  }

  // What comes out is the softmax over the positions that the trace has just named.
  void check_outputs(index_t position, index_t layer, const std::vector<float>& out) const {
    for (index_t head = 0; head < model.heads; ++head) {
      const attended_record& record = trace_[trace_.size() - static_cast<std::size_t>(model.heads - head)];
      REQUIRE(record.head == head);
      const auto query = [&](index_t d) { return query_at(position, layer, head, d); };
      const auto logit = [&](index_t i) {
        const auto key = [&](index_t d) {
          return key_at(record.positions[static_cast<std::size_t>(i)], layer, head / 2, d);
        };
        return zoomr_test::naive_dot(model.head_dim, query, key) / std::sqrt(8.0);
      };
      const auto value = [&](index_t i) {
        const index_t p = record.positions[static_cast<std::size_t>(i)];
        return [=](index_t d) { return number(1, p, layer, head / 2, d); };
      };
      const auto exact =
          zoomr_test::naive_attention(static_cast<index_t>(record.positions.size()), model.head_dim, logit, value);
      for (index_t d = 0; d < model.head_dim; ++d) {
        const auto got = static_cast<double>(out[static_cast<std::size_t>(head * model.head_dim + d)]);
        REQUIRE(got == doctest::Approx(exact.out[static_cast<std::size_t>(d)]).epsilon(1e-5));
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
  for (index_t p = prompt_tokens; p < all_tokens; ++p) decode.feed(p, p + 1, false);
  REQUIRE(decode.trace().size() == static_cast<std::size_t>((all_tokens - prompt_tokens) * model.layers * model.heads));
  index_t different = 0;
  for (const attended_record& record : decode.trace()) {
    CAPTURE(record.position);
    CAPTURE(record.layer);
    CAPTURE(record.head);
    REQUIRE(record.positions == must_attend(by, record.position, record.layer, record.head / 2));
    different += static_cast<index_t>(record.positions.size()) < record.position + 1 ? 1 : 0;
  }
  CHECK(different > 300);  // it does not simply attend everything

  // after a rollback, the same tokens attend the same
  const attention_trace before(decode.trace().end() - 30 * model.layers * model.heads, decode.trace().end());
  decode.rollback(all_tokens - 30);
  for (index_t p = all_tokens - 30; p < all_tokens; ++p) decode.feed(p, p + 1, false);
  CHECK(decode.trace() == before);
}

}  // namespace

TEST_CASE("the description and the library agree on library components alone") {
  check(compose(sentences{}, key_mean{}, mean_dot{}, top_k{.segments = 3}, every_token{}, zone),
        {at_stop, mean_of, first_three});
}

TEST_CASE("a foreign segmenter works beside library components") {
  static_assert(segmenter<primes>);
  check(compose(primes{}, key_mean{}, mean_dot{}, top_k{.segments = 3}, every_token{}, zone),
        {at_prime, mean_of, first_three});
}

TEST_CASE("the segmenter and the scorer that the documentation shows work as it says") {
  static_assert(segmenter<shown::long_sentences> && selector<shown::no_neighbours> && scorer<shown::mean_and_spread>);
  check(compose(long_ones, key_mean{}, shown::plain_dot{}, top_k{.segments = 3}, every_token{}, zone),
        {at_long_stop, mean_of, first_three});
}

TEST_CASE("the evictor that the documentation shows keeps what observation_window does without pooling") {
  static_assert(observer<shown::looked_at>);
  const auto trace_of = [](const auto& evict) {
    decoding decode(compose(evict, zones{.sinks = front, .recent = unlimited}));
    decode.feed(0, prompt_tokens, true);
    for (index_t p = prompt_tokens; p < prompt_tokens + 9; ++p) decode.feed(p, p + 1, false);
    return decode.trace();
  };
  const attention_trace kept = trace_of(shown::looked_at{.tokens = 12, .queries = 4});
  CHECK(kept == trace_of(observation_window{.tokens = 12, .queries = 4, .pooling = 1}));
  REQUIRE(!kept.empty());
  CHECK(kept.front().positions.size() == 13);  // those kept, and the token itself
}

TEST_CASE("the refresh rule that the documentation shows chooses after so many tokens") {
  static_assert(refresh_rule<shown::every_few>);
  const auto choices = [](index_t tokens) {
    decoding decode(
        compose(primes{}, key_mean{}, mean_dot{}, top_k{.segments = 3}, shown::every_few{.tokens = tokens}, zone));
    decode.feed(0, prompt_tokens, true);
    const std::int64_t before = decode.choices();
    for (index_t p = prompt_tokens; p < prompt_tokens + 12; ++p) decode.feed(p, p + 1, false);
    return decode.choices() - before;
  };
  CHECK(choices(1) > 0);
  CHECK(choices(1) == 4 * choices(4));
}

TEST_CASE("a foreign summarizer and the scorer for it work beside library components") {
  static_assert(scorer_for<dot_of_both, first_key_and_largest>);
  static_assert(!scorer_for<box_bound, first_key_and_largest>);  // two rows as well, but of another meaning
  static_assert(!scorer_for<dot_of_both, key_box>);
  check(compose(sentences{}, first_key_and_largest{}, dot_of_both{}, top_k{.segments = 3}, every_token{}, zone),
        {at_stop, both_of, first_three});
}

TEST_CASE("a foreign selector works beside library components") {
  static_assert(selector<every_second_best>);
  check(compose(sentences{}, key_mean{}, mean_dot{}, every_second_best{}, every_token{}, zone),
        {at_stop, mean_of, second_fourth_sixth});
}

TEST_CASE("a scorer may be made of several sums") {
  static_assert(several_sums_scorer<larger_product> && !one_sum_scorer<larger_product>);
  check(compose(sentences{}, first_key_and_largest{}, larger_product{}, top_k{.segments = 3}, every_token{}, zone),
        {at_stop, first_of, first_three, largest_of});
}

TEST_CASE("a selector may have working memory, which is counted") {
  const auto noting = compose(sentences{}, key_mean{}, mean_dot{}, noted_second_best{}, every_token{}, zone);
  check(noting, {at_stop, mean_of, second_fourth_sixth});
  const auto plain = compose(sentences{}, key_mean{}, mean_dot{}, every_second_best{}, every_token{}, zone);
  const config limits{.max_tokens = 64, .max_segments = 50, .classes = view<const token_class>(classes, {2})};
  CHECK(kv_cache<std::remove_const_t<decltype(noting)>>::bytes(model, noting, limits).workspace ==
        kv_cache<std::remove_const_t<decltype(plain)>>::bytes(model, plain, limits).workspace + 50 * 4);
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
