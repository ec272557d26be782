// SPDX-License-Identifier: Apache-2.0
// Beam search: of all ways to go on, the few likeliest are followed side by side. Each is a sequence of the cache.
// Where a text goes on in two ways, the second is a fork of the first: no token is passed twice, and pages are shared.
//
// A model of LEDGER writes all thoughts but the last, greedily, then the four likeliest beginnings of the last. It
// needs a number that only an earlier thought holds: under a policy that does not find it there, all four are wrong.
#include <algorithm>  // std::copy_n, std::min, std::ranges::count, std::ranges::max, std::ranges::partial_sort
#include <cmath>      // std::exp, std::log
#include <cstdio>     // std::fprintf, std::printf
#include <exception>  // std::exception
#include <iterator>   // std::ssize
#include <span>       // std::span
#include <string>     // std::string
#include <vector>     // std::vector

#include "open_cache.hpp"
#include "session.hpp"
#include "token_classes.hpp"

using zoomr::index_t;
using zoomr::token_id;

struct beam {
  zoomr::sequence seq;         // holds the text, but for what was not passed yet
  std::vector<token_id> text;  // the prompt, and what was written
  double score = 0;            // logarithm of the probability of what was written
};

/// Passes one token of each beam, the first that the cache does not hold, in one step.
/// @return  [beams, vocab]  logits of the tokens after it
std::vector<float> pass(decode::model& net, zoomr::any_kv_cache<>& cache, std::span<const beam> beams) {
  std::vector<zoomr::step_item> items;
  for (const beam& each : beams) {
    const auto left = std::span(each.text).subspan(cache.tokens(each.seq));
    items.push_back({each.seq, left.first(1), cache.in_prompt(each.seq) && left.size() == 1});
  }
  auto step = cache.begin(zoomr::view<const zoomr::step_item>(items));
  const std::vector<index_t> accepted(items.size(), 1);
  const auto vocab = static_cast<index_t>(net.config().vocab);
  std::vector<float> logits(items.size() * vocab);
  do {  // a second pass is one for some of the beams
    std::vector<token_id> ids;
    std::vector<index_t> positions, rows, active;
    for (index_t i = 0; i < step.items(); ++i) {
      if (!step.active(i)) continue;
      ids.push_back(items[i].ids[0]), positions.push_back(step.position(i));
      rows.push_back(step.packed(i)), active.push_back(i);
    }
    std::vector<float> passed(rows.size() * vocab);
    net.forward(step, ids, positions, rows, {passed.data(), {step.tokens(), vocab}});
    for (const index_t row : rows) std::copy_n(&passed[row * vocab], vocab, &logits[active[row] * vocab]);
  } while (step.needs_second_pass(accepted));
  step.commit(accepted);
  return logits;
}

/// A way to go on.
struct candidate {
  double score;
  std::size_t parent;  // number of a beam
  token_id next;
};

/// The likeliest ways to go on, best first; of equals the one that comes first.
/// @param logits  [beams, vocab]
std::vector<candidate> choose(std::span<const beam> beams, std::span<const float> logits, std::size_t width) {
  std::vector<candidate> all;
  const std::size_t vocab = logits.size() / beams.size();
  for (std::size_t b = 0; b < beams.size(); ++b) {
    const auto row = logits.subspan(b * vocab, vocab);
    const double largest = std::ranges::max(row);
    double sum = 0;
    for (const float logit : row) sum += std::exp(logit - largest);
    for (std::size_t id = 0; id < vocab; ++id)
      all.push_back({beams[b].score + (row[id] - largest - std::log(sum)), b, static_cast<token_id>(id)});
  }
  const auto end = all.begin() + std::min(width, all.size());
  std::ranges::partial_sort(all, end, [](const candidate& x, const candidate& y) {
    return x.score != y.score ? x.score > y.score : x.parent != y.parent ? x.parent < y.parent : x.next < y.next;
  });
  return {all.begin(), end};
}

/// The beams after one more token: each parent goes on as the best of its children, the others are forks of it.
std::vector<beam> advance(decode::model& net, zoomr::any_kv_cache<>& cache, std::span<const beam> beams,
                          std::size_t width) {
  const std::vector<candidate> chosen = choose(beams, pass(net, cache, beams), width);
  std::vector<int> children(beams.size());
  for (const candidate& each : chosen) ++children[each.parent];
  for (std::size_t b = 0; b < beams.size(); ++b)  // first, so that there is room for as many forks
    if (children[b] == 0) cache.close(beams[b].seq);

  std::vector<beam> next;
  for (const candidate& each : chosen) {
    const beam& parent = beams[each.parent];
    const bool last = --children[each.parent] == 0;  // all others are forks by then
    next.push_back({last ? parent.seq : cache.fork(parent.seq), parent.text, each.score});
    next.back().text.push_back(each.next);
  }
  return next;
}

int main(int count, char** arguments) {
  try {
    const std::string policy = count > 1 ? arguments[1] : "zoomr_focus";
    const std::string checkpoint = LEDGER_CHECKPOINTS "/indexed";
    decode::model net = decode::load_model(checkpoint);
    const decode::tokenizer words(checkpoint);
    const auto classes = decode::classify(words, words.size(), {";"});
    const std::string program = "<bos> a = #17 ; b = #42 ; c = a [ @5 ] ; d = b [ last ] ; e = c [ @9 ] ; <go>";
    constexpr std::size_t width = 4, length = 12;  // tokens of a beam
    constexpr std::ptrdiff_t thoughts = 5;
    zoomr::any_kv_cache<> cache =
        open_cache(policy, decode::shape_of(net), {.max_sequences = width, .max_tokens = 1024, .classes = classes});

    std::vector<beam> beams = {{cache.open(), words.encode(program)}};
    while (cache.tokens(beams[0].seq) + 1 < std::ssize(beams[0].text)) pass(net, cache, beams);
    while (std::ranges::count(beams[0].text, words.id_of("<thought>").value()) < thoughts)
      beams = advance(net, cache, beams, 1);  // greedy decoding
    const std::size_t certain = beams[0].text.size();
    beams[0].score = 0;
    while (beams[0].text.size() < certain + length) beams = advance(net, cache, beams, width);

    std::printf("%s, after %zu tokens:\n", policy.c_str(), certain);
    for (const beam& each : beams)
      std::printf("  %8.4f  %s\n", each.score, words.decode(std::span(each.text).subspan(certain)).c_str());
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "zoomr-beam-search: %s\n", error.what());
    return 2;
  }
}
