// SPDX-License-Identifier: Apache-2.0
#include "resumed.hpp"

#include <utility>  // std::move

#include <nlohmann/json.hpp>

#include "../decode/input_error.hpp"

namespace replay {

resumed::resumed(const std::string& path, const trace& from, std::string limits)
    : trace_(std::to_string(from.fingerprint())),
      limits_(std::move(limits)),
      heads_(from.facts().model.heads),
      file_(path, [this](const decode::json& line, const std::string& where) { read(line, where); }) {}

void resumed::read(const decode::json& line, const std::string& where) {
  const decode::field all(line, where + ": ");
  if (all.at("trace").text() != trace_) decode::fail(where, ": it is of another trace");
  if (all.at("limits").text() != limits_) return;
  replay_result result = read_result(all.at("run").value(), where);
  results_[result.policy] = std::move(result);
}

const replay_result* resumed::find(const std::string& policy) const {
  const auto found = results_.find(policy);
  return found == results_.end() ? nullptr : &found->second;
}

void resumed::add(const replay_result& result) {
  file_.add({{"trace", trace_}, {"limits", limits_}, {"run", to_json(result, heads_)}});
  results_[result.policy] = result;
}

}  // namespace replay
