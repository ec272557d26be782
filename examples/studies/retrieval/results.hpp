// SPDX-License-Identifier: Apache-2.0
// What is done of a measurement, and what it came to: the file of --resume.
#pragma once

#include <map>      // std::map
#include <string>   // std::string
#include <tuple>    // std::tuple
#include <utility>  // std::move

#include <nlohmann/json.hpp>

#include "../../decode/input_error.hpp"
#include "contender.hpp"
#include "scene.hpp"

namespace decode::retrieval {

/// Outcomes by kind of problem, its number and the policy.
/// @tparam Outcome  with to_json(outcome)
template <class Outcome>
class results {
 public:
  /// @param label  what all outcomes depend on
  /// @param read   an outcome from a line
  results(const scene& on, std::string label, Outcome (*read)(const field& line))
      : results(on.given.resume, std::move(label), read) {}
  results(std::string file, std::string label, Outcome (*read)(const field& line))
      : file_(std::move(file)), label_(std::move(label)), lines_(labelled_lines(file_, label_, [&](const field& line) {
          const std::string voters = line.find("voters") ? line.at("voters").text() : "";
          done_[{line.at("group").text(), static_cast<index_t>(line.at("number").count(0, 1 << 30)),
                 line.at("policy").text()}] = {read(line), voters};
        })) {}

  /// @throws input_error  it was measured with other voters
  const Outcome* find(const std::string& kind, index_t number, const contender& policy) const {
    const auto at = done_.find({kind, number, policy.spec});
    if (at == done_.end()) return nullptr;
    const std::string& before = at->second.voters;
    if (const std::string now = policy.voters_in_words(); now != before)
      fail(file_, ": ", policy.spec, " was measured with ", shown(before), ", but ", shown(now), " is asked for");
    return &at->second.result;
  }
  void add(const std::string& kind, index_t number, const contender& policy, const Outcome& result) {
    json line = to_json(result);
    line["measured"] = label_;
    line["group"] = kind, line["number"] = number, line["policy"] = policy.spec;
    const std::string voters = policy.voters_in_words();
    if (!voters.empty()) line["voters"] = voters;
    lines_.add(line);
    done_[{kind, number, policy.spec}] = {result, voters};
  }

 private:
  struct entry {
    Outcome result;
    std::string voters;
  };
  std::string file_, label_;
  std::map<std::tuple<std::string, index_t, std::string>, entry> done_;
  line_file lines_;
};

}  // namespace decode::retrieval
