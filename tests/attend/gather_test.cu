// SPDX-License-Identifier: Apache-2.0
#include <zoomr/attend/gather.cuh>

#include <doctest/doctest.h>

#include <algorithm>  // std::shuffle
#include <cmath>      // std::exp
#include <string>     // std::to_string
#include <vector>     // std::vector

#include "support/device_memory.hpp"
#include "support/inputs.hpp"
#include "support/mutations.hpp"
#include "support/tolerance.hpp"

namespace {

using namespace zoomr;
using namespace zoomr_test;
using zoomr::index;  // not the one of <strings.h>

constexpr index page_of_16 = 16;

/// What the rows of a test read; made on the host, legal on the device.
template <class Tokens>
struct listed_rows {
  view<const attending_row<Tokens>> rows;
  index count = 0;
  ZOOMR_HD attending_row<Tokens> at(index i) const { return rows[i]; }
};

struct problem {
  index head_dim = 64;
  index group = 4;
  index kv_heads = 2;
  std::vector<index> attended;  // tokens of each query token
  index splits = 1;
  float cap = 0.0f;  // of the logits; 0: none
  kind look = kind::uniform;
  std::uint64_t seed = 1;
};

/// Keys and values of all slots, of which those that no row attends are NaN.
template <class T>
struct stored {
  std::vector<T> numbers;  // [page][key | value][kv_head][16][head_dim]
  index pages = 0;
  index head_dim = 0;
  index kv_heads = 0;

  stored(const problem& p, index of_pages)
      : numbers(static_cast<std::size_t>(of_pages * 2 * p.kv_heads * page_of_16 * p.head_dim),
                from_float<T>(not_a_number)),
        pages(of_pages),
        head_dim(p.head_dim),
        kv_heads(p.kv_heads) {}

  T* at(index slot, bool value, index kv_head) {
    const index row = ((slot / page_of_16 * 2 + (value ? 1 : 0)) * kv_heads + kv_head) * page_of_16 + slot % page_of_16;
    return numbers.data() + std::int64_t{row} * head_dim;
  }
  stored_layer<T> layer(const T* base) const {
    const std::int64_t head = std::int64_t{page_of_16} * head_dim;
    return {base, base + kv_heads * head, 2 * kv_heads * head, head, head_dim, 4};
  }
};

double logit_of(const problem& p, const float* query, const float* key) {
  double sum = 0.0;
  for (index d = 0; d < p.head_dim; ++d) sum += static_cast<double>(query[d]) * static_cast<double>(key[d]);
  const double logit = sum / std::sqrt(static_cast<double>(p.head_dim));
  return p.cap == 0.0f ? logit : static_cast<double>(p.cap) * std::tanh(logit / static_cast<double>(p.cap));
}

/// Softmax attention as it is written in books.
/// @return  [head_dim] and then the logarithm of the sum of exp(logit)
template <class T>
std::vector<double> reference(const problem& p, stored<T>& held, const std::vector<index>& slots, index kv_head,
                              const float* query) {
  std::vector<double> logits;
  std::vector<float> key(static_cast<std::size_t>(p.head_dim));
  double largest = -std::numeric_limits<double>::infinity();
  for (const index slot : slots) {
    for (index d = 0; d < p.head_dim; ++d)
      key[static_cast<std::size_t>(d)] = to_float(held.at(slot, false, kv_head)[d]);
    logits.push_back(logit_of(p, query, key.data()));
    largest = std::max(largest, logits.back());
  }
  std::vector<double> out(static_cast<std::size_t>(p.head_dim) + 1, 0.0);
  double sum = 0.0;
  for (std::size_t t = 0; t < slots.size(); ++t) {
    const double weight = std::exp(logits[t] - largest);
    sum += weight;
    for (index d = 0; d < p.head_dim; ++d) {
      out[static_cast<std::size_t>(d)] += weight * static_cast<double>(to_float(held.at(slots[t], true, kv_head)[d]));
    }
  }
  for (index d = 0; d < p.head_dim && sum > 0.0; ++d) out[static_cast<std::size_t>(d)] /= sum;
  out.back() = slots.empty() ? -std::numeric_limits<double>::infinity() : largest + std::log(sum);
  return out;
}

/// One launch with its inputs, and the tokens in both forms.
template <class T>
struct scene {
  problem p;
  index tokens;
  index heads;
  std::vector<std::vector<index>> slots;  // [tokens]  pool slots that each attends
  std::vector<std::vector<run>> runs;     // [tokens]  the same in the sequence's slots
  std::vector<std::vector<index>> before;
  std::vector<index> pages;
  stored<T> held;
  std::vector<float> queries;

  static index longest(const problem& p) { return *std::max_element(p.attended.begin(), p.attended.end()); }

  explicit scene(const problem& of)
      : p(of),
        tokens(static_cast<index>(of.attended.size())),
        heads(of.group * of.kv_heads),
        slots(of.attended.size()),
        runs(of.attended.size()),
        before(of.attended.size()),
        held(of, (longest(of) * 10 + 20) / page_of_16 + 1) {
    dice random(p.seed);
    choose_pages(random);
    for (index t = 0; t < tokens; ++t) choose_tokens(t, random);
    const tensors numbers{shape{1, heads, p.kv_heads, p.head_dim}, p.look, p.seed};
    queries.resize(static_cast<std::size_t>(tokens * heads * p.head_dim));
    for (index t = 0; t < tokens; ++t) {
      for (index h = 0; h < heads; ++h) {
        numbers.fill(zoomr_test::role::query, 9, t, 0, h, 0,
                     &queries[static_cast<std::size_t>((t * heads + h) * p.head_dim)]);
      }
    }
    std::vector<float> row(static_cast<std::size_t>(p.head_dim));
    for (const auto& of_token : slots) {
      for (const index slot : of_token) {
        for (index part = 0; part < 2 * p.kv_heads; ++part) {
          const bool value = part % 2 == 1;
          numbers.fill(value ? zoomr_test::role::value : zoomr_test::role::key, 9, slot, 0, part / 2, 0, row.data());
          for (index d = 0; d < p.head_dim; ++d) {
            held.at(slot, value, part / 2)[d] = from_float<T>(row[static_cast<std::size_t>(d)]);
          }
        }
      }
    }
  }

  void choose_pages(dice& random) {
    for (index page = 0; page < held.pages; ++page) pages.push_back(page);
    for (std::size_t i = pages.size(); i > 1; --i) std::swap(pages[i - 1], pages[random.roll() % i]);
  }

  // Runs of a few tokens with gaps between them.
  void choose_tokens(index t, dice& random) {
    const auto of = static_cast<std::size_t>(t);
    index left = p.attended[of];
    index position = random.between(0, 5);
    index counted = 0;
    while (left > 0) {
      const index length = std::min(left, random.between(1, 40));
      runs[of].push_back({position, position + length});
      before[of].push_back(counted);
      for (index i = position; i < position + length; ++i) {
        slots[of].push_back(pages[static_cast<std::size_t>(i / page_of_16)] * page_of_16 + i % page_of_16);
      }
      counted += length, left -= length;
      position += length + random.between(1, 9);
    }
  }
};

/// out and lse of one launch.
struct answer {
  std::vector<float> out;
  std::vector<float> lse;
};

template <index HeadDim, index Group, class T, class Rows>
answer attend(scene<T>& s, const Rows& rows) {
  device_array<T> numbers(s.held.numbers);
  device_array<float> queries(s.queries);
  device_array<float> out(static_cast<std::int64_t>(s.queries.size()), 77.0f);
  device_array<float> lse(std::int64_t{s.tokens} * s.heads, 77.0f);
  const std::int64_t states = std::int64_t{rows.count} * s.p.splits * Group * (HeadDim + 2);
  device_array<float> partial(states, not_a_number);
  device_array<unsigned> arrived(std::int64_t{rows.count} * 16, 0u);
  const extents<3> wide{{s.tokens, s.heads, s.p.head_dim}};
  const float scale = 1.0f / std::sqrt(static_cast<float>(s.p.head_dim));
  const auto go = [&](auto logits) {
    gather_task<T, float, Rows, decltype(logits)> task;
    task.layer = s.held.layer(numbers.data());
    task.rows = rows;
    task.logits = logits;
    task.queries = {queries.data(), wide};
    task.out = {out.data(), wide};
    task.lse = {lse.data(), {{s.tokens, s.heads}}};
    task.partial = partial.data();
    task.arrived = arrived.data();
    gather_attend<T, HeadDim, Group>(task, s.p.splits, zoomr::stream{});
  };
  if (s.p.cap == 0.0f) {
    go(scaled_logits{scale});
  } else {
    go(capped_logits{scale, s.p.cap});
  }
  for (const unsigned left : arrived.values()) CHECK(left == 0u);
  return {out.values(), lse.values()};
}

/// The rows of a scene as runs.
template <class T>
struct rows_by_runs {
  device_array<run> runs;
  device_array<index> before;
  device_array<index> pages;
  device_array<attending_row<tokens_of_runs>> rows;

  template <class U>
  static std::vector<U> joined(const std::vector<std::vector<U>>& lists) {
    std::vector<U> all;
    for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
    return all;
  }
  explicit rows_by_runs(scene<T>& s) : runs(joined(s.runs)), before(joined(s.before)), pages(s.pages), rows(make(s)) {}

  std::vector<attending_row<tokens_of_runs>> make(scene<T>& s) {
    std::vector<attending_row<tokens_of_runs>> made;
    index first = 0;
    for (index t = 0; t < s.tokens; ++t) {
      const auto of = static_cast<std::size_t>(t);
      const auto count = static_cast<index>(s.runs[of].size());
      for (index kv_head = 0; kv_head < s.p.kv_heads; ++kv_head) {
        const tokens_of_runs tokens{view<const run>(runs.data() + first, {count}),
                                    view<const index>(before.data() + first, {count}), pages.view(),
                                    static_cast<index>(s.slots[of].size()), 4};
        made.push_back({tokens, t, kv_head, kv_head * s.p.group, s.p.group});
      }
      first += count;
    }
    return made;
  }
  listed_rows<tokens_of_runs> list() { return {rows.view(), rows.view().size()}; }
};

/// The same as slots, padded with -1.
template <class T>
struct rows_by_slots {
  device_array<index> slots;
  device_array<attending_row<tokens_of_slots>> rows;

  static std::vector<index> padded(const scene<T>& s, index width) {
    std::vector<index> all;
    for (const auto& list : s.slots) {
      all.insert(all.end(), list.begin(), list.end());
      all.resize(all.size() + static_cast<std::size_t>(width) - list.size(), -1);
    }
    return all;
  }
  static index width(const scene<T>& s) { return scene<T>::longest(s.p) + 3; }
  explicit rows_by_slots(scene<T>& s) : slots(padded(s, width(s))), rows(make(s)) {}

  std::vector<attending_row<tokens_of_slots>> make(scene<T>& s) {
    std::vector<attending_row<tokens_of_slots>> made;
    for (index t = 0; t < s.tokens; ++t) {
      const tokens_of_slots tokens{view<const index>(slots.data() + t * width(s), {width(s)}),
                                   static_cast<index>(s.slots[static_cast<std::size_t>(t)].size())};
      for (index kv_head = 0; kv_head < s.p.kv_heads; ++kv_head) {
        made.push_back({tokens, t, kv_head, kv_head * s.p.group, s.p.group});
      }
    }
    return made;
  }
  listed_rows<tokens_of_slots> list() { return {rows.view(), rows.view().size()}; }
};

template <class T>
void compare(scene<T>& s, const answer& got) {
  const problem& p = s.p;
  double logit = 0.0;  // sum of magnitudes: queries and keys lie in [-1, 1], peaked ones are smaller than 3.3
  logit = (p.look == kind::peaked ? 2.3 * 3.3 : 1.0) * std::sqrt(static_cast<double>(p.head_dim));
  for (index t = 0; t < s.tokens; ++t) {
    const auto& slots = s.slots[static_cast<std::size_t>(t)];
    const double allowed = tolerance::end_to_end(p.head_dim, logit, static_cast<double>(slots.size()));
    for (index h = 0; h < s.heads; ++h) {
      const auto row = static_cast<std::size_t>(t * s.heads + h);
      const auto expected =
          reference(p, s.held, slots, h / p.group, &s.queries[row * static_cast<std::size_t>(p.head_dim)]);
      for (index d = 0; d < p.head_dim; ++d) {
        const double value =
            static_cast<double>(got.out[row * static_cast<std::size_t>(p.head_dim) + static_cast<std::size_t>(d)]);
        REQUIRE(tolerance::within(value, expected[static_cast<std::size_t>(d)], allowed));
      }
      REQUIRE(tolerance::within(static_cast<double>(got.lse[row]), expected.back(),
                                allowed * (1 + std::abs(expected.back()))));
    }
  }
}

template <index HeadDim, index Group, class T>
void check(problem p) {
  p.head_dim = HeadDim;
  scene<T> s(p);
  INFO("head_dim ", HeadDim, ", group ", p.group, ", splits ", p.splits, ", seed ", p.seed);
  rows_by_runs<T> runs(s);
  const answer by_runs = attend<HeadDim, Group, T>(s, runs.list());
  compare(s, by_runs);
  rows_by_slots<T> slots(s);
  const answer by_slots = attend<HeadDim, Group, T>(s, slots.list());
  CHECK(by_slots.out == by_runs.out);
  CHECK(by_slots.lse == by_runs.lse);
}

const std::vector<index> ugly{0, 1, 15, 16, 17, 31, 33, 67, 131, 300};

}  // namespace

TEST_CASE("attention over chosen tokens is that of the reference, for each head_dim and group") {
  check<64, 1, float>({.group = 1, .attended = ugly});
  check<64, 4, float>({.group = 4, .attended = ugly});
  check<64, 3, float>({.group = 3, .attended = ugly});
  check<128, 2, float>({.group = 2, .attended = ugly});
  check<128, 8, float>({.group = 8, .attended = ugly});
  check<128, 5, float>({.group = 5, .attended = ugly});
  check<128, 16, float>({.group = 16, .kv_heads = 1, .attended = ugly});
  check<96, 4, float>({.group = 4, .attended = ugly});
  check<256, 4, float>({.group = 4, .attended = ugly});
  check<256, 16, float>({.group = 16, .kv_heads = 1, .attended = ugly});
}
TEST_CASE("in bfloat16 too") {
  check<64, 4, bfloat16>({.group = 4, .attended = ugly});
  check<96, 6, bfloat16>({.group = 6, .attended = ugly});
  check<128, 4, bfloat16>({.group = 4, .attended = ugly});
  check<128, 8, bfloat16>({.group = 8, .attended = ugly});
  check<256, 16, bfloat16>({.group = 16, .kv_heads = 1, .attended = ugly});
}
TEST_CASE("split over blocks") {
  for (const zoomr::index splits : {2, 3, 7}) {
    check<64, 4, float>({.group = 4, .attended = ugly, .splits = splits});
    check<128, 16, bfloat16>({.group = 16, .kv_heads = 1, .attended = ugly, .splits = splits});
  }
}
TEST_CASE("peaked logits, and capped ones") {
  check<64, 4, float>({.group = 4, .attended = ugly, .look = kind::peaked});
  check<64, 4, float>({.group = 4, .attended = ugly, .splits = 3, .look = kind::peaked});
  check<64, 4, float>({.group = 4, .attended = ugly, .cap = 1.5f});
  check<64, 2, bfloat16>({.group = 2, .attended = ugly, .splits = 2, .cap = 5.0f});
}

TEST_CASE("the order of threads and blocks changes no bit, and no barrier can be left out") {
  // with 8 heads warps share tokens, so that threads read what others have copied
  scene<bfloat16> s({.head_dim = 128, .group = 8, .kv_heads = 1, .attended = {300, 1, 70}, .splits = 3});
  rows_by_runs<bfloat16> rows(s);
  const answer first = attend<128, 8, bfloat16>(s, rows.list());
  const auto same = [&] {
    const answer now = attend<128, 8, bfloat16>(s, rows.list());
    return now.out == first.out && now.lse == first.lse;
  };
  in_all_orders([&](const std::string& order) {
    INFO(order);
    CHECK(same());
  });
  // the one in comes_last() orders what other threads have written to global memory, which the shim does not watch
  CHECK(barriers_not_missed(same).size() == 1);
}
