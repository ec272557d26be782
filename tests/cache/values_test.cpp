// SPDX-License-Identifier: Apache-2.0
// Small values of a cache by themselves: what counts mean, which capacities are refused, and the log of choices.
#include <doctest/doctest.h>
#include <zoomr/cache/config.hpp>
#include <zoomr/cache/statistics.hpp>
#include <zoomr/cache/tokens/selection.hpp>
#include <zoomr/paging/engine_memory.hpp>
#include <zoomr/paging/tiers/tier_statistics.hpp>

#include <string_view>  // std::string_view
#include <vector>       // std::vector

namespace zoomr {
namespace {

TEST_CASE("means of counts, and what they are without any") {
  const shape model{3, 4, 2, 8};
  const statistics none;
  CHECK(none.attended_mean(model) == 0.0);
  CHECK(none.captured() == 0.0);
  CHECK(none.agreeability() == 0.0);
  CHECK(none.entropy() == 0.0);
  CHECK(none.unsure_share() == 0.0);
  CHECK(none.churn() == 0.0);
  statistics some;
  some.tokens = 4, some.taken = 5, some.prompt_tokens = 100;
  some.attended = 5 * 3 * 4 * 7;  // each query head reads seven tokens
  some.captured_sum = 1.5, some.captured_count = 2;
  some.agreeability_sum = 1.0, some.agreeability_count = 4;
  some.entropy_sum = 5.0, some.entropy_count = 2;
  some.zooms = 3, some.chosen = 12;
  some.unsure = 2, some.unsure_tokens = 4;
  CHECK(some.attended_mean(model) == 7.0);
  CHECK(some.captured() == 0.75);
  CHECK(some.agreeability() == 0.25);
  CHECK(some.entropy() == 2.5);
  CHECK(some.churn() == 0.25);
  CHECK(some.unsure_share() == 0.8);
  statistics both = some;
  some.unsure_tokens = 5;
  both.add_layers(some);
  CHECK(both.unsure == 4);
  CHECK(both.unsure_tokens == 5);  // of the same tokens
  CHECK(both.entropy_sum == 10.0);
  CHECK(both.entropy_count == 4);
  CHECK(std::string_view(statistics::cpu_path()) == name_of(fastest_cpu_path()));
}

TEST_CASE("the hits and the hidden time of tiers") {
  tier_statistics of;
  CHECK(of.hit_rate() == 1.0);
  CHECK(of.hidden() == 1.0);
  of.hits = 3, of.misses = 1;
  CHECK(of.hit_rate() == 0.75);
  CHECK(of.timed({.moving_ns = 200, .waited_ns = 50}).hidden() == 0.75);
  CHECK(of.timed({.moving_ns = 200, .waited_ns = 200}).hidden() == 0.0);
  CHECK(of.timed({.moving_ns = 200, .waited_ns = 500}).hidden() == 0.0);  // two waited for the same transfer
  CHECK(of.timed({.moving_ns = 200, .waited_ns = 50}).hits == 3);
}

TEST_CASE("each capacity that cannot be is refused with its sentence") {
  const auto problem = [](auto change) {
    config with;
    change(with);
    const char* const sentence = with.problem();
    return std::string_view(sentence == nullptr ? "" : sentence);
  };
  const std::string_view least =
      "config: max_sequences, max_tokens, max_batched_tokens and max_draft_tokens must be at least 1";
  const std::string_view most = "config: more than 2^30 tokens or sequences";
  const std::string_view negative = "config: no field can be negative";
  const std::string_view scales = "config: key_scale and value_scale must be positive and finite";
  CHECK(problem([](config&) {}) == "");
  for (index_t config::*const field :
       {&config::max_sequences, &config::max_tokens, &config::max_batched_tokens, &config::max_draft_tokens}) {
    CHECK(problem([&](config& c) { c.*field = 0; }) == least);
    CHECK(problem([&](config& c) { c.*field = 1; }) == "");
  }
  for (index_t config::*const field : {&config::max_sequences, &config::max_tokens}) {
    CHECK(problem([&](config& c) { c.*field = 1 << 30; }) == "");
    CHECK(problem([&](config& c) { c.*field = (1 << 30) + 1; }) == most);
  }
  for (index_t config::*const field :
       {&config::pool_tokens, &config::max_segments, &config::rollback_tokens, &config::min_sparse_context}) {
    CHECK(problem([&](config& c) { c.*field = -1; }) == negative);
  }
  for (storage_scale config::*const field : {&config::key_scale, &config::value_scale}) {
    for (const float wrong : {0.0f, -1.0f, infinity, not_a_number}) {
      CHECK(problem([&](config& c) { c.*field = wrong; }) == scales);
      std::vector<float> table(6, 1.0f);
      table[4] = wrong;
      CHECK(problem([&](config& c) { c.*field = view<const float, 2>(table.data(), {3, 2}); }) == scales);
    }
  }
}

TEST_CASE("a pool is as large as all sequences, and segments are no more than tokens") {
  CHECK(config{.max_sequences = 3, .max_tokens = 33}.pool() == 3 * 48);
  CHECK(config{.max_sequences = 3, .max_tokens = 33, .pool_tokens = 50}.pool() == 50);
  CHECK(config{.max_sequences = 1 << 20, .max_tokens = 1 << 20}.pool() == unlimited);
  CHECK(config{.max_tokens = 40}.most_segments() == 18);
  CHECK(config{.max_tokens = 40, .max_segments = 7}.most_segments() == 7);
  CHECK(config{.max_tokens = 40, .max_segments = 70}.most_segments() == 40);
  CHECK(config{.max_tokens = 40, .rollback_tokens = 70}.rollback_depth() == 40);
}

TEST_CASE("each thing that an engine's memory cannot be has its sentence") {
  const shape model{2, 4, 2, 8};
  float rows[4] = {};
  void* pointers[] = {rows, rows, nullptr};
  const view<void* const> two(pointers, {2});
  const engine_memory good{two, two, 4, 16, 256, 128, 8};
  const auto problem = [&](auto change, std::size_t number_bytes = 4) {
    engine_memory of = good;
    change(of);
    const char* const sentence = of.problem(model, number_bytes);
    return std::string_view(sentence == nullptr ? "" : sentence);
  };
  const std::string_view each = "config: engine.keys and engine.values need a pointer for each layer";
  const std::string_view none = "config: engine.pages and engine.page_tokens must be at least 1";
  const std::string_view strides = "config: engine's strides must be positive, and token_stride at least head_dim";
  const std::string_view null = "config: a pointer of engine is null";
  CHECK(problem([](engine_memory&) {}) == "");
  CHECK(problem([&](engine_memory& m) { m.keys = view<void* const>(pointers, {1}); }) == each);
  CHECK(problem([&](engine_memory& m) { m.values = view<void* const>(pointers, {3}); }) == each);
  CHECK(problem([](engine_memory& m) { m.pages = 0; }) == none);
  CHECK(problem([](engine_memory& m) { m.page_tokens = 0; }) == none);
  CHECK(problem([](engine_memory& m) { m.page_stride = 0; }) == strides);
  CHECK(problem([](engine_memory& m) { m.head_stride = 0; }) == strides);
  CHECK(problem([](engine_memory& m) { m.token_stride = 7; }) == strides);
  const std::string_view of_values =
      "config: engine's strides of values must be positive, and that of tokens at least as wide as a value";
  for (const kv_strides& wrong : {kv_strides{0, 128, 8}, kv_strides{256, -1, 8}, kv_strides{256, 128, 7}}) {
    CHECK(problem([&](engine_memory& m) { m.of_values = wrong; }) == of_values);
  }
  CHECK(problem([](engine_memory& m) { m.of_values = {512, 256, 16}; }) == "");
  CHECK(problem([&](engine_memory& m) { m.keys = view<void* const>(pointers + 1, {2}); }) == null);
  CHECK(problem([&](engine_memory& m) { m.values = view<void* const>(pointers + 1, {2}); }) == null);
  void* beside[] = {reinterpret_cast<char*>(rows) + 2, rows};
  CHECK(problem([&](engine_memory& m) { m.values = view<void* const>(beside, {2}); }) ==
        "config: an engine's values must lie whole numbers of the storage type after its keys");
  CHECK(problem([&](engine_memory& m) { m.values = view<void* const>(beside, {2}); }, 2) == "");
}

TEST_CASE("a log of choices drops the oldest, also where they are the longest") {
  detail::selection made(1, 40);
  const auto choose = [&](index_t segments, index_t details) {
    selection_row& row = made.renew(0, segments);
    for (index_t id = 0; id < segments; ++id) row.levels[id] = id < details ? level::details : level::summary;
  };
  const auto details = [&] {
    index_t count = 0;
    for (const level at : made.row(0).levels) count += at == level::details ? 1 : 0;
    return count;
  };
  const auto pushed = [&](detail::selection_log& log, index_t position, index_t count) {
    choose(40, count);
    log.push(position, made, level::summary);
  };
  detail::selection_log log(60);
  pushed(log, 10, 40);  // 46 words
  pushed(log, 20, 2);   // 8 words: 54 of 60
  CHECK(log.reaches(5));
  pushed(log, 30, 3);  // 9 words: the first choice goes, though it is more than half of all
  CHECK(log.dropped());
  CHECK(log.last_position() == 30);
  CHECK(!log.reaches(20));  // what was active before the choice at 20
  CHECK(log.reaches(21));
  log.restore(30, made, level::summary);
  CHECK(log.last_position() == 20);
  CHECK(details() == 2);
  CHECK(log.bytes() == 8 * static_cast<byte_count>(sizeof(index_t)));
  detail::selection_log full(50);
  pushed(full, 10, 40);
  pushed(full, 20, 40);  // in place of the only one
  CHECK(full.last_position() == 20);
  CHECK(!full.reaches(20));
  full.restore(21, made, level::summary);
  CHECK(details() == 40);
}

}  // namespace
}  // namespace zoomr
