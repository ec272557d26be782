// SPDX-License-Identifier: Apache-2.0
// Traces: problems are true, a text comes to be as its script says, and what is written is compared with the truth.
#include <doctest/doctest.h>

#include <algorithm>  // std::ranges::count
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "retrieval_scenes.hpp"
#include "traces/script.hpp"
#include "traces/trace_outcome.hpp"

namespace decode::traces {
namespace {

const part_limits wide{.step = 200, .summary = 80, .answer = 8};  // in bytes
const marks four{"<m1>", "<m2>", "<m3>", "<m4>"};

struct known {
  int value = 0;
  index_t set_by = 0;
};

/// What a line of a problem does, found out from its words alone.
struct effect {
  std::vector<int> values;
  std::set<index_t> reads;
};

/// Executes a program, line by line.
class interpreter {
 public:
  effect execute(const std::string& code, index_t line) {
    std::istringstream words(code);
    std::string first;
    words >> first;
    effect done;
    const std::string goal = first;
    std::string equals, one, sign, other;
    words >> equals >> one;
    REQUIRE(equals == "=");
    if (one.front() == '[') {
      const std::string list = code.substr(code.find('['));
      std::istringstream numbers(list.substr(1));
      for (int i = 0, number = 0; numbers >> number; ++i, numbers.ignore())
        of_[goal + '[' + std::to_string(i) + ']'] = {number, line};
      return done;
    }
    int result = value(one, done);
    if (words >> sign && sign == "if") {  // goal = a if b > c else d
      std::string left, greater, right, otherwise, last;
      words >> left >> greater >> right >> otherwise >> last;
      REQUIRE(greater == ">");
      REQUIRE(otherwise == "else");
      const bool holds = value(left, done) > value(right, done);
      result = holds ? result : value(last, done);
    } else if (words >> other) {
      const int right = value(other, done);
      result = sign == "+" ? result + right : sign == "-" ? result - right : result * right;
    }
    of_[goal] = {result, line};
    done.values = {result};
    return done;
  }

 private:
  int value(const std::string& word, effect& by) {
    if (word.front() >= '0' && word.front() <= '9') return std::stoi(word);
    REQUIRE(of_.contains(word));
    by.reads.insert(of_[word].set_by);
    return of_[word].value;
  }
  std::map<std::string, known> of_;
};

/// Keeps accounts, note by note.
class bookkeeper {
 public:
  effect execute(const std::string& note, index_t number) {
    std::istringstream words(note);
    std::string who, verb, amount, word;
    words >> who >> verb >> amount;
    effect done;
    if (verb == "has") {
      of_[who] = {std::stoi(amount), number};
      done.values = {of_[who].value};
      return done;
    }
    int coins = 0;
    if (amount == "as") {  // many coins as Bob has
      std::string many, as, other;
      words >> many >> word >> as >> other;
      REQUIRE(of_.contains(other));
      done.reads.insert(of_[other].set_by);
      coins = of_[other].value;
    } else {
      coins = std::stoi(amount);
    }
    change(who, verb == "gets" ? coins : -coins, number, done);
    return done;
  }

 private:
  void change(const std::string& who, int coins, index_t number, effect& by) {
    REQUIRE(of_.contains(who));
    by.reads.insert(of_[who].set_by);
    of_[who] = {of_[who].value + coins, number};
    by.values.push_back(of_[who].value);
  }
  std::map<std::string, known> of_;
};

template <class Machine>
void check_truth(task kind, const trace_problem& asked) {
  Machine machine;
  std::istringstream lines(asked.user);
  std::string line;
  std::getline(lines, line);
  for (index_t i = 0; i < static_cast<index_t>(asked.steps.size()); ++i) {
    const step& one = asked.steps[static_cast<std::size_t>(i)];
    REQUIRE(std::getline(lines, line));
    INFO(line);
    const std::string prefix = (kind == task::program ? "Line " : "Note ") + std::to_string(i + 1) + ": ";
    REQUIRE(line.starts_with(prefix));
    std::string what = line.substr(prefix.size());
    if (kind == task::ledger) what.pop_back();  // its full stop
    CHECK(one.said == prefix + what + (one.worked.empty() ? ".\n" : "."));
    const effect done = machine.execute(what, i);
    CHECK(one.values == done.values);
    CHECK(std::set<index_t>(one.reads.begin(), one.reads.end()) == done.reads);
    CHECK(one.worked.empty() == done.reads.empty());
    if (one.worked.empty()) continue;
    CHECK(one.worked.ends_with(".\n"));
    CHECK(std::ranges::count(one.worked, '\n') == 1);
    CHECK(results_of(one.worked, one.values.size()) == one.values);
    CHECK(one.of.size() == one.values.size());
  }
  CHECK(!std::getline(lines, line));
}

/// Lets a model write what `says` says of each part, and whatever is forced.
template <class Says>
std::string written_by(const tokenizer& words, trace_script& script, Says says) {
  std::size_t part = script.pieces().size();
  std::string own;
  while (!script.done()) {
    if (const auto forced = script.forced()) {
      script.push(*forced);
      continue;
    }
    if (script.current() != part) part = script.current(), own = says(script.pieces()[part]);
    if (own.empty()) {
      script.end_part();
      continue;
    }
    script.push(words.encode(own.substr(0, 1), {.add_special = false}).front());
    own.erase(0, 1);
  }
  return words.decode(script.tokens(), false);
}

std::string true_text(const trace_problem& asked, const trace_script::piece& one) {
  const auto number = static_cast<std::size_t>(one.number);
  if (one.kind == trace_script::part::step) return asked.steps[number].worked;
  if (one.kind == trace_script::part::summary) return asked.summaries[number];
  return " " + std::to_string(asked.questions[number].value) + ".\n";
}

const tokenizer& bytes() {
  static const tokenizer words(retrieval::marked_checkpoint());
  return words;
}

}  // namespace

TEST_CASE("traces: what steps compute and read is what executing them says") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    INFO(seed);
    for (const index_t steps : {8, 12, 30}) {
      check_truth<interpreter>(task::program, make_problem(task::program, steps, 3, seed));
      check_truth<bookkeeper>(task::ledger, make_problem(task::ledger, steps, 3, seed));
    }
  }
  check_truth<interpreter>(task::program, worked_example(task::program, 3));
  check_truth<bookkeeper>(task::ledger, worked_example(task::ledger, 3));
}

TEST_CASE("traces: questions ask for three values in the middle of thoughts, and none of the last thought") {
  for (const task kind : {task::program, task::ledger}) {
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      const trace_problem asked = make_problem(kind, 15, 3, seed);
      REQUIRE(asked.questions.size() == 3);
      CHECK(asked.cues.size() == 5);
      CHECK(asked.cues[1] == (kind == task::program ? "Lines 4 to 6" : "Notes 4 to 6"));
      std::set<index_t> places;
      for (const question& one : asked.questions) {
        const index_t number = one.reads.front();
        const step& line = asked.steps[static_cast<std::size_t>(number)];
        places.insert(number);
        CHECK(number % 3 != 2);
        CHECK(number < 12);
        CHECK(!line.worked.empty());
        CHECK(one.value == line.values[one.of]);
        CHECK(one.said.find((kind == task::program ? "line " : "note ") + std::to_string(number + 1)) !=
              std::string::npos);
        CHECK(one.said.find(line.of[one.of]) != std::string::npos);
      }
      CHECK(places.size() == 3);
    }
  }
  const trace_problem again = make_problem(task::program, 12, 3, 5);
  CHECK(again.user == make_problem(task::program, 12, 3, 5).user);
  CHECK(again.user != make_problem(task::program, 12, 3, 6).user);
}

TEST_CASE("traces: results are the last numbers of the last sentences") {
  CHECK(results_of(" Here a is 3 and b is 4, so c = 3 + 4 = 7.\n", 1) == std::vector<int>{7});
  CHECK(results_of(" Ann had 12, 12 - 4 = 8, so now Ann has 8. Bob had 3, so now Bob has 7.", 2) ==
        std::vector<int>{8, 7});
  CHECK(results_of(" First 1. Then 2. Last 3.", 2) == std::vector<int>{2, 3});
  CHECK(results_of(" a = 4 - 9 = -5.", 1) == std::vector<int>{-5});
  CHECK(results_of(" a = 9 -5", 1) == std::vector<int>{-5});
  CHECK(results_of(" a = 9-5", 1) == std::vector<int>{5});
  CHECK(results_of(" so days[1] stays 6.", 1) == std::vector<int>{6});
  CHECK(results_of(" none.", 1).empty());
  int number = 0;
  CHECK(first_number(" was 41, then 7", number));
  CHECK(number == 41);
  CHECK(!first_number(" was nothing", number));
}

TEST_CASE("traces: a script names steps, marks thoughts, asks for summaries and asks questions") {
  const trace_problem asked = make_problem(task::program, 8, 3, 1);
  trace_script script(bytes(), asked, four, wide, false);
  CHECK(script.reads().empty());
  const std::string text =
      written_by(bytes(), script, [&](const trace_script::piece& one) { return true_text(asked, one); });
  std::string expected;
  for (std::size_t i = 0; i < 8; ++i) {
    if (i % 3 == 0) expected += "<m1>";
    expected += asked.steps[i].said + asked.steps[i].worked;
    if (i % 3 == 2 || i == 7) expected += "<m2><m3>" + asked.cues[i / 3] + asked.summaries[i / 3] + "<m4>\n";
  }
  for (const question& one : asked.questions) expected += one.said + " " + std::to_string(one.value) + ".";
  for (std::size_t at = expected.find(".What"); at != std::string::npos; at = expected.find(".What"))
    expected.replace(at, 1, ".\n");
  CHECK(text == expected);  // an answer ends with its full stop
  CHECK(script.most_tokens() >= static_cast<index_t>(script.tokens().size()));
  for (index_t i = 0; i < 8; ++i) {
    const std::size_t at = static_cast<std::size_t>(script.value_at(i));
    REQUIRE(at < script.tokens().size());
    const std::string before = bytes().decode(std::span(script.tokens()).first(at + 1), false);
    const std::vector<int>& values = asked.steps[static_cast<std::size_t>(i)].values;
    if (!values.empty()) CHECK(before.ends_with(' ' + std::to_string(values.back())));
  }
  // The same where true steps are written for the model: it is left with the answers.
  trace_script given(bytes(), asked, four, wide, true);
  while (!given.at_questions()) given.push(*given.forced());
  CHECK(bytes().decode(given.tokens(), false) == text.substr(0, text.find("<m4>\nWhat")));
  const std::string same =
      written_by(bytes(), given, [&](const trace_script::piece& one) { return true_text(asked, one); });
  CHECK(same == text);
  for (const trace_script::piece& one : given.pieces())
    CHECK((one.own_tokens > 0) == (one.kind == trace_script::part::answer));
}

TEST_CASE("traces: parts end at a limit or with a token of control, and lines stay lines") {
  const trace_problem asked = make_problem(task::ledger, 8, 3, 2);
  trace_script script(bytes(), asked, four, {.step = 5, .summary = 4, .answer = 3}, false);
  const std::string text = written_by(bytes(), script, [&](const trace_script::piece& one) {
    if (one.kind == trace_script::part::step)
      CHECK(script.reads() == asked.steps[static_cast<std::size_t>(one.number)].reads);
    if (one.kind == trace_script::part::summary) CHECK(script.reads().empty());
    if (one.kind == trace_script::part::answer)
      CHECK(script.reads() == asked.questions[static_cast<std::size_t>(one.number)].reads);
    return std::string(one.number == 5 ? "" : "xxxxxxxxx");
  });
  CHECK(text.find(asked.steps[4].said + "xxxxx\nNote 6: ") != std::string::npos);
  CHECK(text.find(asked.steps[5].said + "<m2><m3>Notes 4 to 6xxxx<m4>\n<m1>Note 7: ") != std::string::npos);
  CHECK(text.ends_with(" hadxxx"));
  CHECK(script.most_tokens() >= static_cast<index_t>(script.tokens().size()));
}

TEST_CASE("traces: a text is judged by the truth, and its answers by what it has itself") {
  const trace_problem asked = make_problem(task::program, 12, 3, 1);
  const auto judged = [&](auto says) {
    trace_script script(bytes(), asked, four, wide, false);
    written_by(bytes(), script, says);
    trace_outcome result;
    judge(asked, script, result);
    return result;
  };
  const trace_outcome best = judged([&](const trace_script::piece& one) { return true_text(asked, one); });
  CHECK(best.asked == 3);
  CHECK(best.right == 3);
  CHECK(best.as_written == 3);
  CHECK(best.values == 8);  // three constants and a list are said
  CHECK(best.values_right == 8);
  // One step is wrong, and its question is answered as the text has it; another answer is of nothing.
  const index_t wrong = asked.questions[0].reads.front();
  const trace_outcome worse = judged([&](const trace_script::piece& one) {
    if (one.kind == trace_script::part::step && one.number == wrong) return std::string(" so it is 123.\n");
    if (one.kind == trace_script::part::answer) {
      if (one.number == 0) return std::string(" 123.\n");
      if (one.number == 1) return std::string(" nil.\n");
    }
    return true_text(asked, one);
  });
  CHECK(worse.right == 1);
  CHECK(worse.as_written == 2);
  CHECK(worse.values_right == 7);
  trace_outcome result = worse;
  result.choices = 4, result.found = 3, result.attended = 12.5, result.agreeability = 0.5, result.entropy = 1.25;
  result.written = 300, result.prompt = 200, result.device_peak = 5000, result.prompt_bytes = 2000, result.text = "so";
  CHECK(to_json(trace_outcome_from(field(to_json(result), "here: "))) == to_json(result));
  trace_tally sums;
  sums.add(result), sums.add(best);
  CHECK(sums.right() == doctest::Approx(4.0 / 6));
  CHECK(sums.as_written() == doctest::Approx(5.0 / 6));
  CHECK(*sums.values_right() == doctest::Approx(15.0 / 16));
  CHECK(*sums.found() == 0.75);
  CHECK(sums.beyond() == 1500);
  CHECK(sums.document("p", "g", 6000).at("beyond_prompt_of_full") == 0.25);
  CHECK(sums.document("p", "g", 0).count("beyond_prompt_of_full") == 0);
  CHECK(trace_tally{}.document("p", "g", 0).count("found") == 0);
  CHECK(sums.cells("p", "g", 0).size() == trace_tally::titles().size());
}

TEST_CASE("traces: a prompt shows an example with its text, in turns where the model has such") {
  const trace_problem asked = make_problem(task::ledger, 12, 3, 1);
  const std::string prompt = prompt_of(bytes(), task::ledger, asked, four);
  CHECK(prompt.starts_with("Keep the accounts"));
  CHECK(prompt.ends_with(asked.user + "\n"));
  CHECK(prompt.find("<m2><m3>Notes 1 to 3 change the coins of Ann, Bob and Cleo.\n<m4>\n<m1>Note 4: ") !=
        std::string::npos);
  CHECK(says(complaint([] { marks_of(bytes(), {"<m1>", "<m2>"}); }), "four tokens"));
  CHECK(says(complaint([] { marks_of(bytes(), {"<m1>", "<m2>", "<m3>", "<m9>"}); }), "\"<m9>\" is no token"));
  CHECK(says(complaint([] { task_named("riddles"); }), "known are program, ledger"));
}

}  // namespace decode::traces
