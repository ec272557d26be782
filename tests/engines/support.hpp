// SPDX-License-Identifier: Apache-2.0
// What the tests of engines share: checkpoints of LEDGER, its problems, and budgets that leave something out.
#pragma once

#include <zoomr/presets/table.hpp>

#include <algorithm>
#include <string>
#include <type_traits>
#include <vector>

#include "ledger/task.hpp"
#include "open_cache.hpp"
#include "session.hpp"
#include "token_classes.hpp"

namespace zoomr_test {

struct checkpoint {
  std::string directory;
  decode::model net;
  decode::tokenizer words;
  std::vector<zoomr::token_class> classes;

  explicit checkpoint(const std::string& name)
      : directory(std::string(LEDGER_CHECKPOINTS "/") + name),
        net(decode::load_model(directory)),
        words(directory),
        classes(decode::classify(words, net.config().vocab, {";"})) {}

  bool words_are_those_of(const checkpoint& other) const {
    bool same = words.size() == other.words.size();
    for (zoomr::token_id id = 0; same && id < static_cast<zoomr::token_id>(words.size()); ++id)
      same = words.text_of(id) == other.words.text_of(id);
    return same;
  }

  /// The prompt of a problem.
  std::vector<zoomr::token_id> problem(std::uint64_t seed, std::size_t registers, decode::ledger::scenario what) const {
    decode::ledger::task task = decode::ledger::read_task(directory);
    task.registers = registers;
    const auto made = decode::ledger::render(task, decode::ledger::generator(task, seed).draw(), what);
    std::vector<zoomr::token_id> ids;
    for (std::size_t t = 0; t < made.prompt_length; ++t) ids.push_back(words.id_of(made.tokens[t]).value());
    return ids;
  }
};

/// A cache under a preset, with a budget that a few hundred tokens do not fit into.
template <class Preset>
zoomr::any_kv_cache<> open_small(const Preset& preset, const decode::model& net, zoomr::config limits) {
  const zoomr::shape shape = decode::shape_of(net);
  const std::vector<float> voters(static_cast<std::size_t>(shape.layers * shape.heads), 0.5f);
  limits.voters = {voters.data(), {shape.layers, shape.heads}};
  const bool fixed = preset.limits == std::string("nothing");
  const zoomr::index_t budget = fixed ? 0 : std::max<zoomr::index_t>(48, preset.least_budget(preset.policy));
  return open_cache(preset.name, decode::shape_of(net), limits, budget);
}

}  // namespace zoomr_test
