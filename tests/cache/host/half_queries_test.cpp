// SPDX-License-Identifier: Apache-2.0
// Queries and outputs of 16 bits: they give what their floats give, rounded.
#include <cache/support/driving.hpp>
#include <cache/support/small_policies.hpp>
#include <core/random.hpp>
#include <zoomr/grouped_kv_cache.hpp>

#include <doctest/doctest.h>

namespace zoomr_test {
namespace {

using unit::size;
using zoomr::bfloat16, zoomr::float16, zoomr::sequence;

constexpr shape model{2, 4, 2, 24, 16};
constexpr index_t tokens = 90, prompt = 40, chunk = 20;

zoomr::config limits_of(bool halves) {
  zoomr::config made = limits_for(tokens);
  made.max_batched_tokens = chunk;
  made.half_queries = halves;
  return made;
}

/// Rows further apart than they are wide, and the bits of what lies between them.
template <class Number>
struct apart {
  index_t width;
  std::vector<Number> numbers;

  apart(index_t rows, index_t dims) : width(dims), numbers(size(rows * (dims + 3)), zoomr::from_float<Number>(7.0f)) {}
  view<Number, 3> rows(index_t count, index_t heads) {
    return {numbers.data(), {count, heads, width}, {heads * (width + 3), width + 3, 1}};
  }
  bool untouched_between() const {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      if (i % size(width + 3) >= size(width) && zoomr::to_float(numbers[i]) != 7.0f) return false;
    }
    return true;
  }
};

/// All tokens through a cache of floats and one that gets the same queries in 16 bits: also those it only observes.
template <class Number, class Policy>
void check(const Policy& policy, bool observes) {
  zoomr::kv_cache<Policy> wide(model, policy, limits_of(false)), half(model, policy, limits_of(true));
  const sequence in_wide = wide.open(), in_half = half.open();
  unit::random random(9);
  for (index_t at = 0; at < tokens;) {
    const index_t count = at < prompt ? chunk : 1;
    const std::vector<token_id> ids(size(count), at % 30);
    const std::vector<float> keys = random.floats(size(count * 2 * 24)), values = random.floats(size(count * 2 * 16));
    const view<const float, 3> k(keys.data(), {count, 2, 24}), v(values.data(), {count, 2, 16});
    const bool ends = at + count == prompt;
    auto a = wide.begin(in_wide, view<const token_id>(ids), ends),
         b = half.begin(in_half, view<const token_id>(ids), ends);
    index_t passed = count;
    do {
      for (index_t layer = 0; layer < model.layers; ++layer) {
        apart<Number> asked(passed * 4, 24), got(passed * 4, 16);
        std::vector<float> queries(size(passed * 4 * 24)), out(size(passed * 4 * 16));
        const view<Number, 3> rows = asked.rows(passed, 4);
        for (index_t row = 0; row < passed * 4; ++row) {
          for (index_t d = 0; d < 24; ++d) {
            Number& number = rows[row / 4][row % 4][d] = zoomr::from_float<Number>(random.uniform(-3.0f, 3.0f));
            queries[size(row * 24 + d)] = zoomr::to_float(number);
          }
        }
        const view<const float, 3> q(queries.data(), {passed, 4, 24});
        a.append(layer, k.slice(0, passed), v.slice(0, passed)),
            b.append(layer, k.slice(0, passed), v.slice(0, passed));
        if (observes && at < prompt) {
          a.observe(layer, q), b.observe(layer, view<const Number, 3>(rows));
          continue;
        }
        a.attend(layer, q, view<float, 3>(out.data(), {passed, 4, 16}));
        b.attend(layer, rows, got.rows(passed, 4));
        for (index_t row = 0; row < passed * 4; ++row) {
          for (index_t d = 0; d < 16; ++d) {
            const Number expected = zoomr::from_float<Number>(out[size(row * 16 + d)]);
            REQUIRE(got.rows(passed, 4)[row / 4][row % 4][d].bits == expected.bits);
          }
        }
        REQUIRE(got.untouched_between());
      }
      const bool again = a.needs_second_pass(count);
      REQUIRE(b.needs_second_pass(count) == again);
      passed = again ? 1 : 0;
    } while (passed > 0);
    a.commit(count), b.commit(count);
    at += count;
  }
}

}  // namespace

TEST_CASE_TEMPLATE("queries of 16 bits give what they give as floats, rounded", Number, bfloat16, float16) {
  for (const bool observes : {false, true}) {
    check<Number>(small::full, observes);
    check<Number>(small::zoomr_second_pass, observes);
    check<Number>(small::evicting, observes);
  }
}

TEST_CASE("what is read is listed for queries of 16 bits as for floats") {
  zoomr::kv_cache cache(model, small::quest, limits_of(true));
  const std::vector<token_id> ids(chunk, 1);
  const sequence seq = cache.open();
  unit::random random(2);
  const std::vector<float> keys = random.floats(chunk * 2 * 24), values = random.floats(chunk * 2 * 16);
  std::vector<bfloat16> queries(size(chunk * 4 * 24));
  std::vector<float> wide;
  for (bfloat16& number : queries) {
    number = zoomr::from_float<bfloat16>(random.uniform(-3.0f, 3.0f));
    wide.push_back(zoomr::to_float(number));
  }
  const auto listed = [&](auto rows, index_t count, bool ends) {
    std::string all;
    auto step = cache.begin(seq, view<const token_id>(ids.data(), {count}), ends);
    for (index_t layer = 0; layer < model.layers; ++layer) {
      step.append(layer, view<const float, 3>(keys.data(), {count, 2, 24}),
                  view<const float, 3>(values.data(), {count, 2, 16}));
      step.list_slots(layer, rows, [&](const zoomr::slots_read& reads) {
        for (const zoomr::token_range& r : reads.slots)
          all += std::to_string(r.first) + "-" + std::to_string(r.last) + " ";
      });
    }
    if (ends || cache.tokens(seq) < 3 * chunk) step.commit(count);
    return all;
  };
  for (index_t part = 0; part < 4; ++part) listed(view<bfloat16, 3>(queries.data(), {chunk, 4, 24}), chunk, part == 3);
  const std::string of_halves = listed(view<bfloat16, 3>(queries.data(), {1, 4, 24}), 1, false);
  CHECK(of_halves != "");
  CHECK(listed(view<const float, 3>(wide.data(), {1, 4, 24}), 1, false) == of_halves);
}

TEST_CASE("without room for them, or in another shape, they are refused, and nothing is lost") {
  const std::vector<token_id> one{1};
  const std::vector<float> keys(2 * 24), values(2 * 16);
  std::vector<bfloat16> queries(4 * 24), out(4 * 16);
  const view<bfloat16, 3> q(queries.data(), {1, 4, 24}), o(out.data(), {1, 4, 16});
  for (const bool halves : {false, true}) {
    zoomr::kv_cache cache(model, small::full, limits_of(halves));
    auto step = cache.begin(cache.open(), view<const token_id>(one), true);
    step.append(0, view<const float, 3>(keys.data(), {1, 2, 24}), view<const float, 3>(values.data(), {1, 2, 16}));
    if (!halves) {
      CHECK(sentence_of([&] { step.attend(0, q, o); }) == "zoomr: attend: queries of 16 bits need config.half_queries");
      CHECK(sentence_of([&] { step.observe(0, q); }) == "zoomr: observe: queries of 16 bits need config.half_queries");
    } else {
      CHECK(sentence_of([&] { step.attend(0, o, o); }) == "zoomr: attend: queries are [1, 4, 16], wanted [1, 4, 24]");
      CHECK(sentence_of([&] { step.attend(0, q, q); }) == "zoomr: attend: out is [1, 4, 24], wanted [1, 4, 16]");
      CHECK(sentence_of([&] { step.attend(1, q, o); }) != "");  // not appended
      step.attend(0, q, o);
    }
  }
  const auto bytes = [&](bool halves) {
    return zoomr::kv_cache<zoomr::policy_of<small::full>>::bytes(model, small::full, limits_of(halves)).workspace;
  };
  CHECK(bytes(true) - bytes(false) == std::int64_t{chunk} * 4 * (24 + 16) * 4);
}

TEST_CASE("groups of layers take them too") {
  std::vector<zoomr::any_kv_cache<>> groups;
  groups.push_back(zoomr::kv_cache(model, small::full, limits_of(true)));
  constexpr index_t table[] = {0, 0};
  zoomr::grouped_kv_cache grouped(std::move(groups), view<const index_t>(table, {2}));
  zoomr::kv_cache plain(model, small::full, limits_of(true));
  const std::vector<token_id> one{1};
  unit::random random(4);
  const std::vector<float> keys = random.floats(2 * 24), values = random.floats(2 * 16);
  std::vector<float16> queries(4 * 24, zoomr::from_float<float16>(0.5f)), out(4 * 16), expected(4 * 16);
  auto a = grouped.begin(grouped.open(), view<const token_id>(one), true);
  auto b = plain.begin(plain.open(), view<const token_id>(one), true);
  const view<const float, 3> k(keys.data(), {1, 2, 24}), v(values.data(), {1, 2, 16});
  a.append(1, k, v), b.append(1, k, v);
  const view<float16, 3> q(queries.data(), {1, 4, 24});
  a.attend(1, q, view<float16, 3>(out.data(), {1, 4, 16}));
  b.attend(1, q, view<float16, 3>(expected.data(), {1, 4, 16}));
  for (std::size_t i = 0; i < out.size(); ++i) CHECK(out[i].bits == expected[i].bits);
}

}  // namespace zoomr_test
