// SPDX-License-Identifier: Apache-2.0
// One run of zoomr-decode: a text is continued under one policy, on the host or on a device, and what it has cost is
// put down.
#pragma once

#include <algorithm>   // std::any_of, std::find, std::max, std::min, std::none_of, std::replace
#include <chrono>      // std::chrono::steady_clock
#include <concepts>    // std::same_as
#include <functional>  // std::function
#include <iostream>    // std::cout
#include <memory>      // std::make_unique
#include <optional>    // std::optional
#include <utility>     // std::move

#include "chat.hpp"
#include "options.hpp"
#include "output.hpp"
#include "page_trace.hpp"
#include "policies.hpp"
#include "progress.hpp"
#include "recording.hpp"
#include "report.hpp"
#include "session.hpp"
#include "table.hpp"
#include "tokenizer.hpp"
#include "trace_writer.hpp"

namespace decode {

/// Everything that the runs have in common.
struct job {
  const options& given;
  const model_config& config;
  const tokenizer& words;
  std::vector<zoomr::token_class> classes;  // [V]
  chat_passage prompt;
  std::vector<chat_passage> turns;  // each follows an answer, and is answered
  std::size_t runs = 1;
  zoomr::executor threads;     // of the host's session
  bool continues = false;      // the prompt has text: what is written comes behind it
  std::vector<token_id> text;  // that all runs write; empty: each its own
  std::optional<report::page> page;
  std::optional<token_id> end_of_turn = {};  // of a chat
  /// Of a chat that is typed: the passage after `turns`, if there is one, which then belongs to these.
  std::function<std::optional<chat_passage>()> typed = {};
  bool as_typed = false;         // nobody knows how many turns there will be
  bool on_terminal = false;      // where they are typed
  std::size_t on_screen = 0;     // passages, the prompt first, that are on the terminal as they were typed
  zoomr::rank_group ranks = {};  // that share out the heads

  bool ends(token_id id) const {
    const auto& eos = config.eos;
    return id == words.eos() || id == end_of_turn || std::find(eos.begin(), eos.end(), id) != eos.end();
  }
  /// Of the prompt and its turns. An answer that has ended leaves its last token to the turn after it.
  std::size_t given_tokens() const {
    std::size_t count = prompt.ids.size();
    for (const chat_passage& turn : turns) count += turn.ids.size();
    return count;
  }
  /// Of one answer.
  /// @param at  tokens before it
  index_t most_tokens(std::size_t at = 0) const {
    const std::size_t context = as_typed ? static_cast<std::size_t>(tokens()) : config.context;
    const std::size_t before = as_typed ? std::max(at, prompt.ids.size()) : given_tokens();
    const std::size_t room = context - std::min(context, before);
    const std::size_t answers = as_typed ? 1 : turns.size() + 1;
    return static_cast<index_t>(std::min(room / answers, static_cast<std::size_t>(given.max_tokens)));
  }
  /// Of the longest text: what is given and all that is written.
  index_t tokens() const {
    if (as_typed) return static_cast<index_t>(std::min(config.context, longest_typed));
    return static_cast<index_t>(given_tokens()) + static_cast<index_t>(turns.size() + 1) * most_tokens();
  }
  /// What follows the i-th answer; nullptr if that was the last.
  const chat_passage* turn(std::size_t i) {
    if (i == turns.size() && typed) {
      std::optional<chat_passage> next = typed();
      if (next) turns.push_back(std::move(*next));
      if (on_terminal) on_screen = turns.size() + 1;
    }
    return i < turns.size() ? &turns[i] : nullptr;
  }

  /// Tokens that a chat may have which is typed: a cache has room for these.
  static constexpr std::size_t longest_typed = 1 << 15;
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

/// A message on the screen: on one line, and no longer than a few.
inline std::string on_screen(const std::string& content) {
  std::string line = content;
  std::replace(line.begin(), line.end(), '\n', ' ');
  return shortened(line, 400);
}

/// What others have said in a passage, with the sign that stands before a message on a terminal.
inline void print_messages(const chat_passage& passage) {
  for (const auto& [role, content] : passage.messages) {
    if (role == chat_role::user) std::cout << "> " << on_screen(content) << '\n';
    if (role == chat_role::assistant) std::cout << on_screen(content) << "\n\n";
  }
  std::cout << std::flush;
}

/// Writes an answer after what was passed last. Text streams as it comes unless JSON is wanted.
/// @param most    tokens
/// @param passed  passed(ids)  called after each step with what was passed
/// @return  the token that ended it, which has not been passed; none where it is as long as it may be
template <class Session, class Passed>
std::optional<token_id> answer(job& work, Session& run, sampler& sample, text_stream& stream, run_report& report,
                               progress& bar, std::ostream* logits_out, index_t most, Passed passed) {
  for (index_t written = 0; written < most; ++written) {
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

/// What a passage of a chat asks, for a policy that pins a question.
/// @param before  tokens that are passed before it
template <class Session>
std::vector<zoomr::token_span> question_of(const Session& run, const chat_passage& passage, std::size_t before) {
  const auto first = static_cast<index_t>(before + passage.question.begin),
             last = static_cast<index_t>(before + passage.question.end);
  if (first == last || !run.pins_question()) return {};
  return {{{first, last}, zoomr::span_role::question}};
}

/// Passes the end of an answer and what follows it.
/// @param end  the token that ended it; a passage of a chat begins with one itself
template <class Session>
std::vector<token_id> pass_turn(Session& run, const chat_passage& turn, std::optional<token_id> end) {
  std::vector<token_id> ids = turn.ids;
  const bool closes = end && turn.closing == 0;
  if (closes) ids.insert(ids.begin(), *end);
  run.turn(0, ids, question_of(run, turn, closes ? 1 : 0));
  return ids;
}

/// What a session's tokens after the prompt have attended so far; nothing of a device's, which counts none.
struct attended_tokens {
  double sum = 0;  // of tokens, each the mean of its heads and layers
  std::int64_t tokens = 0;

  template <class Session>
  explicit attended_tokens(const Session& run) {
    if constexpr (requires { run.attended_mean(); }) {
      tokens = run.stats().taken;
      sum = run.attended_mean() * static_cast<double>(tokens);
    }
  }
  /// The mean of the tokens since; 0: there is none.
  double since(const attended_tokens& before) const {
    return tokens == before.tokens ? 0.0 : (sum - before.sum) / static_cast<double>(tokens - before.tokens);
  }
};

/// Writes on after the prompt, with a session of the host or of a device, and after each turn.
/// @param passed  passed(ids)  called after the prompt and after each step with what was passed
template <class Session, class Passed>
run_report write(job& work, const policy_choice& choice, Session& run, std::ostream* logits_out, Passed passed) {
  using clock = std::chrono::steady_clock;
  const bool chat = work.given.chat, shows = chat && !work.given.json;
  const auto most = work.as_typed ? 0 : static_cast<std::size_t>(work.most_tokens()) * (work.turns.size() + 1);
  run_report report;
  report.policy = choice.name;
  report.budget = choice.budget;
  if (shows && work.on_screen == 0) print_messages(work.prompt);
  transcript said;  // its ranges are of the next tokens too, before these are passed
  said.add(work.prompt, 0);
  {
    progress bar("prompt", work.prompt.ids.size());
    const auto shown = [&](std::size_t count) { bar.at(count); };
    if constexpr (requires { run.pins_question(); }) {
      run.prompt(0, work.prompt.ids, shown, question_of(run, work.prompt, 0));
    } else {
      run.prompt(work.prompt.ids, shown);
    }
  }
  passed(std::span<const token_id>(work.prompt.ids));
  std::size_t at = work.prompt.ids.size();  // tokens that were passed
  const auto advanced = [&](std::span<const token_id> ids) {
    at += ids.size();
    passed(ids);
  };
  progress bar(choice.name, work.given.json ? most : 0);
  sampler sample(work.given.sampling);
  text_stream stream(work.words, false, work.continues);  // markers of thoughts and summaries are worth seeing
  auto begin = clock::now();
  for (std::size_t i = 0;; ++i) {
    const std::size_t text_before = report.text.size(), tokens_before = at;
    const attended_tokens before(run);
    const auto end = answer(work, run, sample, stream, report, bar, logits_out, work.most_tokens(at), advanced);
    const std::string rest = stream.finish();
    report.text += rest;
    if (shows) std::cout << rest << "\n\n" << std::flush;
    if (shows && work.on_terminal && !end) std::cerr << "(cut at " << at - tokens_before << " tokens)\n";
    report.answers += 1;
    report.cut += end ? 0 : 1;
    if (chat) {
      const double attended = attended_tokens(run).since(before);
      said.add_answer(report.text.substr(text_before), at - tokens_before, !end, attended);
    }
    if constexpr (requires { run.turn(0, work.prompt.ids); }) {
      const auto waits = clock::now();
      const chat_passage* const turn = work.turn(i);
      begin += clock::now() - waits;
      if (turn == nullptr) break;
      if (work.as_typed && at + turn->ids.size() >= static_cast<std::size_t>(work.tokens())) {
        if (!work.given.json)
          tell("note: " + of_run(work, choice) + "the chat ends, since " + std::to_string(turn->ids.size()) +
               " tokens follow " + std::to_string(at) + ", and there is room for " + std::to_string(work.tokens()));
        break;
      }
      said.add(*turn, at);
      advanced(pass_turn(run, *turn, end));
      report.text += turn->text;
      if (shows && work.on_screen < i + 2) print_messages(*turn);
      if (!work.given.json && !chat) std::cout << rest << turn->text << std::flush;
      stream = text_stream(work.words, false, true);
    } else {
      break;
    }
  }
  work.on_screen = 0;
  report.seconds = std::chrono::duration<double>(clock::now() - begin).count();
  report.more["answers_cut"] = report.cut;
  if (chat) report.more["messages"] = said.to_json();
  if (!work.text.empty()) report.more["own_tokens"] = report.own_tokens;
  return report;
}

/// What --record says of a run.
inline trace_facts facts_for_trace(const job& work) {
  const model_config& c = work.config;
  trace_facts facts{.model = shape_of(c, c.layers),
                    .layers = {},
                    .scale = c.attention_scale,
                    .prompt = static_cast<index_t>(work.prompt.ids.size()),
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
  if (const head_parts* const parts = run.parts()) {
    const auto counts = [](const zoomr::rank_statistics& sent) {
      return nlohmann::ordered_json{{"messages", sent.messages}, {"bytes", sent.bytes}};
    };
    report.more["ranks"] = {{"count", work.ranks.ranks()},
                            {"own_heads", parts->own_heads()},
                            {parts->deal() > 0 ? "caches" : "choices", counts(run.sent_by_caches())},
                            {"outputs", counts(parts->sent_by_outputs())}};
    if (parts->deal() > 0) {
      report.more["ranks"]["deal"] = parts->deal();
      if (!work.given.json) tell("note: " + of_run(work, choice) + "memory is of the first rank's tokens");
    } else if (!work.given.json) {
      tell("note: " + of_run(work, choice) + "attended tokens and memory are of " + std::to_string(parts->own_heads()) +
           " of " + std::to_string(work.config.heads) + " heads, those of the first rank");
    }
  }
  if (run.streams()) {
    const zoomr::byte_count far = run.bytes_of(retrieval_group).total(), near = run.bytes_of(streaming_group).total();
    report.more["streaming"] = {{"retrieval_bytes", far}, {"streaming_bytes", near}};
    if (!work.given.json)
      tell("note: " + of_run(work, choice) + "at the end retrieval heads hold " + kib(far) + " KiB, streaming heads " +
           kib(near) + " KiB");
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
  return !some(work.prompt.ids) && !some(report.tokens) &&
         std::none_of(work.turns.begin(), work.turns.end(), [&](const chat_passage& turn) { return some(turn.ids); });
}

/// On the host, under the policy of a choice.
/// @tparam T  in which keys and values are stored
template <class Placement, class T = float>
run_report generate_on_host(job& work, const policy_choice& choice, model& net, std::ostream* logits_out) {
  std::optional<head_parts> parts;
  if (work.ranks.ranks() > 1) parts.emplace(work.ranks, work.config, work.given.deal);
  std::optional<session<Placement, T>> run;
  known_policy known;
  with_policy(choice, [&]<class Policy>(const Policy& policy) {
    const tier_options& tiers = work.given.tiers;
    const auto open = [&](const auto& placed) {
      run.emplace(net, placed, 1, work.tokens(), work.classes, 1, work.given.audit, tiers.limits(), tiers.segments,
                  work.threads, 0, parts ? &*parts : nullptr);
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
