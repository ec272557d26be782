// SPDX-License-Identifier: Apache-2.0
#include "task.hpp"

#include <cstdio>   // std::snprintf
#include <utility>  // std::move, std::swap

#include <nlohmann/json.hpp>

#include "../../decode/input_error.hpp"
#include "../../decode/json_file.hpp"

namespace decode::ledger {
namespace {

// Writes a program, its trace and its answers as tokens.
class renderer {
 public:
  renderer(const task& t, const program& p, scenario what) : task_(t), program_(p), what_(what) {
    made_.names = p.names;
  }

  problem render() {
    put({"<bos>"}, false);
    for (std::size_t r = 0; r < program_.names.size(); ++r) statement(r, false);
    put({"<go>"}, false);
    made_.program_length = made_.prompt_length = made_.tokens.size();
    for (std::size_t r = 0; r < program_.names.size(); ++r) {
      if (what_ == scenario::continued && r + unwritten == program_.names.size())
        made_.prompt_length = made_.tokens.size();
      thought(r);
    }
    made_.trace_end = made_.tokens.size();
    put({"<ans>"}, true);
    answers();
    return std::move(made_);
  }

 private:
  void put(const std::vector<std::string>& symbols, bool scored) {
    for (const std::string& symbol : symbols) {
      made_.tokens.push_back(symbol);
      made_.scored.push_back(scored);
    }
  }
  static std::string numbered(const char* format, std::size_t number) {
    char text[24];
    std::snprintf(text, sizeof text, format, number);
    return text;
  }
  std::string name(std::size_t r) const { return task_.names[program_.names[r]]; }
  static std::string line(const reference& to) { return to.last ? "last" : numbered("@%zu", to.line); }

  void statement(std::size_t r, bool scored) {
    if (r < program_.literals.size()) {
      put({name(r), "=", numbered("#%02zu", program_.literals[r]), ";"}, scored);
    } else {
      const reference& to = program_.pointers[r];
      put({name(r), "=", name(to.source), "[", line(to), "]", ";"}, scored);
    }
  }

  void question(const reference& to, bool scored) { put({name(to.source), "[", line(to), "]"}, scored); }

  void answers() {
    const bool listed = what_ == scenario::listed;  // otherwise what is asked cannot be known, nor how much
    if (listed) {
      for (const reference& to : program_.answers) question(to, false);
      put({"<go>"}, false);
    }
    if (listed || what_ == scenario::questions) made_.prompt_length = made_.tokens.size();
    for (const reference& to : program_.answers) {
      question(to, listed);
      made_.fetches.push_back({made_.tokens.size() - 1, to, true});
      put({numbered("%02zu", values_[to.source][to.line])}, true);
      put({&to == &program_.answers.back() ? "<eos>" : ";"}, listed);
    }
  }

  void thought(std::size_t r) {
    put({"<thought>"}, true);
    statement(r, true);
    const bool literal = r < program_.literals.size();
    const reference& to = program_.pointers[r];
    if (!literal) made_.fetches.push_back({made_.tokens.size() - 1, to, false});
    std::size_t v = literal ? program_.literals[r] : values_[to.source][to.line];
    put({numbered("%02zu", v)}, true);
    values_.emplace_back();
    for (std::size_t j = 0; j < task_.lines; ++j) {
      values_.back().push_back(v);
      v = task_.permutation[(v + task_.kappa[program_.names[r]]) % task_.values];
    }
    for (std::size_t j = 0; j < task_.lines; ++j) {
      const std::size_t shown = what_ == scenario::permuted ? (j + task_.lines / 2) % task_.lines : j;
      put({numbered("@%zu", j), numbered("%02zu", values_.back()[shown])}, true);
    }
    put({"</thought>", "<summary>", name(r), "last", numbered("%02zu", values_.back().back()), "</summary>"}, true);
  }

  const task& task_;
  const program& program_;
  scenario what_;
  std::vector<std::vector<std::size_t>> values_;  // [registers so far, lines]
  problem made_;
};

}  // namespace

task read_task(const std::filesystem::path& directory) {
  const auto path = directory / "ledger.json";
  const json text = read_json(path);
  const field file(text, named(path) + ": ");
  task t;
  t.registers = file.at("registers").count(3, 128);
  t.lines = file.at("lines").count(6, 64);
  t.answers = file.at("answers").count(0, 64);
  t.values = file.at("values").count(2, 97);
  t.literals = file.at("literals").count(1, 2);
  t.first_fine = file.at("first_fine").count(0, t.lines - 1);
  t.last_fine = file.at("last_fine").count(t.first_fine, t.lines - 1);
  t.fine_share = file.at("fine_share").number(0, 1);
  for (const field& value : file.at("permutation").elements()) t.permutation.push_back(value.count(0, t.values - 1));
  for (const field& name : file.at("names").elements()) t.names.push_back(name.text());
  for (const field& kappa : file.at("kappa").elements()) t.kappa.push_back(kappa.count(0, t.values - 1));
  if (t.permutation.size() != t.values || t.kappa.size() != t.names.size() || t.names.size() < t.registers)
    fail(named(path), ": permutation, names and kappa do not have the lengths that values and registers ask for");
  return t;
}

program generator::draw() {
  program p;
  std::vector<std::size_t> names(task_.names.size());
  for (std::size_t n = 0; n < names.size(); ++n) names[n] = n;
  for (std::size_t r = 0; r < task_.registers; ++r) {
    std::swap(names[r], names[r + below(names.size() - r)]);
    p.names.push_back(names[r]);
    p.pointers.push_back(r < task_.literals ? reference{} : draw_reference(r));
  }
  for (std::size_t r = 0; r < task_.literals; ++r) p.literals.push_back(below(task_.values));
  for (std::size_t a = 0; a < task_.answers; ++a) {
    p.answers.push_back(draw_reference(task_.registers));
    if (task_.of_one_register) p.answers.back().source = p.answers.front().source;
  }
  return p;
}

reference generator::draw_reference(std::size_t r) {
  reference to;
  to.source = below(r > 1 ? r - 1 : 1);
  to.line = task_.first_fine + below(task_.last_fine - task_.first_fine + 1);
  to.last = static_cast<double>(bits_() >> 11) * 0x1p-53 >= task_.fine_share;
  if (to.last) to.line = task_.lines - 1;
  return to;
}

problem render(const task& t, const program& p, scenario what) { return renderer(t, p, what).render(); }

}  // namespace decode::ledger
