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

#include <cstddef>     // std::size_t
#include <cstdint>     // std::uint64_t
#include <filesystem>  // std::filesystem::path
#include <random>      // std::mt19937_64
#include <string>      // std::string
#include <vector>      // std::vector

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

task read_task(const std::filesystem::path& directory);

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
  program draw();

 private:
  std::size_t below(std::size_t limit) { return static_cast<std::size_t>(bits_() % limit); }

  reference draw_reference(std::size_t r);

  const task& task_;
  std::mt19937_64 bits_;
};

/// Writes a program, its trace and its answers as tokens.
problem render(const task& t, const program& p, scenario what = scenario::trace);

}  // namespace decode::ledger
