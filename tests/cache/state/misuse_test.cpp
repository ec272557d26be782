// SPDX-License-Identifier: Apache-2.0
// Each mistake of a caller is a sentence that says what was wanted and what was given, and changes nothing.
#include <cache/support/driving.hpp>
#include <cache/support/saved_bytes.hpp>
#include <cache/support/small_policies.hpp>
#include <support/sentence_of.hpp>

#include <doctest/doctest.h>

#include <array>        // std::array
#include <string_view>  // std::string_view

namespace zoomr_test {
namespace {

using zoomr::sequence;
using zoomr::step_item;

constexpr shape model{2, 4, 2, 8};

/// What a step of `tokens` tokens is given, and where its results go.
struct numbers {
  std::vector<float> keys, queries, out;
  index_t tokens, kv_heads, heads, dims;

  explicit numbers(index_t count, const shape& of = model, float number = 0.5f)
      : keys(static_cast<std::size_t>(count * of.kv_heads * of.head_dim), number),
        queries(static_cast<std::size_t>(count * of.heads * of.head_dim), 1.0f),
        out(queries.size()),
        tokens(count),
        kv_heads(of.kv_heads),
        heads(of.heads),
        dims(of.head_dim) {}
  view<const float, 3> k() const { return {keys.data(), {tokens, kv_heads, dims}}; }
  view<const float, 3> q() const { return {queries.data(), {tokens, heads, dims}}; }
  view<float, 3> o() { return {out.data(), {tokens, heads, dims}}; }
};

/// Every layer of one pass.
template <class Step>
void whole_pass(Step& step, numbers& with, index_t layers = model.layers) {
  for (index_t layer = 0; layer < layers; ++layer) {
    step.append(layer, with.k(), with.k());
    step.attend(layer, with.q(), with.o());
  }
}

/// A cache of one sequence, whose prompt has ended after 12 tokens.
template <class Policy>
struct after_prompt {
  zoomr::config limits = limits_for(60, 2);
  zoomr::kv_cache<Policy> cache;
  sequence seq;
  const std::vector<token_id> one{plain_id}, delimiter{delimiter_id};

  explicit after_prompt(const Policy& policy) : cache(model, policy, limits), seq(cache.open()) {
    const std::vector<token_id> prompt(12, plain_id);
    numbers with(12);
    auto step = cache.begin(seq, prompt, true);
    whole_pass(step, with);
    step.commit();
  }
};

TEST_CASE("a layer appended twice stands for no other: the one that is missing is named") {
  after_prompt given(small::full);
  numbers with(1);
  for (const bool end_of_prompt : {false, true}) {
    const sequence seq = end_of_prompt ? given.cache.open() : given.seq;
    auto step = given.cache.begin(seq, given.one, end_of_prompt);
    step.append(0, with.k(), with.k());
    step.append(0, with.k(), with.k());
    step.attend(0, with.q(), with.o());
    CHECK(mistake_of([&] { step.commit(); }) ==
          "zoomr: commit: tokens of item 0 are accepted, but layer 1 of 2 was not appended");
    CHECK(mistake_of([&] { step.needs_second_pass(1); }) ==
          "zoomr: needs_second_pass: tokens of item 0 are accepted, but layer 1 of 2 was not appended");
    step.append(1, with.k(), with.k());
    CHECK(mistake_of([&] { step.commit(); }) ==
          "zoomr: commit: tokens of item 0 are accepted, but layer 1 of 2 was not attended (or, in the prompt, "
          "observed)");
    step.attend(1, with.q(), with.o());
    step.commit();
  }
  CHECK(given.cache.tokens(given.seq) == 13);
}

TEST_CASE("of many layers too, the first one that is missing is named") {
  const shape deep{130, 1, 1, 8};
  for (const index_t missing : {0, 63, 64, 127, 128, 129}) {
    zoomr::kv_cache cache(deep, small::full, limits_for(8));
    const std::vector<token_id> one{plain_id};
    numbers with(1, deep);
    auto step = cache.begin(cache.open(), one, true);
    for (index_t layer = deep.layers - 1; layer >= 0; --layer) {
      if (layer != missing) step.append(layer, with.k(), with.k()), step.attend(layer, with.q(), with.o());
    }
    const std::string named = "layer " + std::to_string(missing) + " of 130 was not appended";
    CHECK(mistake_of([&] { step.commit(); }).find(named) != std::string::npos);
    step.append(missing, with.k(), with.k()), step.attend(missing, with.q(), with.o());
    CHECK(mistake_of([&] { step.commit(); }) == "");
  }
}

TEST_CASE("a token is not attended before its own keys are there") {
  after_prompt given(small::full);
  numbers with(1);
  {
    auto step = given.cache.begin(given.seq, given.one);
    CHECK(mistake_of([&] { step.attend(1, with.q(), with.o()); }) ==
          "zoomr: attend: append the keys of layer 1 before, in the same pass");
    step.append(0, with.k(), with.k());
    CHECK(mistake_of([&] { step.attend(1, with.q(), with.o()); }) != "");
    CHECK(with.out == std::vector<float>(with.out.size()));
  }
  auto prompt = given.cache.begin(given.cache.open(), given.one);
  CHECK(mistake_of([&] { prompt.observe(0, with.q()); }) ==
        "zoomr: observe: append the keys of layer 0 before, in the same pass");
}

TEST_CASE("keys may be appended again until they are attended, and queries are seen once") {
  after_prompt once(small::full), twice(small::full);
  numbers right(1, model, 0.25f), wrong(1, model, 0.75f), with(1, model, 0.25f);
  auto plain = once.cache.begin(once.seq, once.one);
  whole_pass(plain, right);
  auto step = twice.cache.begin(twice.seq, twice.one);
  for (index_t layer = 0; layer < model.layers; ++layer) {
    step.append(layer, wrong.k(), wrong.k());
    step.append(layer, with.k(), with.k());
    step.attend(layer, with.q(), with.o());
    CHECK(mistake_of([&] { step.append(layer, wrong.k(), wrong.k()); }) ==
          "zoomr: append: layer " + std::to_string(layer) +
              " was attended or observed in this pass, so that its keys cannot change");
    CHECK(mistake_of([&] { step.attend(layer, with.q(), with.o()); }) ==
          "zoomr: attend: layer " + std::to_string(layer) +
              " was attended or observed in this pass already; a layer of the model that shares its keys is one of its "
              "own, with a donor in config.donors");
  }
  step.commit(), plain.commit();
  CHECK(with.out == right.out);
  CHECK(twice.cache.stats(twice.seq) == once.cache.stats(once.seq));
  auto prompt = twice.cache.begin(twice.cache.open(), twice.one);
  prompt.append(0, with.k(), with.k());
  prompt.observe(0, with.q());
  CHECK(mistake_of([&] { prompt.attend(0, with.q(), with.o()); }) != "");
}

TEST_CASE("the second pass needs all its layers, and what is not accepted needs none") {
  after_prompt given(with(small::zoomr_mass, [](auto& p) { p.refresh.at_most = 1; }));
  numbers with(1);
  {
    auto step = given.cache.begin(given.seq, given.delimiter);
    REQUIRE(step.passes() == 2);
    whole_pass(step, with);
    REQUIRE(step.needs_second_pass(1));
    CHECK(mistake_of([&] { step.commit(1); }) ==
          "zoomr: commit: tokens of item 0 are accepted, but layer 0 of 2 was not appended");
    step.append(0, with.k(), with.k());
    step.attend(0, with.q(), with.o());
    CHECK(mistake_of([&] { step.commit(1); }).find("layer 1 of 2") != std::string::npos);
    CHECK(mistake_of([&] { step.needs_second_pass(-1); }).find("-1 tokens of item 0 are accepted") !=
          std::string::npos);
    CHECK(!step.needs_second_pass(1));  // there is no third
  }
  {
    auto step = given.cache.begin(given.seq, given.delimiter);
    CHECK(mistake_of([&] { step.needs_second_pass(1); }).find("layer 0 of 2 was not appended") != std::string::npos);
    CHECK(!step.needs_second_pass(0));
    whole_pass(step, with);
    CHECK(mistake_of([&] { step.commit(1); }) ==
          "zoomr: commit: `needs_second_pass` was told that 0 tokens of item 0 are accepted, not 1");
    step.commit(0);
  }
  CHECK(given.cache.tokens(given.seq) == 12);
  auto step = given.cache.begin(given.seq, given.delimiter);
  whole_pass(step, with);
  step.commit(1);  // without `needs_second_pass`: the choice serves the following tokens
  CHECK(given.cache.tokens(given.seq) == 13);
}

TEST_CASE(
    "tokens after the prompt may be written unattended in all layers, if the policy needs none of their queries") {
  after_prompt given(small::full);
  after_prompt sums(small::sentence_kv);
  numbers with(1);
  const auto write = [&](auto& cache, sequence seq, const std::vector<token_id>& ids) {
    auto step = cache.begin(seq, ids);
    for (index_t layer = 0; layer < model.layers; ++layer) step.append(layer, with.k(), with.k());
    step.commit();
  };
  write(given.cache, given.seq, given.one);
  CHECK(given.cache.tokens(given.seq) == 13);
  CHECK(mistake_of([&] { write(sums.cache, sums.seq, sums.one); }).find("layer 0 of 2 was not attended") !=
        std::string::npos);
  after_prompt chooses(small::zoomr_one_pass);
  write(chooses.cache, chooses.seq, chooses.one);
  CHECK(mistake_of([&] { write(chooses.cache, chooses.seq, chooses.delimiter); }) != "");
}

TEST_CASE("of several items, those of which tokens are accepted need their layers") {
  after_prompt given(small::full);
  const sequence other = given.cache.open();
  numbers with(2);
  const step_item items[] = {{given.seq, given.one}, {other, given.one, true}};
  auto step = given.cache.begin(view<const step_item>(items, {2}));
  step.append(0, with.k(), with.k());
  CHECK(mistake_of([&] { step.commit(); }).find("tokens of item 0 are accepted, but layer 1") != std::string::npos);
  const index_t second[] = {0, 1}, none[] = {0, 0};
  CHECK(mistake_of([&] { step.commit(view<const index_t>(second, {2})); }).find("item 1") != std::string::npos);
  step.commit(view<const index_t>(none, {2}));
  const index_t before = given.cache.tokens(given.seq);
  auto every_token = given.cache.begin(view<const step_item>(items, {2}));
  whole_pass(every_token, with);
  every_token.commit();
  CHECK(given.cache.tokens(given.seq) == before + 1);
  CHECK(given.cache.tokens(other) == 1);
  CHECK(mistake_of([&] { every_token.commit(); }) == "zoomr: the step is over: begin another one");
}

TEST_CASE("shapes that do not fit are both told") {
  after_prompt given(small::full);
  numbers four(4), three(3);
  const std::vector<token_id> ids(4, plain_id);
  auto step = given.cache.begin(given.seq, ids);
  CHECK(mistake_of([&] { step.append(0, three.k(), four.k()); }) ==
        "zoomr: append: keys are [3, 2, 8], wanted [4, 2, 8]");
  CHECK(mistake_of([&] { step.append(0, four.k(), four.q()); }) ==
        "zoomr: append: values are [4, 4, 8], wanted [4, 2, 8]");
  step.append(0, four.k(), four.k());
  CHECK(mistake_of([&] { step.attend(0, three.q(), four.o()); }) ==
        "zoomr: attend: queries are [3, 4, 8], wanted [4, 4, 8]");
  CHECK(mistake_of([&] { step.attend(0, four.q(), three.o()); }) ==
        "zoomr: attend: out is [3, 4, 8], wanted [4, 4, 8]");
  CHECK(mistake_of([&] {
          step.attend(0, four.q(), four.o(), view<float, 2>(three.out.data(), {3, 4}));
        }) == "zoomr: attend: lse is [3, 4], wanted [4, 4]");
  const view<const float, 3> with_gaps(four.queries.data(), {4, 4, 8}, {1, 1, 4});
  CHECK(mistake_of([&] { step.attend(0, with_gaps, four.o()); }) ==
        "zoomr: attend: queries are [4, 4, 8], wanted [4, 4, 8] with a last dimension that has no gaps");
  CHECK(mistake_of([&] { step.append(2, four.k(), four.k()); }) ==
        "zoomr: append: there is no layer 2, the model has 2");
  CHECK(mistake_of([&] { step.taken(1); }) == "zoomr: the step has no item 1, it has 1");
  CHECK(mistake_of([&] { step.commit(5); }) == "zoomr: commit: 5 tokens of item 0 are accepted, wanted 0 ... 4");
}

TEST_CASE("KV heads, layers and rows of a selection that there are not are refused") {
  after_prompt given(small::full);
  CHECK(given.cache.slots_of(given.seq, 1, 1).position_of(11) == 11);
  for (const auto& [layer, kv_head] : {std::array{-1, 0}, {2, 0}, {0, -1}, {0, 2}}) {
    CHECK(mistake_of([&, layer = layer, kv_head = kv_head] { given.cache.slots_of(given.seq, layer, kv_head); }) ==
          "zoomr: there is no KV head " + std::to_string(kv_head) + " in a layer " + std::to_string(layer));
  }
  CHECK(given.cache.selection_rows() == 0);
  CHECK(mistake_of([&] { given.cache.selected(given.seq, 0); }) == "zoomr: selected: there is no such row");
  CHECK(mistake_of([&] { given.cache.selected(given.seq, -1); }) == "zoomr: selected: there is no such row");
}

TEST_CASE("a sequence that was closed is refused, also where its place is taken again") {
  after_prompt given(small::full);
  const sequence old = given.seq;
  given.cache.close(old);
  CHECK(mistake_of([&] { given.cache.tokens(old); }).find("sequence 0 is not open") != std::string::npos);
  const sequence next = given.cache.open();
  CHECK(next.id == old.id);
  CHECK(!(next == old));
  const std::string_view sentence = "zoomr: sequence 0 is not open: it was closed, and another may have its id since";
  CHECK(mistake_of([&] { given.cache.tokens(old); }) == sentence);
  CHECK(mistake_of([&] { given.cache.begin(old, given.one); }) == sentence);
  CHECK(mistake_of([&] { given.cache.rollback(old, 0); }) == sentence);
  CHECK(mistake_of([&] { given.cache.close(old); }) == sentence);
  CHECK(given.cache.tokens(next) == 0);
  CHECK(mistake_of([&] { given.cache.tokens(sequence{2}); }) ==
        "zoomr: sequence 2 is not open: config.max_sequences is 2");
}

TEST_CASE("a token id needs a class, and a policy that reads classes a table of them") {
  zoomr::config limits = limits_for(40);
  constexpr std::array<token_class, 3> short_table{};
  limits.classes = short_table;
  zoomr::kv_cache cache(model, small::sentence_kv, limits);
  const sequence seq = cache.open();
  const std::vector<token_id> last{0, 2}, behind{0, 3}, negative{-7};
  CHECK(mistake_of([&] { cache.begin(seq, behind); }) ==
        "zoomr: begin: token id 3 has no class: config.classes has 3 entries, one for each id from 0 on");
  CHECK(mistake_of([&] { cache.begin(seq, negative); }) == "zoomr: begin: token ids cannot be negative, but one is -7");
  CHECK(cache.begin(seq, last).tokens() == 2);
  const std::vector<token_id> image{0, zoomr::no_class, zoomr::no_class, 2};
  CHECK(cache.begin(seq, image).tokens() == 4);

  limits.classes = {};
  const std::string_view sentence =
      "zoomr: config: classes is empty, but the policy's segments or choices depend on classes of tokens: give the "
      "token_class of each token id, or as many plain ones";
  CHECK(mistake_of([&] { zoomr::kv_cache(model, small::sentence_kv, limits); }) == sentence);
  CHECK(mistake_of([&] { zoomr::kv_cache(model, small::zoomr_mass, limits); }) == sentence);
  CHECK(zoomr::kv_cache<std::remove_const_t<decltype(small::sentence_kv)>>::bytes(model, small::sentence_kv, limits)
            .total() > 0);  // the size needs no table
  zoomr::kv_cache no_classes(model, small::full, limits);
  CHECK(no_classes.begin(no_classes.open(), behind).tokens() == 2);
}

TEST_CASE("drafts that are rejected, rollbacks and dropped steps do not make the mean exceed what is attended") {
  after_prompt given(small::window);  // 3 tokens and the last 19
  const std::vector<token_id> draft(5, plain_id);
  numbers with(5);
  for (index_t step = 0; step < 12; ++step) {
    auto taking = given.cache.begin(given.seq, draft);
    whole_pass(taking, with);
    if (step < 10) taking.commit(step < 3 ? 5 : 1);
  }
  given.cache.rollback(given.seq, 30);
  const zoomr::statistics stats = given.cache.stats(given.seq);
  CHECK(stats.tokens == 22);
  CHECK(stats.taken == 60);
  CHECK(stats.attended_mean(model) <= 22);
  CHECK(stats.attended_mean(model) > 20);
}

TEST_CASE("no token comes after the last model position, whatever has moved the ones before it there") {
  constexpr index_t most = (1 << 30) - 1;
  after_prompt given(small::full);
  zoomr::kv_cache goal(model, small::full, given.limits);
  const auto step_of = [&](std::vector<index_t> positions, index_t count, bool later_prompt = false) {
    const std::vector<token_id> ids(static_cast<std::size_t>(count), plain_id);
    const step_item item{given.seq, ids, false, {}, later_prompt, view<const index_t>(positions)};
    numbers with(count);
    auto step = given.cache.begin(view<const step_item>(&item, {1}));
    whole_pass(step, with);
    step.commit();
  };
  const auto ends_at = [](index_t position) {
    return "zoomr: begin: the last token of an item would have the model position " + std::to_string(position) +
           ", the largest is 1073741823";
  };
  SUBCASE("an engine's own positions") { step_of({most - 2}, 1); }
  SUBCASE("a span that moves") { given.cache.shift(given.seq, {10, 12}, most - 13); }
  SUBCASE("a gap") {
    step_of({13, most - 3, most - 2}, 3);
    given.cache.erase(given.seq, {12, 14}, zoomr::position_gap{});
  }
  const index_t tokens = given.cache.tokens(given.seq);
  REQUIRE(given.cache.model_position(given.seq, tokens) == most - 1);
  CHECK(mistake_of([&] { step_of({}, 3); }) == ends_at(most + 1));
  CHECK(mistake_of([&] { step_of({}, 12); }) == ends_at(most + 6));  // a draft has eight tokens
  CHECK(mistake_of([&] { step_of({}, 12, true); }) == ends_at(most + 10));
  CHECK(mistake_of([&] { step_of({}, 2); }) == "");
  CHECK(mistake_of([&] { step_of({}, 1); }) == ends_at(most + 1));
  const saved_bytes bytes = saved(given.cache, given.seq);
  CHECK(goal.tokens(goal.load(memory_source(bytes))) == tokens + 2);
  given.cache.rollback(given.seq, tokens + 1);
  CHECK(mistake_of([&] { step_of({}, 1); }) == "");
}

TEST_CASE("spans that cannot be are refused, and nothing has changed") {
  const std::vector<token_id> ids(6, plain_id);
  const auto refusal = [&](const auto& policy, zoomr::token_span first, zoomr::token_span second, bool prompt = true) {
    after_prompt<std::decay_t<decltype(policy)>> opened(policy);
    const zoomr::token_span spans[] = {first, second};
    step_item item{opened.seq, view<const token_id>(ids)};
    item.prompt_begins = prompt, item.spans = view<const zoomr::token_span>(spans, {2});
    const index_t before = opened.cache.tokens(opened.seq);
    const std::string sentence = mistake_of([&] { opened.cache.begin(view<const step_item>(&item, {1})); });
    CHECK(opened.cache.tokens(opened.seq) == before);
    return sentence;
  };
  using enum zoomr::span_role;
  const std::string order = " of its item, wanted some from ";
  const std::string ascending = " on: spans are ascending and disjoint";
  CHECK(refusal(small::quest, {{0, 2}}, {{2, 9}}) == "");  // what is beyond the ids is named again with those
  CHECK(refusal(small::quest, {{0, 2}}, {{1, 3}}) ==
        "zoomr: begin: a span has the ids [1, 3)" + order + "2" + ascending);
  CHECK(refusal(small::quest, {{-1, 2}}, {{2, 3}}) ==
        "zoomr: begin: a span has the ids [-1, 2)" + order + "0" + ascending);
  CHECK(refusal(small::quest, {{0, 2}}, {{3, 3}}) ==
        "zoomr: begin: a span has the ids [3, 3)" + order + "2" + ascending);
  CHECK(
      refusal(small::quest, {{0, 2}}, {{2, 3}, question}) ==
      "zoomr: begin: a span is a question, but the policy pins none: its zones' `question` is the most tokens of one, "
      "and 0");
  CHECK(refusal(zoomr::presets::full, {{0, 2}}, {{2, 3}, question}) == "");  // all is attended in any case
  CHECK(refusal(with(zoomr::presets::full, [](auto& p) { p.zone.recent = 3; }), {{0, 2}}, {{2, 3}, question}) != "");
  CHECK(refusal(with(small::quest, [](auto& p) { p.zone.question = 5; }), {{0, 2}}, {{2, 3}, question}, false) ==
        "zoomr: begin: a span is a question, but the item is not part of a prompt");
}

TEST_CASE("a span that leaves an evictor too little room is refused, and nothing has changed") {
  // 4 sinks, the last 8, a question of 3 and 5 tokens of spans.
  const auto policy = with(zoomr::presets::snapkv_with(20),
                           [](auto& p) { p.evict.queries = 8, p.zone.sinks = 4, p.zone.question = 3; });
  zoomr::kv_cache cache(model, policy, limits_for(60));
  const sequence seq = cache.open();
  const std::vector<token_id> ids(10, plain_id);
  numbers with(10);
  const auto pass = [&](std::vector<zoomr::token_span> spans, bool commits) {
    step_item item{seq, view<const token_id>(ids)};
    item.spans = view<const zoomr::token_span>(spans);
    auto step = cache.begin(view<const step_item>(&item, {1}));
    if (!commits) return;
    whole_pass(step, with);
    step.commit();
  };
  const auto too_many = [](int stay) {
    return "zoomr: begin: with the pinned spans of an item " + std::to_string(stay) +
           " tokens could never be evicted, but each KV lane keeps 20";
  };
  using enum zoomr::span_role;
  pass({{{0, 6}}, {{9, 20}, question}}, true);  // of the sinks nothing counts twice; a question counts its zone
  CHECK(mistake_of([&] { pass({{{1, 3}}, {{5, 7}}}, false); }) == too_many(21));
  CHECK(cache.tokens(seq) == 10);
  CHECK(mistake_of([&] { pass({{{0, 10}, question}}, false); }) == "");
  CHECK(mistake_of([&] { pass({{{7, 12}}}, false); }) == "");  // two are not in this item
  pass({{{1, 3}}, {{6, 7}}}, true);
  CHECK(mistake_of([&] { pass({{{4, 5}}}, false); }) == too_many(21));
  cache.rollback(seq, 12);
  pass({{{0, 2}}}, true);
  zoomr::kv_cache never(model, policy, limits_for(20));  // all tokens have room
  step_item item{never.open(), view<const token_id>(ids)};
  const zoomr::token_span all{{0, 10}};
  item.spans = view<const zoomr::token_span>(&all, {1});
  never.begin(view<const step_item>(&item, {1}));
}

TEST_CASE("a prompt that was never ended can be seen, and is told where it must be a mistake") {
  zoomr::kv_cache cache(model, small::full, limits_for(6));
  const sequence seq = cache.open();
  const std::vector<token_id> one{plain_id}, three(3, plain_id);
  numbers with(1), with_three(3);
  for (index_t t = 0; t < 4; ++t) {  // single tokens may be a prompt's
    auto step = cache.begin(seq, one);
    whole_pass(step, with);
    step.commit();
  }
  CHECK(cache.in_prompt(seq));
  CHECK(cache.stats(seq).prompt_tokens == 4);
  CHECK(cache.stats(seq).tokens == 0);
  {
    const std::vector<token_id> draft(2, plain_id);
    auto step = cache.begin(seq, draft);
    CHECK(mistake_of([&] { step.commit(1); }) ==
          "zoomr: commit: 1 tokens of item 0 are accepted, but of a prompt all 2 or none can be; `prompt_ends` has not "
          "been set yet");
  }
  try {
    cache.begin(seq, three);
    FAIL("7 tokens of 6");
  } catch (const zoomr::error& full) {
    CHECK(std::string_view(full.what()) ==
          "zoomr: sequence 0 would have 7 tokens, config.max_tokens is 6; all are prompt, since `prompt_ends` has not "
          "been "
          "set yet");
  }
  auto step = cache.begin(seq, one, true);
  whole_pass(step, with);
  step.commit();
  CHECK(!cache.in_prompt(seq));
}

}  // namespace
}  // namespace zoomr_test
