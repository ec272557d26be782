// SPDX-License-Identifier: Apache-2.0
// A device cache in the pages of an engine: the bits of one with pages of its own, whoever stores keys and values, and
// for a kernel of the engine's own the slots that it must read.
#include <cache/device/device_against_host.hpp>
#include <cache/device/device_engine.hpp>
#include <cache/support/small_policies.hpp>
#include <support/naive_attention.hpp>
#include <support/nightly.hpp>
#include <support/stride.hpp>

#include <doctest/doctest.h>

#include <array>    // std::array
#include <cmath>    // std::sqrt
#include <numeric>  // std::accumulate

namespace zoomr_test {
namespace {

template <class Policy>
using engine_player = player<Policy, float, device_engine<Policy>>;

template <class Policy>
void check_layouts(const Policy& policy, std::uint64_t seed, bool fixed = false) {
  const tape says = make_tape(model, kind::uniform, markup::pairs, tokens, 33, seed);
  device_player<Policy> own(model, policy, limits_for(tokens));
  own.cache.fixed = fixed;
  own.open(says);
  play_wildly(own, policy, seed);
  for (const std::uint64_t each : seeds_from(seed, 2)) {
    const std::size_t which = each % std::size(layouts);
    layout_of_engines = layouts[which];
    CAPTURE(layouts[which].name());
    engine_player<Policy> engine(model, policy, limits_for(tokens));
    engine.cache.fixed = fixed;
    engine.open(says);
    play_wildly(engine, policy, seed);
    REQUIRE(difference(own.at(0).log, engine.at(0).log) == "");
  }
}

/// Two sequences that a device cache is taken through by hand.
template <class Policy>
struct by_hand {
  using placed = decltype(with_placement(Policy{}, zoomr::engine_pages{}));
  using cache_type = zoomr::device_cache<placed, float, 8, 2>;

  engine_arrays pool;
  device_array<std::byte> memory;
  cache_type cache;
  std::vector<index_t> table;
  zoomr::sequence seq;

  static zoomr::config limits(const engine_arrays& pool, index_t window) {
    zoomr::config made = limits_for(tokens, 2);
    made.logits.window = window;
    made.max_batched_tokens = tokens;
    made.engine = pool.memory;
    return made;
  }
  explicit by_hand(const Policy& policy, const engine_layout& lies, index_t window = 0)
      : pool(model, 2 * tokens / lies.page_tokens, lies),
        memory(cache_type::bytes(model, with_placement(policy, zoomr::engine_pages{}), limits(pool, window)),
               std::byte{0xff}),
        cache(model, with_placement(policy, zoomr::engine_pages{}), limits(pool, window), memory.data(),
              zoomr::stream_ref{}),
        seq(cache.open()) {
    for (index_t p = 0; p < pool.memory.pages; ++p) table.insert(table.begin() + p * 5 % (p + 1), p);
  }
  zoomr::step_item item(const std::vector<token_id>& ids, bool ends) const {
    return {seq, view<const token_id>(ids), ends, view<const index_t>(table)};
  }
};

}  // namespace

TEST_CASE("in an engine's pages, of any layout, each token gets the bits that it gets in the cache's own") {
  check_layouts(small::full, 1);
  check_layouts(small::quest, 2, true);
  check_layouts(small::zoomr_second_pass, 3);
  ZOOMR_NIGHTLY(check_layouts(small::sentence_kv, 4));
  check_layouts(small::h2o, 5);
  ZOOMR_NIGHTLY(check_layouts(small::arkvale, 6));
  ZOOMR_NIGHTLY(check_layouts(small::sentence_voters, 7));
}

TEST_CASE("an engine stores and attends by itself: the slots are those that the cache would have used") {
  const auto check = [](const auto& policy, const engine_layout& lies, std::uint64_t seed, index_t window = 0) {
    using policy_type = std::remove_cvref_t<decltype(policy)>;
    CAPTURE(lies.name());
    const tape says = make_tape(model, kind::uniform, markup::sentences, 70, 31, seed);
    by_hand<policy_type> attends(policy, lies, window), lists(policy, lies, window);
    const index_t rows = lists.cache.rows_in_layer();
    const double allowed = 2 * tolerance::end_to_end(8, 3.3 * 2.3 * std::sqrt(8.0), tokens);
    for (index_t now = 0; now < says.size();) {
      const index_t end = now < says.prompt ? std::min(says.prompt, now + 13) : std::min(says.size(), now + 3);
      const std::vector<token_id> ids = says.between(now, end);
      const zoomr::step_item of_one = attends.item(ids, end == says.prompt),
                             of_other = lists.item(ids, end == says.prompt);
      attends.cache.wait(), lists.cache.wait();
      auto one = attends.cache.begin(view<const zoomr::step_item>(&of_one, {1}));
      auto other = lists.cache.begin(view<const zoomr::step_item>(&of_other, {1}));
      REQUIRE(other.taken(0) == one.taken(0));
      const index_t count = one.taken(0);
      const zoomr::stream_ref on{};
      one.start(on), other.start(on);
      for (index_t layer = 0; layer < model.layers; ++layer) {
        const auto rows_of = [&](index_t heads, auto put) {
          std::vector<float> made(static_cast<std::size_t>(count * heads * 8));
          for (index_t t = 0; t < count; ++t) {
            for (index_t head = 0; head < heads; ++head) put(t, head, made.data() + (t * heads + head) * 8);
          }
          return made;
        };
        const auto numbers = [&](role of) {
          return [&, of](index_t t, index_t head, float* to) {
            says.numbers.fill(of, ids[static_cast<std::size_t>(t)], now + t, layer, head, 0, to);
          };
        };
        const std::vector<float> k = rows_of(2, numbers(role::key)), v = rows_of(2, numbers(role::value)),
                                 q = rows_of(4, numbers(role::query));
        device_array<float> keys(k), values(v), queries(q), out(std::int64_t{count} * 4 * 8, 0.0f);
        const auto of = [&](device_array<float>& array, index_t heads) {
          return view<const float, 3>(array.data(), {count, heads, 8});
        };
        one.append(layer, of(keys, 2), of(values, 2), on);
        one.attend(layer, of(queries, 4), view<float, 3>(out.data(), {count, 4, 8}), {}, on);

        device_array<index_t> own(count, -7), slots(std::int64_t{count} * rows * tokens, -7), counts(count * rows, -7);
        other.append_slots(own.view(), on);
        wait_for(on);
        // The engine's own kernel stores: here, a loop.
        auto& pool = lists.pool;
        const bool apart = !lies.together;
        auto& keys_there = *pool.arrays_[static_cast<std::size_t>(layer * (apart ? 2 : 1))];
        auto& values_there = apart ? *pool.arrays_[static_cast<std::size_t>(layer * 2 + 1)] : keys_there;
        const std::int64_t to_values = apart ? 0 : std::int64_t{lies.page_tokens} * 2 * 8;
        const auto place = [&](index_t slot, index_t kv_head) {
          const zoomr::engine_memory& at = pool.memory;
          return static_cast<std::size_t>(slot / lies.page_tokens * at.page_stride + kv_head * at.head_stride +
                                          slot % lies.page_tokens * at.token_stride);
        };
        std::vector<float> stored_keys = keys_there.values();
        for (const bool second : {false, true}) {
          if (second && apart) break;
          for (index_t t = 0; t < count; ++t) {
            const index_t slot = own.values()[static_cast<std::size_t>(t)];
            for (index_t head = 0; head < 2; ++head) {
              const std::size_t to = place(slot, head) + static_cast<std::size_t>(second ? to_values : 0);
              std::copy_n((second ? v : k).begin() + (t * 2 + head) * 8, 8,
                          stored_keys.begin() + static_cast<std::ptrdiff_t>(to));
            }
          }
        }
        keys_there.write(stored_keys);
        std::vector<float> stored_values = values_there.values();
        for (index_t t = 0; t < count && apart; ++t) {
          const index_t slot = own.values()[static_cast<std::size_t>(t)];
          for (index_t head = 0; head < 2; ++head) {
            std::copy_n(v.begin() + (t * 2 + head) * 8, 8,
                        stored_values.begin() + static_cast<std::ptrdiff_t>(place(slot, head)));
          }
        }
        if (apart) values_there.write(stored_values);
        other.append(layer);
        other.list_slots(layer, of(queries, 4), view<index_t, 3>(slots.data(), {count, rows, tokens}),
                         view<index_t, 2>(counts.data(), {count, rows}), on);
        const std::vector<index_t> listed = slots.values(), how_many = counts.values();
        stored_values = values_there.values();
        const std::vector<float> expected = out.values();
        for (index_t t = 0; t < count; ++t) {
          for (index_t head = 0; head < 4; ++head) {
            const index_t row = rows == 1 ? 0 : rows == 4 ? head : head / 2;
            const index_t reads = how_many[static_cast<std::size_t>(t * rows + row)];
            REQUIRE(reads > 0);
            const index_t* const of_row = listed.data() + (t * rows + row) * tokens;
            REQUIRE(of_row[reads] == -1);
            if (window > 0) REQUIRE(reads <= window);
            const float* const query = q.data() + (t * 4 + head) * 8;
            const auto exact = naive_attention(
                reads, 8,
                [&](index_t i) {
                  return naive_dot(8, query, stored_keys.data() + place(of_row[i], head / 2)) / std::sqrt(8.0);
                },
                [&](index_t i) { return stored_values.data() + place(of_row[i], head / 2) + (apart ? 0 : to_values); });
            for (std::size_t d = 0; d < 8; ++d) {
              REQUIRE(tolerance::within(double{expected[static_cast<std::size_t>((t * 4 + head) * 8) + d]},
                                        exact.out[d], allowed));
            }
          }
        }
      }
      one.commit(count, on), other.commit(count, on);
      now += count;
    }
  };
  check(small::full, layouts[0], 1);
  check(small::quest, layouts[1], 2);
  ZOOMR_NIGHTLY(check(small::sentence_box, layouts[2], 3));
  ZOOMR_NIGHTLY(check(small::zoomr_one_pass, layouts[4], 4));
  check(small::full, layouts[1], 5, 12);
}

TEST_CASE("pages of an engine that are moved: the new table counts, and one that is too new is told beforehand") {
  const auto text = make_tape(model, kind::uniform, markup::sentences, tokens, 64, 3);
  by_hand<std::remove_const_t<decltype(small::full)>> of(small::full, layouts[2]);
  const zoomr::stream_ref on{};
  device_array<float> numbers(std::int64_t{tokens} * 4 * 8, 0.5f), out(std::int64_t{tokens} * 4 * 8, 0.0f);
  const auto pass = [&](index_t count, bool ends) {
    of.cache.wait();
    const std::vector<token_id> ids = text.between(0, count);
    const zoomr::step_item item = of.item(ids, ends);
    auto step = of.cache.begin(view<const zoomr::step_item>(&item, {1}));
    step.start(on);
    for (index_t layer = 0; layer < model.layers; ++layer) {
      const view<const float, 3> rows(numbers.data(), {count, 2, 8});
      step.append(layer, rows, rows, on);
      step.attend(layer, view<const float, 3>(numbers.data(), {count, 4, 8}), view<float, 3>(out.data(), {count, 4, 8}),
                  {}, on);
    }
    step.commit(count, on);
  };
  pass(64, true);
  CHECK(out.values()[0] == doctest::Approx(0.5));
  // All pages go elsewhere, with what they hold.
  std::vector<index_t> moved(of.table.rbegin(), of.table.rend());
  for (auto& array : of.pool.arrays_) {
    std::vector<float> before = array->values(), after = before;
    for (std::size_t at = 0; at < 64; ++at) {
      const std::ptrdiff_t from = of.table[at] * of.pool.memory.page_stride,
                           to = moved[at] * of.pool.memory.page_stride;
      std::copy_n(before.begin() + from, of.pool.memory.page_stride, after.begin() + to);
    }
    for (std::size_t at = 0; at < 64; ++at) {
      if (std::find(moved.begin(), moved.begin() + 64, of.table[at]) != moved.begin() + 64) continue;
      std::fill_n(after.begin() + of.table[at] * of.pool.memory.page_stride, of.pool.memory.page_stride,
                  zoomr::not_a_number);
    }
    array->write(after);
  }
  const std::vector<index_t> old = std::exchange(of.table, moved);
  of.cache.block_table(of.seq, view<const index_t>(moved), on);
  pass(1, false);
  CHECK(out.values()[0] == doctest::Approx(0.5));
  CHECK(of.cache.tokens(of.seq) == 65);
  // A step has room for one table that is all new, and a little more; not for two.
  const zoomr::sequence other = of.cache.fork(of.seq, on);
  const std::vector<token_id> ids{1};
  const zoomr::step_item both[] = {{of.seq, view<const token_id>(ids), false, view<const index_t>(old)},
                                   {other, view<const token_id>(ids), false, view<const index_t>(old)}};
  of.cache.wait();
  const index_t room = of.cache.arrays().sizes.most_pages();
  if (2 * 66 > room) {
    CHECK(sentence_of([&] { of.cache.begin(view<const zoomr::step_item>(both, {2})); }) ==
          "zoomr: begin: the device does not know 132 pages of the items' block tables, a step has room for " +
              std::to_string(room) + ": tell it of them with block_table before");
  }
  CHECK(of.cache.tokens(other) == 65);
}

TEST_CASE("what an engine's pages must be on a device is said at once") {
  using policy_type = std::remove_const_t<decltype(small::full)>;
  using cache_type = by_hand<policy_type>::cache_type;
  const auto policy = with_placement(small::full, zoomr::engine_pages{});
  const auto refused = [&](auto change) {
    engine_arrays pool(model, 12, layouts[0]);
    zoomr::config limits = by_hand<policy_type>::limits(pool, 0);
    change(limits.engine);
    return sentence_of([&] { cache_type::bytes(model, policy, limits); });
  };
  CHECK(refused([](zoomr::engine_memory&) {}) == "");
  CHECK(refused([](auto& of) { of.page_tokens = 3; }) ==
        "zoomr: device_cache: engine.page_tokens must be a power of 2");
  CHECK(refused([](auto& of) { of.page_stride += 1; }) ==
        "zoomr: device_cache: an engine's rows must be aligned to 16 bytes");
  CHECK(refused([](auto& of) {
          of.of_values = {of.page_stride, of.head_stride, of.token_stride + 4};
        }) == "zoomr: device_cache: keys and values of an engine must have the same strides");
  CHECK(refused([](auto& of) { of.pages = 1 << 28; }).find("fewer than 2^31 tokens") != std::string::npos);
  CHECK(refused([](auto& of) { of.keys = {}; }) ==
        "zoomr: config: engine.keys and engine.values need a pointer for each layer");
}

}  // namespace zoomr_test
