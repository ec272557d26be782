// SPDX-License-Identifier: Apache-2.0
// Caches of each storage type: against the naive reference over what they store, and against a cache of floats.
#include <cache/support/against_reference.hpp>
#include <cache/support/players.hpp>
#include <core/type_lists.hpp>

#include <algorithm>    // std::max
#include <cmath>        // std::abs, std::ceil, std::exp2, std::isfinite, std::log2
#include <string_view>  // std::string_view

namespace zoomr_test {
namespace {

using zoomr::float16, zoomr::float8, zoomr::int8, zoomr::scaled_int8;

/// Keeps the tokens whose keys have most dimensions beyond 1/2: it sees how large keys are, which ranks by attention
/// or by angles do not.
struct loud_keys {
  using role = zoomr::role::evictor;
  static constexpr const char* name = "loud_keys";
  static constexpr bool observes = true;
  static constexpr bool accumulates = false;
  static constexpr bool reads_keys = true;
  static constexpr bool while_decoding = true;
  index_t every = 9;

  constexpr index_t kept(index_t of) const { return of < 30 ? of : 30; }
  constexpr index_t observed(index_t) const { return 1; }
  constexpr index_t safe(index_t) const { return 1; }
  void rate(const zoomr::kv_lane_attention& seen, view<float> importance) const {
    for (index_t t = 0; t < seen.scored; ++t) {
      importance[t] = 0.0f;
      for (const float key : seen.keys[t]) importance[t] += std::abs(key) > 0.5f ? 1.0f : 0.0f;
    }
  }
  constexpr const char* problem() const { return nullptr; }
  static constexpr void each_field(auto& self, auto visit) { visit("every", self.every); }
  friend constexpr bool operator==(const loud_keys&, const loud_keys&) = default;
};

/// In each dimension, how many keys of the cue are beyond 1/2.
struct key_count {
  using role = zoomr::role::summarizer;
  static constexpr const char* name = "key_count";
  using summary = zoomr::summary::mean;

  constexpr zoomr::cells<1> open() const { return {}; }
  constexpr void fold(zoomr::cells<1>& count, float key) const { count.row[0] += key > 0.5f ? 1.0f : 0.0f; }
  constexpr void close(zoomr::cells<1>&, index_t) const {}
  constexpr const char* problem() const { return nullptr; }
  static constexpr void each_field(auto&, auto) {}
  friend constexpr bool operator==(const key_count&, const key_count&) = default;
};

constexpr zoomr::zones small_zones{.sinks = 2, .recent = 6, .open = zoomr::unlimited};

// Unlike the presets, these are not blind to a factor that all keys share.
constexpr auto by_loudness = zoomr::compose(loud_keys{}, zoomr::zones{.sinks = 1, .recent = zoomr::unlimited});
constexpr auto by_count =
    zoomr::compose(zoomr::fixed_pages{.longest = 5}, key_count{}, zoomr::mean_dot{}, zoomr::pooled_score{},
                   zoomr::top_k{.segments = 3}, zoomr::every_token{}, small_zones);
constexpr auto by_mass_of_cuboids =
    zoomr::compose(zoomr::fixed_pages{.longest = 6}, zoomr::key_cuboid{}, zoomr::box_bound{}, zoomr::pooled_mass{},
                   zoomr::top_k{.segments = 3}, zoomr::every_token{}, small_zones);

/// The largest number of a type, or what serves as well for one that needs no scale.
template <class T>
constexpr float largest = zoomr::scales_summaries<T> ? zoomr::storage_traits<T>::largest : 1000.0f;

/// Limits with the scales that just hold keys up to `key` and values up to 1.
template <class T>
zoomr::config scaled_limits(index_t tokens, float key) {
  zoomr::config limits = limits_for(tokens);
  limits.key_scale = key / largest<T>;
  limits.value_scale = 1.0f / largest<T>;
  return limits;
}

template <class T, class Policy>
void check_stored(const char* name, const Policy& policy, comparison& all) {
  constexpr kind looks[] = {kind::uniform, kind::peaked, kind::with_infinities};
  constexpr markup texts[] = {markup::pairs, markup::sentences, markup::stray};
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    // An infinity takes all of a row's scale: floats would overflow.
    const kind look = looks[seed % (zoomr::scales_rows<T> ? 2 : 3)];
    const tape says = make_tape({2, 4, 2, seed % 2 == 0 ? 24 : 40}, look, texts[seed / 2 % 3], 151, 47, seed * 53);
    const zoomr::config limits = scaled_limits<T>(says.size(), look == kind::peaked ? 3.3f : 1.0f);
    CAPTURE(std::string(name));
    CAPTURE(seed);
    check_against_reference<T>(policy, says, limits, false, all);
  }
}

// The tolerance is that of floats, end_to_end: the reference has the same stored numbers, and its keys times their
// scale are rounded once, which is among the roundings that the family allows each number of a sum.
TEST_CASE_TEMPLATE_DEFINE("a cache of any type is the reference over what it stores, times the scales", T,
                          against_reference) {
  comparison all;
  check_stored<T>("full", small::full, all);
  check_stored<T>("zoomr_mass", small::zoomr_mass, all);
  check_stored<T>("sentence_kv", small::sentence_kv, all);
  check_stored<T>("quest", small::quest, all);
  check_stored<T>("arkvale", small::arkvale, all);
  check_stored<T>("h2o", small::h2o, all);
  check_stored<T>("r_kv", small::r_kv, all);
  check_rarely_stopped("stored", all);
}
TEST_CASE_TEMPLATE_APPLY(against_reference,
                         unit::as_tuple<decltype(unit::without<float, bfloat16>(zoomr::number_types{}))>);

constexpr float key_scale = 0x1p-7f;
constexpr float value_scale = 0x1p-6f;

template <class T>
void store(token_id, index_t, index_t, index_t, float* key, float* value, index_t dim) {
  for (index_t d = 0; d < dim; ++d) {
    key[d] = as_stored<T>(key[d], key_scale);
    value[d] = as_stored<T>(value[d], value_scale);
  }
}

/// What a cache has done; not how many bytes it took, nor a share that may be NaN.
zoomr::statistics work(zoomr::statistics counted) {
  counted.device_peak = 0;
  counted.captured_sum = 0;
  return counted;
}

template <class T, class Policy>
void check_same_as_floats(const char* name, const Policy& policy) {
  for (const kind look : {kind::uniform, kind::with_infinities, kind::peaked}) {
    const tape says = make_tape({2, 4, 2, 24}, look, markup::pairs, 151, 47, 700 + static_cast<std::uint64_t>(look));
    zoomr::config limits = limits_for(says.size());
    limits.audit = true;
    player<Policy> floats(says.numbers.model, policy, limits);
    floats.spoil = store<T>;
    floats.open(says);
    floats.play_plainly();
    limits.key_scale = key_scale;
    limits.value_scale = value_scale;
    player<Policy, T> stored(says.numbers.model, policy, limits);
    stored.open(says);
    stored.play_plainly();
    CAPTURE(std::string(name));
    REQUIRE(difference(floats.at(0).log, stored.at(0).log) == "");
    const zoomr::statistics& want = floats.cache.stats(floats.at(0).seq);
    const zoomr::statistics& got = stored.cache.stats(stored.at(0).seq);
    REQUIRE(work(got) == work(want));
    REQUIRE(want.captured_count > 0);
    REQUIRE(tolerance::within(got.captured_sum, want.captured_sum, tolerance::exact));
  }
}

TEST_CASE_TEMPLATE(
    "with scales that are powers of two it has the bits of a cache of floats that is given those numbers", T, float,
    float8, int8) {
  for_each_policy([](const char* name, const auto& policy) { check_same_as_floats<T>(name, policy); });
  check_same_as_floats<T>("by_loudness", by_loudness);
  check_same_as_floats<T>("by_count", by_count);
  check_same_as_floats<T>("by_mass_of_cuboids", by_mass_of_cuboids);
}

TEST_CASE("of rows that have scales of their own, the scales are counted") {
  const shape model{3, 4, 2, 24};
  zoomr::config limits = limits_for(64);
  zoomr::kv_cache<std::remove_const_t<decltype(small::full)>, scaled_int8> cache(model, small::full, limits);
  const auto seq = cache.open();
  const std::vector<token_id> ids(17, 5);
  static_cast<void>(cache.begin(seq, view<const token_id>(ids)));  // it is dropped
  CHECK(cache.bytes(seq).details == 0);
  auto step = cache.begin(seq, view<const token_id>(ids));
  const std::vector<float> rows(17 * 2 * 24, 1.0f);
  for (index_t layer = 0; layer < 3; ++layer) {
    const view<const float, 3> given(rows.data(), {17, 2, 24});
    step.append(layer, given, given);
    std::vector<float> out(17 * 4 * 24);
    step.attend(layer, view<const float, 3>(std::vector<float>(17 * 4 * 24).data(), {17, 4, 24}),
                view<float, 3>(out.data(), {17, 4, 24}));
    for (const float number : out) CHECK(number == doctest::Approx(1.0f));
  }
  step.commit();
  CHECK(cache.bytes(seq).details == 2 * 3 * 2 * 2 * 16 * (24 + 4));  // pages, layers, KV heads, key and value
}

TEST_CASE("a row of its own scale keeps what a scale of all rows cannot") {
  constexpr shape model{1, 1, 1, 16};
  zoomr::config limits = limits_for(64);
  const auto attended = [&](auto number, float scale) {
    limits.value_scale = scale;
    zoomr::kv_cache<std::remove_const_t<decltype(small::full)>, decltype(number)> cache(model, small::full, limits);
    const auto seq = cache.open();
    const token_id ids[] = {5, 6};
    auto step = cache.begin(seq, view<const token_id>(ids, {2}));
    std::vector<float> keys(32, 0.0f), values(32), queries(32, 0.0f), out(32);
    for (std::size_t d = 0; d < 16; ++d) values[d] = 0.001f * static_cast<float>(d), values[16 + d] = 100.0f;
    const auto rows = [](auto& of) { return view(of.data(), zoomr::extents<3>{{2, 1, 16}}); };
    step.append(0, view<const float, 3>(rows(keys)), view<const float, 3>(rows(values)));
    step.attend(0, view<const float, 3>(rows(queries)), rows(out));
    step.commit();
    out.resize(16);  // the first token sees itself alone
    return out;
  };
  const std::vector<float> own = attended(scaled_int8{}, 1.0f), all = attended(int8{}, 100.0f / 127.0f);
  for (std::size_t d = 0; d < 16; ++d) {
    CHECK(std::abs(own[d] - 0.001f * static_cast<float>(d)) <= 0.5f * 0.015f / 127.0f * 1.01f);
    CHECK(all[d] == 0.0f);
  }
}

/// Rounds what another summarizer makes, and leaves it a float.
template <class Number, class Made>
struct rounded : Made {
  static float round(index_t row, float value) {
    return to_float(zoomr::stored_number<typename Made::summary, Number>(row, value));
  }
  template <class Cells>
  void close(Cells& c, index_t count) const {
    Made::close(c, count);
    for (index_t r = 0; r < Made::summary::rows; ++r) c.row[r] = round(r, c.row[r]);
  }
  void make(view<const float, 2> cue, view<index_t> order, view<float> work,
            view<float, 2> out) const requires zoomr::block_summarizer<Made> {
    Made::make(cue, order, work, out);
    for (index_t d = 0; d < out.extent(0); ++d) {
      for (index_t r = 0; r < Made::summary::rows; ++r) out(d, r) = round(r, out(d, r));
    }
  }
  friend constexpr bool operator==(const rounded&, const rounded&) = default;
};

/// The same where a summary has a scale: it is known when all numbers are.
template <class Number, class Made>
requires(sizeof(Number) == 1) struct rounded<Number, Made> : Made {
  void make(view<const float, 2> cue, view<index_t> order, view<float> work, view<float, 2> out) const {
    if constexpr (zoomr::block_summarizer<Made>) {
      Made::make(cue, order, work, out);
    } else {
      for (index_t d = 0; d < out.extent(0); ++d) {
        auto c = Made::open();
        for (index_t t = 0; t < cue.extent(0); ++t) Made::fold(c, cue(t, d));
        Made::close(c, cue.extent(0));
        for (index_t r = 0; r < Made::summary::rows; ++r) out(d, r) = c.row[r];
      }
    }
    double largest = 0.0;
    bool finite = true;
    for (index_t d = 0; d < out.extent(0); ++d) {
      for (const float number : out[d]) {
        largest = std::max(largest, std::abs(static_cast<double>(number)));
        finite = finite && std::isfinite(number);
      }
    }
    const double exponent =
        std::max(-126.0, std::ceil(std::log2(largest / (std::same_as<Number, float8> ? 448.0 : 127.0))));
    const float scale = finite ? static_cast<float>(std::exp2(exponent)) : zoomr::not_a_number;
    for (index_t d = 0; d < out.extent(0); ++d) {
      for (index_t r = 0; r < Made::summary::rows; ++r) {
        out(d, r) = scale * to_float(zoomr::stored_number<typename Made::summary, Number>(r, out(d, r), scale));
      }
    }
  }
  friend constexpr bool operator==(const rounded&, const rounded&) = default;
};

template <class Summarizer, class Scorer>
constexpr auto found_by(Summarizer summarize, Scorer score) {
  return zoomr::compose(zoomr::fixed_pages{.longest = 5}, summarize, score, zoomr::pooled_score{},
                        zoomr::top_k{.segments = 3}, zoomr::every_token{}, small_zones);
}

template <class Number, class Summarizer, class Scorer>
void check_index(Summarizer summarize, Scorer score) {
  const auto floats = found_by(rounded<Number, Summarizer>{summarize}, score);
  const auto halves = found_by(zoomr::stored_as<Number>(summarize), score);
  std::int64_t others = 0;  // choices that differ from those of the unrounded index
  for (const kind look : {kind::uniform, kind::with_infinities, kind::peaked, kind::ties}) {
    const tape says = make_tape({2, 4, 2, 24}, look, markup::pairs, 151, 47, 900 + static_cast<std::uint64_t>(look));
    const zoomr::config limits = limits_for(says.size());
    player<std::decay_t<decltype(floats)>> expected(says.numbers.model, floats, limits);
    player<std::decay_t<decltype(halves)>> got(says.numbers.model, halves, limits);
    const auto exact = found_by(summarize, score);
    player<std::decay_t<decltype(exact)>> unrounded(says.numbers.model, exact, limits);
    expected.open(says), got.open(says), unrounded.open(says);
    expected.play_plainly(), got.play_plainly(), unrounded.play_plainly();
    REQUIRE(difference(expected.at(0).log, got.at(0).log) == "");
    others += difference(unrounded.at(0).log, got.at(0).log) != "" ? 1 : 0;
    const auto seq = got.at(0).seq;
    // of a KV head and segment: 24 dimensions, and a scale
    const index_t numbers = 24 * Summarizer::summary::rows;
    const auto each = static_cast<zoomr::byte_count>(numbers * sizeof(Number) + (sizeof(Number) == 1 ? 4 : 0));
    CHECK(got.cache.bytes(seq).summaries * numbers * 4 == expected.cache.bytes(seq).summaries * each);
  }
  CHECK(others > 0);  // the rounding is seen
}

TEST_CASE("an index of 16 bits is the index of floats, rounded") {
  check_index<zoomr::bfloat16>(zoomr::key_mean{}, zoomr::mean_dot{});
  check_index<zoomr::bfloat16>(zoomr::key_box{}, zoomr::box_bound{});
  check_index<zoomr::bfloat16>(zoomr::key_cuboid{}, zoomr::box_bound{});
}

TEST_CASE("boxes in the 16 bits of the keys that they hold are exact: all is the same, in half of the index") {
  const auto floats = found_by(zoomr::key_box{}, zoomr::box_bound{});
  const auto halves = found_by(zoomr::stored_as<float16>(zoomr::key_box{}), zoomr::box_bound{});
  for (const kind look : {kind::uniform, kind::with_infinities, kind::peaked}) {
    const tape says = make_tape({2, 4, 2, 24}, look, markup::pairs, 151, 47, 950 + static_cast<std::uint64_t>(look));
    const zoomr::config limits = limits_for(says.size());
    player<std::decay_t<decltype(floats)>, float16> expected(says.numbers.model, floats, limits);
    player<std::decay_t<decltype(halves)>, float16> got(says.numbers.model, halves, limits);
    expected.open(says), got.open(says);
    expected.play_plainly(), got.play_plainly();
    REQUIRE(difference(expected.at(0).log, got.at(0).log) == "");
    CHECK(got.cache.bytes(got.at(0).seq).summaries * 2 == expected.cache.bytes(expected.at(0).seq).summaries);
  }
}

TEST_CASE("an index of 8 bits is the index of floats, rounded to what the scale of each summary can say") {
  check_index<float8>(zoomr::key_mean{}, zoomr::mean_dot{});
  check_index<float8>(zoomr::key_box{}, zoomr::box_bound{});
  check_index<float8>(zoomr::key_cuboid{}, zoomr::box_bound{});
  check_index<int8>(zoomr::key_mean{}, zoomr::mean_dot{});
  check_index<int8>(zoomr::key_box{}, zoomr::box_bound{});
}

TEST_CASE("half as many bytes make half as large pages") {
  using policy_type = std::decay_t<decltype(small::quest)>;
  const shape model{2, 4, 2, 24};
  const zoomr::config limits = limits_for(100);
  const auto bytes = [&](auto stored) {
    return zoomr::kv_cache<policy_type, decltype(stored)>::bytes(model, small::quest, limits);
  };
  const zoomr::memory_use floats = bytes(0.0f);
  CHECK(bytes(float16{}).details * 2 == floats.details);
  CHECK(bytes(float8{}).details * 4 == floats.details);
  CHECK(bytes(int8{}).details * 4 == floats.details);
  CHECK(bytes(int8{}).summaries == floats.summaries);
}

/// Outputs of a prompt and a draft after it, under tables of scales or without.
template <class Policy>
std::vector<float> outputs_of(const Policy& policy, zoomr::config limits) {
  static constexpr shape model{3, 4, 2, 16};
  constexpr index_t prompt = 60;
  limits.max_tokens = 80, limits.max_batched_tokens = 64, limits.classes = classes, limits.audit = true;
  zoomr::kv_cache<Policy> cache(model, policy, with_voters(policy, limits, model));
  const zoomr::sequence seq = cache.open();
  const std::vector<token_id> ids = text_of(markup::pairs, 80, prompt, 5);
  const tensors given{model, kind::peaked, 9};
  std::vector<float> made;
  for (index_t at = 0; at < 72;) {
    auto step = cache.begin(seq, view<const token_id>(ids).slice(at, at == 0 ? prompt : at + 3), at == 0);
    const index_t taken = step.taken(0);
    index_t pass = 0;
    do {
      const index_t tokens = step.tokens();
      const auto filled = [&](role of, index_t layer, index_t heads) {
        std::vector<float> rows(static_cast<std::size_t>(tokens * heads * model.head_dim));
        for (index_t t = 0; t < tokens; ++t) {
          for (index_t head = 0; head < heads; ++head) {
            const index_t position = pass == 0 ? at + t : at + taken - 1;
            given.fill(of, ids[static_cast<std::size_t>(position)], position, layer, head, pass,
                       rows.data() + (t * heads + head) * model.head_dim);
          }
        }
        return rows;
      };
      for (index_t layer = 0; layer < model.layers; ++layer) {
        const auto shaped = [&](auto& rows, index_t heads) {
          return view(rows.data(), zoomr::extents<3>{{tokens, heads, model.head_dim}});
        };
        const auto keys = filled(role::key, layer, 2), values = filled(role::value, layer, 2);
        const auto queries = filled(role::query, layer, 4);
        std::vector<float> out(queries.size());
        step.append(layer, shaped(keys, 2), shaped(values, 2));
        step.attend(layer, shaped(queries, 4), shaped(out, 4));
        made.insert(made.end(), out.begin(), out.end());
      }
      ++pass;
    } while (step.needs_second_pass(taken));
    step.commit(taken);
    at += taken;
  }
  made.push_back(static_cast<float>(cache.stats(seq).captured()));
  made.push_back(static_cast<float>(cache.stats(seq).zooms));
  return made;
}

TEST_CASE("tables of scales, powers of two, leave floats as they are: outputs, choices, eviction, audit") {
  constexpr float powers[] = {2.0f, 0.25f, 0.5f, 8.0f, 1.0f, 0.0625f};
  constexpr float others[] = {0.5f, 4.0f, 2.0f, 0.125f, 16.0f, 1.0f};
  zoomr::config tables;
  tables.key_scale = view<const float, 2>(powers, {3, 2});
  tables.value_scale = view<const float, 2>(others, {3, 2});
  for_each_policy([&](const char* name, const auto& policy) {
    CAPTURE(std::string(name));
    const std::vector<float> plain = outputs_of(policy, {}), scaled = outputs_of(policy, tables);
    CHECK(plain == scaled);
  });
}

TEST_CASE("tables of scales must be [layers, kv_heads], positive and finite") {
  float some[] = {1.0f, 2.0f, 3.0f, 4.0f};
  zoomr::config limits = limits_for(32);
  limits.key_scale = view<const float, 2>(some, {2, 2});
  CHECK_THROWS_AS(zoomr::kv_cache(shape{2, 1, 1, 8}, small::full, limits), zoomr::precondition_error);
  CHECK_THROWS_AS(zoomr::kv_cache(shape{1, 2, 2, 8}, small::full, limits), zoomr::precondition_error);
  CHECK_NOTHROW(zoomr::kv_cache(shape{2, 2, 2, 8}, small::full, limits));
  some[3] = 0.0f;
  CHECK_THROWS_AS(zoomr::kv_cache(shape{2, 2, 2, 8}, small::full, limits), zoomr::precondition_error);
}

TEST_CASE("scales that are not positive and finite are refused at construction") {
  const float none[] = {0.0f, -0.0f, -1.0f, zoomr::infinity, -zoomr::infinity, zoomr::not_a_number};
  for (const float bad : none) {
    for (const bool of_keys : {true, false}) {
      zoomr::config limits = limits_for(32);
      (of_keys ? limits.key_scale : limits.value_scale) = bad;
      CAPTURE(bad);
      std::string_view problem = "";
      if (limits.problem() != nullptr) problem = limits.problem();
      CHECK(problem == "config: key_scale and value_scale must be positive and finite");
      CHECK_THROWS_AS(zoomr::kv_cache(shape{1, 1, 1, 8}, small::full, limits), zoomr::precondition_error);
    }
  }
  zoomr::config limits = limits_for(32);
  limits.key_scale = 1e-45f, limits.value_scale = 3e38f;
  CHECK(limits.problem() == nullptr);
}

}  // namespace
}  // namespace zoomr_test
