// SPDX-License-Identifier: Apache-2.0
// A call of a function that is defined far above, with its parameters by name.
#include "problems.hpp"

#include <algorithm>  // std::ranges::all_of, std::ranges::any_of
#include <set>        // std::set
#include <utility>    // std::move

#include "../../decode/input_error.hpp"

namespace decode::retrieval {
namespace {

constexpr index_t tokens_before = 64;        // tokens, at least, before the function that is called
constexpr index_t tokens_behind = 160;       // and between it and the end
constexpr index_t longest_function = 400;    // tokens of a function
constexpr std::size_t least_functions = 40;  // functions of the texts

/// Names that a call must have are told apart: long enough, and none the end of another.
bool can_be_called(const function& item) {
  if (item.parameters.size() < 3 || item.parameters.size() > 6 || item.name.starts_with("__")) return false;
  return std::ranges::all_of(item.parameters, [&](const parameter& each) {
    const auto ends_so = [&](const parameter& other) { return &other != &each && other.name.ends_with(each.name); };
    return each.name.size() >= 3 && !std::ranges::any_of(item.parameters, ends_so);
  });
}

}  // namespace

void problem_maker::add_functions(const std::filesystem::path& file) {
  for (function& item : functions_in(read_text(file, std::uint64_t{1} << 28))) functions_.push_back(std::move(item));
}

problem_maker::draft problem_maker::make_calls(index_t tokens, dice& random) const {
  if (functions_.size() < least_functions)
    fail("calls: the texts named .py have ", functions_.size(), " functions, but ", least_functions, " are needed");
  const auto order = some_of(functions_.size(), functions_.size(), random);
  const auto length = [&](const function& item) { return tokens_of(item.text + "\n\n\n"); };
  const function* called = nullptr;
  for (const std::size_t i : order) {
    if (called == nullptr && can_be_called(functions_[i]) && length(functions_[i]) <= longest_function)
      called = &functions_[i];
  }
  if (called == nullptr) fail("calls: no function of the texts has three to six parameters with names of their own");

  const std::string tail = "# Call " + called->name + " with every parameter by keyword.\n" + called->name + '(' +
                           called->parameters.front().name + '=' + called->parameters.front().name + ',';
  const index_t room = tokens - length(*called) - tokens_of(tail);
  std::vector<const function*> others;
  std::set<std::string> names;
  std::vector<index_t> places = {0};  // [others + 1]  tokens before each, and of all
  for (const std::size_t i : order) {
    const function& item = functions_[i];
    if (&item == called || item.text.find(called->name) != std::string::npos || names.contains(item.name)) continue;
    const index_t size = length(item);
    if (size > longest_function || places.back() + size > room) continue;
    others.push_back(&item), names.insert(item.name), places.push_back(places.back() + size);
    if (room - places.back() < 24) break;
  }
  std::vector<std::size_t> fitting;
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (places[i] >= tokens_before && places.back() - places[i] >= tokens_behind) fitting.push_back(i);
  }
  if (fitting.empty()) fail("calls: a problem of ", tokens, " tokens has no place for ", called->name);
  const std::size_t place = fitting[below(fitting.size(), random)];

  draft text;
  text.plain = true;
  inquiry& call = text.asked.emplace_back();
  call.text = tail;
  for (std::size_t i = 0; i <= others.size(); ++i) {
    if (i == place) {
      for (std::size_t p = 1; p < called->parameters.size(); ++p) {
        call.answers.push_back(called->parameters[p].name + '=');
        call.evidence.push_back(text.body.size() + called->parameters[p].end);
      }
      text.body += called->text + "\n\n\n";
    }
    if (i < others.size()) text.body += others[i]->text + "\n\n\n";
  }
  return text;
}

}  // namespace decode::retrieval
