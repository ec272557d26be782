// SPDX-License-Identifier: Apache-2.0
// gather_attend where several query tokens read together: each attends to what it would attend to alone.
#include <doctest/doctest.h>

#include <string>  // std::string
#include <vector>  // std::vector

#include "attention/gathering.hpp"
#include "support/mutations.hpp"
#include "support/stride.hpp"

namespace {

using namespace zoomr_test;
using namespace zoomr_test::gathering;
using zoomr::bfloat16;
using zoomr::float16;
using zoomr::float8;
using zoomr::index_t;
using zoomr::int8;
using zoomr::shared_token;

constexpr index_t most_heads = 16;  // of a row

/// What a row reads: slots in ascending order of the sequence's, and by whom.
struct listed_tokens {
  view<const shared_token> list;
  index_t tokens = 0;

  ZOOMR_HD index_t count() const { return tokens; }
  ZOOMR_HD shared_token shared(index_t i) const { return list[i]; }
};

/// The rows of a scene, so many tokens in each.
template <class T, class Number>
struct rows_of_tiles {
  device_array<shared_token> lists;
  device_array<attending_row<listed_tokens>> rows;

  // Slots in the pool's order serve as well as any other.
  static std::vector<shared_token> joined(const scene<T, Number>& s, index_t first, index_t count) {
    std::vector<unsigned> attending(static_cast<std::size_t>(s.held.pages) * 16, 0u);
    for (index_t j = 0; j < count; ++j) {
      for (const index_t slot : s.slots[static_cast<std::size_t>(first + j)]) {
        attending[static_cast<std::size_t>(slot)] |= 1u << j;
      }
    }
    std::vector<shared_token> made;
    for (std::size_t slot = 0; slot < attending.size(); ++slot) {
      if (attending[slot] != 0) made.push_back({static_cast<index_t>(slot), attending[slot]});
    }
    return made;
  }
  static std::vector<shared_token> all(const scene<T, Number>& s, index_t sharing, std::vector<index_t>& firsts) {
    std::vector<shared_token> made;
    for (index_t first = 0; first < s.tokens; first += sharing) {
      firsts.push_back(static_cast<index_t>(made.size()));
      const auto list = joined(s, first, std::min(sharing, s.tokens - first));
      made.insert(made.end(), list.begin(), list.end());
    }
    firsts.push_back(static_cast<index_t>(made.size()));
    return made;
  }
  rows_of_tiles(const scene<T, Number>& s, index_t sharing, std::vector<index_t> firsts = {})
      : lists(all(s, sharing, firsts)), rows(make(s, sharing, firsts)) {}

  std::vector<attending_row<listed_tokens>> make(const scene<T, Number>& s, index_t sharing,
                                                 const std::vector<index_t>& firsts) {
    std::vector<attending_row<listed_tokens>> made;
    for (index_t first = 0; first < s.tokens; first += sharing) {
      const index_t begin = firsts[static_cast<std::size_t>(first / sharing)];
      const index_t end = firsts[static_cast<std::size_t>(first / sharing) + 1];
      const index_t count = std::min(sharing, s.tokens - first);
      for (index_t kv_head = 0; kv_head < s.p.kv_heads; ++kv_head) {
        const listed_tokens tokens{lists.view().slice(begin, end), end - begin};
        made.push_back({tokens, first, kv_head, kv_head * s.p.group, s.p.group, count});
      }
    }
    return made;
  }
  listed_rows<listed_tokens> list() { return {rows.view(), rows.view().size()}; }
};

template <index_t HeadDim, class T, class Number = float, bool Sinks = false>
void check_shared(problem p) {
  p.head_dim = HeadDim, p.sinks = Sinks;
  scene<T, Number> s(p);
  for (index_t sharing = 1; sharing <= most_heads / p.group; sharing = sharing == 1 ? 2 : 2 * sharing + 1) {
    INFO("head_dim ", HeadDim, ", group ", p.group, ", splits ", p.splits, ", seed ", p.seed, ", sharing ", sharing);
    rows_of_tiles<T, Number> rows(s, sharing);
    const answer got = attend<HeadDim, most_heads, Sinks>(s, rows.list());
    compare(s, got, zoomr::fits_tensor_cores<T, Number, HeadDim, most_heads>());
  }
}

const std::vector<index_t> ugly{131, 1, 0, 16, 17, 31, 33, 67, 130, 300, 63};

TEST_CASE("several query tokens: each attends to its own") {
  for (const index_t splits : some_of<index_t>({1, 3})) {
    check_shared<64, float>({.group = 4, .attended = ugly, .splits = splits});
    check_shared<64, float>({.group = 1, .attended = ugly, .splits = splits});
    check_shared<96, bfloat16>({.group = 3, .attended = ugly, .splits = splits});
    check_shared<128, bfloat16>({.group = 8, .attended = ugly, .splits = splits});
    check_shared<256, float>({.group = 5, .kv_heads = 1, .attended = ugly, .splits = splits});
  }
}
TEST_CASE("several query tokens, on tensor cores") {
  for (const index_t splits : some_of<index_t>({1, 3})) {
    check_shared<64, bfloat16, bfloat16>({.group = 4, .attended = ugly, .splits = splits});
    check_shared<128, bfloat16, bfloat16>({.group = 1, .attended = ugly, .splits = splits});
    check_shared<96, float16, float16>({.group = 7, .attended = ugly, .splits = splits});
    check_shared<256, bfloat16, bfloat16>({.group = 2, .kv_heads = 1, .attended = ugly, .splits = splits});
    check_shared<128, float8, bfloat16>({.group = 4, .attended = ugly, .splits = splits});
    check_shared<64, int8, float16>({.group = 5, .attended = ugly, .splits = splits, .key_scale = 0.01f});
  }
}
TEST_CASE("several query tokens: peaked logits, ties, capped ones and infinities") {
  for (const index_t splits : some_of<index_t>({1, 3})) {
    check_shared<64, float>({.group = 4, .attended = ugly, .splits = splits, .look = kind::peaked});
    check_shared<64, float>({.group = 4, .attended = ugly, .splits = splits, .cap = 1.5f});
    check_shared<64, float>({.group = 4, .attended = ugly, .splits = splits, .look = kind::with_infinities});
    check_shared<64, bfloat16, bfloat16>({.group = 4, .attended = ugly, .splits = splits, .look = kind::peaked});
    check_shared<128, float16, float16>({.group = 2, .attended = ugly, .splits = splits, .look = kind::ties});
    check_shared<64, bfloat16, bfloat16>({.group = 4, .attended = ugly, .splits = splits, .cap = 5.0f});
  }
}
TEST_CASE("several query tokens: sinks, with and without a cap") {
  for (const index_t splits : some_of<index_t>({1, 3})) {
    check_shared<64, float, float, true>({.group = 4, .attended = ugly, .splits = splits});
    check_shared<64, bfloat16, bfloat16, true>(
        {.group = 4, .attended = ugly, .splits = splits, .cap = 1.5f, .scale = 0.2f});
  }
}

TEST_CASE("several query tokens: an infinite value reaches those that attend to it, and no others") {
  scene<float> s({.group = 4, .kv_heads = 1, .attended = {1, 70, 130, 31}});
  rows_of_tiles<float, float> rows(s, 4);
  const auto outputs_of = [&](const answer& got, index_t t) {
    const std::int64_t numbers = std::int64_t{s.heads} * 64;
    return std::vector<float>(got.out.begin() + t * numbers, got.out.begin() + (t + 1) * numbers);
  };
  const answer before = attend<64, most_heads>(s, rows.list());
  const index_t own = s.slots[0][0];
  s.held.at(own, true, 0)[5] = zoomr::infinity;
  const answer after = attend<64, most_heads>(s, rows.list());
  index_t reached = 0;
  for (index_t t = 0; t < s.tokens; ++t) {
    const auto& slots = s.slots[static_cast<std::size_t>(t)];
    const bool attends = std::find(slots.begin(), slots.end(), own) != slots.end();
    CHECK((outputs_of(before, t) == outputs_of(after, t)) == !attends);
    reached += attends ? 1 : 0;
  }
  CHECK(0 < reached);
  CHECK(reached < s.tokens);
}

/// Query tokens that attend to all tokens up to themselves have the bits that they have alone.
template <index_t HeadDim, class T, class Number>
void check_causal(index_t group) {
  problem p{.head_dim = HeadDim, .group = group, .attended = {}};
  for (index_t t = 0; t < 13; ++t) p.attended.push_back(118 + t);
  scene<T, Number> s(p);
  for (std::size_t t = 0; t < 13; ++t) {  // the first tokens of the longest list
    s.slots[t].assign(s.slots[12].begin(), s.slots[12].begin() + p.attended[t]);
  }
  const auto bits_of = [&](index_t sharing) {
    std::vector<shared_token> lists;
    for (const index_t slot : s.slots[12]) lists.push_back({slot, 0u});
    std::vector<attending_row<listed_tokens>> rows;
    std::vector<shared_token> all;
    for (index_t first = 0; first < 13; first += sharing) {
      const index_t count = std::min<index_t>(sharing, 13 - first);
      for (index_t i = 0; i < 118 + first + count - 1; ++i) {
        const index_t passed = i - (118 + first) + 1;  // tokens of the share before this one
        all.push_back({lists[static_cast<std::size_t>(i)].slot, passed <= 0 ? ~0u : ~0u << passed});
      }
    }
    device_array<shared_token> held(all);
    index_t begin = 0;
    for (index_t first = 0; first < 13; first += sharing) {
      const index_t count = std::min<index_t>(sharing, 13 - first);
      const index_t tokens = 118 + first + count - 1;
      for (index_t kv_head = 0; kv_head < p.kv_heads; ++kv_head) {
        rows.push_back(
            {{held.view().slice(begin, begin + tokens), tokens}, first, kv_head, kv_head * group, group, count});
      }
      begin += tokens;
    }
    device_array<attending_row<listed_tokens>> listed(rows);
    return bits(attend<HeadDim, most_heads>(s, listed_rows<listed_tokens>{listed.view(), listed.view().size()}));
  };
  const auto alone = bits_of(1);
  for (index_t sharing = 2; sharing <= most_heads / group; ++sharing) {
    CAPTURE(sharing);
    CHECK(bits_of(sharing) == alone);
  }
}
TEST_CASE("the tokens of a prompt have the same bits, however many read together") {
  check_causal<64, float, float>(4);
  check_causal<128, bfloat16, float>(3);
  check_causal<64, bfloat16, bfloat16>(4);
  check_causal<128, float8, bfloat16>(2);
}

TEST_CASE("several query tokens: the order of threads and blocks changes no bit, and no barrier can be left out") {
  const auto check_orders = [&](auto number) {
    using number_type = decltype(number);
    scene<bfloat16, number_type> s(
        {.head_dim = 128, .group = 4, .kv_heads = 1, .attended = {300, 1, 70, 290}, .splits = 3});
    rows_of_tiles<bfloat16, number_type> rows(s, 4);
    const answer first = attend<128, most_heads>(s, rows.list());
    const auto same = [&] { return bits(attend<128, most_heads>(s, rows.list())) == bits(first); };
    in_all_orders([&](const std::string& order) {
      INFO(order);
      CHECK(same());
    });
    // the one in comes_last() orders what other threads have written to global memory, which the shim does not watch
    CHECK(barriers_not_missed(same).size() == 1);
  };
  check_orders(float{});
  check_orders(bfloat16{});
}

}  // namespace
