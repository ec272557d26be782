// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "ledger/evaluate.hpp"
#include "policies.hpp"
#include "support.hpp"
#include "token_classes.hpp"

namespace decode::ledger {
namespace {

const fs::path directory = fs::path(DECODE_LEDGER);

/// A problem of problems.json, read back into a program.
struct written {
  task constants;
  program made;
  std::string text;
};

reference reference_of(const json& at, std::size_t lines) {
  const bool last = at["line"].is_string();
  return {at["source"], last ? lines - 1 : at["line"].get<std::size_t>(), last};
}

written read_problem(const json& file, const json& from) {
  written w;
  w.constants.registers = from["registers"];
  w.constants.lines = from["lines"];
  w.constants.values = file["permutation"].size();
  w.constants.permutation = file["permutation"].get<std::vector<std::size_t>>();
  w.constants.names = file["names"].get<std::vector<std::string>>();
  w.constants.kappa = file["kappa"].get<std::vector<std::size_t>>();
  for (const json& statement : from["statements"]) {
    const auto& names = w.constants.names;
    w.made.names.push_back(static_cast<std::size_t>(
        std::find(names.begin(), names.end(), statement["name"].get<std::string>()) - names.begin()));
    const bool literal = statement.contains("literal");
    if (literal) w.made.literals.push_back(statement["literal"]);
    w.made.pointers.push_back(literal ? reference{} : reference_of(statement, w.constants.lines));
  }
  for (const json& answer : from["answers"]) w.made.answers.push_back(reference_of(answer, w.constants.lines));
  w.text = from["text"];
  return w;
}

}  // namespace

TEST_CASE("a program has the trace and the answers that the trainer's generator writes") {
  const json file = read_json(directory / "problems.json");
  REQUIRE(file["problems"].size() >= 5);
  for (const json& from : file["problems"]) {
    const written w = read_problem(file, from);
    const problem made = render(w.constants, w.made, from["listed"].get<bool>() ? scenario::listed : scenario::trace);
    std::string text;
    for (const std::string& token : made.tokens) text += (text.empty() ? "" : " ") + token;
    CHECK(text == w.text);
    CHECK(made.program_length == from["prompt_length"].get<std::size_t>());
    REQUIRE(made.fetches.size() == from["fetch_at"].size());
    for (std::size_t f = 0; f < made.fetches.size(); ++f)
      CHECK(made.fetches[f].at == from["fetch_at"][f].get<std::size_t>());
    CHECK(made.tokens[made.trace_end] == "<ans>");
  }
}

namespace {

struct laboratory {
  model net = load_model(directory / "checkpoints" / "indexed");
  tokenizer words{directory / "checkpoints" / "indexed", net.config().vocab};
  task constants = read_task(directory / "checkpoints" / "indexed");
  std::vector<zoomr::token_class> classes = classify(words, net.config().vocab, {";"});
  problem_set set{constants, words, 0, 4, 11};

  template <class Policy>
  outcome run(const Policy& policy, bool forced) {
    needs needed;
    return evaluate(net, policy, set, classes, forced, needed, [](std::size_t) {});
  }
};

}  // namespace

TEST_CASE("what is given depends on the scenario; what stands there, only for listed questions") {
  const task constants = read_task(directory / "checkpoints" / "plain");
  const program p = generator(constants, 7).draw();
  const problem trace = render(constants, p);
  const problem continued = render(constants, p, scenario::continued);
  const problem questions = render(constants, p, scenario::questions);
  const problem listed = render(constants, p, scenario::listed);
  CHECK(continued.tokens == trace.tokens);
  CHECK(questions.tokens == trace.tokens);
  CHECK(trace.prompt_length == trace.program_length);
  CHECK(continued.tokens[continued.prompt_length] == "<thought>");
  CHECK(questions.tokens[questions.prompt_length - 1] == "<ans>");
  CHECK(listed.tokens[listed.prompt_length - 1] == "<go>");
  CHECK(std::count(continued.tokens.begin() + static_cast<std::ptrdiff_t>(continued.prompt_length),
                   continued.tokens.end(), "<thought>") == unwritten);
  for (std::size_t at = listed.prompt_length; at < listed.tokens.size(); ++at) CHECK(listed.scored[at]);
  REQUIRE(listed.fetches.size() == trace.fetches.size());
  for (std::size_t f = 0; f < trace.fetches.size(); ++f) {
    CHECK(listed.tokens[listed.fetches[f].at + 1] == trace.tokens[trace.fetches[f].at + 1]);
  }
}

TEST_CASE("a set begins at any problem of its seed") {
  const laboratory lab;
  const problem_set all(lab.constants, lab.words, 0, 5, 3), last(lab.constants, lab.words, 3, 2, 3);
  CHECK(all.ids[3] == last.ids[0]);
  CHECK(all.ids[4] == last.ids[1]);
}

TEST_CASE("problems are the same for the same seed, and point far enough back") {
  const task constants = read_task(directory / "checkpoints" / "plain");
  generator draw(constants, 7), again(constants, 7), other(constants, 8);
  const problem first = render(constants, draw.draw());
  CHECK(first.tokens == render(constants, again.draw()).tokens);
  CHECK(first.tokens != render(constants, other.draw()).tokens);
  int fine = 0, all = 0;
  for (int n = 0; n < 200; ++n) {
    const program p = draw.draw();
    for (std::size_t r = constants.literals; r < p.pointers.size(); ++r, ++all) {
      CHECK(p.pointers[r].source + 2 <= r);
      if (p.pointers[r].last) continue;
      ++fine;
      CHECK(p.pointers[r].line >= constants.first_fine);
      CHECK(p.pointers[r].line <= constants.last_fine);
    }
  }
  CHECK(fine > 0.70 * all);
  CHECK(fine < 0.80 * all);
}

TEST_CASE("the task's constants are refused with a sentence when they do not fit together") {
  const scratch folder;
  const std::string good = read_file(directory / "checkpoints" / "plain" / "ledger.json");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    write_file(folder / "ledger.json", text);
    return complaint([&] { read_task(folder.path()); });
  };
  CHECK(says(with("\"registers\": 12", "\"registers\": -1"), "registers"));
  CHECK(says(with("\"registers\": 12", "\"registers\": 99"), "names"));
  CHECK(says(with("\"values\": 97", "\"values\": 96"), "permutation"));
  CHECK(says(with("\"lines\": 24", "\"lines\": 1"), "lines"));
  CHECK(with("\"lines\": 24", "\"lines\": 24") == "no complaint");
}

TEST_CASE("the trained model fetches with full attention, and not from summaries alone") {
  laboratory lab;
  const outcome full = lab.run(zoomr::presets::full, true);
  CHECK(full.fine.share() >= 0.97);
  CHECK(full.coarse.share() >= 0.97);
  auto summaries = zoomr::presets::summary_only;
  summaries.zone.recent = 24;
  const outcome blind = lab.run(summaries, true);
  CHECK(blind.fine.share() <= 0.1);
  CHECK(blind.coarse.share() >= 0.9);
}

TEST_CASE("zoomr attends to at most 0.58 of what full does, and mass with asking again keeps the accuracy") {
  laboratory lab;
  const outcome full = lab.run(zoomr::presets::full, true);
  auto published = zoomr::presets::zoomr_one_pass;
  published.zone.recent = 24;
  CHECK(lab.run(published, true).attended_mean <= 0.58 * full.attended_mean);
  auto mass = zoomr::presets::zoomr_mass;
  mass.zone.recent = 24;
  const outcome zoomed = lab.run(mass, true);
  CHECK(zoomed.attended_mean <= 0.58 * full.attended_mean);
  CHECK(zoomed.fine.share() >= 0.9);
  const outcome written = lab.run(mass, false);  // token by token
  CHECK(written.stats.passes ==
        written.stats.tokens + 12 + 2);  // each sentence end in trace and answers is passed twice
}

}  // namespace decode::ledger
