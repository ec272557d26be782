// SPDX-License-Identifier: Apache-2.0
// The engine of graphs, under the SIMT shim: it writes what the host's session writes, with graphs and without them.
#include <doctest/doctest.h>

#define main cuda_graph_main  // a test program has one of its own
#include "cuda_graph.cu"
#undef main

#include "session.hpp"

TEST_CASE("replayed graphs write what launches write, and what the host writes") {
  const std::string directory = LEDGER_CHECKPOINTS "/indexed";
  const decode::model_config c = decode::read_config(directory);
  const decode::model_weights weights = decode::read_weights(directory, c);
  const decode::tokenizer words(directory);
  const auto classes = decode::classify(words, c.vocab, {";"});
  // The answer to the second statement is looked up in a thought: a choice, and a second pass.
  const auto prompt = words.encode("<bos> a = #17 ; b = a [ @5 ] ; <go>");
  constexpr index_t written = 48;
  const index_t most = static_cast<index_t>(prompt.size()) + written;

  decode::model host = decode::load_model(directory);
  decode::session session(host, zooming, 1, most, classes);
  session.prompt(prompt, [](std::size_t) {});
  std::vector<token_id> expected{decode::greedy(session.logits())};
  while (static_cast<index_t>(expected.size()) < written) {
    session.advance({&expected.back(), 1});
    expected.push_back(decode::greedy(session.logits()));
  }
  const auto passes = static_cast<index_t>(session.cache().stats(session.at(0)).passes);
  CHECK(passes > written - 1);  // some were second ones

  const zoomr::config limits{
      .max_tokens = most, .max_segments = most, .max_batched_tokens = chunk, .max_draft_tokens = 1, .classes = classes};
  for (const bool graphs : {false, true}) {
    engine by(c, weights, decode::shape_of(host), limits);
    const std::vector<token_id> text = write(by, prompt, -1, most, graphs);
    CAPTURE(graphs);
    CHECK(text == expected);
    CHECK(by.launched == (graphs ? passes : 0));
  }
}
