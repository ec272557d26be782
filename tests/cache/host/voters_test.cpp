// SPDX-License-Identifier: Apache-2.0
// Heads that vote: what they hear, how long, and what becomes of it in a sequence's life.
#include <cache/support/against_reference.hpp>
#include <cache/support/players.hpp>
#include <cache/support/saved_bytes.hpp>
#include <support/voters.hpp>

#include <cmath>    // std::log, std::log2, std::nextafter, std::pow
#include <string>   // std::string
#include <utility>  // std::pair
#include <vector>   // std::vector

namespace zoomr_test {
namespace {

constexpr shape model{2, 4, 2, 8}, smollm2{30, 9, 3, 64};
using sentences_type = std::remove_const_t<decltype(small::sentence_voters)>;
using player_type = player<sentences_type>;

tape text(std::uint64_t seed = 3) { return make_tape(model, kind::peaked, markup::sentences, 150, 60, seed); }

result_log from(const result_log& all, index_t position) { return {all.lower_bound({position, 0}), all.end()}; }

}  // namespace

TEST_CASE(
    "any number of queries is heard as the naive reference hears it, under every rule of logits, with neighbours too") {
  const float slopes[] = {0.5f, 0.25f, 0.0f, 0.125f};
  for (const index_t queries : {1, 2, 7, 16, 200}) {
    comparison all;
    auto policy = small::sentence_voters;
    policy.aggregate.queries = queries;
    if (queries == 2) policy.select.tokens = 25, policy.select.neighbours = 2;
    if (queries == 16) policy.select.neighbours = 1;
    for (const bool capped : {false, true}) {
      for (const std::uint64_t seed : {1u, 2u, 3u}) {
        const tape says = text(seed);
        zoomr::config limits = limits_for(says.size());
        if (capped) limits.logits.soft_cap = 3.0f, limits.logits.alibi_slopes = view<const float>(slopes, {4});
        check_against_reference(policy, says, limits, false, all);
      }
    }
    check_rarely_stopped("queries " + std::to_string(queries), all);
  }
}

TEST_CASE("the queries of a named question score, and the last ones; not those between") {
  using zoomr::detail::query_positions;
  const auto scoring = [](index_t position, zoomr::token_range named, index_t known_from = 0) {
    const auto found = query_positions::at(position, 4, 20, named, known_from);
    std::vector<index_t> positions, newest;
    CHECK(!found.turned);
    found.each([&](zoomr::detail::scoring_query at) { positions.push_back(at.position); });
    for (index_t i = found.size(); i > 0; --i) newest.push_back(found.from_newest(i - 1));
    CHECK(newest == positions);
    return positions;
  };
  using list = std::vector<index_t>;
  CHECK(scoring(50, {}) == list{47, 48, 49, 50});
  CHECK(scoring(50, {35, 38}) == list{35, 36, 37, 47, 48, 49, 50});
  CHECK(scoring(50, {45, 49}) == list{45, 46, 47, 48, 49, 50});  // they overlap
  CHECK(scoring(50, {48, 50}) == list{47, 48, 49, 50});
  CHECK(scoring(50, {31, 33}) == list{31, 32, 47, 48, 49, 50});  // its first is the twentieth
  CHECK(scoring(50, {30, 33}) == list{47, 48, 49, 50});
  CHECK(scoring(50, {35, 38}, 37) == list{37, 47, 48, 49, 50});  // the others' queries are not remembered
  CHECK(scoring(50, {35, 38}, 49) == list{49, 50});
  CHECK(scoring(2, {0, 1}) == list{0, 1, 2});
  CHECK(scoring(0, {}) == list{0});
}

TEST_CASE("of a named question that is farther back the last tokens score, turned") {
  using zoomr::detail::query_positions;
  const auto scoring = [](index_t position, zoomr::token_range named) {
    const auto found = query_positions::at(position, 4, 20, named, 0, 6);
    std::vector<std::pair<index_t, bool>> queries;
    found.each([&](zoomr::detail::scoring_query at) { queries.push_back({at.position, at.turned}); });
    return queries;
  };
  using list = std::vector<std::pair<index_t, bool>>;
  const list last = {{47, false}, {48, false}, {49, false}, {50, false}};
  const auto with = [&](list turned) { return turned.insert(turned.end(), last.begin(), last.end()), turned; };
  CHECK(scoring(50, {}) == last);
  CHECK(scoring(50, {31, 33}) == with({{31, false}, {32, false}}));  // its first is the twentieth
  CHECK(scoring(50, {30, 33}) == with({{30, true}, {31, true}, {32, true}}));
  CHECK(scoring(50, {3, 40}) == with({{34, true}, {35, true}, {36, true}, {37, true}, {38, true}, {39, true}}));
  CHECK(scoring(50, {3, 49}) == with({{43, true}, {44, true}, {45, true}, {46, true}}));  // they overlap
}

TEST_CASE(
    "queries of named tokens are found after rollbacks, erasures and dropped chunks, as long as the ring has them") {
  zoomr::detail::question_queries kept({1, 1, 1, 8}, 4, 3);  // 11 of them
  const auto keep = [&](index_t position, index_t count) {
    index_t number = kept.next(position);
    for (index_t i = 0; i < count; ++i) kept.place(number + i)(0, 0) = static_cast<float>(position + i);
  };
  const auto commit = [&](index_t position, index_t count) {
    keep(position, count);
    for (index_t i = 0; i < count; ++i) kept.commit(position + i);
  };
  const auto has = [&](index_t position) {
    const view<float, 2> found = kept.find(position);
    if (found.data() != nullptr) CHECK(found(0, 0) == static_cast<float>(position));
    return found.data() != nullptr;
  };
  commit(10, 4);
  CHECK((has(10) && has(13) && !has(9) && !has(14)));
  keep(14, 4);  // of a chunk that is dropped
  CHECK((has(10) && has(13) && !has(14)));
  commit(20, 3);
  CHECK((has(10) && has(13) && has(22)));
  CHECK(!kept.loses(20));
  commit(30, 4);  // eleven
  CHECK((has(10) && has(33)));
  CHECK(!kept.loses(12));
  keep(40, 4);  // the first four make room
  CHECK((!has(13) && has(20) && has(33)));
  CHECK((!kept.loses(31) && kept.loses(30) && !kept.loses(0)));
  CHECK(kept.next(31) == 8);  // a rollback to 31 tokens
  commit(31, 1);
  CHECK((has(30) && has(31) && !has(32)));
  kept.erase({24, 28});
  CHECK((has(20) && !has(30)));
  CHECK(kept.find(26)(0, 0) == 30.0f);
  zoomr::detail::question_queries other({1, 1, 1, 8}, 4, 3);
  other.become(kept);
  CHECK(other.find(26)(0, 0) == 30.0f);
  CHECK(other.loses(24) == kept.loses(24));
  kept.forget();
  CHECK((kept.find(20).data() == nullptr && !kept.loses(20)));
}

TEST_CASE("an unsure choice is one of everything, as the naive reference finds it") {
  comparison all;
  zoomr::statistics sums;
  const auto check = [&](const auto& policy, kind look, float bound, zoomr::none_class none, index_t dense = 0) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      CAPTURE(seed);
      CAPTURE(bound);
      CAPTURE(none.logit);
      const tape says = make_tape(model, look, markup::sentences, 150, 60, seed);
      zoomr::config limits = limits_for(says.size());
      limits.voters_unsure = bound, limits.min_sparse_context = dense;
      limits.voters_none = none.logit, limits.voters_none_slope = none.slope;
      check_against_reference(policy, says, limits, false, all);
      player<std::remove_cvref_t<decltype(policy)>> plays(model, policy, limits);
      plays.open(says);
      plays.play_plainly();
      const zoomr::statistics counted = plays.cache.stats(plays.at(0).seq);
      CHECK(counted.unsure_tokens <= counted.taken);
      sums.add_layers(counted);
    }
  };
  auto policy = small::sentence_voters;
  constexpr float inf = zoomr::infinity;
  for (const kind look : {kind::peaked, kind::uniform, kind::ties, kind::with_infinities}) {
    const float bits = look == kind::peaked ? 0.6f : look == kind::with_infinities ? 1.5f : 3.8f;
    check(policy, look, bits, {});
    check(policy, look, bits + 0.3f, {-4.0f});
    check(policy, look, inf, {-3.0f});
    check(policy, look, inf, {-0.5f, 1.0f});
  }
  check(policy, kind::peaked, 0.6f, {}, 100);
  policy.select.tokens = 20, policy.select.neighbours = 1;
  check(policy, kind::uniform, 3.8f, {});
  CHECK(sums.unsure * 4 > sums.refreshes);
  CHECK(sums.unsure * 4 < sums.refreshes * 3);
  const std::int64_t before = sums.unsure;
  policy.aggregate.gate = false;
  check(policy, kind::peaked, 0.5f, {-1.0f});
  CHECK(sums.unsure == before);
  check_rarely_stopped("gate", all);
}

TEST_CASE(
    "voters that are asked by summaries, or by the keys of their query alone, are weighed as the reference does") {
  const auto check = [](const char* name, const auto& policy) {
    comparison all;
    constexpr markup texts[] = {markup::pairs, markup::sentences, markup::stray};
    for (const kind look : {kind::uniform, kind::peaked, kind::with_infinities}) {
      for (const shape& of : {model, shape{3, 6, 2, 40}, shape{2, 3, 3, 8}}) {
        for (std::uint64_t seed = 1; seed <= 3; ++seed) {
          const tape says = make_tape(of, look, texts[seed - 1], 211, 61, seed * 17);
          CAPTURE(name);
          CAPTURE(seed);
          check_against_reference(policy, says, limits_for(says.size()), false, all);
        }
      }
    }
    check_rarely_stopped(name, all);
  };
  check("weighted_votes", small::weighted_votes);
  check("weighted_mass", small::weighted_mass);
  const zoomr::sentences nine{.longest = 9};
  const zoomr::zones zone{.sinks = 2, .recent = 6};
  check("weighted mass of sums",
        zoomr::compose(nine, zoomr::key_box{}, zoomr::box_bound{}, zoomr::running_mean{},
                       zoomr::weighted(zoomr::head_mass{}), zoomr::top_k{.segments = 2}, zoomr::every_token{}, zone));
  check("at boundaries", zoomr::compose(nine, zoomr::key_mean{}, zoomr::weighted(zoomr::head_votes{.k = 3}),
                                        zoomr::top_k{.segments = 2}, zoomr::boundaries{.at_most = 5}, zone));
  check("by keys", zoomr::compose(nine, zoomr::key_mass{}, zoomr::weighted(zoomr::head_mass{}),
                                  zoomr::top_k{.segments = 2}, zoomr::every_token{}, zone));
}

TEST_CASE("weights that are all alike are no weights, and others choose otherwise") {
  const tape says = make_tape(model, kind::peaked, markup::pairs, 150, 60, 5);
  const auto played = [&](const auto& policy, const std::vector<float>& weights) {
    zoomr::config limits = limits_for(says.size());
    limits.voters = {weights.data(), {model.layers, model.heads}};
    zoomr::kv_cache cache(model, policy, limits);
    driver<zoomr::any_kv_cache<>> plays(cache);
    plays.open(says);
    plays.play_plainly();
    return plays.at(0).log;
  };
  const std::vector<float> alike(8, 3.5f), others = voter_weights(model);
  const auto check = [&](const auto& plain, const auto& weighed) {
    const result_log right = played(plain, alike);
    CHECK(difference(right, played(weighed, alike)) == "");
    CHECK(difference(right, played(plain, others)) == "");  // who does not ask for weights does not see them
    CHECK(difference(right, played(weighed, others)) != "");
  };
  check(small::zoomr_one_pass, small::weighted_votes);
  check(small::zoomr_mass, small::weighted_mass);
}

TEST_CASE("one voter alone decides, and a query is heard as long as it is among the last ones") {
  // One layer, one head; segments of 4 tokens. Keys are e_s for segment s; the query at position 40 asks for segment 2.
  constexpr shape tiny{1, 1, 1, 8};
  constexpr index_t heard = 5;
  auto policy = zoomr::compose(zoomr::fixed_pages{.longest = 4}, zoomr::key_mass{},
                               zoomr::head_posterior{.queries = heard}, zoomr::top_p{.share = 0.9f, .segments = 4},
                               zoomr::every_token{}, zoomr::zones{.sinks = 0, .recent = 1});
  const std::vector<float> weights = {4.0f};
  zoomr::config limits{.max_tokens = 64, .max_segments = 16};
  limits.voters = {weights.data(), {1, 1}};
  zoomr::kv_cache cache(tiny, policy, limits);
  const zoomr::sequence seq = cache.open();
  zoomr::attention_trace trace;
  cache.trace(&trace);
  const auto token = [&](index_t position, index_t asks_for, bool prompt_ends = false) {
    const token_id id = 1;
    auto step = cache.begin(seq, view<const token_id>(&id, {1}), prompt_ends);
    std::vector<float> key(8), query(8), value(8, 1.0f), out(8);
    if (position / 4 < 8) key[static_cast<std::size_t>(position / 4)] = 1.0f;
    if (asks_for >= 0) query[static_cast<std::size_t>(asks_for)] = 60.0f;
    step.append(0, view<const float, 3>(key.data(), {1, 1, 8}), view<const float, 3>(value.data(), {1, 1, 8}));
    step.attend(0, view<const float, 3>(query.data(), {1, 1, 8}), {out.data(), {1, 1, 8}});
    step.commit();
  };
  for (index_t t = 0; t < 40; ++t) token(t, -1, t == 39);
  // Nobody has asked: the first nine segments had a ninth of some query each, the last one 3 tokens of 39.
  const double more = std::pow(13.0 / 9.0, 4.0), all = 9 * more + 1;
  const double entropy = -(9 * more * std::log2(more / all) + std::log2(1 / all)) / all;
  CHECK(cache.stats(seq).entropy() == doctest::Approx(entropy).epsilon(1e-5));
  token(40, 2);
  CHECK(cache.stats(seq).entropy_count == 2);
  CHECK(cache.stats(seq).entropy_sum > entropy + 1e-3);
  CHECK(cache.stats(seq).entropy_sum < entropy + 0.1);  // now the voter knows
  for (index_t t = 41; t < 41 + heard + 3; ++t) {
    trace.clear();
    token(t, -1);
    REQUIRE(trace.size() == 1);
    std::vector<index_t> expected;
    const bool still_heard = t <= 40 + heard;
    CAPTURE(t);
    if (still_heard) {
      expected = {8, 9, 10, 11, t};
      CHECK(trace[0].positions == expected);
    } else {
      CHECK(trace[0].positions.size() == 4 * 4 + 1);  // nobody asks: as many as there may be
    }
  }
  CHECK(cache.stats(seq).agreeability() > 0.3);
}

TEST_CASE("an entropy of exactly the bound is sure, one unit more is not, and a tie with none goes to the segment") {
  // Pages whose keys are alike: a query pays the same attention to each.
  constexpr shape tiny{1, 1, 1, 8};
  const auto policy =
      zoomr::compose(zoomr::fixed_pages{.longest = 4}, zoomr::key_mass{}, zoomr::head_posterior{.queries = 1},
                     zoomr::top_p{.share = 0.9f, .segments = 1}, zoomr::every_token{}, zoomr::zones{.recent = 1});
  const std::vector<float> weights = {1.0f};
  // What the token behind a prompt of so many pages and one token reads, and whether its choice was unsure.
  const auto reads = [&](index_t pages, float bound, float none, float slope = 0) {
    zoomr::config limits{.max_tokens = 64, .max_segments = 16};
    limits.voters = {weights.data(), {1, 1}};
    limits.voters_unsure = bound, limits.voters_none = none, limits.voters_none_slope = slope;
    zoomr::kv_cache cache(tiny, policy, limits);
    const zoomr::sequence seq = cache.open();
    zoomr::attention_trace trace;
    zoomr::choice_trace choices;
    const index_t prompt = pages * 4 + 1;
    const std::vector<token_id> ids(static_cast<std::size_t>(prompt), 1);
    const std::vector<float> rows(ids.size() * 8, 0.5f);
    std::vector<float> out(rows.size());
    for (const index_t count : {prompt, 1}) {
      cache.trace(&trace);
      if (count == prompt) cache.trace_choices(&choices);
      auto step = cache.begin(seq, view<const token_id>(ids).slice(0, count), count == prompt);
      step.append(0, view<const float, 3>(rows.data(), {count, 1, 8}),
                  view<const float, 3>(rows.data(), {count, 1, 8}));
      step.attend(0, view<const float, 3>(rows.data(), {count, 1, 8}), {out.data(), {count, 1, 8}});
      step.commit();
      cache.trace_choices(nullptr);
    }
    REQUIRE(choices.size() == 1);
    CHECK(choices[0].chosen == std::vector<index_t>{0});
    CHECK(cache.stats(seq).entropy_count == 2);
    CHECK(cache.stats(seq).unsure_tokens == (choices[0].unsure ? 1 : 0));
    CHECK(cache.selected(seq, 0).everything() == (cache.stats(seq).unsure == (choices[0].unsure ? 2 : 1)));
    REQUIRE(trace.size() == 1);
    CHECK(trace[0].positions.size() == static_cast<std::size_t>(choices[0].unsure ? prompt + 1 : 5));
    return choices[0].unsure;
  };
  constexpr float inf = zoomr::infinity;
  const zoomr::votes_t half = zoomr::units_of(0.5f), two = 2 * zoomr::entropy_units(half);
  const float exactly = zoomr::sum_of_units(two);
  REQUIRE(zoomr::posterior_gate{exactly, {}}.most == two);
  CHECK_FALSE(reads(2, exactly, -inf));
  CHECK(reads(2, std::nextafter(exactly, 0.0f), -inf));
  CHECK_FALSE(reads(1, 0.0f, -inf));  // the only segment
  CHECK(reads(2, 0.0f, -inf));
  const float share = -std::log(2.0f);  // of each segment, which is its logit
  CHECK(reads(2, inf, share + 0.01f));
  CHECK_FALSE(reads(2, inf, share - 0.01f));
  CHECK_FALSE(reads(1, inf, 0.0f));  // as the logit of the only segment
  CHECK(reads(1, inf, 0.01f));
  // By the segments that can be chosen: as many pages with the same attention have each a logit of -ln of their number.
  CHECK_FALSE(reads(1, inf, -0.01f, 1));
  for (const index_t pages : {1, 2, 3, 8, 13}) {
    CAPTURE(pages);
    CHECK(reads(pages, inf, 0.01f, 1));
    CHECK_FALSE(reads(pages, inf, -0.01f, 1));
  }
}

TEST_CASE(
    "a query scores the segments whose details end with its token or before: its own sentence, a summary's thought") {
  // One query scores `asks`, the others nothing: if it knows that segment, this has the largest share.
  const auto first_choice = [](const auto& segmenter, const std::vector<token_id>& ids, index_t queries, index_t from,
                               index_t asks, auto segment_at) {
    const auto policy =
        zoomr::compose(segmenter, zoomr::key_mass{}, zoomr::head_posterior{.queries = queries},
                       zoomr::top_p{.share = 0.9f, .segments = 4}, zoomr::every_token{}, zoomr::zones{.recent = 1});
    const std::vector<float> weights = {4.0f};
    const auto count = static_cast<index_t>(ids.size());
    zoomr::config limits = limits_for(16);
    limits.voters = {weights.data(), {1, 1}};
    zoomr::kv_cache cache(shape{1, 1, 1, 8}, policy, limits);
    zoomr::choice_trace trace;
    cache.trace_choices(&trace);
    std::vector<float> keys(ids.size() * 8), queried(keys.size()), out(keys.size());
    for (index_t t = 0; t < count; ++t) {
      const index_t own = segment_at(t);
      if (own >= 0) keys[static_cast<std::size_t>(t * 8 + own)] = 1.0f;
    }
    queried[static_cast<std::size_t>(from * 8 + asks)] = 60.0f;
    auto step = cache.begin(cache.open(), ids, true);
    const view<const float, 3> rows(keys.data(), {count, 1, 8});
    step.append(0, rows, rows);
    step.attend(0, view<const float, 3>(queried.data(), {count, 1, 8}), view<float, 3>(out.data(), {count, 1, 8}));
    step.commit();
    REQUIRE(trace.size() == 1);
    REQUIRE_FALSE(trace[0].chosen.empty());
    return trace[0].chosen[0];
  };
  const token_id p = plain_id, d = delimiter_id, begin = summary_id, end = summary_end_id;
  const auto of_sentences = [&](index_t queries, index_t from) {
    return first_choice(zoomr::sentences{.longest = 8}, {p, d, p, d, p, d, p, d, p, d}, queries, from, 2,
                        [](index_t t) { return t / 2; });
  };
  CHECK(of_sentences(5, 5) == 2);                                // the last token of sentence 2
  CHECK(of_sentences(6, 4) != 2);                                // the one before
  const auto of_thoughts = [&](index_t queries, index_t from) {  // two, each with a summary, and what comes after
    return first_choice(zoomr::thoughts{.longest = 40}, {p, p, begin, p, end, p, p, begin, p, end, p, p}, queries, from,
                        1, [](index_t t) { return t % 5 < 2 ? t / 5 : -1; });
  };
  CHECK(of_thoughts(6, 6) == 1);  // the last token of thought 1
  CHECK(of_thoughts(6, 8) == 1);  // a token of its summary
  CHECK(of_thoughts(7, 5) == 0);  // its first token
}

TEST_CASE("a sequence that is saved, forked or rolled back at any token goes on as one that was not") {
  const tape says = text();
  for (const float bound : {zoomr::infinity, 1.2f}) {
    const auto limits_for = [&](index_t tokens, index_t sequences = 1) {
      zoomr::config limits = zoomr_test::limits_for(tokens, sequences);
      limits.voters_unsure = bound;
      return limits;
    };
    player_type plain(model, small::sentence_voters, limits_for(says.size()));
    plain.open(says);
    plain.play_plainly();
    for (const index_t until : {7, 58, 60, 61, 64, 77, 101, 149}) {
      CAPTURE(until);
      player_type plays(model, small::sentence_voters, limits_for(says.size(), 2));
      plays.open(says);
      while (plays.tokens() < std::min(until, says.prompt)) {
        const index_t end = std::min({plays.tokens() + 11, until, says.prompt});
        plays.play({{0, says.between(plays.tokens(), end), end == says.prompt}});
      }
      while (plays.tokens() < until) plays.play({plays.next(0, 3)});

      player_type other(model, small::sentence_voters, limits_for(says.size()));
      other.voices.push_back({other.cache.load(memory_source(saved(plays.cache, plays.at(0).seq))), &says, {}});
      other.play_plainly();
      CHECK(difference(from(plain.at(0).log, std::max(until, says.prompt)), from(other.at(0).log, says.prompt)) == "");

      const index_t v = fork(plays, 0, says);
      plays.play_plainly(v);
      CHECK(difference(from(plain.at(0).log, says.prompt), from(plays.at(v).log, says.prompt)) == "");

      plays.rollback(v, std::max(until, says.size() - 24));
      plays.play_plainly(v);
      CHECK(difference(from(plain.at(0).log, says.prompt), from(plays.at(v).log, says.prompt)) == "");
      plays.play_plainly(0);
      CHECK(difference(from(plain.at(0).log, says.prompt), from(plays.at(0).log, says.prompt)) == "");
    }
    const zoomr::statistics counted = plain.cache.stats(plain.at(0).seq);
    CHECK((counted.unsure > 20) == (bound < zoomr::infinity));
    CHECK(counted.unsure < counted.refreshes - 20);
  }
}

TEST_CASE("a prompt that is opened again by a rollback, and ends elsewhere, is heard anew") {
  const tape says = text();
  tape shorter = says;
  shorter.prompt = 50;
  player_type plays(model, small::sentence_voters, limits_for(says.size())),
      plain(model, small::sentence_voters, limits_for(says.size()));
  plays.open(says), plain.open(shorter);
  plays.play_plainly(0, 70);
  plays.rollback(0, 47);
  plays.at(0).says = &shorter;
  plays.play_plainly(), plain.play_plainly();
  CHECK(difference(from(plain.at(0).log, 50), from(plays.at(0).log, 50)) == "");
}

TEST_CASE("a step that is dropped is not heard") {
  const tape says = text(9);
  player_type plays(model, small::sentence_voters, limits_for(says.size())),
      plain(model, small::sentence_voters, limits_for(says.size()));
  plays.open(says), plain.open(says);
  plays.play_plainly(0, says.prompt), plain.play_plainly();
  const std::vector<token_id> others = {2};
  while (!plays.done()) {
    plays.play({{0, others, false, true}}, fate::dropped_after_pass);
    plays.play({plays.next(0, 1)});
  }
  CHECK(difference(from(plain.at(0).log, says.prompt), from(plays.at(0).log, says.prompt)) == "");
}

TEST_CASE("a span that is erased takes its queries with it, and the rest goes on") {
  const tape says = text();
  player_type plays(model, small::sentence_voters, limits_for(says.size()));
  plays.open(says);
  plays.play_plainly(0, 120);
  plays.cache.erase(plays.at(0).seq, {80, 90});
  const tape rest = says.without({80, 90});
  plays.at(0).says = &rest;
  plays.at(0).log.clear();
  plays.play_plainly();
  // All tokens that are heard from here on come behind the span, or lie before it whole: as if it had never been.
  player_type never(model, small::sentence_voters, limits_for(says.size()));
  never.open(rest);
  never.play_plainly();
  CHECK(difference(from(never.at(0).log, 116), from(plays.at(0).log, 116)) == "");
}

TEST_CASE(
    "a choice of everything stays one in a fork and a saved sequence, behind an erased span, and is rolled back to") {
  const tape says = text();
  zoomr::config limits = limits_for(says.size(), 4);
  limits.voters_unsure = 0.6f;
  player_type plays(model, small::sentence_voters, limits);
  plays.open(says);
  const auto row = [&](index_t v) { return plays.cache.selected(plays.at(v).seq, 0); };
  index_t until = 110;
  do plays.play_plainly(0, ++until);
  while (!row(0).everything());
  const index_t forked = fork(plays, 0, says), saved_one = forked + 1, erased = forked + 2;
  plays.voices.push_back({plays.cache.load(memory_source(saved(plays.cache, plays.at(0).seq))), &says, {}});
  fork(plays, 0, says);
  plays.cache.erase(plays.at(erased).seq, {70, 90});
  const tape rest = says.without({70, 90});
  plays.at(erased).says = &rest;
  for (const index_t v : {0, forked, saved_one, erased}) {
    CAPTURE(v);
    const auto reads_all = [&] {
      CHECK(row(v).everything());
      for (const zoomr::level at : row(v).levels) CHECK(at == zoomr::level::details);
      const index_t next = plays.tokens(v);
      const std::int64_t before = plays.cache.stats(plays.at(v).seq).unsure_tokens;
      plays.play({plays.next(v, 1)});
      CHECK(plays.cache.stats(plays.at(v).seq).unsure_tokens == before + 1);
      for (const auto& positions : plays.at(v).log.at({next, 0}).attended) {
        CHECK(static_cast<index_t>(positions.size()) == next + 1);
      }
    };
    reads_all();
    const index_t back = plays.tokens(v) - 1;
    plays.play_plainly(v, back + 9);
    plays.rollback(v, back);
    reads_all();
  }
}

TEST_CASE("a sequence that was saved with other voters, or without any, is heard from its load on") {
  const tape says = text();
  constexpr index_t until = 90;
  const auto saved_with = [&](const auto& policy, const zoomr::config& limits) {
    player<std::remove_cvref_t<decltype(policy)>> plays(model, policy, limits);
    plays.open(says);
    plays.play_plainly(0, until);
    return saved(plays.cache, plays.at(0).seq);
  };
  std::vector<float> others = voter_weights(model);
  std::reverse(others.begin(), others.end());
  zoomr::config of_others = limits_for(says.size());
  of_others.voters = {others.data(), {model.layers, model.heads}};
  zoomr::kv_cache cache(model, small::sentence_voters, of_others);
  driver<zoomr::any_kv_cache<>> before(cache);
  before.open(says);
  before.play_plainly(0, until);

  player_type plain(model, small::sentence_voters, limits_for(says.size()));
  plain.open(says);
  plain.play_plainly();
  const saved_bytes files[] = {saved(cache, before.at(0).seq), saved_with(small::full, limits_for(says.size()))};
  for (const saved_bytes& file : files) {
    player_type loaded(model, small::sentence_voters, limits_for(says.size()));
    loaded.voices.push_back({loaded.cache.load(memory_source(file)), &says, {}});
    loaded.play_plainly();
    CHECK(difference(from(plain.at(0).log, until + 3), from(loaded.at(0).log, until + 3)) == "");  // 3 are heard
    CHECK(difference(from(plain.at(0).log, until), from(loaded.at(0).log, until)) != "");
  }
}

TEST_CASE(
    "with the shape of SmolLM2-135M and eleven voters a device holds less than a quarter of what it does in full") {
  constexpr index_t prompt = 1368, tokens = 1376;
  const std::pair<index_t, index_t> voting[] = {{0, 6},  {2, 4},  {7, 7},  {15, 6}, {17, 8}, {18, 6},
                                                {18, 7}, {19, 7}, {23, 4}, {26, 7}, {27, 8}};
  std::vector<float> weights(30 * 9, 0.0f);
  for (const auto& [layer, head] : voting) weights[static_cast<std::size_t>(layer * 9 + head)] = 1.0f;
  zoomr::config limits{.max_tokens = tokens, .max_batched_tokens = prompt, .rollback_tokens = 32};
  limits.classes = classes;
  limits.voters = {weights.data(), {30, 9}};
  const std::vector<token_id> ids = text_of(markup::sentences, tokens, prompt, 5);
  const auto peak = [&](const auto& policy) {
    zoomr::kv_cache cache(smollm2, policy, limits);
    const zoomr::sequence seq = cache.open();
    const std::vector<float> rows(std::size_t{prompt} * 9 * 64, 0.5f);
    std::vector<float> out(9 * 64);
    for (index_t first = 0; first < tokens;) {
      const index_t count = first < prompt ? prompt : 1;
      auto step = cache.begin(seq, view<const token_id>(ids).slice(first, first + count), first + count == prompt);
      for (index_t layer = 0; layer < smollm2.layers; ++layer) {
        const view<const float, 3> keys(rows.data(), {count, 3, 64}), queries(rows.data(), {count, 9, 64});
        step.append(layer, keys, keys);
        if (first < prompt) {
          step.observe(layer, queries);
        } else {
          step.attend(layer, queries, {out.data(), {count, 9, 64}});
        }
      }
      step.commit();
      first += count;
    }
    return cache.stats(seq).device_peak;
  };
  const zoomr::byte_count all = peak(zoomr::presets::full), some = peak(zoomr::presets::sentence_voters);
  CAPTURE(all);
  CAPTURE(some);
  CHECK(all > tokens * 90 * 2 * 64 * 4);
  CHECK(some < all / 4);
  CHECK(some > tokens * 10 * 64 * 4);  // the voters' keys alone
  MESSAGE("device bytes: " << some << " of " << all);
}

TEST_CASE("what voters cannot do is refused with a sentence, and their memory is counted") {
  const auto refusal = [](const auto& policy, const zoomr::config& limits) {
    return sentence_of([&] { zoomr::kv_cache cache(model, policy, limits); });
  };
  const auto& policy = small::sentence_voters;
  zoomr::config limits = limits_for(100);
  CHECK(refusal(policy, limits).find("voters must have the weights of all heads") != std::string::npos);
  std::vector<float> weights(8, 0.0f);
  limits.voters = {weights.data(), {2, 4}};
  CHECK(refusal(policy, limits).find("one of them above 0") != std::string::npos);
  weights[3] = -1.0f;
  CHECK(refusal(policy, limits).find("finite and at least 0") != std::string::npos);
  weights[3] = 1.0f;
  CHECK(refusal(policy, limits).empty());
  for (const float bits : {-1.0f, zoomr::not_a_number}) {
    limits.voters_unsure = bits;
    CHECK(refusal(policy, limits) == "zoomr: config: voters_unsure must be at least 0 bits");
  }
  limits.voters_unsure = 0.0f;
  CHECK(refusal(policy, limits).empty());
  for (const float logit : {zoomr::infinity, zoomr::not_a_number}) {
    limits.voters_none = logit;
    CHECK(refusal(policy, limits) == "zoomr: config: voters_none must be a finite logit, or -infinity");
  }
  limits.voters_none = -2.0f;
  CHECK(refusal(policy, limits).empty());
  for (const float slope : {-0.5f, zoomr::infinity, zoomr::not_a_number}) {
    limits.voters_none_slope = slope;
    CHECK(refusal(policy, limits) == "zoomr: config: voters_none_slope must be finite and at least 0");
  }
  limits.voters_none_slope = 1.5f;
  CHECK(refusal(policy, limits).empty());
  const std::vector<float> frequencies(5, 0.5f);
  limits.rotary.frequencies = view<const float>(frequencies);
  CHECK(refusal(policy, limits) == "zoomr: key_rotation: there are more frequencies than half of head_dim");
  limits.rotary.frequencies = {frequencies.data(), {3}};
  CHECK(refusal(policy, limits).empty());
  limits.voters = {weights.data(), {4, 2}};
  CHECK(refusal(policy, limits).find("config: voters are") != std::string::npos);
  limits.voters = {weights.data(), {2, 4}};
  auto twice = zoomr::compose(policy.segment, policy.score, policy.aggregate, policy.select,
                              zoomr::boundaries{.second_pass = true}, policy.zone);
  CHECK(refusal(twice, limits).find("no second pass") != std::string::npos);
  CHECK(refusal(small::weighted_votes, limits).empty());
  CHECK(refusal(small::weighted_votes, limits_for(100)).find("one of them above 0") != std::string::npos);
  auto by_layer = small::weighted_mass;
  by_layer.aggregate.per = zoomr::scope::layer, by_layer.refresh.second_pass = false;
  CHECK(refusal(by_layer, limits).find("weighted: heads vote for all layers together") != std::string::npos);

  limits = limits_for(100);
  limits.voters = {weights.data(), {2, 4}};
  const zoomr::memory_use few = zoomr::kv_cache<sentences_type>::bytes(model, policy, limits);
  weights[5] = 1.0f;
  const zoomr::memory_use more = zoomr::kv_cache<sentences_type>::bytes(model, policy, limits);
  // One more voter: what 3 queries find in 100 segments, and a query of 8 floats for each token that is remembered, of
  // a sequence, of a chunk and of a draft.
  CHECK(more.metadata - few.metadata == 3 * 100 * 4 + (3 + 24) * 8 * 4);
  CHECK(more.workspace - few.workspace == 100 * 4 + (3 + 24) * 8 * 4 + 8 * 8 * 4);
  CHECK(more.details == few.details);

  // A question that scores from the prompt's end: 20 tokens, twice and as many as may be rolled back.
  auto asking = policy;
  asking.aggregate.question = 11, asking.zone.question = 20;
  const zoomr::memory_use plain = zoomr::kv_cache<sentences_type>::bytes(model, asking, limits);
  const zoomr::config turning = with_rotary(limits);
  const zoomr::memory_use turned = zoomr::kv_cache<sentences_type>::bytes(model, asking, turning);
  CHECK(turned.metadata - plain.metadata == (2 * 20 + 24) * (2 * 8 * 4 + 4) + 20 * (2 * 100 * 4 + 8));
  CHECK(turned.workspace - plain.workspace == 20 * 2 * 8 * 4 + 3 * 4);
  CHECK(zoomr::kv_cache(model, policy, turning).capacity() ==
        zoomr::kv_cache<sentences_type>::bytes(model, policy, turning));

  // The table of weights is copied: what becomes of it afterwards does not matter.
  const zoomr::kv_cache cache(model, policy, limits);
  std::fill(weights.begin(), weights.end(), 1.0f);
  CHECK(cache.capacity() == more);

  // In use is what the segments take that there are, however many there may be.
  const tape says = text();
  const auto in_use = [&](index_t segments) {
    zoomr::config roomy = limits_for(says.size());
    roomy.max_segments = segments;
    player_type plays(model, small::sentence_voters, roomy);
    plays.open(says);
    plays.play_plainly(0, 100);
    return plays.cache.bytes(plays.at(0).seq);
  };
  CHECK(in_use(says.size()) == in_use(says.size() / 2));
}

}  // namespace zoomr_test
