// SPDX-License-Identifier: Apache-2.0
// What the cache relies on, for every segmenter, on random streams.
#include <doctest/doctest.h>
#include <core/random.hpp>
#include <policy/segment/stream.hpp>
#include <support/reference_segments.hpp>
#include <zoomr/policy/segment/code_segments.hpp>
#include <zoomr/policy/segment/fixed_pages.hpp>
#include <zoomr/policy/segment/sentences.hpp>
#include <zoomr/policy/segment/thoughts.hpp>

namespace zoomr {

namespace {

/// The token at `position`: what a cache calls for it.
template <class Segmenter>
void feed_token(const Segmenter& split, typename Segmenter::state& state, const std::string& tokens, index_t position,
                index_t prompt_end, closings& out) {
  const token_class classes = unit::class_of(tokens[unit::size(position)]);
  const token_class before = position > 0 ? unit::class_of(tokens[unit::size(position - 1)]) : classes;
  if (has(cut_between(before, classes), token_class::cut)) split.cut(state, position, out);
  split.feed(state, classes, position, out);
  if (position + 1 == prompt_end) split.end_of_prompt(state, position, out);
}

/// One stream fed from its beginning: every close, and the state after each token.
template <class Segmenter>
struct history {
  using state = typename Segmenter::state;

  unit::segment_list closed;
  std::vector<state> after_close;  // of the token that closed it
  std::vector<state> after_token;

  /// @param prompt_end  first position after the prompt; -1: it never ends
  history(const Segmenter& split, const std::string& tokens, index_t prompt_end) {
    state now{};
    for (index_t position = 0; position < static_cast<index_t>(tokens.size()); ++position) {
      closings out;
      feed_token(split, now, tokens, position, prompt_end, out);
      for (index_t c = 0; c < out.count; ++c) {
        REQUIRE(out.at[c].closed_at == position);
        closed.push_back(out.at[c]);
        after_close.push_back(now);
      }
      const index_t open_begin = split.open_begin(now);
      REQUIRE(open_begin == (closed.empty() ? 0 : closed.back().end));
      REQUIRE(position + 1 - open_begin < split.longest);  // or it would have been closed
      after_token.push_back(now);
    }
  }
};

/// Streams in which markers are frequent, or rare, or missing.
std::string random_stream(unit::random& random, index_t tokens) {
  const std::string letters = ".$<>[]!_%=P";
  const double markers = random.chance(0.3) ? 0.6 : random.chance(0.5) ? 0.15 : 0.02;
  std::string made;
  for (index_t t = 0; t < tokens; ++t) {
    made += random.chance(markers) ? letters[unit::size(random.below(static_cast<index_t>(letters.size())))] : 'a';
  }
  return made;
}

template <class Segmenter>
void check_partition(const Segmenter& split, const history<Segmenter>& run) {
  index_t end = 0;
  index_t closed_at = -1;
  for (const segment& s : run.closed) {
    CAPTURE(s);
    REQUIRE(s.begin == end);
    REQUIRE(s.begin <= s.split);
    REQUIRE(s.split <= s.end);
    REQUIRE(s.begin < s.end);
    REQUIRE(s.end - s.begin <= split.longest);
    REQUIRE(s.begin <= s.cue_begin);
    REQUIRE(s.cue_begin < s.cue_end);
    REQUIRE(s.cue_end <= s.end);
    REQUIRE(s.closed_at >= s.end - 1);
    REQUIRE(s.closed_at >= closed_at);
    end = s.end;
    closed_at = s.closed_at;
  }
}

/// The segments are those that a search through the whole text finds.
template <class Segmenter>
void check_against_reference(const Segmenter& split, const std::string& tokens, index_t prompt_end,
                             const history<Segmenter>& run) {
  reference::text text;
  for (const char token : tokens) text.classes.push_back(unit::class_of(token));
  if (prompt_end >= 0) text.prompt_end = prompt_end;
  REQUIRE(run.closed == reference::all_segments(split, text));
}

/// A rollback to `to` tokens takes the state after the last close before, and feeds the tokens since.
template <class Segmenter>
void check_rollback(const Segmenter& split, const std::string& tokens, index_t prompt_end,
                    const history<Segmenter>& run, index_t to) {
  typename Segmenter::state state{};
  index_t from = 0;
  for (std::size_t s = 0; s < run.closed.size() && run.closed[s].closed_at < to; ++s) {
    state = run.after_close[s];
    from = run.closed[s].closed_at + 1;
  }
  closings none;
  for (index_t position = from; position < to; ++position) {
    feed_token(split, state, tokens, position, prompt_end, none);
  }
  CAPTURE(to);
  REQUIRE(none.count == 0);
  const typename Segmenter::state fresh{};
  REQUIRE(state == (to == 0 ? fresh : run.after_token[unit::size(to - 1)]));
}

/// After a close the state is that of a stream which begins where the closed segment ends.
/// @param begin_at  (position, generated) gives that stream's first state
template <class Segmenter, class Begin>
void check_forgets(const Segmenter& split, const std::string& tokens, index_t prompt_end, const history<Segmenter>& run,
                   Begin begin_at) {
  for (std::size_t s = 0; s < run.closed.size(); ++s) {
    const segment& last = run.closed[s];
    const bool not_last_of_token = s + 1 < run.closed.size() && run.closed[s + 1].closed_at == last.closed_at;
    if (not_last_of_token) continue;
    auto state = begin_at(last.end, prompt_end >= 0 && last.end >= prompt_end);
    closings none;
    for (index_t position = last.end; position <= last.closed_at; ++position) {
      feed_token(split, state, tokens, position, prompt_end, none);
    }
    CAPTURE(last);
    REQUIRE(none.count == 0);
    REQUIRE(state == run.after_close[s]);
  }
}

template <class Segmenter, class Make, class Begin>
void check_all(Make make, Begin begin_at) {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    unit::random random(seed);
    const Segmenter split = make(random);
    const index_t count = random.between(1, 200);
    const std::string tokens = random_stream(random, count);
    const index_t prompt_end = random.chance(0.2) ? -1 : random.between(1, count);
    CAPTURE(seed);
    CAPTURE(tokens);
    CAPTURE(prompt_end);
    const history<Segmenter> run(split, tokens, prompt_end);
    check_partition(split, run);
    check_against_reference(split, tokens, prompt_end, run);
    for (index_t to = 0; to <= count; ++to) check_rollback(split, tokens, prompt_end, run, to);
    check_forgets(split, tokens, prompt_end, run, begin_at);
  }
}

index_t random_length(unit::random& random) {
  return random.chance(0.5) ? random.between(1, 9) : random.between(10, 90);
}

}  // namespace

TEST_CASE("sentences partition the stream, none longer than `longest`, and can be rolled back") {
  check_all<sentences>(
      [](unit::random& random) {
        return sentences{.longest = random_length(random), .shortest_line = random_length(random)};
      },
      [](index_t begin, bool) { return sentences::state{begin}; });
}

TEST_CASE("code_segments partition the stream, none longer than `longest`, and can be rolled back") {
  check_all<code_segments>(
      [](unit::random& random) {
        return code_segments{.longest = random_length(random), .shortest_block = random_length(random)};
      },
      [](index_t begin, bool) { return code_segments::state{begin}; });
}

TEST_CASE("fixed_pages partition the stream, none longer than `longest`, and can be rolled back") {
  check_all<fixed_pages>([](unit::random& random) { return fixed_pages{.longest = random_length(random)}; },
                         [](index_t begin, bool) { return fixed_pages::state{begin}; });
}

TEST_CASE("thoughts partition the stream, none longer than `longest`, and can be rolled back") {
  check_all<thoughts>(
      [](unit::random& random) {
        return thoughts{
            .longest = random_length(random), .prompt_piece = random_length(random), .own_cue = random.chance(0.5)};
      },
      [](index_t begin, bool generated) {
        return thoughts::state{begin, begin, begin, begin, thoughts::part::text, generated};
      });
}

}  // namespace zoomr
