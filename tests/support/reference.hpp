// SPDX-License-Identifier: Apache-2.0
// The naive reference: what a policy attends, computed in double from the whole history, from scratch for each
// query. Written to be read; it takes a policy's parameters and none of its code.
//
// Float and double may rank two segments differently when their scores are nearly equal. The reference notes where
// such a close call happened (`first_doubt`); before it, the library must attend exactly the same positions.
#pragma once

#include <support/reference_eviction.hpp>
#include <support/reference_rules.hpp>
#include <support/voters.hpp>

#include <concepts>  // std::same_as
#include <map>       // std::map
#include <utility>   // std::pair

namespace reference {

using zoomr::refresh_action;
using zoomr::scope;

/// Counters as in zoomr::statistics, for a text fed token by token.
struct counts {
  std::int64_t passes = 0, attended = 0, refreshes = 0, zooms = 0, chosen = 0, agreeability_count = 0,
               entropy_count = 0, unsure = 0, unsure_tokens = 0;
  double agreeability_sum = 0, entropy_sum = 0;
};

/// What a replay came to, whatever the policy.
class replayed {
 public:
  /// [layer * heads + head][...] positions attended by the queries of one pass of one token
  using heads_attended = std::vector<std::vector<index_t>>;

  /// By position and pass.
  const std::map<std::pair<index_t, index_t>, heads_attended>& attended() const { return attended_; }
  const std::vector<segment>& segments() const { return segments_; }
  const counts& counted() const { return counts_; }
  /// The first position whose attended set rests on a close call; past the end if there was none.
  index_t first_doubt() const { return first_doubt_; }
  /// The pass whose keys are in the cache.
  index_t final_pass(index_t position) const { return twice_[static_cast<std::size_t>(position)] ? 1 : 0; }

 protected:
  replayed(std::vector<segment> segments, std::size_t tokens) : segments_(std::move(segments)), twice_(tokens) {}

  void close_call(index_t position) { first_doubt_ = std::min(first_doubt_, position); }

  std::vector<segment> segments_;  // of the whole text
  std::vector<bool> twice_;        // passed twice
  index_t first_doubt_ = zoomr::unlimited;
  counts counts_;
  std::map<std::pair<index_t, index_t>, heads_attended> attended_;
};

/// What one policy attends, token by token, over one history.
template <class Policy>
class replay : public replayed {
 public:
  replay(const Policy& policy, const history& past, index_t min_sparse_context = 0)
      : replayed(all_segments(policy.segment, past.words), past.words.classes.size()),
        policy_(policy),
        past_(past),
        min_sparse_context_(min_sparse_context),
        prompt_end_(static_cast<index_t>(past.words.prompt_end)),
        in_force_(rows()),
        eviction_(policy.evict, past, policy.zone) {
    const auto tokens = static_cast<index_t>(past.words.size());
    for (index_t p = prompt_end_ - 1; p < tokens; ++p) token(p);
    segments_ = segments_at(tokens);
  }

  bool retained(index_t layer, index_t kv_head, index_t position) const {
    return eviction_.retained(layer, kv_head, position);
  }

 private:
  // Which query heads share row `row`: layers [first_layer, last_layer), heads [first_head, last_head).
  struct sharing {
    index_t row, first_layer, last_layer, first_head, last_head;
  };
  // What lies where for one query.
  struct moment {
    index_t position, begin, front, back, known;  // known: segments that exist; begin: of the model's window
    index_t asks_from;                            // first token of the segment that the query belongs to
    index_t pass;
    bool prompt;
  };

  const shape& model() const { return past_.model; }
  index_t group() const { return model().heads / model().kv_heads; }
  std::size_t rows() const {
    const scope per = policy_.aggregate.per;
    return static_cast<std::size_t>(per == scope::sequence  ? 1
                                    : per == scope::layer   ? model().layers
                                    : per == scope::kv_head ? model().layers * model().kv_heads
                                                            : model().layers * model().heads);
  }
  sharing sharing_of(index_t layer, index_t head) const {
    const index_t g = head / group();
    switch (policy_.aggregate.per) {
      case scope::sequence:
        return {0, 0, model().layers, 0, model().heads};
      case scope::layer:
        return {layer, layer, layer + 1, 0, model().heads};
      case scope::kv_head:
        return {layer * model().kv_heads + g, layer, layer + 1, g * group(), (g + 1) * group()};
      default:
        return {layer * model().heads + head, layer, layer + 1, head, head + 1};
    }
  }

  bool chooses(index_t layer) const {
    return shared_by_all() || past_.anchors.empty() || past_.anchors[static_cast<std::size_t>(layer)] == layer;
  }
  // The row that a head reads: that of its layer, or of the layer's anchor.
  index_t row_read(index_t layer, index_t head) const {
    if (chooses(layer)) return sharing_of(layer, head).row;
    const index_t lane = layer * model().kv_heads + head / group();
    const index_t kv_head =
        past_.anchor_kv_heads.empty() ? head / group() : past_.anchor_kv_heads[static_cast<std::size_t>(lane)];
    return sharing_of(past_.anchors[static_cast<std::size_t>(layer)], kv_head * group() + head % group()).row;
  }

  void unless_clear(index_t position, double gap, double allowed) {
    if (!past_.exact && std::abs(gap) <= allowed) close_call(position);
  }

  // ---- where a query stands ----

  index_t known_at(index_t position, bool position_included) const {
    index_t known = 0;
    for (const segment& s : segments_) known += s.closed_at < position + (position_included ? 1 : 0) ? 1 : 0;
    return known;
  }
  index_t open_begin(index_t known) const {
    const bool segmented = !std::same_as<decltype(policy_.segment), zoomr::unsegmented>;
    return known == 0 || !segmented ? 0 : segments_[static_cast<std::size_t>(known - 1)].end;
  }

  // The zones of a query: the segments closed before it exist (for the choice at the prompt's end, or behind an item
  // that was passed whole, those closed by it). Of such an item those closed before its first token do, and after the
  // token at which a draft would have ended the back zone moves on no more.
  moment at(index_t position, bool prompt, index_t pass, bool committed = false) const {
    const auto& zone = policy_.zone;
    moment now{};
    now.position = position, now.pass = pass, now.prompt = prompt;
    const whole_item* const item = past_.whole_item_at(position);
    now.known =
        item != nullptr && !committed ? known_at(item->tokens.first, false) : known_at(position, prompt || committed);
    now.front = std::min(std::max(zone.sinks, zone.prompt ? prompt_end_ : 0), position + 1);
    const std::int64_t end = position + 1;
    const std::int64_t of_open = std::max<std::int64_t>(open_begin(now.known), end - zone.open);
    const std::int64_t last = std::max<std::int64_t>(0, end - zone.recent);
    const std::int64_t of_turns = std::max<std::int64_t>(std::int64_t{prompt_end_} - zone.recent, end - zone.turns);
    const std::int64_t back = std::min({(last + zone.align - 1) / zone.align * zone.align, of_open, of_turns});
    now.back = static_cast<index_t>(std::max<std::int64_t>(now.front, back));
    now.begin = past_.logits.first_seen(position);
    now.front = std::max(now.front, now.begin), now.back = std::max(now.back, now.begin);
    if (draft_end_ >= 0 && position > draft_end_ && !committed) {
      now.back = std::max(now.front, std::min(now.back, at(draft_end_, false, 0).back));
    }
    const index_t with_own = known_at(position, true);
    const bool ends_here = with_own > 0 && segments_[static_cast<std::size_t>(with_own - 1)].end == end;
    now.asks_from = ends_here ? segments_[static_cast<std::size_t>(with_own - 1)].begin : open_begin(with_own);
    return now;
  }

  // ---- what is pinned ----

  // The prompts that have ended before `until`, oldest first.
  std::vector<zoomr::token_range> prompts_before(index_t until) const {
    std::vector<zoomr::token_range> prompts{{0, prompt_end_}};
    for (const zoomr::token_range& later : past_.later_prompts) prompts.push_back(later);
    std::erase_if(prompts, [&](zoomr::token_range prompt) { return prompt.last > until; });
    return prompts;
  }
  // The last tokens of the newest question: of what spans name of a prompt, or else of the last prompt if a message
  // begins in it.
  zoomr::token_range question_in(const std::vector<zoomr::token_range>& prompts) const {
    zoomr::token_range found = named_question(prompts);
    const bool named = found.last > 0;
    if (!named && !prompts.empty() &&
        past_.words.find(token_class::message, prompts.back().first) < prompts.back().last)
      found = prompts.back();
    const index_t most = named ? policy_.zone.question : std::min(policy_.zone.question, index_t{64});
    return {std::max(found.first, found.last - most), found.last};
  }
  zoomr::token_range named_question(const std::vector<zoomr::token_range>& prompts) const {
    zoomr::token_range found{0, 0};
    for (const zoomr::token_range& prompt : prompts) {
      index_t first = -1, last = -1;
      for (index_t t = prompt.first; t < prompt.last; ++t) {
        if (!past_.words.is(t, token_class::question)) continue;
        if (first < 0) first = t;
        last = t;
      }
      if (first >= 0) found = {first, last + 1};
    }
    return found;
  }
  // Whole segments of the first tokens, up to the first one with text of the second message, if that begins early
  // enough; else of the first message.
  bool in_preamble(index_t id) const {
    const std::int64_t end = std::min(policy_.zone.preamble, prompt_end_);
    const std::int64_t first = past_.words.find(token_class::message, 0);
    const std::int64_t second = past_.words.find(token_class::message, first + 1);
    if (first >= end || segments_[static_cast<std::size_t>(id)].end > end) return false;
    const std::int64_t text = (second < end ? second : first) + 4;
    return id == 0 || segments_[static_cast<std::size_t>(id - 1)].end <= text;
  }
  // All segments of the text as they are when the prompts before `until` have ended: a pinned one has no details.
  const std::vector<segment>& segments_at(index_t until) {
    const std::vector<zoomr::token_range> prompts = prompts_before(until);
    const auto found = pinned_after_.find(prompts.size());
    if (found != pinned_after_.end()) return found->second;
    const zoomr::token_range question = question_in(prompts);
    std::vector<segment>& known = pinned_after_[prompts.size()] = segments_;
    for (index_t id = 0; id < static_cast<index_t>(known.size()); ++id) {
      segment& s = known[static_cast<std::size_t>(id)];
      const bool in_question = s.begin >= question.first && s.end <= question.last;
      if (in_question || past_.words.is(s.begin, token_class::pinned) || in_preamble(id)) s.split = s.begin;
    }
    return known;
  }
  const std::vector<segment>& segments_at(const moment& now) {
    return segments_at(now.position + (now.prompt ? 1 : 0));
  }

  // Retained tokens of [first, last) between the zones.
  index_t between(const moment& now, index_t layer, index_t kv_head, index_t first, index_t last) const {
    index_t count = 0;
    for (index_t t = std::max(first, now.front); t < std::min(last, now.back); ++t)
      count += retained(layer, kv_head, t) ? 1 : 0;
    return count;
  }

  // ---- choices ----

  // The query that asks.
  std::vector<double> asked(const moment& now, index_t layer, index_t head) const {
    std::vector<double> made(static_cast<std::size_t>(model().head_dim));
    constexpr bool means = std::same_as<decltype(policy_.query), zoomr::running_mean>;
    const index_t from = past_.generated_from(now.position);
    const index_t first = means && !now.prompt ? std::max(now.asks_from, from) : now.position;
    for (index_t p = first; p <= now.position; ++p) {
      const float* query = past_.query(p, layer, head, p < now.position ? final_pass(p) : now.pass);
      for (index_t d = 0; d < model().head_dim; ++d) made[static_cast<std::size_t>(d)] += double{query[d]};
    }
    for (double& number : made) number /= now.position + 1 - first;
    return made;
  }

  // The keys that stand for a segment: those of its cue that are left.
  std::vector<const float*> cue_of(index_t layer, index_t kv_head, const segment& s) {
    std::vector<const float*> keys;
    keys.reserve(static_cast<std::size_t>(s.cue_end - s.cue_begin));
    for (index_t t = s.cue_begin; t < s.cue_end; ++t) {
      if (retained(layer, kv_head, t)) keys.push_back(past_.key(t, layer, kv_head, final_pass(t)));
    }
    return keys;
  }

  // Keys, by their mean, box or cuboid, against the query that asks.
  estimate score(const std::vector<double>& query, const std::vector<const float*>& keys) const {
    constexpr bool cuboid = std::same_as<decltype(policy_.summarize), zoomr::key_cuboid>;
    constexpr bool box = std::derived_from<decltype(policy_.score), zoomr::box_bound>;
    const auto count = static_cast<double>(keys.size());
    estimate made;
    for (index_t d = 0; d < model().head_dim; ++d) {
      double sum = 0, magnitude = 0;
      double low = std::numeric_limits<double>::infinity(), high = -low;
      bool is_nan = false;
      for (const float* of : keys) {
        const double key = of[d];
        sum += key, magnitude += std::abs(key);
        low = std::min(low, key), high = std::max(high, key);
        is_nan = is_nan || std::isnan(key);
      }
      const double q = query[static_cast<std::size_t>(d)];
      if (cuboid) {
        const double centre = (low + high) / 2;
        double apart = 0;
        for (const float* key : keys) apart += std::abs(centre - double{key[d]}) / count;
        const double least = q * (centre - apart), most = q * (centre + apart);
        made.value += is_nan || std::isnan(least) || std::isnan(most) ? std::nan("") : std::max(least, most);
        made.magnitude += std::abs(q) * (std::abs(centre) + apart);
      } else if (box) {
        const double least = q * low, most = q * high;
        made.value += is_nan || std::isnan(least) || std::isnan(most) ? std::nan("") : std::max(least, most);
        made.magnitude += std::max(std::abs(least), std::abs(most));
      } else {
        made.value += q * (sum / count);
        made.magnitude += std::abs(q) * magnitude / count;
      }
    }
    return made;
  }

  // The tokens of a segment between the zones.
  std::vector<index_t> details_of(const moment& now, index_t layer, index_t kv_head, const segment& s) const {
    std::vector<index_t> made;
    for (index_t t = std::max(s.begin, now.front); t < std::min(s.split, now.back); ++t) {
      if (retained(layer, kv_head, t)) made.push_back(t);
    }
    return made;
  }
  // ln of the attention that they get together from one query; its magnitude is that of the largest logit.
  estimate mass(const std::vector<index_t>& tokens, const float* query, index_t position, index_t layer,
                index_t head) const {
    std::vector<double> logits;
    double largest = -std::numeric_limits<double>::infinity(), magnitude = 0;
    for (const index_t t : tokens) {
      const float* key = past_.key(t, layer, head / group(), final_pass(t));
      double product = 0, size = 0;
      for (index_t d = 0; d < model().head_dim; ++d) {
        product += double{query[d]} * double{key[d]}, size += std::abs(double{query[d]} * double{key[d]});
      }
      logits.push_back(past_.logits.logit(product, model().head_dim, head, t, position));
      if (!std::isnan(largest) && !(logits.back() <= largest)) largest = logits.back();  // NaN stays
      const double all = past_.logits.scaled(size, model().head_dim) + std::abs(past_.logits.bias(head, t, position));
      if (std::isfinite(all)) magnitude = std::max(magnitude, all);
    }
    if (!std::isfinite(largest)) return {largest, magnitude + 8};
    double sum = 0;
    for (const double logit : logits) sum += std::exp(logit - largest);
    return {largest + std::log(sum), magnitude + 8};
  }
  // What a vote of each head of a layer counts, in 65536ths of the largest weight.
  std::vector<double> weights_in(index_t layer) const {
    const std::vector<float> all = zoomr_test::voter_weights(model());
    const double largest = double{*std::max_element(all.begin(), all.end())};
    std::vector<double> made;
    for (index_t head = 0; head < model().heads; ++head) {
      const double weight = double{all[static_cast<std::size_t>(layer * model().heads + head)]};
      made.push_back(weight == 0 ? 0 : std::max(1.0, std::floor(weight / largest * 65536 + 0.5)));
    }
    return made;
  }
  // Each voter's largest log share among the last queries, weighted; then a softmax over the segments, and the class
  // none if there is one: its votes are returned.
  estimate hear(const moment& now, const std::vector<index_t>& eligible, std::vector<estimate>& votes) {
    const std::vector<segment>& known_segments = segments_at(now);
    const std::vector<float> weights = zoomr_test::voter_weights(model());
    const std::vector<scoring_token> scoring = scoring_tokens(now);
    std::vector<double> sums(votes.size(), 0.0);
    double doubt = 0;
    for (index_t row = 0; row < model().layers * model().heads; ++row) {
      const double of_head = double{weights[static_cast<std::size_t>(row)]};
      if (of_head == 0) continue;
      std::vector<double> best(votes.size(), std::nan(""));
      double magnitude = 0;
      const index_t layer = row / model().heads, head = row % model().heads;
      for (const scoring_token& asks : scoring) {
        const index_t p = asks.place;
        std::vector<estimate> masses(votes.size(), {-std::numeric_limits<double>::infinity(), 0});
        double largest = -std::numeric_limits<double>::infinity(), sum = 0;
        for (const index_t id : eligible) {
          const segment& s = known_segments[static_cast<std::size_t>(id)];
          if (s.split > p + 1) continue;
          estimate& made = masses[static_cast<std::size_t>(id)];
          const index_t pass = asks.token < now.position ? final_pass(asks.token) : 0;
          const std::vector<float> query = turned(past_.query(asks.token, layer, head, pass), asks.angle);
          made = mass(details_of(now, layer, head / group(), s), query.data(), p, layer, head);
          magnitude = std::max(magnitude, made.magnitude);
          if (made.value > largest) largest = made.value;
        }
        const auto weight = [&](double of) {
          return std::isnan(of) ? 0.0 : of == largest ? 1.0 : std::exp(of - largest);
        };
        for (const estimate& of : masses) sum += weight(of.value);
        for (const index_t id : eligible) {
          const auto i = static_cast<std::size_t>(id);
          if (std::isnan(masses[i].value) || known_segments[i].split > p + 1) continue;
          const double share =
              std::isinf(largest) ? std::log(weight(masses[i].value)) : masses[i].value - largest - std::log(sum);
          best[i] = std::isnan(best[i]) ? share : std::max(best[i], share);
        }
      }
      for (const index_t id : eligible) {
        const double found = best[static_cast<std::size_t>(id)];  // less than -87 counts as that
        sums[static_cast<std::size_t>(id)] += of_head * (found < -87 ? -87 : found);
      }
      doubt += of_head * tolerance::mass(model().head_dim + 300, magnitude) / 16777216.0;
    }
    double largest = -std::numeric_limits<double>::infinity(), sum = 0;
    const auto known = [&](index_t id) { return !std::isnan(sums[static_cast<std::size_t>(id)]); };
    for (const index_t id : eligible) {
      if (known(id)) largest = std::max(largest, sums[static_cast<std::size_t>(id)]);
    }
    const double none_logit =
        past_.voters_none -
        past_.voters_none_slope * std::log(std::max<double>(1, static_cast<double>(eligible.size())));
    largest = std::max(largest, none_logit);
    for (const index_t id : eligible) sum += known(id) ? std::exp(sums[static_cast<std::size_t>(id)] - largest) : 0.0;
    const double none = std::isinf(none_logit) ? 0.0 : std::exp(none_logit - largest);
    sum += none;
    const auto votes_for = [&](double weight) -> estimate {
      const double share = weight / sum * 1099511627776.0;  // 2^40
      return {std::floor(share + 0.5), 1 + share * (4 * doubt + 1e-6)};
    };
    for (const index_t id : eligible) {
      const auto i = static_cast<std::size_t>(id);
      if (known(id)) votes[i] = votes_for(std::exp(sums[i] - largest));
    }
    return eligible.empty() || none == 0 ? estimate{} : votes_for(none);
  }
  // Bits of a posterior; its magnitude says how far float may be off.
  static estimate entropy_of(const std::vector<estimate>& votes, const estimate& none) {
    estimate bits{0, 1e-6};
    double all = none.value;
    for (const estimate& of : votes) all += of.value;
    const auto add = [&](const estimate& of) {
      if (of.value <= 0) return;
      const double log = std::log2(of.value / all);
      bits.value -= of.value / all * log;
      bits.magnitude += of.magnitude / all * std::abs(log + 1.4427) + 1e-6 * of.value / all;
    };
    for (const estimate& of : votes) add(of);
    add(none);
    return bits;
  }
  // What the gate says of them.
  bool unsure(const moment& now, const std::vector<index_t>& eligible, const std::vector<estimate>& votes,
              const estimate& none) {
    if constexpr (hears) {
      if (!policy_.aggregate.gate || eligible.empty()) return false;
      const estimate bits = entropy_of(votes, none);
      estimate best = votes[static_cast<std::size_t>(eligible[0])];
      for (const index_t id : eligible) {
        const estimate& of = votes[static_cast<std::size_t>(id)];
        if (of.value > best.value) best = of;
      }
      if (!std::isinf(past_.voters_unsure))
        unless_clear(now.position, bits.value - past_.voters_unsure, bits.magnitude);
      if (none.value > 0) unless_clear(now.position, none.value - best.value, none.magnitude + best.magnitude);
      return bits.value > past_.voters_unsure || none.value > best.value;
    }
    return false;
  }
  // A token whose query scores, the position from which it does, and how far it is turned for that.
  struct scoring_token {
    index_t token, place, angle;
  };
  // Whose queries score: the last ones, and those of a question that spans name, if its first one is near enough. Where
  // it is farther back, and the model's rotary embedding is known, the last of its spans scores, as if it ended where
  // the last prompt does; of the last ones then those of the newest message.
  std::vector<scoring_token> scoring_tokens(const moment& now) const {
    index_t last = now.position;
    if constexpr (requires { policy_.aggregate.queries; }) last = now.position + 1 - policy_.aggregate.queries;
    last = std::max(last, index_t{0});
    zoomr::token_range question;
    index_t distance = 0;
    if constexpr (requires { policy_.aggregate.question; }) {
      const std::vector<zoomr::token_range> prompts = prompts_before(now.position + (now.prompt ? 1 : 0));
      question = named_question(prompts);
      const index_t end = question.last;
      question.first = std::max(question.first, question.last - policy_.zone.question);
      const index_t near = std::max(policy_.aggregate.question, policy_.aggregate.queries);
      if (policy_.zone.question == 0) question = {};
      if (question.size() > 0 && question.first <= now.position - near) {
        const index_t first = std::max(question.first, end - std::min(index_t{64}, policy_.zone.question));
        question = {std::min(end, last), std::min(end, last)};
        while (question.first > first && past_.words.is(question.first - 1, token_class::question)) --question.first;
        if (past_.rotary.empty() || policy_.aggregate.question == 0) question = {};
        if (question.size() > 0) {
          distance = prompts.back().last - end;
          for (index_t p = last; p <= now.position; ++p) {
            if (past_.words.is(p, token_class::message)) last = p;
          }
        }
      }
    }
    std::vector<scoring_token> tokens;
    for (index_t p = 0; p <= now.position; ++p) {
      const bool asked = p >= question.first && p < question.last;
      if (asked || p >= last) tokens.push_back({p, p + (asked ? distance : 0), asked ? distance : 0});
    }
    return tokens;
  }
  std::vector<float> turned(const float* query, index_t distance) const {
    std::vector<float> row(query, query + model().head_dim);
    const std::size_t pairs = past_.rotary.size();
    for (std::size_t i = 0; distance != 0 && i < pairs; ++i) {
      float &x = row[i], &y = row[i + pairs];
      const double angle = double{past_.rotary[i]} * distance, before = double{x};
      x = static_cast<float>(before * std::cos(angle) - double{y} * std::sin(angle));
      y = static_cast<float>(before * std::sin(angle) + double{y} * std::cos(angle));
    }
    return row;
  }

  // How far float may be off a votes.
  double uncertainty(const estimate& counted_votes) const {
    if (hears) return counted_votes.magnitude;
    if (std::derived_from<decltype(policy_.aggregate), zoomr::head_votes>) return -1;
    if (std::derived_from<decltype(policy_.aggregate), zoomr::head_mass>) return counted_votes.magnitude;
    if (std::same_as<decltype(policy_.aggregate), zoomr::pooled_mass>) return counted_votes.magnitude;
    return scores_of{model().head_dim, past_.logits, {}}.rounding(counted_votes);
  }

  choice choose(const moment& now, const sharing& of) {
    const std::vector<segment>& known_segments = segments_at(now);
    const index_t lane_head = of.first_head / group();
    std::vector<index_t> eligible;
    std::vector<index_t> tokens;
    index_t used = 0;
    for (index_t id = 0; id < now.known; ++id) {
      const segment& s = known_segments[static_cast<std::size_t>(id)];
      tokens.push_back(between(now, of.first_layer, lane_head, s.begin, s.split));
      used += between(now, of.first_layer, lane_head, s.split, s.end);
      if (tokens.back() > 0) eligible.push_back(id);
    }
    for (index_t t = now.begin; t <= now.position; ++t)
      used += (t < now.front || t >= now.back) && retained(of.first_layer, lane_head, t) ? 1 : 0;

    choice made;
    std::vector<estimate> votes(static_cast<std::size_t>(now.known));
    estimate none;
    if (hears) none = hear(now, eligible, votes);
    for (index_t layer = of.first_layer; layer < of.last_layer && !hears; ++layer) {
      scores_of scores{model().head_dim, past_.logits, {}, reads_keys()};
      std::vector<std::vector<const float*>> cues(static_cast<std::size_t>(now.known));  // of KV head `cues_of`
      if (weighs) scores.weights = weights_in(layer);
      index_t cues_of = -1;
      for (index_t head = of.first_head; head < of.last_head; ++head) {
        const std::vector<double> query = asked(now, layer, head);
        scores.of_head.emplace_back(static_cast<std::size_t>(now.known));
        const index_t kv_head = head / group();
        for (const index_t id : eligible) {
          const auto i = static_cast<std::size_t>(id);
          if (reads_keys()) {
            const std::vector<index_t> details = details_of(now, layer, kv_head, known_segments[i]);
            scores.of_head.back()[i] =
                mass(details, past_.query(now.position, layer, head, now.pass), now.position, layer, head);
            continue;
          }
          if (kv_head != cues_of) cues[i] = cue_of(layer, kv_head, segments_[i]);
          scores.of_head.back()[i] = score(query, cues[i]);
        }
        cues_of = kv_head;
      }
      bool doubtful = false;
      if constexpr (!hears) aggregate(policy_.aggregate, scores, eligible, tokens, votes, doubtful);
      if (doubtful && !past_.exact) close_call(now.position);
    }

    constexpr bool counted = !pools();
    constexpr bool needs_a_vote = !hears && std::derived_from<decltype(policy_.aggregate), zoomr::head_votes>;
    std::vector<index_t> wanted;
    made.levels.assign(static_cast<std::size_t>(now.known), level::summary);
    for (const index_t id : eligible) {
      const estimate& counted_votes = votes[static_cast<std::size_t>(id)];
      const bool candidate = !counted || counted_votes.value >= 1;
      if (candidate || !needs_a_vote) wanted.push_back(id);
      if (!candidate && policy_.zone.summaries == zoomr::summaries_attended::candidates) {
        made.levels[choice::index_of(id)] = level::dropped;
      }
      if (counted) unless_clear(now.position, counted_votes.value - 0.5, uncertainty(counted_votes));
    }
    const std::vector<index_t> order = ranked(votes, wanted);
    std::size_t taken = take(policy_.select, order, tokens, used, made);
    if constexpr (std::derived_from<decltype(policy_.select), zoomr::top_p>) {
      double doubt = 0;
      for (const estimate& one : votes) doubt += uncertainty(one);
      taken = take_share(policy_.select, order, eligible, tokens, votes, made,
                         [&](double gap) { unless_clear(now.position, gap, doubt); });
    }
    for (std::size_t i = 0; i < taken && i + 1 < order.size(); ++i) {
      const estimate& one = votes[static_cast<std::size_t>(order[i])];
      const estimate& next = votes[static_cast<std::size_t>(order[i + 1])];
      unless_clear(now.position, one.value - next.value, uncertainty(one) + uncertainty(next));
    }
    made.everything = unsure(now, eligible, votes, none);
    count_choice(made, votes, none, in_force_[static_cast<std::size_t>(of.row)], eligible);
    if (made.everything) made.levels.assign(made.levels.size(), level::details);
    return made;
  }

  void count_choice(const choice& made, const std::vector<estimate>& votes, const estimate& none, const choice& before,
                    const std::vector<index_t>& eligible) {
    double all = 0, agreed = 0;
    counts_.unsure += made.everything ? 1 : 0;
    for (index_t id = 0; id < static_cast<index_t>(made.levels.size()) && !made.everything; ++id) {
      counts_.chosen += made.level_at(id) == level::details ? 1 : 0;
      counts_.zooms += made.level_at(id) == level::details && before.level_at(id) != level::details ? 1 : 0;
    }
    for (const index_t id : eligible) {
      all += votes[static_cast<std::size_t>(id)].value;
      if (made.level_at(id) == level::details) agreed += votes[static_cast<std::size_t>(id)].value;
    }
    ++counts_.refreshes;
    if (!pools() && all > 0 && !made.everything) {
      counts_.agreeability_sum += agreed / all;
      ++counts_.agreeability_count;
    }
    if (!hears || all + none.value <= 0) return;
    counts_.entropy_sum += entropy_of(votes, none).value;
    ++counts_.entropy_count;
  }

  // ---- refresh ----

  refresh_action due(const zoomr::after_prefill&, const moment&) const { return refresh_action::keep; }
  refresh_action due(const zoomr::every_token& by, const moment& now) const {
    const bool empties = past_.words.is(now.position, token_class::delimiter);
    const index_t open_tokens = empties ? 0 : now.position + 1 - now.asks_from;
    const bool all = by.everything_until > 0 && open_tokens <= by.everything_until;
    return all ? refresh_action::everything : refresh_action::choose;
  }
  refresh_action due(const zoomr::boundaries& by, const moment& now) const {
    const bool boundary = past_.words.is(now.position, token_class::delimiter | token_class::mark);
    const bool now_due = boundary || now.position - last_choice_ >= by.at_most;
    return now_due ? refresh_action::choose : refresh_action::keep;
  }

  // ---- one token ----

  static constexpr bool selects = Policy::selects;
  // Where shares of voters choose, the commit of a part of an item that is passed whole chooses too.
  static constexpr bool has_voters = zoomr::share_aggregator<decltype(Policy::aggregate)>;
  static constexpr bool reads_keys() { return std::same_as<decltype(Policy::score), zoomr::key_mass>; }
  static constexpr bool hears = std::derived_from<decltype(Policy::aggregate), zoomr::head_posterior>;
  static constexpr bool weighs = zoomr::weighing_aggregator<decltype(Policy::aggregate)>;
  static constexpr bool pools() {
    using agrees = decltype(Policy::aggregate);
    return std::same_as<agrees, zoomr::pooled_score> || std::same_as<agrees, zoomr::pooled_mass>;
  }
  bool shared_by_all() const { return policy_.aggregate.per == scope::sequence; }
  bool stays_in_force() const {
    if (shared_by_all()) return true;
    if constexpr (requires { policy_.refresh.at_most; }) return policy_.refresh.at_most > 1;
    return !std::same_as<decltype(policy_.refresh), zoomr::every_token>;
  }

  void token(index_t position) {
    const whole_item* const item = past_.whole_item_at(position);
    if (item == nullptr || position == item->tokens.first) draft_end_ = -1, waits_ = false;
    if (past_.later_prompt_at(position)) attend_all(position);
    if (past_.generated_from(position) == position + 1) {
      evict_after(position);
      if (selects && stays_in_force()) choose_all(at(position, true, 0), 0);
      last_choice_ = position;
      return;
    }
    if (past_.later_prompt_at(position)) return;
    const moment now = at(position, false, 0);
    const refresh_action action = due(policy_.refresh, now);
    bool chooses = selects && action == refresh_action::choose;
    if (goes_on_whole(position, chooses && stays_in_force()) && stays_in_force()) chooses = false;
    if (chooses && !shared_by_all()) {
      const bool all_dense = !stays_in_force() && position < min_sparse_context_;
      if (!all_dense) choose_all(now, policy_.zone.dense_layers);
    }
    attend(now, action);
    if (chooses && shared_by_all()) {
      choose_all(now, 0);
      if (policy_.refresh.second_pass) {
        twice_[static_cast<std::size_t>(position)] = true;
        moment second = now;
        second.pass = 1;
        attend(second, action);
      }
    }
    evict_after(position);
    const bool ends = item != nullptr && (item->complete || has_voters) && position + 1 == item->tokens.last;
    if (ends && waits_) choose_all(at(position, false, 0, true), 0);
  }

  // A token of an item that was passed whole: true from the one on at which a draft would have ended.
  bool goes_on_whole(index_t position, bool chooses) {
    const whole_item* const item = past_.whole_item_at(position);
    if (item == nullptr) return false;
    const bool last = item->complete && position + 1 == item->tokens.last;
    const bool ends = chooses || known_at(position, true) > known_at(position, false);
    if (ends && !last && draft_end_ < 0) draft_end_ = position;
    if (draft_end_ >= 0 && chooses) waits_ = true;
    return draft_end_ >= 0;
  }

  void evict_after(index_t position) {
    const zoomr::token_range question = question_in(prompts_before(position + 1));
    const auto pinned = [&](index_t t) {
      return past_.words.is(t, token_class::pinned) || (t >= question.first && t < question.last);
    };
    if (eviction_.after(position, pinned)) close_call(position + 1);
  }

  void choose_all(const moment& now, index_t first_layer) {
    for (index_t layer = first_layer; layer < model().layers; ++layer) {
      for (index_t head = 0; head < model().heads; ++head) {
        const sharing of = sharing_of(layer, head);
        if (!chooses(layer) || of.first_layer != layer || of.first_head != head) continue;
        in_force_[static_cast<std::size_t>(of.row)] = choose(now, of);
        last_choice_ = now.position;
      }
    }
  }

  // A token of a later prompt. It counts for no statistics.
  void attend_all(index_t position) {
    const moment now = at(position, false, 0);
    heads_attended& all = attended_[{position, 0}];
    for (index_t layer = 0; layer < model().layers; ++layer) {
      for (index_t head = 0; head < model().heads; ++head) all.push_back(positions(now, layer, head, true));
    }
  }

  void attend(const moment& now, refresh_action action) {
    heads_attended& all = attended_[{now.position, now.pass}];
    const whole_item* const item = past_.whole_item_at(now.position);
    counts_.passes += item == nullptr || now.pass == 1 || now.position == item->tokens.first ? 1 : 0;
    const bool otherwise_all = action == refresh_action::everything || now.position < min_sparse_context_;
    counts_.unsure_tokens += now.pass == 0 && !otherwise_all && in_force_[0].everything ? 1 : 0;
    for (index_t layer = 0; layer < model().layers; ++layer) {
      for (index_t head = 0; head < model().heads; ++head) {
        const bool dense = action == refresh_action::everything || now.position < min_sparse_context_ ||
                           layer < policy_.zone.dense_layers;
        all.push_back(positions(now, layer, head, dense));
        counts_.attended += static_cast<std::int64_t>(all.back().size());
      }
    }
  }

  std::vector<index_t> positions(const moment& now, index_t layer, index_t head, bool dense) {
    const choice& by = in_force_[static_cast<std::size_t>(row_read(layer, head))];
    std::vector<index_t> made;
    made.reserve(static_cast<std::size_t>(now.position) + 1);
    const std::vector<segment>& known = segments_at(now);
    index_t id = 0;          // of the segment that t lies in
    index_t of_details = 0;  // of its details between the zones, how many came before t
    for (index_t t = 0; t <= now.position; ++t) {
      while (id < now.known && t >= segments_[static_cast<std::size_t>(id)].end) ++id, of_details = 0;
      if (!retained(layer, head / group(), t) || t < now.begin) continue;
      if (dense || by.everything || t < now.front || t >= now.back) {
        made.push_back(t);
      } else if (id < now.known) {
        const level has = selects ? by.level_at(id) : level::summary;
        const bool detail = t < known[static_cast<std::size_t>(id)].split;
        const bool within_cut = id != by.cut_segment || of_details < by.cut_tokens;
        if (detail ? has == level::details && within_cut
                   : has == level::summary || (has == level::details && policy_.zone.own_summary)) {
          made.push_back(t);
        }
        of_details += detail ? 1 : 0;
      }
    }
    return made;
  }

  Policy policy_;
  const history& past_;
  index_t min_sparse_context_;
  index_t prompt_end_;
  std::vector<choice> in_force_;  // [rows]
  eviction<decltype(Policy::evict)> eviction_;
  index_t last_choice_ = -1;
  index_t draft_end_ = -1;                                    // of the item passed whole that comes now
  bool waits_ = false;                                        // a choice comes behind it
  std::map<std::size_t, std::vector<segment>> pinned_after_;  // by the number of prompts that have ended
};

}  // namespace reference
