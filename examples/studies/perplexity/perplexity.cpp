// SPDX-License-Identifier: Apache-2.0
#include "perplexity.hpp"

#include <algorithm>  // std::ranges::any_of
#include <iostream>   // std::cerr, std::cout

#include <nlohmann/json.hpp>

#include <zoomr/core/threads/thread_pool.hpp>

#include "../../decode/anchors.hpp"
#include "../../decode/input_error.hpp"
#include "../../decode/named_files.hpp"
#include "../../decode/output.hpp"
#include "../../decode/progress.hpp"
#include "../../decode/streaming.hpp"
#include "../../decode/table.hpp"
#include "../../decode/voters.hpp"
#include "../../decode/weights.hpp"
#include "../evaluate/policy_spec.hpp"
#include "../evaluate/token_controls.hpp"
#include "passages.hpp"
#include "summary.hpp"

namespace decode::perplexity {
namespace {

constexpr index_t most_observed = static_cast<index_t>(prefill::chunk / 2);  // queries of a prompt's end that are kept

/// One column of the comparison.
struct task {
  policy_choice choice;
  std::string settings;  // as they were given
  bool adds_up = false;  // it must see the queries of the whole prompt
  layer_tables anchors;
  streaming_heads streaming;
};

std::string joined(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : " ") + part;
  return out;
}

/// What is to be compared; all checked before anything is computed.
std::vector<task> tasks_of(const options& given, const model_config& config) {
  std::vector<task> all;
  bool used = given.settings.empty();
  for (const std::string& spec : given.policies) {
    policy_choice own = read_policy(spec);
    const std::string anchors = take_setting(own, "anchors"), streaming = take_setting(own, "streaming");
    if (own.name == "full" && (own.budget > 0 || !own.settings.empty() || !anchors.empty()))
      fail(spec, ": full is what all others are compared with, and takes no settings but streaming=FILE");
    task t{.choice = own, .settings = {}, .anchors = {}, .streaming = {}};
    if (!anchors.empty()) t.anchors = read_anchors(anchors, config);
    if (!streaming.empty()) t.streaming = read_streaming(streaming, config);
    auto& settings = t.choice.settings;
    if (own.name != "full") settings.insert(settings.begin(), given.settings.begin(), given.settings.end());
    t.settings = joined(settings);
    for (const auto& [name, file] : {std::pair{"anchors=", &anchors}, {"streaming=", &streaming}})
      if (!file->empty()) t.settings.append(t.settings.empty() ? "" : " ").append(name).append(*file);
    // Quest leaves its first two layers dense, which suits models with many
    if (own.name == "quest" && config.layers <= 4) settings.insert(settings.begin(), "zones.dense_layers=0");
    used = used || own.name != "full";
    if (is_token_control(own.name)) expect_token_control(t.choice, spec);
    with_policy_or_control(t.choice, [&](const auto& policy) {
      if (own.name == "full") return;
      if constexpr (requires { decltype(policy.evict)::accumulates; }) t.adds_up = decltype(policy.evict)::accumulates;
      if constexpr (requires { policy.evict.queries; }) {
        if (policy.evict.queries > most_observed)
          fail(own.name, ": ", decltype(policy.evict)::name, ".queries must be at most ", most_observed, " here");
      }
      if (!is_token_control(own.name)) expect_options(policy, spec, own, given.settings);
    });
    all.push_back(std::move(t));
  }
  if (!used) fail("--set ", given.settings.front(), ": full takes no settings, and no other policy is chosen");
  return all;
}

void check_sizes(const options& given, const model_config& config) {
  for (const index_t context : given.contexts) {
    if (context <= given.scored)
      fail("a context of ", context, " tokens leaves no prompt before ", given.scored,
           " scored ones; it must be larger");
    if (static_cast<std::size_t>(context) > config.context)
      fail("the context of ", context, " tokens is longer than this model's ", config.context);
  }
}

/// Bits of the first tokens of the first text: tells one model from another.
double probe(model& net, const std::vector<long_text>& texts) {
  const auto& ids = texts.front().ids;
  const std::size_t count = std::min<std::size_t>(64, ids.size());
  session run(net, zoomr::presets::full, 1, static_cast<index_t>(count), {});
  run.prompt(0, std::span(ids).first(1));
  double bits = 0;
  for (std::size_t t = 1; t < count; ++t) {
    bits += bits_of(run.logits(0), ids[t]);
    run.advance({&ids[t], 1});
  }
  return bits;
}

/// Everything that the measurements share.
struct bench {
  const options& given;
  zoomr::thread_pool pool;
  model_config config;
  model net;
  tokenizer words;
  class_tables classes;
  std::vector<long_text> texts;
  std::vector<task> tasks;

  bench(const options& from, const model_config& read)
      : given(from),
        pool(usual_threads()),
        config(read),
        net(config, read_weights(from.directory, config), pool),
        words(from.directory, config.vocab),
        classes(words, net.config().vocab, from.delimiters) {
    for (const std::string& path : from.texts) texts.push_back(read_long_text(path, words));
  }

  std::optional<token_id> bos() const { return words.bos() ? words.bos() : net.config().bos; }

  subject about() {
    subject s{probe(net, texts), {}};
    for (const long_text& text : texts) s.texts.push_back(text.name + " " + std::to_string(text.ids.size()));
    return s;
  }
};

/// What is missing of one passage in one context.
void measure(bench& on, const passage& p, index_t context, const std::string& label, journal& done) {
  const std::vector<token_id> ids = tokens_of(p, on.texts, context, on.bos());
  const auto scored = std::span(ids).last(static_cast<std::size_t>(on.given.scored));
  const text_size size = size_of(scored, on.words);
  // Queries of all tokens take more memory than keys and values together: kept where one policy asks for them.
  const bool adds_up = std::ranges::any_of(on.tasks, &task::adds_up);
  std::optional<prefill> prompt;
  for (const task& t : on.tasks) {
    row r{.policy = t.choice.name,
          .settings = t.settings,
          .budget = t.choice.budget,
          .context = context,
          .text = on.texts[p.text].name,
          .end = p.end,
          .tokens = scored.size(),
          .bytes = size.bytes,
          .words = size.words,
          .found = {}};
    if (done.find(r) != nullptr) continue;
    if (!prompt) {
      const auto before = std::span(ids).first(ids.size() - scored.size());
      progress bar(label + ": prompt", before.size());
      prompt.emplace(
          on.net, before, [&](std::size_t passed) { bar.at(passed); },
          adds_up ? prefill::kept_queries::all : prefill::kept_queries::last);
    }
    on.net.set_anchors(t.anchors);
    on.net.set_streaming(t.streaming);
    with_policy_or_control(t.choice, [&](const auto& policy) {
      progress bar(label + ": " + t.choice.name, scored.size());
      r.found = score_tokens(on.net, policy, *prompt, scored, on.classes.read_by(policy.segment),
                             [&](std::size_t passed) { bar.at(passed); });
    });
    done.add(r);
  }
}

std::string signed_percent(double share, int digits) { return (share >= 0 ? "+" : "") + fixed(100 * share, digits); }

void print_table(const std::vector<group>& groups) {
  table figures({"policy", "budget", "context", "passages", "bits/byte", "+-", "ppl/byte", "ppl/word", "beyond full %",
                 "+- ", "gap closed", "attended", "peak KiB", "tokens/s"});
  for (const group& g : groups) {
    const bool compared = g.paired > 0 && !(g.task.policy == "full" && g.task.settings.empty());
    figures.add({g.task.policy + (g.task.settings.empty() ? "" : " " + g.task.settings),
                 g.task.budget > 0 ? std::to_string(g.task.budget) : "-", std::to_string(g.task.context),
                 std::to_string(g.passages), fixed(g.bits_per_byte.mean, 4), fixed(g.bits_per_byte.half_width, 4),
                 fixed(g.perplexity_per_byte, 4), fixed(g.perplexity_per_word, 1),
                 compared ? signed_percent(g.beyond_full(), 2) : "-",
                 compared ? fixed(100 * std::numbers::ln2 * g.bits_beyond_full.half_width, 2) : "-",
                 compared && !std::isnan(g.gap_closed) ? fixed(g.gap_closed, 2) : "-", fixed(g.attended_mean, 1),
                 kib(g.device_peak), fixed(g.tokens_per_second, 0)});
  }
  figures.print(std::cout);
}

void write_csv(const std::string& path, const std::vector<group>& groups) {
  output_file file(path);
  std::ostream& out = file.stream();
  out << "policy,settings,budget,context,passages,bits_per_byte,bits_per_byte_95,perplexity_per_byte,"
         "perplexity_per_word,bits_per_byte_beyond_full,bits_per_byte_beyond_full_95,gap_closed,attended,"
         "device_bytes_peak,details_bytes,summaries_bytes,metadata_bytes,tokens_per_second\n";
  for (const group& g : groups) {
    out << g.task.policy << ',' << g.task.settings << ',' << g.task.budget << ',' << g.task.context << ',' << g.passages
        << ',' << g.bits_per_byte.mean << ',' << g.bits_per_byte.half_width << ',' << g.perplexity_per_byte << ','
        << g.perplexity_per_word << ',' << g.bits_beyond_full.mean << ',' << g.bits_beyond_full.half_width << ','
        << (std::isnan(g.gap_closed) ? "" : fixed(g.gap_closed, 4)) << ',' << g.attended_mean << ',' << g.device_peak
        << ',' << g.bytes.details << ',' << g.bytes.summaries << ',' << g.bytes.metadata << ',' << g.tokens_per_second
        << '\n';
  }
  file.finish();
}

void print_json(const options& given, const journal& done, const std::vector<group>& groups) {
  nlohmann::ordered_json document = {
      {"seed", given.seed}, {"groups", nlohmann::ordered_json::array()}, {"rows", nlohmann::ordered_json::array()}};
  for (const group& g : groups) document["groups"].push_back(to_json(g));
  for (const row& r : done.rows()) document["rows"].push_back(to_json(r));
  std::cout << document.dump(1) << '\n';
}

}  // namespace

void run(const options& given) {
  named_files files;
  files.reads_model(given.directory);
  files.reads("--text", given.texts);
  files.reads("--voters", voters_file(given.directory, given.voters));
  files.writes("--resume", given.resume_file), files.writes("--csv", given.csv_file);
  const model_config config = read_config_with_voters(given.directory, given.voters);
  const auto tasks = tasks_of(given, config);
  check_sizes(given, config);
  bench on(given, config);
  on.tasks = tasks;
  const auto passages = cut(on.texts, {given.contexts, given.scored, given.passages, given.seed});
  journal done(given.resume_file, on.about());
  for (std::size_t p = 0; p < passages.size(); ++p) {
    for (const index_t context : given.contexts) {
      measure(on, passages[p], context,
              std::to_string(p + 1) + "/" + std::to_string(passages.size()) + ", context " + std::to_string(context),
              done);
    }
  }
  const auto groups = summarize(done.rows());
  if (!given.csv_file.empty()) write_csv(given.csv_file, groups);
  if (given.json)
    print_json(given, done, groups);
  else
    print_table(groups);
}

}  // namespace decode::perplexity
