// SPDX-License-Identifier: Apache-2.0
// Speculative decoding: a draft model writes a few tokens ahead, the model that is served passes them in one step, and
// those that it would have written itself are kept. The text is what it would have written alone, under any policy.
//
// Here both models are of LEDGER, and of the same size: what is shown is how many tokens a step brings, not time. The
// draft model has learned thoughts of 24 lines, and these have 40: some drafts must be wrong.
#include <algorithm>  // std::min
#include <cstdio>     // std::fprintf, std::printf
#include <exception>  // std::exception
#include <iterator>   // std::ssize
#include <numeric>    // std::iota
#include <span>       // std::span
#include <string>     // std::string
#include <vector>     // std::vector

#include "ledger/task.hpp"
#include "open_cache.hpp"
#include "sampler.hpp"
#include "session.hpp"
#include "token_classes.hpp"

using zoomr::index_t;
using zoomr::token_id;
using token_ids = std::vector<token_id>;

/// A model and its cache, of one sequence.
struct decoder {
  decode::model& net;
  zoomr::any_kv_cache<> cache;
  zoomr::sequence seq = cache.open();
};

/// Passes tokens in one step, and commits them: all that the step takes, or of a draft those before the first that the
/// model would not have written. A step takes a draft up to the first token that makes the policy choose or evict.
/// @param ids    that follow what the cache holds
/// @param draft  the first is certain, the others are guessed
/// @return       for each token that was committed, what the model writes after it
token_ids pass(decoder& by, std::span<const token_id> ids, bool draft) {
  auto step = by.cache.begin(by.seq, ids, by.cache.in_prompt(by.seq));
  const index_t taken = step.taken(0), vocab = static_cast<index_t>(by.net.config().vocab);
  index_t accepted = draft ? 1 : taken;
  token_ids next(taken);
  do {  // in a second pass: the last token alone, whose logits are then other ones
    const index_t passed = step.tokens(), first = taken - passed;
    std::vector<index_t> rows(passed), positions(passed);
    std::iota(rows.begin(), rows.end(), 0);
    std::iota(positions.begin(), positions.end(), step.position(0));
    std::vector<float> logits(rows.size() * vocab);
    by.net.forward(step, ids.subspan(first, passed), positions, rows, {logits.data(), {passed, vocab}});
    for (index_t t = 0; t < passed; ++t) next[first + t] = decode::greedy(std::span(logits).subspan(t * vocab, vocab));
    while (accepted < taken && next[accepted - 1] == ids[accepted]) ++accepted;
  } while (step.needs_second_pass(accepted));
  step.commit(accepted);
  next.resize(accepted);
  return next;
}

/// What the model writes after a text. What its cache does not hold of it is passed: the prompt, a token, or a few.
token_id next_token(decoder& by, std::span<const token_id> text) {
  token_ids next;
  while (by.cache.tokens(by.seq) < std::ssize(text)) next = pass(by, text.subspan(by.cache.tokens(by.seq)), false);
  return next.back();
}

/// Greedy decoding, token by token, until `end` or until there are `most` tokens.
token_ids plain(decoder& model, const token_ids& prompt, token_id end, index_t most) {
  token_ids text = prompt;
  do {
    text.push_back(next_token(model, text));
  } while (text.back() != end && std::ssize(text) < most);
  return text;
}

struct outcome {
  token_ids text;     // the prompt, and what was written
  index_t steps = 0;  // of the model, after the prompt
  index_t wrong = 0;  // drafts in which some token was
  index_t cut = 0;    // drafts that the policy cut, right so far
};

/// The same text by drafts.
/// @param guessed  tokens of a draft
/// @pre   the draft model's cache can be rolled back by as many tokens
outcome speculate(decoder& model, decoder& drafter, const token_ids& prompt, index_t guessed, token_id end,
                  std::size_t most) {
  outcome made{.text = prompt};
  token_ids& text = made.text;
  text.push_back(next_token(model, text));
  std::size_t certain = text.size();  // what is behind is a draft
  while (text[certain - 1] != end && certain < most) {
    while (text.size() < certain + guessed) text.push_back(next_token(drafter, text));
    ++made.steps;
    for (const token_id id : pass(model, std::span(text).subspan(certain - 1), true)) {
      const bool right = certain < text.size() && text[certain] == id;
      if (!right) {  // the rest of the draft goes, and what the draft model holds of it
        made.wrong += certain < text.size();
        text.resize(certain);
        text.push_back(id);
        const auto held = static_cast<index_t>(certain);
        if (drafter.cache.tokens(drafter.seq) > held) drafter.cache.rollback(drafter.seq, held);
      }
      ++certain;
      if (id == end) break;
    }
    made.cut += certain < text.size();  // the rest of the draft may still be right: it is passed in the next step
  }
  text.resize(std::min(certain, most));
  return made;
}

int main(int count, char** arguments) {
  try {
    const std::string policy = count > 1 ? arguments[1] : "zoomr_focus";
    const std::string checkpoints = LEDGER_CHECKPOINTS "/";
    decode::model large = decode::load_model(checkpoints + "indexed-m");
    decode::model small = decode::load_model(checkpoints + "indexed");
    const decode::tokenizer words(checkpoints + "indexed-m");  // the small model has the same words
    const auto classes = decode::classify(words, words.size(), {";"});
    const auto task = decode::ledger::read_task(checkpoints + "indexed-m");
    const auto problem = decode::ledger::render(task, decode::ledger::generator(task, 1).draw());
    token_ids prompt;
    for (std::size_t t = 0; t < problem.prompt_length; ++t) prompt.push_back(words.id_of(problem.tokens[t]).value());
    const token_id end = words.id_of("<ans>").value();
    constexpr index_t most = 1024;

    const auto open = [&](decode::model& net, const std::string& under, index_t guessed) {
      return decoder{net, open_cache(under, decode::shape_of(net),
                                     {.max_tokens = most + guessed + 1,
                                      .max_draft_tokens = guessed + 1,
                                      .rollback_tokens = guessed,
                                      .classes = classes})};
    };
    decoder alone = open(large, policy, 0);
    const token_ids expected = plain(alone, prompt, end, most);
    std::printf("%s, %zu tokens\ndraft  steps  tokens a step  wrong drafts  cut by the policy\n", policy.c_str(),
                expected.size() - prompt.size());
    for (const index_t guessed : {1, 2, 4, 8}) {
      // The drafter attends to everything: what a policy has evicted, a rollback could not bring back.
      decoder model = open(large, policy, guessed), drafter = open(small, "full", guessed);
      const outcome made = speculate(model, drafter, prompt, guessed, end, most);
      std::printf("%5d %6d %14.2f %13d %18d%s\n", guessed, made.steps,
                  double(made.text.size() - prompt.size() - 1) / made.steps, made.wrong, made.cut,
                  made.text == expected ? "" : "  another text");
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "zoomr-speculative: %s\n", error.what());
    return 2;
  }
}
