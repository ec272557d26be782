// SPDX-License-Identifier: Apache-2.0
// Values of another width than keys, and values that lie in keys. That all calls do with them what they do with plain
// rows says the soak, which gives half of its caches such rows.
#include <cache/support/driving.hpp>
#include <cache/support/saved_bytes.hpp>
#include <cache/support/small_policies.hpp>
#include <core/random.hpp>
#include <support/naive_attention.hpp>
#include <zoomr/cache/key_rotation.hpp>
#include <zoomr/grouped_kv_cache.hpp>

#include <doctest/doctest.h>

#include <cmath>  // std::cos, std::fabs, std::sin, std::sqrt

namespace zoomr_test {
namespace {

using unit::size;
using zoomr::sequence;

constexpr shape narrow{1, 4, 2, 24, 16};
constexpr shape latent{2, 4, 1, 24, 16, true};

/// Rows of all tokens of a sequence in one layer.
struct rows {
  std::vector<float> keys, values, queries;

  rows(const shape& model, index_t tokens, std::uint64_t seed) {
    unit::random random(seed);
    keys = random.floats(size(tokens * model.kv_heads * model.head_dim));
    values = random.floats(size(tokens * model.kv_heads * model.value_width()));
    queries = random.floats(size(tokens * model.heads * model.head_dim), -3.0f, 3.0f);
  }
  view<const float, 3> part(const std::vector<float>& of, index_t first, index_t count, index_t heads,
                            index_t width) const {
    return {of.data() + first * heads * width, {count, heads, width}};
  }
};

/// One step over tokens [first, first + count), all layers of which have the same rows.
/// @return  [count, heads, value width]  of the last layer
template <class Cache>
std::vector<float> pass(Cache& cache, sequence seq, const rows& of, index_t first, index_t count, bool prompt_ends) {
  const shape model = cache.model();
  const std::vector<token_id> ids(size(count), 1);
  std::vector<float> out(size(count * model.heads * model.value_width()));
  auto step = cache.begin(seq, view<const token_id>(ids), prompt_ends);
  for (index_t layer = 0; layer < model.layers; ++layer) {
    const auto keys = of.part(of.keys, first, count, model.kv_heads, model.head_dim);
    if (model.values_in_keys) {
      step.append(layer, keys);
    } else {
      step.append(layer, keys, of.part(of.values, first, count, model.kv_heads, model.value_width()));
    }
    step.attend(layer, of.part(of.queries, first, count, model.heads, model.head_dim),
                view<float, 3>(out.data(), {count, model.heads, model.value_width()}));
  }
  step.commit(count);
  return out;
}

}  // namespace

TEST_CASE("attention over the latents of MLA is the softmax, and a latent is stored once") {
  constexpr shape model{1, 16, 1, 576, 512, true};
  constexpr index_t tokens = 40, prompt = 37;
  zoomr::config limits = limits_for(tokens);
  limits.logits.scale = 1.0f / std::sqrt(192.0f);  // of the heads that the latent stands for
  zoomr::kv_cache cache(model, zoomr::presets::full, limits);
  const sequence seq = cache.open();
  const rows of(model, tokens, 5);
  std::vector<float> out = pass(cache, seq, of, 0, prompt, true);
  for (index_t t = prompt; t < tokens; ++t) {
    const std::vector<float> next = pass(cache, seq, of, t, 1, false);
    out.insert(out.end(), next.begin(), next.end());
  }
  CHECK(cache.bytes(seq).details == std::int64_t{3} * 16 * 576 * 4);  // pages, tokens, numbers, bytes
  for (index_t t = 0; t < tokens; ++t) {
    for (index_t head = 0; head < model.heads; ++head) {
      const float* const query = &of.queries[size((t * model.heads + head) * 576)];
      const auto latent_row = [&](index_t s) { return of.keys.data() + s * 576; };
      const auto exact = zoomr_test::naive_attention(
          t + 1, 512, [&](index_t s) { return zoomr_test::naive_dot(576, query, latent_row(s)) / std::sqrt(192.0); },
          latent_row);
      // A logit is a sum of 576 products of at most 3 / 14: off by less than 2e-5, and so is its weight.
      for (index_t d = 0; d < 512; ++d)
        REQUIRE(std::fabs(double{out[size((t * model.heads + head) * 512 + d)]} - exact.out[size(d)]) < 4e-5);
    }
  }
}

TEST_CASE("what does not fit the widths of a shape is refused") {
  const rows of(narrow, 1, 1), in_keys(latent, 1, 1);
  const std::vector<token_id> one{1};
  zoomr::kv_cache cache(narrow, small::full, limits_for(40));
  auto step = cache.begin(cache.open(), view<const token_id>(one));
  const auto keys = of.part(of.keys, 0, 1, 2, 24), values = of.part(of.values, 0, 1, 2, 16);
  CHECK(sentence_of([&] { step.append(0, keys); }).find("append: values are") != std::string::npos);
  CHECK(sentence_of([&] { step.append(0, keys, keys); }) == "zoomr: append: values are [1, 2, 24], wanted [1, 2, 16]");
  step.append(0, keys, values);
  std::vector<float> out(4 * 24);
  const auto queries = of.part(of.queries, 0, 1, 4, 24);
  CHECK(sentence_of([&] {
          step.attend(0, queries, view<float, 3>(out.data(), {1, 4, 24}));
        }) == "zoomr: attend: out is [1, 4, 24], wanted [1, 4, 16]");
  step.attend(0, queries, view<float, 3>(out.data(), {1, 4, 16}));

  zoomr::kv_cache latents(latent, small::full, limits_for(40));
  auto other = latents.begin(latents.open(), view<const token_id>(one));
  const auto rows_of = in_keys.part(in_keys.keys, 0, 1, 1, 24);
  CHECK(sentence_of([&] { other.append(0, rows_of, in_keys.part(in_keys.values, 0, 1, 1, 16)); }) ==
        "zoomr: append: the shape says that values lie in keys: give none");
  other.append(0, rows_of);
}

TEST_CASE("a saved sequence goes where the widths are the same") {
  zoomr::kv_cache cache(latent, small::full, limits_for(60));
  const rows of(latent, 60, 2);
  const sequence seq = cache.open();
  pass(cache, seq, of, 0, 50, true);
  memory_sink saved;
  cache.save(seq, saved);
  const sequence again = [&] {
    zoomr::kv_cache<zoomr::policy_of<small::full>> elsewhere(latent, small::full, limits_for(60));
    const sequence loaded = elsewhere.load(memory_source(saved.bytes));
    const std::vector<float> expected = pass(cache, seq, of, 50, 1, false);
    CHECK(bits_of{pass(elsewhere, loaded, of, 50, 1, false)} == bits_of{expected});
    return loaded;
  }();
  CHECK(again.id == 0);
  const auto refused = [&](shape model) {
    zoomr::kv_cache into(model, small::full, limits_for(60));
    return sentence_of([&] { into.load(memory_source(saved.bytes)); });
  };
  const std::string shapes = "zoomr: load: the sequence's model has the shape [2, 4, 1, 24, 16], this cache's ";
  const std::string names = " [layers, heads, kv_heads, head_dim, value_dim]";
  CHECK(refused({2, 4, 1, 24, 8, true}) == shapes + "[2, 4, 1, 24, 8]" + names);
  CHECK(refused({2, 4, 1, 24, 16, false}) == shapes + "[2, 4, 1, 24, 16]" + names + ", its values lie in its keys");
}

TEST_CASE("behind an erased span the end of a latent is turned, and its values stay") {
  constexpr index_t tokens = 40;
  zoomr::kv_cache cache(latent, small::full, limits_for(tokens));
  const rows of(latent, tokens, 3);
  const sequence seq = cache.open();
  pass(cache, seq, of, 0, tokens, true);
  const std::vector<float> frequencies{1.0f, 0.25f, 0.125f, 0.0625f};  // of dimensions 16 to 23
  cache.erase(seq, {10, 15}, zoomr::key_rotation(view<const float>(frequencies), -5, zoomr::rotary_pairs::halves, 16));
  const auto lane = cache.kv_lane(seq, 1, 0);
  for (index_t t = 0; t < tokens - 5; ++t) {
    const float* const before = &of.keys[size((t < 10 ? t : t + 5) * 24)];
    CHECK(lane.key(t) == lane.value(t));
    for (index_t d = 0; d < 16; ++d) CHECK(lane.value(t)[d] == before[d]);
    for (index_t i = 0; i < 4; ++i) {
      const double angle = t < 10 ? 0.0 : -5.0 * double{frequencies[size(i)]};
      const double x = double{before[16 + i]}, y = double{before[20 + i]};
      CHECK(double{lane.key(t)[16 + i]} == doctest::Approx(x * std::cos(angle) - y * std::sin(angle)).epsilon(1e-5));
      CHECK(double{lane.key(t)[20 + i]} == doctest::Approx(x * std::sin(angle) + y * std::cos(angle)).epsilon(1e-5));
    }
  }
  const float before = lane.key(0)[0];
  CHECK(sentence_of([&] {
          const std::vector<float> many(8, 1.0f);
          cache.erase(seq, {0, 1}, zoomr::key_rotation(view<const float>(many), -1, zoomr::rotary_pairs::halves, 16));
        }) == "zoomr: key_rotation: there are more frequencies than half of head_dim");
  CHECK(cache.tokens(seq) == tokens - 5);
  CHECK(lane.key(0)[0] == before);
}

TEST_CASE("layers of different widths are groups of one cache") {
  const rows of_latent(latent, 40, 6), of_narrow(narrow, 40, 7);
  std::vector<zoomr::any_kv_cache<>> groups;
  groups.push_back(zoomr::kv_cache(latent, small::full, limits_for(40)));
  groups.push_back(zoomr::kv_cache(narrow, small::full, limits_for(40)));
  const std::vector<index_t> table{0, 1, 0};
  zoomr::grouped_kv_cache both(std::move(groups), view<const index_t>(table));
  zoomr::kv_cache a(latent, small::full, limits_for(40));
  zoomr::kv_cache b(narrow, small::full, limits_for(40));
  const sequence seq = both.open(), in_a = a.open(), in_b = b.open();
  for (index_t at = 0; at < 40; at += 8) {
    const std::vector<float> of_a = pass(a, in_a, of_latent, at, 8, at == 32);
    const std::vector<float> of_b = pass(b, in_b, of_narrow, at, 8, at == 32);
    const std::vector<token_id> ids(8, 1);
    const zoomr::step_item item{seq, view<const token_id>(ids), at == 32};
    auto step = both.begin(view<const zoomr::step_item>(&item, {1}));
    for (index_t layer = 0; layer < 3; ++layer) {
      const bool latents = layer != 1;
      const shape& model = latents ? latent : narrow;
      const rows& of = latents ? of_latent : of_narrow;
      std::vector<float> out(size(8 * model.heads * model.value_width()));
      const auto keys = of.part(of.keys, at, 8, model.kv_heads, model.head_dim);
      latents ? step.append(layer, keys) : step.append(layer, keys, of.part(of.values, at, 8, 2, 16));
      step.attend(layer, of.part(of.queries, at, 8, model.heads, model.head_dim),
                  view<float, 3>(out.data(), {8, model.heads, model.value_width()}));
      CHECK(bits_of{out} == bits_of{latents ? of_a : of_b});
    }
    const index_t accepted = 8;
    step.commit(view<const index_t>(&accepted, {1}));
  }
}

}  // namespace zoomr_test
