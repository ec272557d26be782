// SPDX-License-Identifier: Apache-2.0
// One run of zoomr-decode: a text is continued under one policy, on the host or on a device, and what it has cost is
// put down.
#pragma once

#include <algorithm>  // std::any_of, std::find, std::min, std::none_of
#include <chrono>     // std::chrono::steady_clock
#include <concepts>   // std::same_as
#include <iostream>   // std::cout
#include <memory>     // std::make_unique
#include <optional>   // std::optional
#include <utility>    // std::exchange

#include "options.hpp"
#include "output.hpp"
#include "page_trace.hpp"
#include "policies.hpp"
#include "progress.hpp"
#include "recording.hpp"
#include "report.hpp"
#include "session.hpp"
#include "tokenizer.hpp"
#include "trace_writer.hpp"

namespace decode {

/// Everything that the runs have in common.
struct job {
  const options& given;
  const model_config& config;
  const tokenizer& words;
  std::vector<zoomr::token_class> classes;  // [V]
  std::vector<token_id> prompt;
  std::vector<std::vector<token_id>> turns;  // each follows an answer, and is answered
  std::size_t runs = 1;
  zoomr::executor threads;     // of the host's session
  bool continues = false;      // the prompt has text: what is written comes behind it
  std::vector<token_id> text;  // that all runs write; empty: each its own
  std::optional<report::page> page;

  bool ends(token_id id) const {
    const auto& eos = config.eos;
    return id == words.eos() || std::find(eos.begin(), eos.end(), id) != eos.end();
  }
  /// Of the prompt and its turns. An answer that has ended leaves its last token to the turn after it.
  std::size_t given_tokens() const {
    std::size_t count = prompt.size();
    for (const std::vector<token_id>& turn : turns) count += turn.size();
    return count;
  }
  /// Of one answer.
  index_t most_tokens() const {
    const std::size_t room = config.context - std::min(config.context, given_tokens());
    return static_cast<index_t>(std::min(room / (turns.size() + 1), static_cast<std::size_t>(given.max_tokens)));
  }
  /// Of the longest text: what is given and all that is written.
  index_t tokens() const {
    return static_cast<index_t>(given_tokens()) + static_cast<index_t>(turns.size() + 1) * most_tokens();
  }
};

/// The name of a file of one run: FILE, or FILE.policy-budget of several runs; empty if there is none.
inline std::string name_for_run(const std::string& path, std::size_t runs, const policy_choice& choice) {
  return path.empty() || runs <= 1 ? path : path + "." + choice.name + "-" + std::to_string(choice.budget);
}

/// nullptr if there is none.
inline std::unique_ptr<output_file> for_run(const job& work, const std::string& path, const policy_choice& choice) {
  return path.empty() ? nullptr : std::make_unique<output_file>(name_for_run(path, work.runs, choice));
}

/// Before a sentence about one run of several.
inline std::string of_run(const job& work, const policy_choice& choice) {
  return work.runs > 1 ? choice.name + ", " : "";
}

/// Writes an answer after what was passed last. Text streams as it comes unless JSON is wanted.
/// @param passed  passed(ids)  called after each step with what was passed
/// @return  the token that ended it, which has not been passed; none where it is as long as it may be
template <class Session, class Passed>
std::optional<token_id> answer(job& work, Session& run, sampler& sample, text_stream& stream, run_report& report,
                               progress& bar, std::ostream* logits_out, Passed passed) {
  for (index_t written = 0; written < work.most_tokens(); ++written) {
    const auto logits = run.logits();
    if (logits_out != nullptr)
      logits_out->write(reinterpret_cast<const char*>(logits.data()),
                        static_cast<std::streamsize>(logits.size_bytes()));
    const token_id own = sample(logits);
    const token_id next = work.text.empty() ? own : work.text[report.tokens.size()];
    report.own_tokens += own == next ? 1 : 0;
    report.tokens.push_back(next);
    const std::string piece = work.ends(next) ? "" : stream.push(next);
    report.text += piece;
    if (!work.given.json) std::cout << piece << std::flush;
    bar.at(report.tokens.size());
    if (work.ends(next)) return next;
    run.advance({&next, 1});
    passed(std::span(&next, 1));
  }
  return std::nullopt;
}

/// Writes on after the prompt, with a session of the host or of a device, and after each turn.
/// @param passed  passed(ids)  called after the prompt and after each step with what was passed
template <class Session, class Passed>
run_report write(job& work, const policy_choice& choice, Session& run, std::ostream* logits_out, Passed passed) {
  const auto most = static_cast<std::size_t>(work.most_tokens()) * (work.turns.size() + 1);
  run_report report;
  report.policy = choice.name;
  report.budget = choice.budget;
  {
    progress bar("prompt", work.prompt.size());
    run.prompt(work.prompt, [&](std::size_t count) { bar.at(count); });
  }
  passed(std::span<const token_id>(work.prompt));
  progress bar(choice.name, work.given.json ? most : 0);
  sampler sample(work.given.sampling);
  text_stream stream(work.words, false, work.continues);  // markers of thoughts and summaries are worth seeing
  const auto begin = std::chrono::steady_clock::now();
  std::optional<token_id> end = answer(work, run, sample, stream, report, bar, logits_out, passed);
  if constexpr (requires { run.turn(0, work.prompt); }) {
    for (std::size_t i = 0; i < work.turns.size(); ++i) {
      std::vector<token_id> turn = work.turns[i];
      if (end) turn.insert(turn.begin(), *end);
      run.turn(0, turn);
      passed(std::span<const token_id>(turn));
      const std::string rest = stream.finish() + work.given.turns[i];
      report.text += rest;
      if (!work.given.json) std::cout << rest << std::flush;
      stream = text_stream(work.words, false, true);
      end = answer(work, run, sample, stream, report, bar, logits_out, passed);
    }
  }
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  report.text += stream.finish();
  if (!work.text.empty()) report.more["own_tokens"] = report.own_tokens;
  return report;
}

/// What --record says of a run.
inline trace_facts facts_for_trace(const job& work) {
  const model_config& c = work.config;
  trace_facts facts{.model = shape_of(c, c.layers),
                    .layers = {},
                    .scale = c.attention_scale,
                    .prompt = static_cast<index_t>(work.prompt.size()),
                    .name = work.given.model_name(),
                    .command = work.given.command,
                    .classes = work.classes,
                    .bytes = [&words = work.words](token_id id, bool is_first) { return words.piece(id, is_first); }};
  if (c.window == 0) return facts;
  for (std::size_t layer = 0; layer < c.layers; ++layer) {
    if (!c.has_window(layer)) facts.layers.push_back(static_cast<index_t>(layer));
  }
  facts.model.layers = static_cast<index_t>(facts.layers.size());
  return facts;
}

/// What is known of the policy of a run.
struct known_policy {
  std::string options;  // in words
  report::policy_facts facts;
  bool of_thoughts = false;
};

/// On the host.
template <class Placement, class T>
run_report generate(job& work, const policy_choice& choice, session<Placement, T>& run, const known_policy& policy,
                    std::ostream* logits_out) {
  const auto file = for_run(work, work.given.pages_file, choice);
  std::optional<page_trace> pages;
  if (file) {
    pages.emplace(file->stream(), zoomr::block_shape{run.cache().model(), run.cache().block_heads()}, policy.facts.per);
    run.cache().trace(&pages->records);
    run.cache().trace_choices(&pages->choices);
  }
  std::optional<recording<session<Placement, T>>> recorded;
  if (work.page) recorded.emplace(run, policy.facts);
  std::optional<trace_writer> trace;
  if (!work.given.record_file.empty()) run.listen(&trace.emplace(work.given.record_file, facts_for_trace(work)));
  run_report report = write(work, choice, run, logits_out, [&](std::span<const token_id> ids) {
    if (pages) pages->flush(run.cache().segments(run.at(0)));
    if (recorded) recorded->passed(ids);
  });
  if (file) file->finish();
  if (trace) trace->finish();
  take_counters(report, run);
  report.options = policy.options;
  if constexpr (zoomr::tiered_placement<Placement>) {
    const zoomr::memory_use capacity = run.cache().capacity();
    report.device_peak = capacity.total();  // what memory has taken, not what a step needs of it
    report.more["tiers"] = to_json(run.cache().tiers(), capacity);
    if (!work.given.json) tell(of_run(work, choice) + in_words(run.cache().tiers(), capacity));
  }
  if (recorded) recorded->add_to(*work.page, work.words, report);
  return report;
}

/// Neither what was given nor what was written marks a thought.
inline bool lacks_thoughts(const job& work, const run_report& report) {
  const auto marks = [&](token_id id) {
    using enum zoomr::token_class;
    const auto any_of_them = thought_begin | thought_end | summary_begin | summary_end;
    return zoomr::has(work.classes[static_cast<std::size_t>(id)], any_of_them);
  };
  const auto some = [&](const std::vector<token_id>& ids) { return std::any_of(ids.begin(), ids.end(), marks); };
  return !some(work.prompt) && !some(report.tokens) && std::none_of(work.turns.begin(), work.turns.end(), some);
}

/// On the host, under the policy of a choice.
/// @tparam T  in which keys and values are stored
template <class Placement, class T = float>
run_report generate_on_host(job& work, const policy_choice& choice, model& net, std::ostream* logits_out) {
  std::optional<session<Placement, T>> run;
  known_policy known;
  with_policy(choice, [&]<class Policy>(const Policy& policy) {
    const tier_options& tiers = work.given.tiers;
    const auto open = [&](const auto& placed) {
      run.emplace(net, placed, 1, work.tokens(), work.classes, 1, work.given.audit, tiers.limits(), tiers.segments,
                  work.threads);
      known.options = describe(placed);
    };
    if constexpr (zoomr::tiered_placement<Placement>)
      open(with_placement(policy, Placement{}));
    else
      open(policy);
    known.facts = report::facts_of(policy, work.tokens());
    known.of_thoughts = std::same_as<decltype(Policy::segment), zoomr::thoughts>;
  });
  run_report report = generate(work, choice, *run, known, logits_out);
  if (work.given.storage != "float") report.more["storage"] = work.given.storage;
  const bool idle = report.stats.tokens > 0 && report.stats.chosen == 0;
  if (known.of_thoughts && !work.given.json && idle && lacks_thoughts(work, report))
    tell("note: " + choice.name + " is for texts with thoughts, and no token of this one begins or ends one");
  return report;
}

/// Calls visit(T{}) for the storage type of a name, among some types.
template <class Visit, class First, class... Others>
auto with_storage(const std::string& name, zoomr::type_list<First, Others...>, Visit visit) {
  if constexpr (sizeof...(Others) > 0) {
    if (name != zoomr::storage_name<First>()) return with_storage(name, zoomr::type_list<Others...>{}, visit);
  }
  return visit(First{});
}

/// On the host, over tiers or stored as the options say it.
inline run_report generate(job& work, const policy_choice& choice, model& net, std::ostream* logits_out) {
  if (work.given.tiers.given()) return generate_on_host<zoomr::tiered<>>(work, choice, net, logits_out);
  return with_storage(work.given.storage, offered_storage{}, [&](auto number) {
    return generate_on_host<zoomr::placement, decltype(number)>(work, choice, net, logits_out);
  });
}

/// On a device. Choices stay there: what needs to see them is not counted.
inline run_report generate(job& work, const policy_choice& choice, device::engine& on, std::ostream* logits_out) {
  const auto run = on.open(choice, work.classes, {work.given.tiers.limits(), work.given.tiers.segments});
  run_report report = write(work, choice, *run, logits_out, [](std::span<const token_id>) {});
  const device::run_cost cost = run->cost();
  with_policy(choice, [&](const auto& policy) { report.options = describe(policy); });
  report.steps = cost.tokens;
  report.passes = cost.passes;
  report.attended_mean = cost.attended_mean;
  report.device_peak = cost.reserved.total();
  report.bytes = cost.reserved;
  report.more["device"] = "cuda";
  report.more["stats"] = {{"prompt_tokens", cost.prompt_tokens}, {"tokens", cost.tokens}, {"options", report.options}};
  if (cost.arena) {
    report.more["tiers"] = to_json(*cost.arena, cost.reserved.total(), cost.pinned);
    if (!work.given.json) tell(of_run(work, choice) + in_words(*cost.arena, cost.reserved.total(), cost.pinned));
  }
  return report;
}

}  // namespace decode
