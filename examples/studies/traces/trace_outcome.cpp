// SPDX-License-Identifier: Apache-2.0
#include "trace_outcome.hpp"

#include <nlohmann/json.hpp>

#include "../../decode/table.hpp"
#include "../retrieval/outcome.hpp"

namespace decode::traces {

json to_json(const trace_outcome& result) {
  json line = {{"asked", result.asked},
               {"right", result.right},
               {"as_written", result.as_written},
               {"values", result.values},
               {"values_right", result.values_right},
               {"choices", result.choices},
               {"found", result.found},
               {"attended", result.attended},
               {"agreed", result.agreeability},
               {"written", result.written},
               {"prompt", result.prompt},
               {"peak", result.device_peak},
               {"prompt_bytes", result.prompt_bytes},
               {"text", result.text}};
  if (result.entropy) line["entropy"] = *result.entropy;
  return line;
}

trace_outcome trace_outcome_from(const field& line) {
  trace_outcome result;
  const auto number = [&](const char* name) { return static_cast<int>(line.at(name).count(0, 1 << 30)); };
  const auto large = [&](const char* name) { return static_cast<std::int64_t>(line.at(name).number(0, 1e15)); };
  result.asked = number("asked"), result.right = number("right"), result.as_written = number("as_written");
  result.values = number("values"), result.values_right = number("values_right");
  result.choices = number("choices"), result.found = number("found");
  result.attended = line.at("attended").number(0, 1e12);
  result.agreeability = line.at("agreed").number(0, 1);
  if (const auto entropy = line.find("entropy")) result.entropy = entropy->number(0, 64);
  result.written = large("written"), result.prompt = large("prompt");
  result.device_peak = large("peak"), result.prompt_bytes = large("prompt_bytes");
  result.text = line.at("text").text();
  return result;
}

void judge(const trace_problem& asked, const trace_script& text, trace_outcome& to) {
  const auto results = [&](index_t number) {
    const std::vector<int>& values = asked.steps[static_cast<std::size_t>(number)].values;
    return results_of(text.text_of(trace_script::part::step, number), values.size());
  };
  for (index_t i = 0; i < static_cast<index_t>(asked.steps.size()); ++i) {
    const step& one = asked.steps[static_cast<std::size_t>(i)];
    if (one.worked.empty()) continue;
    const std::vector<int> found = results(i);
    for (std::size_t v = 0; v < one.values.size(); ++v) {
      ++to.values;
      to.values_right += v < found.size() && found[v] == one.values[v] ? 1 : 0;
    }
  }
  for (std::size_t i = 0; i < asked.questions.size(); ++i) {
    const question& one = asked.questions[i];
    ++to.asked;
    int said = 0;
    if (!first_number(text.text_of(trace_script::part::answer, static_cast<index_t>(i)), said)) continue;
    to.right += said == one.value ? 1 : 0;
    const std::vector<int> before = results(one.reads.front());
    to.as_written += one.of < before.size() && before[one.of] == said ? 1 : 0;
  }
}

void trace_tally::add(const trace_outcome& result) {
  ++problems_;
  asked_ += result.asked, right_ += result.right, as_written_ += result.as_written;
  values_ += result.values, values_right_ += result.values_right;
  choices_ += result.choices, found_ += result.found;
  attended_ += result.attended, agreeability_ += result.agreeability;
  if (result.entropy) entropy_ += *result.entropy, ++with_entropy_;
  written_ += static_cast<double>(result.written), prompt_ += static_cast<double>(result.prompt);
  peak_ += static_cast<double>(result.device_peak);
  beyond_ += static_cast<double>(result.device_peak - result.prompt_bytes);
}

std::vector<std::string> trace_tally::titles() {
  return {"policy", "problem", "problems", "right %", "95 %",        "as written %", "steps %",    "found %",
          "agreed", "bits",    "attended", "written", "of a prompt", "beyond KiB",   "of full's %"};
}

std::vector<std::string> trace_tally::cells(const std::string& policy, const std::string& group,
                                            double full_beyond) const {
  const retrieval::interval between = retrieval::wilson(right(), asked_);
  const auto cell = [](std::optional<double> value, int digits, double factor) {
    return value ? fixed(factor * *value, digits) : "-";
  };
  return {policy,
          group,
          fixed(problems_, 0),
          fixed(100 * right(), 1),
          fixed(100 * between.low, 0) + " - " + fixed(100 * between.high, 0),
          fixed(100 * as_written(), 1),
          cell(values_right(), 1, 100),
          cell(found(), 1, 100),
          fixed(share(agreeability_, problems_), 2),
          cell(entropy(), 2, 1),
          fixed(share(attended_, problems_), 0),
          fixed(share(written_, problems_), 0),
          fixed(share(prompt_, problems_), 0),
          fixed(beyond() / 1024, 0),
          full_beyond > 0 ? fixed(100 * beyond() / full_beyond, 0) : "-"};
}

json trace_tally::document(const std::string& policy, const std::string& group, double full_beyond) const {
  const retrieval::interval between = retrieval::wilson(right(), asked_);
  json row = {{"policy", policy},
              {"group", group},
              {"problems", static_cast<std::int64_t>(problems_)},
              {"questions", static_cast<std::int64_t>(asked_)},
              {"right", right()},
              {"right_interval", {between.low, between.high}},
              {"as_written", as_written()},
              {"choices", static_cast<std::int64_t>(choices_)},
              {"agreeability", share(agreeability_, problems_)},
              {"attended_tokens_mean", share(attended_, problems_)},
              {"written_tokens_mean", share(written_, problems_)},
              {"prompt_tokens_mean", share(prompt_, problems_)},
              {"device_bytes_peak_mean", share(peak_, problems_)},
              {"device_bytes_beyond_prompt_mean", beyond()}};
  if (values_right()) row["steps_right"] = *values_right();
  if (found()) row["found"] = *found();
  if (entropy()) row["entropy_bits"] = *entropy();
  if (full_beyond > 0) row["beyond_prompt_of_full"] = beyond() / full_beyond;
  return row;
}

}  // namespace decode::traces
