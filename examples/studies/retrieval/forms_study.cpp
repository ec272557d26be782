// SPDX-License-Identifier: Apache-2.0
#include "forms_study.hpp"

#include <algorithm>  // std::max, std::ranges::all_of, std::ranges::any_of, std::ranges::find
#include <iostream>   // std::cerr, std::cout
#include <map>        // std::map
#include <memory>     // std::make_unique, std::unique_ptr

#include <nlohmann/json.hpp>

#include <zoomr/presets/voters.hpp>

#include "../../decode/named_files.hpp"
#include "../../decode/progress.hpp"
#include "../../decode/sampler.hpp"
#include "../../decode/session.hpp"
#include "../../decode/table.hpp"
#include "../../decode/voters.hpp"
#include "../evaluate/forecast.hpp"
#include "../perplexity/prefill.hpp"
#include "controls.hpp"
#include "form_outcome.hpp"
#include "forms.hpp"
#include "open_session.hpp"
#include "results.hpp"

namespace decode::retrieval {
namespace {

/// The oracle reads the preamble and the question that the presets pin, and of notes all summaries.
control_form controls_for(const policy_choice& choice, const form& as) {
  const bool notes = as.source == form::material::notes;
  const task kind = notes ? task::notes : task::needle;
  if (choice.name != "oracle") return {kind, control_zones(kind)};
  return {kind, notes ? zoomr::presets::zoomr_voters.zone : zoomr::presets::sentence_voters.zone};
}

/// A policy that writes an answer, a token at a time.
class form_writer {
 public:
  form_writer(scene& on, const forms_options& given, const contender& policy, const perplexity::prefill& prompt,
              const form& as, const form_problem& asked)
      : on_(on), asked_(asked), prompt_logits_(prompt.logits()) {
    const control_form control = controls_for(policy.choice, as);
    open(given, policy, control, prompt);
    if (policy.choice.name != "oracle") return;
    needed_ = needed_segments();  // known once the prompt is cut
    open(given, policy, control, prompt);
  }
  form_writer(const form_writer&) = delete;

  session<>& run() { return *run_; }
  token_id last() const { return text_.back(); }

  /// Passes the later prompt, if there is one, behind the first answer.
  void turn() {
    if (!asked_.turn.empty()) {
      chosen_.clear();
      before_ = run_->policy_stats();
      const std::vector<zoomr::token_span> spans = question_from(asked_.prompt.size() + asked_.said.size());
      run_->turn(0, asked_.turn, spans);
    }
    const zoomr::statistics stats = run_->policy_stats();
    if (const std::int64_t choices = stats.entropy_count - before_.entropy_count; choices > 0)
      result_.entropy = (stats.entropy_sum - before_.entropy_sum) / static_cast<double>(choices);
    before_ = stats;
    if (!chosen_.empty()) note_choice(chosen_.back());
    text_ = {greedy(asked_.turn.empty() ? prompt_logits_ : run_->logits(0))};
  }
  /// After the last token has passed.
  void write() {
    text_.push_back(greedy(run_->logits(0)));
    if (!noted_ && !chosen_.empty()) note_choice(chosen_.front());
    chosen_.clear();
  }

  form_outcome finish() {
    const zoomr::statistics stats = added_since(run_->policy_stats(), before_);
    if (result_.entropy) result_.gated = stats.unsure_share();
    result_.attended = stats.attended_mean(shape_of(on_.config, on_.layers.size()));
    result_.device_peak = run_->stats().device_peak;
    result_.prompt = static_cast<std::int64_t>(asked_.tokens().size());
    result_.text = on_.words.decode(text_);
    result_.right = is_answered(result_.text, asked_.answers);
    return result_;
  }

 private:
  void open(const forms_options& given, const contender& policy, const control_form& control,
            const perplexity::prefill& prompt) {
    const auto tokens = static_cast<index_t>(asked_.tokens().size()) + given.written;
    chosen_.clear();
    opened_session opened = open_session(on_.net, policy, control, needed_, tokens, on_.classes);
    run_ = std::move(opened.run), one_row_ = opened.one_row;
    names_question_ = given.name_question && run_->pins_question();
    run_->trace(nullptr, &chosen_);
    const std::vector<zoomr::token_span> spans = question_from(0);
    run_->with_cache([&](auto& cache) { prompt.replay_with(cache, run_->at(0), spans); });
  }

  /// The question of a prompt that begins at a position. A copy of it in front would be chosen in place of the text.
  std::vector<zoomr::token_span> question_from(std::size_t position) const {
    const auto first = static_cast<index_t>(position);
    const bool later = first > 0, asks = later || asked_.turn.empty();
    if (!names_question_ || !asks) return {};
    std::vector<zoomr::token_span> spans;
    if (asked_.copy.size() > 0) spans.push_back({asked_.copy, zoomr::span_role::pinned});
    spans.push_back({{asked_.question.first - first, asked_.question.last - first}, zoomr::span_role::question});
    return spans;
  }
  /// Of a pinned segment nothing need be chosen.
  std::vector<index_t> needed_segments() const {
    std::vector<index_t> needed = segments_holding(*run_, asked_.evidence);
    std::erase(needed, -1);
    return needed;
  }
  void note_choice(const zoomr::choice_record& first) {
    noted_ = true;
    if (!one_row_) return;
    const auto taken = [&](index_t id) { return std::ranges::find(first.chosen, id) != first.chosen.end(); };
    result_.found = std::ranges::all_of(needed_segments(), taken);
  }

  scene& on_;
  const form_problem& asked_;
  std::span<const float> prompt_logits_;
  std::vector<index_t> needed_;  // of the oracle
  bool one_row_ = false, names_question_ = false, noted_ = false;
  std::unique_ptr<session<>> run_;
  zoomr::choice_trace chosen_;
  zoomr::statistics before_;  // of the last prompt, and when it has passed: what is before the answer
  form_outcome result_;
  std::vector<token_id> text_;
};

class study {
 public:
  explicit study(const forms_options& given)
      : given_(given),
        policies_(read_policies(given)),
        on_(given.scene),
        maker_(given.scene.directory, on_.words, given.scene.texts, given.scene.marks),
        done_(on_, label(), form_outcome_from) {
    for (const std::string& name : given.forms) forms_.push_back(form_named(name));
    for (const form& as : forms_) {
      if (as.nothing) fail("--forms ", as.name, ": nothing is for learning, and has no answer to find");
    }
  }

  void run() {
    std::vector<std::pair<const form*, index_t>> open;  // document by document: most prompts begin as another one does
    for (index_t first = 0; first < given_.scene.problems; first += form_maker::questions) {
      const index_t last = std::min(first + form_maker::questions, given_.scene.problems);
      for (const form& as : forms_) {
        for (index_t number = first; number < last; ++number) {
          make(as, number);  // what cannot be passed is refused before anything is
          if (!left(as, number).empty()) open.emplace_back(&as, number);
        }
      }
    }
    const std::string what = std::to_string(open.size()) + " problems in " + std::to_string(forms_.size()) +
                             " forms, each under " + std::to_string(policies_.size()) + " policies: at most";
    const form_problem first = make(forms_.front(), 0);
    forecast remaining(on_.net, first.prompt, open.size(), what, policies_.size(),
                       static_cast<std::size_t>(given_.written) + first.said.size());
    for (const auto& [as, number] : open) {
      examine(*as, number);
      remaining.finish_problem();
    }
    given_.json ? print_json() : print_tables();
  }

 private:
  static std::vector<contender> read_policies(const forms_options& given) {
    std::vector<std::string> specs = given.policies;
    for (std::string& spec : specs) {
      const std::string name = read_policy(spec).name;
      for (const std::string& setting : given.settings) {
        if (name != "full" && !is_control(name)) spec += '+' + setting;
      }
    }
    return read_contenders(specs, given.voters, read_config_with_voters(given.scene.directory, {}));
  }
  std::string label() const {
    return on_.label() + ", " + std::to_string(given_.tokens) + " tokens, " + std::to_string(given_.written) +
           " written" + (given_.name_question ? ", question named" : "");
  }

  form_problem make(const form& as, index_t number) const {
    const index_t document = number / form_maker::questions;
    const std::uint64_t seed = given_.scene.seed * 1000003 + static_cast<std::uint64_t>(document);
    form_problem asked = maker_.make(as, fact_half::measuring, given_.tokens, seed, number % form_maker::questions);
    const std::size_t tokens = asked.tokens().size();
    if (tokens + static_cast<std::size_t>(given_.written) > on_.config.context)
      fail(as.name, ": ", tokens, " tokens and an answer are longer than this model's context of ", on_.config.context);
    return asked;
  }
  std::vector<const contender*> left(const form& as, index_t number) const {
    std::vector<const contender*> policies;
    for (const contender& policy : policies_) {
      if (done_.find(as.name, number, policy) == nullptr) policies.push_back(&policy);
    }
    return policies;
  }
  bool ends(token_id id) const {
    return id == on_.words.eos() || id == maker_.end_of_turn() ||
           std::ranges::find(on_.config.eos, id) != on_.config.eos.end();
  }

  /// Passes a prompt about a document, as far as no other one began like it.
  /// @return  until the next one passes
  const perplexity::prefill& passed_prompt(index_t document, const std::vector<token_id>& ids, progress& bar) {
    if (document != document_) passed_.clear();
    document_ = document, prompt_.reset();
    const perplexity::prefill* known = nullptr;
    std::size_t alike = 0;
    for (const auto& other : passed_) {
      const std::size_t tokens = other->tokens_alike_with(ids);
      if (tokens > alike) alike = tokens, known = other.get();
    }
    // A question that is named scores by its queries, wherever it stands.
    const bool every = given_.name_question || std::ranges::any_of(policies_, &contender::adds_up);
    using enum perplexity::prefill::kept_queries;
    auto prompt = std::make_unique<perplexity::prefill>(
        on_.net, ids, [&](std::size_t tokens) { bar.at(tokens); }, every ? all : last, known);
    const bool others_may_copy_more = ids.size() > alike + 2 * perplexity::prefill::chunk;
    return others_may_copy_more ? *passed_.emplace_back(std::move(prompt)) : *(prompt_ = std::move(prompt));
  }

  /// All policies on one problem, as far as they are not done. They write together: the weights are read once for all.
  void examine(const form& as, index_t number) {
    const form_problem asked = make(as, number);
    const std::vector<const contender*> policies = left(as, number);
    progress bar(as.name + ", problem " + std::to_string(number), asked.prompt.size());
    const perplexity::prefill& prompt = passed_prompt(number / form_maker::questions, asked.prompt, bar);
    std::vector<std::unique_ptr<form_writer>> writers;
    for (const contender* policy : policies)
      writers.push_back(std::make_unique<form_writer>(on_, given_, *policy, prompt, as, asked));
    std::vector<session<>*> runs;
    for (const auto& writer : writers) runs.push_back(&writer->run());
    for (const token_id id : asked.said) session<>::advance_each(runs, std::vector<token_id>(runs.size(), id));
    for (const auto& writer : writers) writer->turn();
    const auto goes_on = [&](const form_writer& one) { return !ends(one.last()); };
    for (index_t t = 1; t < given_.written && advance_writers(writers, goes_on); ++t) {
    }
    for (std::size_t i = 0; i < policies.size(); ++i) done_.add(as.name, number, *policies[i], writers[i]->finish());
  }

  /// Calls visit(form, policy, tally), form by form.
  template <class Visit>
  void each_row(Visit visit) const {
    for (const form& as : forms_) {
      for (const contender& policy : policies_) {
        form_tally sums;
        for (index_t number = 0; number < given_.scene.problems; ++number)
          sums.add(*done_.find(as.name, number, policy));
        visit(as.name, policy.spec, sums);
      }
    }
  }
  /// Calls visit(policy, tally) with what a policy made of all forms.
  template <class Visit>
  void each_policy(Visit visit) const {
    for (const contender& policy : policies_) {
      form_tally sums;
      for (const form& as : forms_) {
        for (index_t number = 0; number < given_.scene.problems; ++number)
          sums.add(*done_.find(as.name, number, policy));
      }
      if (sums.has_entropy()) visit(policy.spec, sums);
    }
  }

  void print_json() const {
    nlohmann::ordered_json document = {{"seed", given_.scene.seed}, {"tokens", given_.tokens}};
    document["rows"] = document["entropies"] = nlohmann::ordered_json::array();
    each_row([&](const std::string& form, const std::string& policy, const form_tally& sums) {
      document["rows"].push_back(nlohmann::ordered_json(sums.document(policy, form)));
    });
    each_policy([&](const std::string& policy, const form_tally& sums) {
      document["entropies"].push_back(nlohmann::ordered_json(sums.entropy_document(policy)));
    });
    std::cout << document.dump(1) << '\n';
  }
  void print_tables() const {
    table figures(form_tally::titles()), entropies(form_tally::entropy_titles());
    each_row([&](const std::string& form, const std::string& policy, const form_tally& sums) {
      figures.add(sums.cells(policy, form));
    });
    figures.print(std::cout);
    bool any = false;
    each_policy([&](const std::string& policy, const form_tally& sums) {
      entropies.add(sums.entropy_cells(policy));
      any = true;
    });
    if (any) entropies.print(std::cout << '\n');
  }

  const forms_options& given_;
  std::vector<contender> policies_;
  scene on_;
  form_maker maker_;
  std::vector<form> forms_;
  results<form_outcome> done_;
  // Of one document: prompts that others may begin like, and the last one that began like one of these.
  index_t document_ = -1;
  std::vector<std::unique_ptr<perplexity::prefill>> passed_;
  std::unique_ptr<perplexity::prefill> prompt_;
};

}  // namespace

void run(const forms_options& given) {
  named_files files;
  files.reads_model(given.scene.directory);
  files.reads("--text", given.scene.texts);
  name_voters(files, given.scene.directory, given.voters);
  files.writes("--resume", given.scene.resume);
  for (const std::string& name : given.forms) form_named(name);  // before the weights, which may take long
  study(given).run();
}

}  // namespace decode::retrieval
