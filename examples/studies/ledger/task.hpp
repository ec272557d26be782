// SPDX-License-Identifier: Apache-2.0
// The LEDGER task: linked register files, where each detail exists only inside one earlier thought.
//
//   <bos> a = #17 ; b = #42 ; c = a [ @5 ] ; ... <go>                          the program
//   <thought> c = a [ @5 ] ; 63 @0 63 @1 08 ... </thought> <summary> c last 44 </summary> ...   the trace
//   <ans> e [ @7 ] 30 ; b [ @3 ] 81 <eos>                                      questions and answers
//
// or with the questions first:  <ans> e [ @7 ] b [ @3 ] <go> e [ @7 ] 30 ; b [ @3 ] 81 <eos>
//
// A register's values: v[0] = its literal or the value that it points at, v[j + 1] = P[(v[j] + kappa(name)) mod
// 97]. ledger.py is the same for the trainer; problems.json holds problems that both must render alike.
#pragma once

#include <cstdio>      // std::snprintf
#include <filesystem>  // std::filesystem::path
#include <random>      // std::mt19937_64
#include <string>      // std::string
#include <vector>      // std::vector

#include "../../decode/json_file.hpp"

namespace decode::ledger {

/// The constants of the task, from ledger.json beside the weights.
struct task {
  std::size_t registers = 0;  // of a problem
  std::size_t lines = 0;      // values of a register (T)
  std::size_t answers = 0;
  std::size_t values = 0;    // 97
  std::size_t literals = 0;  // registers that are given, not computed
  std::size_t first_fine = 0;
  std::size_t last_fine = 0;             // fine references point at lines first_fine ... last_fine
  double fine_share = 0;                 // of references; the others point at `last`
  bool of_one_register = false;          // all answers are values of the same register
  std::vector<std::size_t> permutation;  // [values]
  std::vector<std::string> names;
  std::vector<std::size_t> kappa;  // [names]
};

inline task read_task(const std::filesystem::path& directory) {
  const auto path = directory / "ledger.json";
  const json text = read_json(path);
  const field file(text, path.string() + ": ");
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
    fail(path.string(), ": permutation, names and kappa do not have the lengths that values and registers ask for");
  return t;
}

/// What is given, and what the model writes.
enum class scenario : std::uint8_t {
  trace,      // the program is the prompt; thoughts and answers are to come, each question given
  continued,  // program and all but the last `unwritten` thoughts are the prompt
  questions,  // program and trace are the prompt; the questions come after it, one by one
  listed,     // program, trace and all questions are the prompt; the model repeats each before its answer
  permuted,   // as trace, but each line of a thought shows another line's value: what is read there is wrong
};

inline constexpr std::size_t unwritten = 4;  // thoughts

/// What a register or an answer points at.
struct reference {
  std::size_t source = 0;  // a register's number
  std::size_t line = 0;
  bool last = false;  // coarse: the last line, which the summary holds
};

struct program {
  std::vector<std::size_t> names;     // [registers]  into task::names
  std::vector<std::size_t> literals;  // [literals]
  std::vector<reference> pointers;    // [registers]  the first `literals` are unused
  std::vector<reference> answers;     // [answers]
};

/// A look-up: the token at `at` ends the pointer, the next one is the value.
struct fetch {
  std::size_t at = 0;
  reference to;
  bool answer = false;  // asked for at the end, not by a thought
};

/// A rendered problem.
struct problem {
  std::vector<std::string> tokens;
  std::vector<bool> scored;        // the model can know this token from those before it
  std::vector<fetch> fetches;      // ascending
  std::vector<std::size_t> names;  // [registers]
  std::size_t program_length = 0;  // tokens up to and with the first <go>
  std::size_t prompt_length = 0;   // tokens that are given
  std::size_t trace_end = 0;       // position of <ans>
};

/// Random programs, the same for the same seed everywhere.
class generator {
 public:
  generator(const task& t, std::uint64_t seed) : task_(t), bits_(seed) {}

  /// Register i and the answers (i = registers) point at registers 0 ... i - 2, so never into the window.
  program draw() {
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

 private:
  std::size_t below(std::size_t limit) { return static_cast<std::size_t>(bits_() % limit); }

  reference draw_reference(std::size_t r) {
    reference to;
    to.source = below(r > 1 ? r - 1 : 1);
    to.line = task_.first_fine + below(task_.last_fine - task_.first_fine + 1);
    to.last = static_cast<double>(bits_() >> 11) * 0x1p-53 >= task_.fine_share;
    if (to.last) to.line = task_.lines - 1;
    return to;
  }

  const task& task_;
  std::mt19937_64 bits_;
};

/// Writes a program, its trace and its answers as tokens.
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

inline problem render(const task& t, const program& p, scenario what = scenario::trace) {
  return renderer(t, p, what).render();
}

}  // namespace decode::ledger
