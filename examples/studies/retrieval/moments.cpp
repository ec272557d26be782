// SPDX-License-Identifier: Apache-2.0
#include "moments.hpp"

#include <algorithm>  // std::max, std::min, std::ranges::find, std::ranges::sort
#include <charconv>   // std::from_chars
#include <cmath>      // std::round
#include <utility>    // std::move

#include <nlohmann/json.hpp>

#include <zoomr/policy/compose.hpp>
#include <zoomr/policy/refresh/every_token.hpp>
#include <zoomr/policy/score/key_mass.hpp>
#include <zoomr/policy/select/top_k.hpp>
#include <zoomr/presets/voters.hpp>

#include "../../decode/input_error.hpp"
#include "../../decode/model.hpp"
#include "../perplexity/prefill.hpp"

namespace decode::retrieval {
namespace {

using perplexity::prefill;

/// What one choice has found, column by column of the segments that it could take.
struct recorded {
  std::vector<index_t> segments;
  std::vector<float> log_share;  // [heads, segments]
};

/// An aggregator that writes down the shares, and decides nothing.
struct share_recorder {
  using role = zoomr::role::aggregator;
  static constexpr const char* name = "share_recorder";
  static constexpr zoomr::scope per = zoomr::scope::sequence;
  static constexpr zoomr::votes_t least = 0;
  static constexpr bool counts = true;

  index_t queries = 16;
  index_t question = 0;
  recorded* into = nullptr;

  void add_shares(zoomr::view<float, 2> shares, zoomr::view<const float>, zoomr::view<zoomr::votes_t> votes) const {
    *into = {};
    for (index_t id = 0; id < votes.size(); ++id) {
      if (votes[id] != zoomr::not_eligible) into->segments.push_back(id);
    }
    for (index_t head = 0; head < shares.extent(0); ++head) {
      for (const index_t id : into->segments) {
        const float share = shares(head, id);
        into->log_share.push_back(share > -87.0f ? share : -87.0f);  // NaN too: no query scores it
      }
    }
  }
  friend constexpr bool operator==(const share_recorder&, const share_recorder&) = default;
};

/// A sequence that goes through a lesson under a policy, from memory.
class pupil {
 public:
  template <class Policy>
  pupil(scene& on, const lesson& from, const prefill& memory, const Policy& policy, bool names_question)
      : from_(from),
        memory_(memory),
        layers_(on.layers),
        names_question_(names_question),
        voters_(on.layers.size() * on.config.heads, 1.0f),
        frequencies_(voter_frequencies(on.config)),
        cache_(zoomr::kv_cache(shape_of(on.config, on.layers.size()), policy,
                               limits(on, on.classes.read_by(policy.segment)))),
        seq_(cache_.open()) {}
  pupil(const pupil&) = delete;

  /// Tokens pass until so many have.
  void go(std::size_t tokens) {
    while (at_ < tokens) {
      const zoomr::token_range* const prompt = prompt_at(static_cast<index_t>(at_));
      if (prompt == nullptr) {
        pass({}, 1, false);
        continue;
      }
      const auto left = static_cast<std::size_t>(prompt->last) - at_;
      const std::size_t count = std::min(left, prefill::chunk);
      zoomr::step_item item{.seq = {}, .ids = {}, .prompt_ends = count == left};
      item.prompt_begins = at_ > 0 && static_cast<index_t>(at_) == prompt->first;
      pass(item, count, true);
    }
  }

  /// The segments that hold these positions; -1: none that is closed.
  std::vector<index_t> segments_at(const std::vector<index_t>& positions) const {
    std::vector<index_t> found;
    const zoomr::view<const zoomr::segment> list = cache_.segments(seq_);
    for (const index_t position : positions) {
      index_t segment = -1;
      for (index_t id = 0; id < list.size(); ++id) {
        if (list[id].begin <= position && position < list[id].split) segment = id;
      }
      found.push_back(segment);
    }
    return found;
  }

 private:
  zoomr::config limits(const scene& on, const std::vector<zoomr::token_class>& classes) const {
    zoomr::config result;
    result.max_tokens = static_cast<index_t>(from_.text.size());
    result.max_batched_tokens = static_cast<index_t>(prefill::chunk);
    result.logits.scale = static_cast<float>(on.config.attention_scale);
    result.voters = {voters_.data(), {static_cast<index_t>(layers_.size()), static_cast<index_t>(on.config.heads)}};
    result.rotary.frequencies = zoomr::view<const float>(frequencies_);
    result.classes = classes, result.threads = on.net.threads();
    return result;
  }
  const zoomr::token_range* prompt_at(index_t position) const {
    const auto found = std::ranges::find_if(
        from_.prompts, [&](const zoomr::token_range& item) { return item.first <= position && position < item.last; });
    return found == from_.prompts.end() ? nullptr : &*found;
  }
  void pass(zoomr::step_item item, std::size_t count, bool of_prompt) {
    const auto first = static_cast<index_t>(at_);
    zoomr::token_span question{.ids = {std::max(from_.question.first - first, 0),
                                       std::min(from_.question.last - first, static_cast<index_t>(count))},
                               .role = zoomr::span_role::question};
    if (names_question_ && question.ids.first < question.ids.last) item.spans = {&question, {1}};
    item.seq = seq_;
    memory_.give(cache_, item, at_, count, of_prompt, layers_);
    at_ += count;
  }

  const lesson& from_;
  const prefill& memory_;
  const std::vector<index_t>& layers_;
  bool names_question_;
  std::vector<float> voters_;       // [layers, heads]
  std::vector<float> frequencies_;  // by which the queries of a question far back are turned
  zoomr::any_kv_cache<> cache_;
  zoomr::sequence seq_;
  std::size_t at_ = 0;  // tokens that have passed
};

std::vector<example> record(scene& on, const lesson& from, const scoring_queries& scoring, const prefill& memory) {
  recorded shares;
  const share_recorder recorder{
      .queries = scoring.last, .question = scoring.question ? scoring_queries::most_of_question : 0, .into = &shares};
  const zoomr::zones pinned =
      has_notes(from.kind) ? zoomr::presets::zoomr_voters.zone : zoomr::presets::sentence_voters.zone;
  std::vector<example> found;
  with_segmenter(from.kind, [&](auto segmenter) {
    const auto policy = zoomr::compose(segmenter, zoomr::key_mass{}, recorder, zoomr::top_k{.segments = 1},
                                       zoomr::every_token{}, pinned);
    pupil item(on, from, memory, policy, scoring.question);
    for (const moment& at : from.moments) {
      item.go(at.passed);
      if (shares.segments.empty()) continue;
      example result;
      result.segments = shares.segments.size(), result.log_share = std::move(shares.log_share);
      for (const index_t id : item.segments_at(at.needed)) {
        const auto column = std::ranges::find(shares.segments, id);
        if (column == shares.segments.end()) continue;
        result.needed.push_back(static_cast<std::size_t>(column - shares.segments.begin()));
      }
      std::ranges::sort(result.needed);
      result.needed.erase(std::ranges::unique(result.needed).begin(), result.needed.end());
      found.push_back(std::move(result));
      shares = {};
    }
  });
  return found;
}

}  // namespace

scoring_queries scoring_queries::named(const std::string& text) {
  if (text == "question") return {.question = true};
  scoring_queries result;
  const char* const last = text.data() + text.size();
  const auto [end, wrong] = std::from_chars(text.data(), last, result.last);
  if (wrong != std::errc() || end != last || result.last < 1 || result.last > 1 << 20) {
    fail("--queries: ", shown(text), " is neither a number of queries, at least 1, nor \"question\"");
  }
  return result;
}

std::vector<std::vector<example>> record(scene& on, const lesson& from, const std::vector<scoring_queries>& queries,
                                         const std::function<void(std::size_t)>& passed) {
  const prefill memory(on.net, from.text, passed, prefill::kept_queries::all);
  std::vector<std::vector<example>> result;
  for (const scoring_queries& item : queries) result.push_back(record(on, from, item, memory));
  return result;
}

nlohmann::json to_json(const std::vector<example>& examples) {
  nlohmann::json list = nlohmann::json::array();
  for (const example& item : examples) {
    nlohmann::json shares = nlohmann::json::array();  // in hundredths
    for (const float share : item.log_share) shares.push_back(static_cast<int>(std::round(share * 100)));
    list.push_back({{"needed", item.needed}, {"segments", item.segments}, {"shares", shares}});
  }
  return list;
}

std::vector<example> examples_from(const field& line, std::size_t heads) {
  std::vector<example> list;
  for (const field& part : line.at("examples").elements()) {
    example item;
    item.segments = part.at("segments").count(1, 1 << 20);
    for (const field& id : part.at("needed").elements()) item.needed.push_back(id.count(0, item.segments - 1));
    for (const field& share : part.at("shares").elements()) {
      item.log_share.push_back(static_cast<float>(share.number(-8700, 0)) / 100);
    }
    if (item.log_share.size() != heads * item.segments) fail(part.where(), "of a model with another number of heads");
    list.push_back(std::move(item));
  }
  return list;
}

}  // namespace decode::retrieval
