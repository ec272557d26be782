// SPDX-License-Identifier: Apache-2.0
#include "scene.hpp"

#include "../../decode/input_error.hpp"
#include "../../decode/weights.hpp"

namespace decode::retrieval {
namespace {

model_config read_with_voters(const scene_options& given) {
  model_config made = read_config(given.directory);
  expect_layers_alike(made, "zoomr-eval");
  made.voters = given.voters.empty() ? find_voters(given.directory, made) : read_voters(given.voters, made);
  return made;
}

}  // namespace

scene::scene(const scene_options& from)
    : given(from),
      pool(usual_threads()),
      config(read_with_voters(from)),
      net(config, read_weights(from.directory, config), pool),
      words(from.directory, config.vocab),
      problems(words, from.texts, from.marks),
      classes(classify(words, config.vocab, {})) {
  problems.mark(classes);
  for (const std::string& name : from.tasks) {
    for (const index_t tokens : from.tokens) {
      if (static_cast<std::size_t>(tokens) + 64 > config.context) {
        fail("problems of ", tokens, " tokens and an answer are longer than this model's context of ", config.context);
      }
      groups.push_back({task_named(name), tokens});
    }
  }
}

problem scene::make(const group& of, index_t number) const {
  const auto kind = static_cast<std::uint64_t>(of.of);
  const std::uint64_t seed =
      ((given.seed * 1000003 + kind) * 1000003 + static_cast<std::uint64_t>(of.tokens)) * 1000003 +
      static_cast<std::uint64_t>(number);
  return problems.make(of.of, of.tokens, seed);
}

index_t scene::needed_segment(const problem& of) const {
  index_t found = -1, count = 0;
  with_segmenter(of.of, [&](auto segmenter) {
    typename decltype(segmenter)::state state{};
    const auto last = static_cast<index_t>(of.prompt.size()) - 1;
    for (index_t position = 0; position <= last; ++position) {
      zoomr::closings closed;
      segmenter.feed(state, classes[static_cast<std::size_t>(of.prompt[static_cast<std::size_t>(position)])], position,
                     closed);
      if (position == last) segmenter.end_of_prompt(state, position, closed);
      for (index_t c = 0; c < closed.count; ++c, ++count) {
        if (closed.at[c].begin <= of.evidence && of.evidence < closed.at[c].split) found = count;
      }
    }
  });
  return found;
}

}  // namespace decode::retrieval
