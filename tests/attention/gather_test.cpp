// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <core/random.hpp>
#include <core/type_lists.hpp>
#include <support/naive_attention.hpp>
#include <support/rounded_weights.hpp>
#include <zoomr/attention/gather.hpp>

#include <cmath>    // std::fabs, std::sqrt
#include <cstring>  // std::memcpy
#include <numeric>  // std::iota
#include <vector>   // std::vector

namespace zoomr::gather_test {

namespace {

/// One KV lane in shuffled pages, and queries of one group. What is in no run is NaN, so that reading it shows.
template <class T>
struct scene {
  shape model;  // of one KV head
  index_t head_dim;
  index_t group;
  index_t tokens;
  std::vector<index_t> pages;
  std::vector<T> memory;       // [pages][key | value][16][width], scales of the rows
  std::vector<float> queries;  // [group, head_dim]
  std::vector<token_range> ranges;
  float scale;

  scene(unit::random& random, index_t dims, index_t heads, index_t count, std::vector<token_range> read,
        index_t value_dim = 0, bool values_in_keys = false)
      : model{1, heads, 1, dims, value_dim, values_in_keys},
        head_dim(dims),
        group(heads),
        tokens(count),
        pages(unit::size(pages_for(count))),
        memory(pages.size() * static_cast<std::size_t>(head_numbers<T>(model)), poison()),
        queries(random.floats(unit::size(heads * dims), -3.0f, 3.0f)),
        ranges(std::move(read)),
        scale(1.0f / std::sqrt(static_cast<float>(dims))) {
    std::iota(pages.begin(), pages.end(), 0);
    for (std::size_t p = pages.size(); p > 1; --p) {
      std::swap(pages[p - 1], pages[unit::size(random.below(static_cast<index_t>(p)))]);
    }
    for (index_t slot = 0; slot < count; ++slot) set_scales(slot, not_a_number, not_a_number);
    const float factor = scales_rows<T> ? 127.0f : 1.0f;
    for (const token_range& r : ranges) {
      for (index_t slot = r.first; slot < r.last; ++slot) {
        const float of_key = scales_rows<T> ? 126.0f : 3.0f;
        detail::narrow(cpu_path::portable, random.floats(unit::size(head_dim), -of_key, of_key), 1.0f,
                       kv_lane().key(slot));
        detail::narrow(cpu_path::portable, random.floats(unit::size(model.stored_value_width()), -factor, factor), 1.0f,
                       kv_lane().value(slot));
        set_scales(slot, random.uniform(0.0f, 1.0f) / 42.0f, random.uniform(0.0f, 1.0f) / 127.0f);
      }
    }
  }

  static T poison() {
    if constexpr (in_blocks<T>)
      return {sizeof(T) == 2 ? 0x7fff : 0xff};  // a scale that is NaN
    else
      return from_float<T>(not_a_number);
  }
  void set_scales(index_t slot, float of_key, float of_value) {
    if constexpr (scales_rows<T>) {
      std::memcpy(static_cast<void*>(scale_of(kv_lane().key(slot), slot, head_dim)), &of_key, sizeof of_key);
      if (model.values_in_keys) return;
      std::memcpy(static_cast<void*>(scale_of(kv_lane().value(slot), slot, width())), &of_value, sizeof of_value);
    }
  }
  double key(index_t slot, index_t d) { return number(kv_lane().key(slot), slot, head_dim, d); }
  double value(index_t slot, index_t d) {
    return number(kv_lane().value(slot), slot, model.values_in_keys ? head_dim : width(), d);
  }
  static double number(const T* row, index_t slot, index_t stride, index_t d) {
    return static_cast<double>(number_at(row, d)) * static_cast<double>(row_scale(row, slot, stride));
  }

  index_t width() const { return model.value_width(); }
  paged_kv_lane<T> kv_lane() {
    return {memory.data(), head_numbers<T>(model), kv_rows::in_page<T>(model, 1, 0), pages};
  }
  const float* query(index_t head) const { return queries.data() + head * head_dim; }
};

/// One attention state for each head of a group, with its memory.
struct group_states {
  std::vector<float> out;
  std::vector<attention_state> states;

  group_states(index_t group, index_t head_dim) : out(unit::size(group * head_dim), 0.0f), states(unit::size(group)) {
    for (index_t head = 0; head < group; ++head) states[unit::size(head)].out = out.data() + head * head_dim;
  }
};

/// The bits of all numbers, where any NaN is as good as another.
bool same_bits(const group_states& a, const group_states& b) {
  for (std::size_t i = 0; i < a.out.size(); ++i) {
    if (!unit::same_bits(a.out[i], b.out[i])) return false;
  }
  for (std::size_t i = 0; i < a.states.size(); ++i) {
    if (!unit::same_bits(a.states[i].max, b.states[i].max) || !unit::same_bits(a.states[i].sum, b.states[i].sum))
      return false;
  }
  return true;
}

template <class T>
void gather(scene<T>& of, const std::vector<token_range>& ranges, group_states& into,
            cpu_path path = fastest_cpu_path()) {
  gather_attend(view<const token_range>(ranges), of.kv_lane(),
                view<const float, 2>(of.queries.data(), {of.group, of.head_dim}), of.scale,
                view<attention_state>(into.states), path);
}

/// Those of this machine.
const std::vector<cpu_path> vector_paths = [] {
  std::vector<cpu_path> has;
  for (const cpu_path path : {cpu_path::avx2, cpu_path::avx512, cpu_path::avx512_bf16, cpu_path::neon}) {
    if (has_cpu_path(path)) has.push_back(path);
  }
  return has;
}();

/// The softmax in double. Weights are off by the error of a logit, which is a sum of head_dim products of at most
/// 9 times scale: below 2e-5 for all head_dim here; values lie in [-1, 1].
constexpr double tolerance = 4e-5;

template <class T>
void check_softmax(scene<T>& of, group_states& made, cpu_path path = fastest_cpu_path()) {
  const double largest = of.model.values_in_keys ? 3.0 : 1.0;  // keys lie in [-3, 3]
  const double allowed = largest * (tolerance + zoomr_test::tolerance::of_path<T>({of.head_dim, of.width()}, path));
  std::vector<index_t> slots;
  for (const token_range& r : of.ranges) {
    for (index_t slot = r.first; slot < r.last; ++slot) slots.push_back(slot);
  }
  for (index_t head = 0; head < of.group; ++head) {
    const float* const query = of.query(head);
    const auto logit = [&](index_t t) {
      const auto key = [&](index_t d) { return of.key(slots[unit::size(t)], d); };
      return zoomr_test::naive_dot(of.head_dim, query, key) / std::sqrt(static_cast<double>(of.head_dim));
    };
    const auto value = [&](index_t t) {
      return [&of, slot = slots[unit::size(t)]](index_t d) { return of.value(slot, d); };
    };
    const auto exact = zoomr_test::naive_attention(static_cast<index_t>(slots.size()), of.width(), logit, value);
    const float lse = made.states[unit::size(head)].finish(of.width());
    REQUIRE(std::fabs(static_cast<double>(lse) - exact.lse) < tolerance);
    for (index_t d = 0; d < of.width(); ++d) {
      const auto got = static_cast<double>(made.out[unit::size(head * of.width() + d)]);
      REQUIRE(std::fabs(got - exact.out[unit::size(d)]) < allowed);
    }
  }
}

/// Of these, the widths that rows of the type may have.
template <class T>
std::vector<index_t> widths_of(std::vector<index_t> all) {
  if (in_blocks<T>) std::erase_if(all, [](index_t width) { return width % 32 != 0; });
  return all;
}

std::vector<token_range> random_ranges(unit::random& random, index_t tokens) {
  std::vector<token_range> ranges;
  for (index_t first = random.below(20); first < tokens;) {
    const index_t last = std::min(tokens, first + random.between(1, 45));
    ranges.push_back({first, last});
    first = last + random.between(1, 20);
  }
  if (ranges.empty()) ranges.push_back({0, 1});
  return ranges;
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("gather_attend is the softmax over its runs and reads nothing else", T, attended) {
  unit::random random(70);
  for (const index_t head_dim : widths_of<T>({8, 16, 24, 32, 40, 64, 96, 128, 256})) {
    for (const index_t group : {1, 2, 3, 4, 7, 8}) {
      const index_t tokens = random.between(1, 150);
      scene<T> of(random, head_dim, group, tokens, random_ranges(random, tokens));
      group_states made(group, head_dim);
      gather(of, of.ranges, made);
      CAPTURE(head_dim);
      CAPTURE(group);
      CAPTURE(tokens);
      check_softmax(of, made);
    }
  }
}
TEST_CASE_TEMPLATE_APPLY(attended, unit::as_tuple<decltype(type_list<float, bfloat16, scaled_int8>{} + block_types{})>);

TEST_CASE_TEMPLATE_DEFINE("every path of the processor has the bits of the portable one, unless it rounds weights", T,
                          same_on_each_path) {
  unit::random random(76);
  for (const cpu_path path : vector_paths) {
    for (const index_t head_dim : widths_of<T>({16, 24, 32, 48, 64, 80, 96, 128, 144, 256, 576})) {
      for (const index_t group : {1, 2, 3, 4, 5, 8, 19}) {
        const index_t tokens = random.between(1, 150);
        scene<T> of(random, head_dim, group, tokens, random_ranges(random, tokens));
        group_states portable(group, head_dim), made(group, head_dim);
        gather(of, of.ranges, portable, cpu_path::portable);
        gather(of, of.ranges, made, path);
        CAPTURE(name_of(path));
        CAPTURE(head_dim);
        CAPTURE(group);
        const double off = zoomr_test::tolerance::of_path<T>(head_dim, path);
        for (std::size_t i = 0; off > 0.0 && i < made.out.size(); ++i) {  // sums are the portable one's
          const double sum = portable.states[i / unit::size(head_dim)].sum;
          REQUIRE(std::fabs(double{made.out[i]} - double{portable.out[i]}) <= (off + tolerance) * sum);
          made.out[i] = portable.out[i];
        }
        REQUIRE(same_bits(portable, made));
      }
    }
  }
}
TEST_CASE_TEMPLATE_APPLY(same_on_each_path, unit::as_tuple<storage_types>);

TEST_CASE_TEMPLATE_DEFINE("values narrower than keys, wider, or in them: the softmax on every path", T, widths) {
  struct sizes {
    index_t key, value;
    bool in_keys;
  };
  unit::random random(80);
  std::vector<cpu_path> paths = vector_paths;
  paths.push_back(cpu_path::portable);
  for (const cpu_path path : paths) {
    for (const sizes& of_rows :
         {sizes{16, 32, false}, sizes{192, 128, false}, sizes{48, 176, false}, sizes{24, 16, false},
          sizes{16, 40, false}, sizes{8, 64, false}, sizes{576, 512, true}, sizes{80, 64, true}, sizes{48, 16, true},
          sizes{40, 24, true}, sizes{32, 32, true}, sizes{96, 32, false}, sizes{32, 160, false}, sizes{96, 64, true}}) {
      if (in_blocks<T> && (of_rows.key % 32 != 0 || of_rows.value % 32 != 0)) continue;
      for (const index_t group : {1, 3, 4, 16, 19}) {
        const index_t tokens = random.between(1, 100);
        scene<T> of(random, of_rows.key, group, tokens, random_ranges(random, tokens), of_rows.value, of_rows.in_keys);
        group_states made(group, of_rows.value);
        gather(of, of.ranges, made, path);
        CAPTURE(name_of(path));
        CAPTURE(of_rows.key);
        CAPTURE(of_rows.value);
        CAPTURE(group);
        if (zoomr_test::tolerance::of_path<T>({of_rows.key, of_rows.value}, path) == 0.0) {
          group_states portable(group, of_rows.value);
          gather(of, of.ranges, portable, cpu_path::portable);
          REQUIRE(same_bits(portable, made));
        }
        check_softmax(of, made, path);
      }
    }
  }
}
TEST_CASE_TEMPLATE_APPLY(widths,
                         unit::as_tuple<decltype(type_list<float, bfloat16, float8, scaled_int8>{} + block_types{})>);

TEST_CASE("what no sum can hold has the same bits on every path too") {
  unit::random random(77);
  const float odd[] = {infinity, -infinity, not_a_number, 1e38f, -1e38f, 1e-40f, -0.0f, 0.0f};
  for (const cpu_path path : vector_paths) {
    for (index_t round = 0; round < 200; ++round) {
      const index_t tokens = random.between(1, 70), group = 3 + round % 2;
      scene<float> of(random, 32, group, tokens, random_ranges(random, tokens));
      for (index_t i = random.below(4); i >= 0; --i) {
        float* const where = of.kv_lane().key(random.below(tokens)) + random.below(32);
        where[random.below(2) * of.kv_lane().rows.value_offset] = odd[random.below(8)];
      }
      if (random.below(3) == 0) of.queries[unit::size(random.below(32 * group))] = odd[random.below(8)];
      group_states portable(group, 32), made(group, 32);
      gather(of, of.ranges, portable, cpu_path::portable);
      gather(of, of.ranges, made, path);
      CAPTURE(round);
      REQUIRE(same_bits(portable, made));
    }
  }
}

TEST_CASE_TEMPLATE_DEFINE("blocks with scales that are infinite, NaN, zero or tiny have the same bits on every path", T,
                          odd_scales) {
  unit::random random(81);
  const std::uint16_t odd[] = {0x7c00, 0xfc00, 0x7e00, 0x0000, 0x8000, 0x0001, 0x83ff, 0x7bff, 0xfbff, 0x00fe};
  for (const cpu_path path : vector_paths) {
    for (index_t round = 0; round < 100; ++round) {
      const index_t tokens = random.between(1, 70), group = 3 + round % 2;
      scene<T> held(random, 64, group, tokens, random_ranges(random, tokens));
      for (index_t i = random.below(5); i >= 0; --i) {
        const index_t slot = random.below(tokens);
        T* const row = random.below(2) == 0 ? held.kv_lane().key(slot) : held.kv_lane().value(slot);
        row[random.below(2) * block_size<T>].bits = static_cast<decltype(T::bits)>(odd[random.below(10)]);
      }
      group_states portable(group, 64), other(group, 64);
      gather(held, held.ranges, portable, cpu_path::portable);
      gather(held, held.ranges, other, path);
      CAPTURE(round);
      REQUIRE(same_bits(portable, other));
    }
  }
}
TEST_CASE_TEMPLATE_APPLY(odd_scales, unit::as_tuple<block_types>);

TEST_CASE("a page that is widened for many queries has the bits of the page, on every path") {
  unit::random random(78);
  const float odd[] = {infinity, -infinity, not_a_number, 1e38f, -1e38f, 1e-40f, -0.0f, 0.0f};
  std::vector<cpu_path> paths = vector_paths;
  paths.push_back(cpu_path::portable);
  for (const cpu_path path : paths) {
    for (const index_t head_dim : {8, 16, 24, 32, 48, 80, 128, 144, 256}) {
      for (const index_t queries : {1, 2, 3, 4, 7, 16, 19, 33}) {
        const index_t tokens = random.between(1, page_tokens);
        scene<float> of(random, head_dim, queries, page_tokens, {{0, tokens}});
        const auto lane = of.kv_lane();
        if (random.below(3) == 0) lane.key(random.below(tokens))[random.below(head_dim)] = odd[random.below(8)];
        std::vector<float> keys(unit::size(head_dim * page_tokens), not_a_number);  // also behind the last token
        for (index_t t = 0; t < tokens; ++t) {
          for (index_t d = 0; d < head_dim; ++d) keys[unit::size(d * page_tokens + t)] = lane.key(t)[d];
        }
        group_states expected(queries, head_dim), made(queries, head_dim);
        const detail::row_places evenly(head_dim, tokens);
        const auto attend = [&](const auto& run, group_states& into, cpu_path on) {
          std::vector<detail::run_query> asks;
          for (index_t q = 0; q < queries; ++q) asks.push_back({of.query(q), &into.states[unit::size(q)]});
          for (int twice = 0; twice < 2; ++twice)
            detail::attend_run(on, run, run, asks, {head_dim, head_dim}, of.scale);
        };
        attend(detail::page_run<float>{lane.key(0), lane.value(0), tokens, evenly.at, evenly.at}, expected,
               cpu_path::portable);
        attend(detail::page_tile{keys.data(), lane.value(0), tokens}, made, path);
        CAPTURE(name_of(path));
        CAPTURE(head_dim);
        CAPTURE(queries);
        CAPTURE(tokens);
        REQUIRE(same_bits(expected, made));
      }
    }
  }
}

TEST_CASE("values of a tile that lie in pairs have the bits of the page; tokens behind the last do not count") {
  constexpr cpu_path path = cpu_path::avx512_bf16;
  if (!has_cpu_path(path)) return;
  unit::random random(79);
  for (const index_t head_dim : {16, 48, 64, 128, 144, 256}) {
    for (const index_t queries : {1, 2, 3, 4, 7, 16, 19, 33}) {
      const index_t tokens = random.between(1, page_tokens);
      scene<bfloat16> of(random, head_dim, queries, page_tokens, {{0, tokens}});  // all others are NaN
      const auto lane = of.kv_lane();
      std::vector<float> keys(unit::size(head_dim * page_tokens)), values(keys.size() / 2);
      for (index_t t = 0; t < page_tokens; ++t) {
        for (index_t d = 0; d < head_dim; ++d) {
          keys[unit::size(d * page_tokens + t)] = to_float(lane.key(t)[d]);
          float& pair = values[unit::size(t / 2 * head_dim + d)];
          const std::uint32_t bits = lane.value(t)[d].bits;
          pair = bits_as<float>(t % 2 == 0 ? bits : bits_as<std::uint32_t>(pair) | bits << 16);
        }
      }
      group_states expected(queries, head_dim), made(queries, head_dim);
      const auto asks = [&](group_states& into) {
        std::vector<detail::run_query> all;
        for (index_t q = 0; q < queries; ++q) all.push_back({of.query(q), &into.states[unit::size(q)]});
        return all;
      };
      const detail::row_places evenly(head_dim, tokens);
      const detail::page_run<bfloat16> run{lane.key(0), lane.value(0), tokens, evenly.at, evenly.at};
      detail::attend_run(path, run, run, asks(expected), {head_dim, head_dim}, of.scale);
      const detail::paired_tile tile{{keys.data(), values.data(), tokens}};
      detail::attend_run(path, tile, asks(made), {head_dim, head_dim}, of.scale);
      CAPTURE(head_dim);
      CAPTURE(queries);
      CAPTURE(tokens);
      REQUIRE(same_bits(expected, made));
    }
  }
}

TEST_CASE("queries that are numbers of bfloat16 are multiplied in pairs, alone as among others") {
  constexpr cpu_path path = cpu_path::avx512_bf16;
  if (!has_cpu_path(path)) return;
  unit::random random(80);
  index_t others = 0;  // outputs with other bits than sums of floats have
  for (const index_t head_dim : {16, 32, 48, 64, 96, 128, 256}) {
    const bool in_pairs = head_dim % 32 == 0;
    for (const index_t queries : {1, 2, 3, 4, 7, 16, 19, 33}) {
      const index_t tokens = random.between(1, 70);
      scene<bfloat16> of(random, head_dim, queries, tokens, random_ranges(random, tokens));
      for (index_t q = 0; q < queries; ++q) {
        const bool rounded = queries < 4 || random.below(4) != 0;
        float* const query = of.queries.data() + q * head_dim;
        for (index_t d = 0; rounded && d < head_dim; ++d) query[d] = to_float(from_float<bfloat16>(query[d]));
      }
      CAPTURE(head_dim);
      CAPTURE(queries);
      CAPTURE(tokens);
      group_states made(queries, head_dim), alone(queries, head_dim), of_floats(queries, head_dim);
      gather(of, of.ranges, made, path);
      gather(of, of.ranges, of_floats, cpu_path::avx512);
      const auto lane = of.kv_lane();
      for (index_t q = 0; q < queries; ++q) {
        gather_attend(view<const token_range>(of.ranges), lane, view<const float, 2>(of.query(q), {1, head_dim}),
                      of.scale, view<attention_state>(alone.states.data() + q, {1}), path);
        const bool exact = detail::is_bfloat16({of.query(q), {head_dim}});
        REQUIRE(detail::kept_in_pairs({of.query(q)}, detail::pairs_of_keys(lane, path), head_dim).pairs ==
                (exact && in_pairs));
        const bool same = unit::same_bits(made.states[unit::size(q)].max, of_floats.states[unit::size(q)].max);
        REQUIRE((same || (exact && in_pairs)));
        others += same ? 0 : 1;
      }
      REQUIRE(same_bits(made, alone));
      check_softmax(of, made, path);
    }
  }
  CHECK(others > 20);
}

TEST_CASE("keys of a tile that lie in pairs have the bits of the page") {
  constexpr cpu_path path = cpu_path::avx512_bf16;
  if (!has_cpu_path(path)) return;
  unit::random random(81);
  for (const index_t head_dim : {32, 64, 96, 128, 256}) {
    for (const index_t queries : {1, 2, 3, 4, 7, 16, 19, 33}) {
      const index_t tokens = random.between(1, page_tokens);
      scene<bfloat16> of(random, head_dim, queries, page_tokens, {{0, tokens}});  // all others are NaN
      const auto lane = of.kv_lane();
      const auto pair_of = [](bfloat16 lower, bfloat16 upper) {
        return bits_as<float>(lower.bits | static_cast<std::uint32_t>(upper.bits) << 16);
      };
      std::vector<float> values(unit::size(head_dim * page_tokens / 2)), key_pairs(values.size());
      for (index_t t = 0; t < page_tokens; ++t) {
        for (index_t d = 0; d < head_dim; ++d) {
          if (t % 2 == 0) values[unit::size(t / 2 * head_dim + d)] = pair_of(lane.value(t)[d], lane.value(t + 1)[d]);
          if (d % 2 == 0) key_pairs[unit::size(d / 2 * page_tokens + t)] = pair_of(lane.key(t)[d], lane.key(t)[d + 1]);
        }
      }
      std::vector<float> packed;  // [queries]: floats, then pairs
      for (index_t q = 0; q < queries; ++q) {
        const float* const query = of.query(q);
        for (index_t d = 0; d < head_dim; ++d) packed.push_back(to_float(from_float<bfloat16>(query[d])));
        for (index_t d = 0; d < head_dim; d += 2) {
          packed.push_back(pair_of(from_float<bfloat16>(query[d]), from_float<bfloat16>(query[d + 1])));
        }
      }
      group_states expected(queries, head_dim), made(queries, head_dim);
      const auto asks = [&](group_states& into) {
        std::vector<detail::run_query> all;
        for (index_t q = 0; q < queries; ++q) {
          all.push_back({packed.data() + q * head_dim * 3 / 2, &into.states[unit::size(q)], true});
        }
        return all;
      };
      const detail::row_places evenly(head_dim, tokens);
      const detail::page_run<bfloat16> run{lane.key(0), lane.value(0), tokens, evenly.at, evenly.at};
      const detail::paired_tile tile{{nullptr, values.data(), tokens, nullptr, nullptr, key_pairs.data()}};
      for (int twice = 0; twice < 2; ++twice) {
        detail::attend_run(path, run, run, asks(expected), {head_dim, head_dim}, of.scale);
        detail::attend_run(path, tile, asks(made), {head_dim, head_dim}, of.scale);
      }
      CAPTURE(head_dim);
      CAPTURE(queries);
      CAPTURE(tokens);
      REQUIRE(same_bits(expected, made));
    }
  }
}

TEST_CASE("a tile of rows that have scales has the bits of the page, on every path") {
  unit::random random(69);
  std::vector<cpu_path> paths = vector_paths;
  paths.push_back(cpu_path::portable);
  for (const cpu_path path : paths) {
    for (const index_t head_dim : {8, 16, 48, 128}) {
      for (const index_t queries : {1, 2, 3, 4, 7, 16, 19}) {
        const index_t tokens = random.between(1, page_tokens);
        scene<scaled_int8> of(random, head_dim, queries, page_tokens, {{0, tokens}});
        const auto lane = of.kv_lane();
        std::vector<float> keys(unit::size(head_dim * page_tokens), not_a_number), values(keys.size());
        float scales[2][page_tokens];
        for (index_t t = 0; t < tokens; ++t) {
          for (index_t d = 0; d < head_dim; ++d) {
            keys[unit::size(d * page_tokens + t)] = to_float(lane.key(t)[d]);
            values[unit::size(t * head_dim + d)] = to_float(lane.value(t)[d]);
          }
          scales[0][t] = row_scale(lane.key(t), t, head_dim), scales[1][t] = row_scale(lane.value(t), t, head_dim);
        }
        group_states expected(queries, head_dim), made(queries, head_dim);
        const detail::row_places evenly(head_dim, tokens);
        const auto attend = [&](const auto& run, group_states& into) {
          std::vector<detail::run_query> asks;
          for (index_t q = 0; q < queries; ++q) asks.push_back({of.query(q), &into.states[unit::size(q)]});
          detail::attend_run(path, run, run, asks, {head_dim, head_dim}, of.scale);
        };
        attend(detail::page_run<scaled_int8>{lane.key(0), lane.value(0), tokens, evenly.at, evenly.at}, expected);
        attend(detail::page_tile{keys.data(), values.data(), tokens, scales[0], scales[1]}, made);
        CAPTURE(name_of(path));
        CAPTURE(head_dim);
        CAPTURE(queries);
        REQUIRE(same_bits(expected, made));
      }
    }
  }
}

TEST_CASE("runs that begin and end anywhere in a page are read whole") {
  unit::random random(71);
  for (const token_range only : {token_range{0, 1}, token_range{15, 16}, token_range{15, 17}, token_range{16, 32},
                                 token_range{1, 16}, token_range{0, 48}, token_range{7, 42}}) {
    scene<float> of(random, 16, 2, 50, {only});
    group_states made(2, 16);
    gather(of, of.ranges, made);
    CAPTURE(only.first);
    CAPTURE(only.last);
    check_softmax(of, made);
  }
}

TEST_CASE("no run gives the empty state") {
  unit::random random(72);
  scene<float> of(random, 8, 2, 20, {});
  group_states made(2, 8);
  gather(of, {}, made);
  CHECK(made.states[0].finish(8) == -infinity);
  CHECK(made.out == std::vector<float>(16, 0.0f));
}

TEST_CASE("runs may come in several calls, or in several states that are merged") {
  unit::random random(73);
  scene<float> of(random, 24, 3, 140, {{2, 30}, {33, 34}, {40, 99}, {120, 140}});
  const std::vector<token_range> front(of.ranges.begin(), of.ranges.begin() + 2);
  const std::vector<token_range> back(of.ranges.begin() + 2, of.ranges.end());
  group_states in_turn(3, 24);
  gather(of, front, in_turn);
  gather(of, back, in_turn);
  check_softmax(of, in_turn);
  group_states first(3, 24);
  group_states second(3, 24);
  gather(of, front, first);
  gather(of, back, second);
  for (std::size_t head = 0; head < 3; ++head) second.states[head].merge(first.states[head], 24);
  check_softmax(of, second);
}

TEST_CASE("large logits do not overflow") {
  unit::random random(74);
  scene<float> of(random, 8, 1, 40, {{0, 40}});
  for (float& q : of.queries) q *= 1e20f;
  group_states made(1, 8);
  gather(of, of.ranges, made);
  const float lse = made.states[0].finish(8);
  CHECK(std::isfinite(lse));
  for (const float o : made.out) CHECK((o >= -1.0f && o <= 1.0f));
}

TEST_CASE("a key that is NaN shows, even where all other logits are -inf") {
  unit::random random(75);
  for (const index_t where : {0, 1, 15, 16, 17}) {
    scene<float> of(random, 8, 1, 18, {{0, 18}});
    of.queries = {1, 0, 0, 0, 0, 0, 0, 0};
    for (index_t slot = 0; slot < 18; ++slot) of.kv_lane().key(slot)[0] = -infinity;
    for (index_t slot = 0; slot < 18; ++slot) {
      for (index_t d = 1; d < 8; ++d) of.kv_lane().key(slot)[d] = 0.0f;
    }
    of.kv_lane().key(where)[0] = not_a_number;
    group_states made(1, 8);
    gather(of, of.ranges, made);
    CAPTURE(where);
    CHECK(std::isnan(made.states[0].finish(8)));
    CHECK(std::isnan(made.out[0]));
  }
}

}  // namespace zoomr::gather_test
