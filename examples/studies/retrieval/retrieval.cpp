// SPDX-License-Identifier: Apache-2.0
#include "retrieval.hpp"

#include <algorithm>  // std::find, std::max
#include <cmath>      // std::sqrt
#include <iostream>   // std::cout
#include <map>        // std::map
#include <memory>     // std::make_shared
#include <tuple>      // std::tuple

#include <nlohmann/json.hpp>

#include "../../decode/input_error.hpp"
#include "../../decode/output.hpp"
#include "../../decode/progress.hpp"
#include "../../decode/sampler.hpp"
#include "../../decode/session.hpp"
#include "../../decode/table.hpp"
#include "../evaluate/line_file.hpp"
#include "../evaluate/policy_spec.hpp"
#include "../ledger/controls.hpp"
#include "../perplexity/prefill.hpp"

namespace decode::retrieval {
namespace {

/// One policy on one problem.
struct outcome {
  bool right = false;
  int asked = 0;  // choices after the prompt, where one row serves all layers
  int hit = 0;    // of them, those that took what is needed
  double attended = 0;
  double agreeability = 0;
  std::int64_t device_peak = 0;
};

nlohmann::json to_json(const outcome& of) {
  return {{"right", of.right},       {"asked", of.asked},         {"hit", of.hit},
          {"attended", of.attended}, {"agreed", of.agreeability}, {"peak", of.device_peak}};
}
outcome outcome_from(const field& line) {
  outcome made;
  made.right = line.at("right").boolean();
  made.asked = static_cast<int>(line.at("asked").count(0, 1 << 30));
  made.hit = static_cast<int>(line.at("hit").count(0, 1 << 30));
  made.attended = line.at("attended").number(0, 1e12);
  made.agreeability = line.at("agreed").number(0, 1);
  made.device_peak = static_cast<std::int64_t>(line.at("peak").number(0, 1e18));
  return made;
}

template <class Policy>
outcome answer(scene& on, const Policy& policy, const perplexity::prefill& prompt, const problem& asked, index_t needed,
               index_t written) {
  session run(on.net, policy, 1, static_cast<index_t>(prompt.tokens()) + written, on.classes);
  zoomr::choice_trace choices;
  prompt.replay(run.cache(), run.at(0));
  run.cache().trace_choices(&choices);
  std::vector<token_id> text = {greedy(prompt.logits())};
  while (static_cast<index_t>(text.size()) < written) {
    run.advance({&text.back(), 1});
    text.push_back(greedy(run.logits(0)));
  }
  outcome made;
  made.right = on.words.decode(text).find(asked.answer) != std::string::npos;
  for (const zoomr::choice_record& of : choices) {
    if (policy.aggregate.per != zoomr::scope::sequence) continue;
    ++made.asked;
    made.hit += std::find(of.chosen.begin(), of.chosen.end(), needed) != of.chosen.end() ? 1 : 0;
  }
  const zoomr::statistics stats = run.stats();
  made.attended = run.attended_mean(), made.agreeability = stats.agreeability(), made.device_peak = stats.device_peak;
  return made;
}

/// What is asked for by name, or a control: what is needed is always read, or as many segments at random.
template <class Visit>
void with_named(const policy_choice& choice, const problem& asked, index_t needed, Visit visit) {
  const auto control = [&](auto selector) {
    with_segmenter(asked.of, [&](auto segmenter) {
      constexpr bool whole = std::same_as<decltype(segmenter), zoomr::thoughts>;
      visit(zoomr::compose(segmenter, zoomr::key_mean{}, zoomr::head_mass{}, selector, zoomr::every_token{},
                           zoomr::zones{.sinks = 4, .recent = 64, .open = whole ? zoomr::unlimited : 0},
                           zoomr::placement{.details_on_host = true}));
    });
  };
  if (choice.name == "oracle") {
    const ledger::needs needs{std::vector<index_t>(asked.prompt.size() + 4096, needed)};
    return control(ledger::oracle{&needs});
  }
  if (choice.name == "random") return control(ledger::random_segments{.segments = 2});
  with_policy(choice, visit);
}

// Wilson's interval of a share, its half.
double half_width(double share, double count) {
  const double z = 1.96;
  return z / (1 + z * z / count) * std::sqrt(share * (1 - share) / count + z * z / (4 * count * count));
}

struct sums {
  int problems = 0, right = 0, asked = 0, hit = 0;
  double attended = 0, agreeability = 0, peak = 0, tokens = 0;

  void add(const outcome& of, std::size_t prompt) {
    ++problems, right += of.right ? 1 : 0, asked += of.asked, hit += of.hit;
    attended += of.attended, agreeability += of.agreeability, peak += static_cast<double>(of.device_peak);
    tokens += static_cast<double>(prompt);
  }
};

}  // namespace

void run(const options& given) {
  scene on(given.of);
  std::vector<policy_choice> choices;
  for (const std::string& spec : given.policies) {
    choices.push_back(read_policy(spec));
    const bool control = spec == "oracle" || spec == "random";
    if (!control)
      with_policy(choices.back(), [&](const auto& policy) { expect_options(policy, spec, choices.back(), {}); });
  }
  using task_key = std::tuple<std::string, index_t, std::string>;
  std::map<task_key, outcome> done;
  line_file lines(given.of.resume, [&](const json& line, const std::string& where) {
    const field of(line, where + ": ");
    done[{of.at("group").text(), static_cast<index_t>(of.at("number").count(0, 1 << 30)), of.at("policy").text()}] =
        outcome_from(of);
  });
  std::map<std::pair<std::string, std::string>, sums> all;  // by group and policy
  for (const group& of : on.groups) {
    for (index_t number = 0; number < given.of.problems; ++number) {
      const problem asked = on.make(of, number);
      const index_t needed = on.needed_segment(asked);
      std::shared_ptr<perplexity::prefill> prompt;
      for (std::size_t i = 0; i < choices.size(); ++i) {
        const std::string& spec = given.policies[i];
        const task_key key{of.name(), number, spec};
        if (!done.contains(key)) {
          if (!prompt) {
            progress bar(of.name() + ", problem " + std::to_string(number), asked.prompt.size());
            prompt = std::make_shared<perplexity::prefill>(on.net, asked.prompt,
                                                           [&](std::size_t passed) { bar.at(passed); });
          }
          with_named(choices[i], asked, needed, [&](const auto& policy) {
            done[key] = answer(on, policy, *prompt, asked, needed, given.written);
          });
          nlohmann::json line = to_json(done[key]);
          line["group"] = of.name(), line["number"] = number, line["policy"] = spec;
          lines.add(line);
        }
        all[{of.name(), spec}].add(done[key], asked.prompt.size());
      }
    }
  }
  table figures({"policy", "problem", "problems", "right %", "+-", "found %", "agreed", "attended", "of", "peak KiB"});
  for (const group& of : on.groups) {
    for (const std::string& spec : given.policies) {
      const sums& made = all[{of.name(), spec}];
      const double count = std::max(1, made.problems), share = made.right / count;
      figures.add({spec, of.name(), std::to_string(made.problems), fixed(100 * share, 1),
                   fixed(100 * half_width(share, count), 1),
                   made.asked > 0 ? fixed(100.0 * made.hit / made.asked, 1) : "-", fixed(made.agreeability / count, 2),
                   fixed(made.attended / count, 0), fixed(made.tokens / count, 0), fixed(made.peak / count / 1024, 0)});
    }
  }
  figures.print(std::cout);
  if (given.csv.empty()) return;
  output_file file(given.csv);
  file.stream() << "policy,group,problems,right,hit,choices,attended,prompt_tokens,device_peak\n";
  for (const auto& [key, made] : all) {
    const double count = std::max(1, made.problems);
    file.stream() << key.second << ',' << key.first << ',' << made.problems << ',' << made.right << ',' << made.hit
                  << ',' << made.asked << ',' << made.attended / count << ',' << made.tokens / count << ','
                  << made.peak / count << '\n';
  }
  file.finish();
}

}  // namespace decode::retrieval
