// SPDX-License-Identifier: Apache-2.0
// Prompts whose whole pages are multiplied by AMX's tiles, against attention in double. The tiles are emulated, the
// vectors are those of AVX2.
#include <doctest/doctest.h>
#include <core/random.hpp>
#include <support/naive_attention.hpp>
#include <support/tile_emulator.hpp>
#include <support/tolerance.hpp>
#include <zoomr/kv_cache.hpp>
#include <zoomr/presets/full.hpp>

#include <algorithm>  // std::max, std::min
#include <array>      // std::array
#include <cmath>      // std::fabs
#include <numeric>    // std::iota
#include <vector>     // std::vector

namespace zoomr::matrix_tiles_test {
namespace {

using zoomr_test::tiles::now;

enum class queries_are { floats, bfloat16s, peaked };

/// Rows of one layer: queries as they come, keys and values as a cache of T gives them back.
template <class T>
struct scene {
  shape model;
  config limits;
  index_t tokens;
  std::vector<float> keys, values, queries;  // [tokens, heads, width]
  std::vector<float> stored_keys, stored_values;

  scene(unit::random& random, const shape& is, index_t count, queries_are kind = queries_are::floats)
      : model(is), tokens(count) {
    limits.max_tokens = std::max(count, 16);
    limits.max_batched_tokens = limits.max_tokens;
    if (std::is_same_v<T, int8>) limits.key_scale = limits.value_scale = 1.0f / 64.0f;
    const index_t width = model.value_width();
    keys = random.floats(unit::size(count * model.kv_heads * model.head_dim));
    values = random.floats(unit::size(count * model.kv_heads * width));
    const float largest = kind == queries_are::peaked ? 40.0f : 3.0f;
    queries = random.floats(unit::size(count * model.heads * model.head_dim), -largest, largest);
    if (kind == queries_are::bfloat16s) {
      for (float& q : queries) q = to_float(from_float<bfloat16>(q));
    }
    stored_keys = stored(keys, model.head_dim, limits.key_scale.all);
    stored_values = model.values_in_keys ? std::vector<float>{} : stored(values, width, limits.value_scale.all);
    if (!model.values_in_keys) return;
    for (std::size_t row = 0; row < keys.size(); row += unit::size(model.head_dim)) {
      stored_values.insert(stored_values.end(), stored_keys.begin() + static_cast<std::ptrdiff_t>(row),
                           stored_keys.begin() + static_cast<std::ptrdiff_t>(row) + width);
    }
  }
  static std::vector<float> stored(const std::vector<float>& from, index_t width, float scale) {
    std::vector<float> made(from.size());
    std::vector<T> page(unit::size(16 * (width + 8)));
    for (std::size_t at = 0; at < from.size(); at += unit::size(width)) {
      detail::store_row(view<const float>(from.data() + at, {width}), scale, page.data(), 0);
      detail::read_row(page.data(), 0, scale, view<float>(made.data() + at, {width}));
    }
    return made;
  }
  view<const float, 3> rows(const std::vector<float>& from, index_t first, index_t count, index_t heads,
                            index_t width) const {
    return {from.data() + first * heads * width, {count, heads, width}};
  }

  struct answer {
    std::vector<float> out, lse;
  };

  /// The prompt in chunks, in pages that held NaN before.
  answer play(index_t chunk, const std::vector<float>& k, const std::vector<float>& v) const {
    kv_cache<std::remove_const_t<decltype(presets::full)>, T> cache(model, presets::full, limits);
    const auto pass = [&](sequence seq, const answer& from, index_t first, index_t count, const std::vector<float>& key,
                          const std::vector<float>& value) {
      const std::vector<token_id> ids(unit::size(count), 1);
      auto step = cache.begin(seq, view<const token_id>(ids), first + count == tokens);
      const auto appended = rows(key, first, count, model.kv_heads, model.head_dim);
      if (model.values_in_keys)
        step.append(0, appended);
      else
        step.append(0, appended, rows(value, first, count, model.kv_heads, model.value_width()));
      const index_t width = model.value_width();
      step.attend(0, rows(queries, first, count, model.heads, model.head_dim),
                  view<float, 3>(const_cast<float*>(from.out.data()) + first * model.heads * width,
                                 {count, model.heads, width}),
                  view<float, 2>(const_cast<float*>(from.lse.data()) + first * model.heads, {count, model.heads}));
      step.commit(count);
    };
    answer made{std::vector<float>(unit::size(tokens * model.heads * model.value_width())),
                std::vector<float>(unit::size(tokens * model.heads))};
    if constexpr (!std::is_same_v<T, int8> && !std::is_same_v<T, scaled_int8>) {
      const sequence before = cache.open();
      pass(before, made, 0, tokens, std::vector<float>(k.size(), not_a_number),
           std::vector<float>(v.size(), not_a_number));
      cache.close(before);
    }
    const sequence seq = cache.open();
    for (index_t t = 0; t < tokens; t += chunk) pass(seq, made, t, std::min(chunk, tokens - t), k, v);
    return made;
  }
  answer play(index_t chunk) const { return play(chunk, keys, values); }

  /// @param apart  of the tokens that are compared
  void check(const answer& got, index_t apart) const {
    const index_t width = model.value_width(), dims = model.head_dim;
    const double scale = double{limits.logits.scale_of(dims)};
    for (index_t t = 0; t < tokens; t += apart) {
      const index_t first = limits.logits.window == 0 ? 0 : std::max(0, t + 1 - limits.logits.window);
      for (index_t head = 0; head < model.heads; ++head) {
        const float* const query = &queries[unit::size((t * model.heads + head) * dims)];
        const auto row = [&](const std::vector<float>& from, index_t s, index_t row_width) {
          return from.data() + ((first + s) * model.kv_heads + head / model.group()) * row_width;
        };
        double magnitudes = 0, largest_value = 0;
        const auto logit = [&](index_t s) {
          const float* const key = row(stored_keys, s, dims);
          double size = 0;
          for (index_t d = 0; d < dims; ++d) size += std::fabs(double{query[d]} * double{key[d]});
          magnitudes = std::max(magnitudes, scale * size);
          double made = scale * zoomr_test::naive_dot(dims, query, key);
          if (limits.logits.soft_cap > 0) made = limits.logits.soft_cap * std::tanh(made / limits.logits.soft_cap);
          if (limits.logits.alibi_slopes.size() > 0) made += double{limits.logits.alibi_slopes[head]} * (first + s - t);
          return made;
        };
        const auto value = [&](index_t s) {
          const float* const numbers = row(stored_values, s, width);
          for (index_t d = 0; d < width; ++d) largest_value = std::max(largest_value, std::fabs(double{numbers[d]}));
          return numbers;
        };
        const bool sink = limits.logits.sinks.data() != nullptr;
        const auto exact = zoomr_test::naive_attention(
            t + 1 - first, width, logit, value, sink ? double{limits.logits.sinks(0, head)} : zoomr_test::no_sink);
        const double of_floats = zoomr_test::tolerance::end_to_end(dims, magnitudes, t + 1 - first);
        const double allowed = of_floats + zoomr_test::tolerance::two_parts(magnitudes);
        CAPTURE(t);
        CAPTURE(head);
        const double lse = double{got.lse[unit::size(t * model.heads + head)]};
        bool right = std::fabs(lse - exact.lse) < allowed * (1 + std::fabs(exact.lse));
        for (index_t d = 0; d < width; ++d) {
          const double out = double{got.out[unit::size((t * model.heads + head) * width + d)]};
          right = right && std::fabs(out - exact.out[unit::size(d)]) < allowed * largest_value;
        }
        REQUIRE(right);
      }
    }
  }

  /// Any chunks have the same bits, and are the softmax.
  void check_chunks(const std::vector<index_t>& chunks) const {
    const bool emulated = zoomr_test::tiles::emulate();
    const long before = now.products;
    const answer whole = play(tokens);
    if (tokens >= 16 && (limits.logits.window == 0 || limits.logits.window > 31))
      REQUIRE((now.products > before || !emulated));
    check(whole, std::max(1, tokens / 60));
    for (const index_t chunk : chunks) {
      if (chunk >= tokens) continue;
      const answer cut = play(chunk);
      CAPTURE(chunk);
      REQUIRE(std::ranges::equal(whole.out, cut.out, unit::same_bits));
      REQUIRE(std::ranges::equal(whole.lse, cut.lse, unit::same_bits));
    }
  }
};

}  // namespace

TEST_CASE_TEMPLATE("a prompt in tiles is the softmax, with the same bits in any chunks", T, bfloat16, float16, int8,
                   scaled_int8, float8) {
  unit::random random(90);
  const shape models[] = {{1, 4, 1, 64},  {1, 4, 2, 80},     {1, 1, 1, 128},         {1, 3, 1, 256},
                          {1, 20, 1, 16}, {1, 4, 1, 48, 80}, {1, 2, 1, 96, 64, true}};
  for (const shape& model : models) {
    for (const index_t tokens : {1, 15, 16, 17, 53}) {
      CAPTURE(model.head_dim);
      CAPTURE(tokens);
      scene<T>(random, model, tokens).check_chunks({1, 15, 17});
    }
  }
  for (const queries_are kind : {queries_are::bfloat16s, queries_are::peaked}) {
    scene<T>(random, {1, 4, 2, 64}, 131, kind).check_chunks({29});
  }
}

TEST_CASE_TEMPLATE("windows, sinks, soft caps and biases hold in tiles too", T, bfloat16, float16) {
  unit::random random(91);
  const std::vector<float> sinks{0.5f, -3.0f, 2.0f, -infinity}, slopes{0.25f, 0.0f, 0.01f, 1.0f};
  for (const index_t window : {0, 1, 16, 31, 33, 50}) {
    scene<T> one(random, {1, 4, 2, 64}, 83);
    one.limits.logits.window = window;
    one.limits.logits.sinks = view<const float, 2>(sinks.data(), {1, 4});
    CAPTURE(window);
    one.check_chunks({16, 23});
    one.limits.logits.soft_cap = 5.0f;
    if (window % 2 == 0) one.limits.logits.alibi_slopes = view<const float>(slopes);
    one.check_chunks({31});
  }
}

TEST_CASE("a prompt over several stretches, in tiles") {
  unit::random random(92);
  scene<bfloat16>(random, {1, 2, 1, 32}, 1060).check_chunks({509});
}

TEST_CASE_TEMPLATE("numbers that are not finite stay where floats leave them", T, bfloat16, float16) {
  zoomr_test::tiles::emulate();
  unit::random random(93);
  const float odd[] = {infinity, -infinity, not_a_number};
  for (index_t round = 0; round < 24; ++round) {
    scene<T> one(random, {1, 2, 1, 32}, 50);
    std::vector<float> keys = one.stored_keys, values = one.stored_values;
    if (round % 4 == 3) {
      one.queries[unit::size(random.below(100 * 32))] = odd[round / 4 % 3];
    } else {
      (round % 4 < 2 ? keys : values)[unit::size(random.between(10, 40) * 32 + random.below(32))] = odd[round / 4 % 3];
    }
    scene<float> oracle(random, one.model, 50);
    oracle.queries = one.queries;
    const auto right = oracle.play(50, keys, values);
    const auto got = one.play(50, keys, values), cut = one.play(7, keys, values);
    CAPTURE(round);
    for (std::size_t i = 0; i < got.out.size(); ++i) {
      REQUIRE(unit::same_bits(got.out[i], cut.out[i]));
      REQUIRE(zoomr_test::tolerance::within(double{got.out[i]}, double{right.out[i]}, 1e-3));
    }
  }
}

TEST_CASE("a hook may mask tokens, whole pages and all of them; what queries do not see may be anything") {
  zoomr_test::tiles::emulate();
  unit::random random(94);
  constexpr index_t dims = 64, tokens = 53, group = 3, page_numbers = 2 * page_tokens * dims;
  const shape model{1, group, 1, dims};
  std::vector<bfloat16> memory(std::size_t{4 * page_numbers}, from_float<bfloat16>(not_a_number));
  const std::vector<index_t> pages{2, 0, 3, 1};
  const paged_kv_lane<bfloat16> lane{memory.data(), head_numbers<bfloat16>(model),
                                     kv_rows::in_page<bfloat16>(model, 1, 0), pages};
  for (index_t slot = 0; slot < tokens; ++slot) {
    for (bfloat16* const row : {lane.key(slot), lane.value(slot)}) {
      for (index_t d = 0; d < dims; ++d) row[d] = from_float<bfloat16>(random.uniform(-1.0f, 1.0f));
    }
  }
  const std::vector<float> queries = random.floats(unit::size(tokens * group * dims), -3.0f, 3.0f);
  const auto masked = [](index_t slot, index_t token, index_t head) {
    return head == 2 ? token % 5 == 0 : head == 1 ? slot / 16 == 1 : (slot + token) % 3 == 0;
  };
  std::vector<float> out(unit::size(tokens * group * dims), 0.0f);
  std::vector<attention_state> states(unit::size(tokens * group));
  for (std::size_t i = 0; i < states.size(); ++i) states[i].out = out.data() + i * dims;
  detail::prompt_tile tile(model);
  tile.begin(lane, 0, tokens, {});
  for (index_t at = 0; at < tokens; at += tile.tokens()) {
    const auto hook = [&](const run_logits& run) {
      for (index_t t = 0; t < run.tokens; ++t) {
        for (index_t q = 0; q < run.queries; ++q) {
          const index_t query = run.first_query + q;
          if (masked(run.first_slot + t, at + query / group, query % group)) run.at(t, q) = -infinity;
        }
      }
    };
    const auto query = [&](index_t t, index_t head) -> detail::run_query {
      const std::size_t row = unit::size((at + t) * group + head);
      return {queries.data() + row * dims, &states[row]};
    };
    tile.attend(lane, at, std::min(tile.tokens(), tokens - at), query, 0.125f, hook);
  }
  for (index_t t = 0; t < tokens; ++t) {
    for (index_t head = 0; head < group; ++head) {
      const std::size_t row = unit::size(t * group + head);
      const auto logit = [&](index_t s) {
        return masked(s, t, head) ? -double{infinity}
                                  : zoomr_test::naive_dot(dims, queries.data() + row * dims, lane.key(s)) / 8;
      };
      const float lse = states[row].finish(dims);
      CAPTURE(t);
      CAPTURE(head);
      bool any = false;
      for (index_t s = 0; s <= t; ++s) any = any || !masked(s, t, head);
      if (!any) {
        CHECK(lse == -infinity);
        continue;
      }
      const auto exact = zoomr_test::naive_attention(t + 1, dims, logit, [&](index_t s) { return lane.value(s); });
      const double allowed = zoomr_test::tolerance::end_to_end(dims, 24, tokens) + zoomr_test::tolerance::two_parts(24);
      REQUIRE(std::fabs(double{lse} - exact.lse) < allowed * (1 + std::fabs(exact.lse)));
      for (index_t d = 0; d < dims; ++d)
        REQUIRE(std::fabs(double{out[row * dims + unit::size(d)]} - exact.out[unit::size(d)]) < allowed);
    }
  }
}

TEST_CASE("a number of two parts is off by 2^-16 of itself at most; what is not finite stays") {
  unit::random random(95);
  std::vector<float> numbers = random.floats(48, -1000.0f, 1000.0f), parts(64);
  numbers[0] = infinity, numbers[1] = -infinity, numbers[2] = not_a_number, numbers[3] = 3.4e38f, numbers[4] = -3.4e38f;
  numbers[5] = bits_as<float>(std::uint32_t{0x7f800001}), numbers[6] = bits_as<float>(std::uint32_t{0xffffffff});
  numbers[7] = 0.0f;
  CHECK(detail::split_query(cpu_path::avx512_amx, numbers.data(), 48, parts.data()));
  const auto* const upper = reinterpret_cast<const bfloat16*>(parts.data());
  for (index_t d = 0; d < 48; ++d) {
    const double x = double{numbers[unit::size(d)]}, first = double{to_float(upper[d])},
                 rest = double{to_float(upper[64 + d])};
    CAPTURE(d);
    REQUIRE(std::isnan(x) == std::isnan(first + rest));
    if (std::isinf(x)) REQUIRE((first == x && rest == 0));
    if (std::isfinite(x)) REQUIRE(std::fabs(first + rest - x) <= (d == 3 || d == 4 ? 0x1p-15 : 0x1p-16) * std::fabs(x));
  }
  for (index_t d = 48; d < 64; ++d) REQUIRE((upper[d].bits == 0 && upper[64 + d].bits == 0));
  for (float& x : numbers) x = to_float(from_float<bfloat16>(x));
  CHECK_FALSE(detail::split_query(cpu_path::avx512_amx, numbers.data(), 48, parts.data()));
}

}  // namespace zoomr::matrix_tiles_test
