// SPDX-License-Identifier: Apache-2.0
// One run of zoomr-decode as it goes onto a page.
#pragma once

#include <span>    // std::span
#include <vector>  // std::vector

#include "report.hpp"
#include "report/observe.hpp"
#include "report/page.hpp"
#include "report/recorder.hpp"
#include "session.hpp"
#include "tokenizer.hpp"

namespace decode {

/// Records sequence 0 from its first token to the end of the session; of a model whose layers differ what the policy
/// is for.
template <class Session>
class recording {
 public:
  recording(Session& run, report::policy_facts facts) : run_(run), recorded_(completed(run, facts)) {
    run_.trace(&recorded_.attended, &recorded_.choices);
  }
  recording(const recording&) = delete;
  ~recording() { run_.trace(nullptr, nullptr); }

  /// After the prompt, and after each step.
  void passed(std::span<const token_id> ids) {
    const bool prompt = ids_.empty();
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    run_.with_cache([&](const auto& cache) {
      const report::step_view now = view(cache);
      prompt ? recorded_.begin(now) : recorded_.step(now);
    });
  }

  void add_to(report::page& page, const tokenizer& words, const run_report& ran) const {
    report::run_text said{ran.budget > 0 ? ran.policy + "@" + std::to_string(ran.budget) : ran.policy,
                          ran.options,
                          {},
                          figures(ran),
                          ran.given_text()};
    text_stream stream(words, false);
    for (const token_id id : ids_) said.pieces.push_back(stream.push(id));
    if (!said.pieces.empty()) said.pieces.back() += stream.finish();
    page.add(recorded_, said);
  }

 private:
  static report::policy_facts completed(Session& run, report::policy_facts facts) {
    run.with_cache([&](const auto& cache) {
      if constexpr (requires { cache.groups(); }) {
        facts.model = cache.group(0).model();
        for (index_t layer = 0; layer < cache.layers(); ++layer) {
          if (cache.place(layer).group == 0) facts.layers.push_back(layer);
        }
        for (index_t g = 0; g < cache.groups(); ++g)
          facts.query_heads += cache.group(g).model().layers * cache.group(g).model().heads;
      } else {
        facts.model = cache.model();
        facts.query_heads = cache.model().layers * cache.model().heads;
      }
    });
    return facts;
  }
  template <class Cache>
  report::step_view view(const Cache& cache) const {
    if constexpr (requires { cache.groups(); }) {
      report::step_view now = report::view_of(cache.group(0), cache.in_group(run_.at(0), 0));
      now.stats = cache.stats(run_.at(0));
      now.bytes = cache.bytes(run_.at(0));
      return now;
    } else {
      return report::view_of(cache, run_.at(0));
    }
  }

  Session& run_;
  report::recorder recorded_;
  std::vector<token_id> ids_;  // that were passed
};

}  // namespace decode
