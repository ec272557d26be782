// SPDX-License-Identifier: Apache-2.0
// Feeds texts to a cache in any legal way, and keeps what each committed token attended and got.
#pragma once

#include <support/inputs.hpp>
#include <support/quarter_turn.hpp>
#include <support/reference.hpp>
#include <support/sentence_of.hpp>
#include <support/tolerance.hpp>
#include <support/voters.hpp>
#include <zoomr/zoomr.hpp>

#include <algorithm>  // std::copy_n, std::find_if, std::max, std::min, std::mismatch
#include <cmath>      // std::abs, std::sqrt
#include <cstring>    // std::memcmp
#include <map>        // std::map
#include <optional>   // std::optional
#include <stdexcept>  // std::logic_error
#include <string>     // std::string
#include <utility>    // std::as_const, std::pair
#include <vector>     // std::vector

namespace zoomr_test {

using zoomr::view;

/// What one sequence says, and the numbers that its tokens have.
struct tape {
  tensors numbers;
  std::vector<token_id> ids;
  index_t prompt = 1;
  std::vector<index_t> places = {};  // [tokens]  where each token's numbers stand in its first text; empty: here
  std::vector<zoomr::token_range> later_prompts = {};
  std::vector<index_t> positions =
      {};             // [tokens]  model positions, to which keys and queries are turned; empty: none is
  bool tells = true;  // the cache is told of these; or else it finds them by itself
  std::vector<reference::whole_item> whole_items = {};
  std::vector<zoomr::token_span> spans = {};  // their ids are positions

  /// The spans of `count` tokens from `first` on, as an item names them.
  std::vector<zoomr::token_span> spans_from(index_t first, std::size_t count) const {
    std::vector<zoomr::token_span> some;
    for (const zoomr::token_span& span : spans) {
      const zoomr::token_range within{std::max(span.ids.first - first, 0),
                                      std::min(span.ids.last - first, static_cast<index_t>(count))};
      if (within.size() > 0) some.push_back({within, span.role});
    }
    return some;
  }
  /// The class of a token, with its spans.
  token_class class_at(index_t position) const {
    token_class flags = class_of(ids[static_cast<std::size_t>(position)]);
    for (const zoomr::token_span& span : spans) {
      if (position < span.ids.first || span.ids.last <= position) continue;
      flags = flags | (span.role == zoomr::span_role::pinned ? token_class::pinned : token_class::question);
    }
    return flags;
  }

  /// The model positions of the tokens from `first` on, as far as there are such tokens.
  std::vector<index_t> positions_from(index_t first, std::size_t count) const {
    std::vector<index_t> some;
    for (index_t t = first; !positions.empty() && some.size() < count; ++t) {
      some.push_back(t < size() ? positions[static_cast<std::size_t>(t)] : positions.back() + t - size() + 1);
    }
    return some;
  }
  /// The prompt that a token is in.
  std::optional<zoomr::token_range> prompt_at(index_t position) const {
    if (position < prompt) return zoomr::token_range{0, prompt};
    for (const zoomr::token_range& later : later_prompts) {
      if (later.first <= position && position < later.last) return later;
    }
    return std::nullopt;
  }
  bool in_prompt(index_t position) const { return prompt_at(position).has_value(); }
  /// Where the next prompt begins; the text's end if none does.
  index_t generated_until(index_t position) const {
    for (const zoomr::token_range& later : later_prompts) {
      if (later.first >= position) return later.first;
    }
    return size();
  }

  index_t size() const { return static_cast<index_t>(ids.size()); }
  index_t place(index_t position) const {
    return places.empty() ? position : places[static_cast<std::size_t>(position)];
  }
  /// The text without a span of it.
  tape without(zoomr::token_range erased) const {
    tape made = *this;
    for (index_t t = 0; places.empty() && t < size(); ++t) made.places.push_back(t);
    made.places.erase(made.places.begin() + erased.first, made.places.begin() + erased.last);
    made.ids.erase(made.ids.begin() + erased.first, made.ids.begin() + erased.last);
    if (!positions.empty()) {
      made.positions.erase(made.positions.begin() + erased.first, made.positions.begin() + erased.last);
    }
    made.spans.clear();
    for (zoomr::token_span span : spans) {
      span.ids = {zoomr::detail::without(erased, span.ids.first), zoomr::detail::without(erased, span.ids.last)};
      if (span.ids.size() > 0) made.spans.push_back(span);
    }
    made.prompt = zoomr::detail::without(erased, prompt);
    made.later_prompts.clear();
    for (zoomr::token_range later : later_prompts) {
      later = {zoomr::detail::without(erased, later.first), zoomr::detail::without(erased, later.last)};
      if (later.size() > 0) made.later_prompts.push_back(later);
    }
    return made;
  }
  std::vector<token_id> between(index_t first, index_t last) const {
    return {ids.begin() + first, ids.begin() + std::min(last, size())};
  }
};

inline tape make_tape(const shape& model, kind look, markup text, index_t tokens, index_t prompt, std::uint64_t seed) {
  return {{model, look, mixed(seed)}, text_of(text, tokens, prompt, seed), prompt};
}

/// The text of `says` up to `shared`, then that of another one with the same numbers.
inline tape with_other_end(const tape& says, index_t shared, index_t prompt, std::uint64_t seed) {
  tape made = says;
  made.prompt = prompt;
  const std::vector<token_id> other = text_of(markup::sentences, says.size(), prompt, seed);
  for (index_t t = shared; t < says.size(); ++t)
    made.ids[static_cast<std::size_t>(t)] = other[static_cast<std::size_t>(t)];
  return made;
}

/// Floats that are compared bit by bit.
struct bits_of {
  std::vector<float> numbers;
  friend bool operator==(const bits_of& a, const bits_of& b) {
    return a.numbers.size() == b.numbers.size() &&
           std::memcmp(a.numbers.data(), b.numbers.data(), a.numbers.size() * sizeof(float)) == 0;
  }
};

/// What one pass over one token gave.
struct token_result {
  std::vector<std::vector<index_t>> attended;  // [layers * heads]  empty in the prompt
  bits_of out;                                 // [layers, heads, head_dim]
  bits_of lse;                                 // [layers, heads]
  friend bool operator==(const token_result&, const token_result&) = default;
};

/// By position and pass.
using result_log = std::map<std::pair<index_t, index_t>, token_result>;

/// The first token and pass in which two logs differ, in words; empty if they are equal.
inline std::string difference(const result_log& a, const result_log& b) {
  if (a == b) return {};
  for (const auto& [at, result] : a) {
    const auto other = b.find(at);
    const std::string place = "position " + std::to_string(at.first) + " pass " + std::to_string(at.second);
    if (other == b.end()) return place + " is missing";
    if (!(result.attended == other->second.attended)) return place + " attends other positions";
    if (!(result.out == other->second.out)) return place + " has another output";
    if (!(result.lse == other->second.lse)) return place + " has another lse";
  }
  return "the second has more tokens";
}

/// What two logs of the same selections may differ by in outputs and log-sum-exps, with the numbers of inputs.hpp.
struct log_tolerance {
  double out, lse;
};
/// Where only the order of summation differs: values lie in [-1, 1], and logits are sums of at most head_dim products
/// below 3.3 * 2.3.
/// @param rounding  what outputs may differ by beside that
inline log_tolerance tolerance_of(index_t head_dim, index_t tokens, double rounding = 0.0) {
  const double logit = 3.3 * 2.3 * std::sqrt(static_cast<double>(head_dim));
  const double summed = 2 * tolerance::end_to_end(head_dim, logit, tokens);
  return {summed + rounding, (1 + logit) * summed};
}

/// How close a log is to another one of the same steps.
struct log_comparison {
  std::pair<index_t, index_t> place = {};  // position and pass of the first that differs,
  std::size_t row = 0;                     // layer * heads + head,
  std::string difference = {};             // and how; empty: none does
  double out = 0;                          // the largest difference of an output before that
};

/// Compares what each query attends, exactly, and what it gets, within a tolerance: in the order of positions, passes,
/// layers and heads.
/// @throws std::logic_error  if they are no logs of the same steps
inline log_comparison compared(const result_log& expected, const result_log& got, const log_tolerance& allowed) {
  log_comparison result;
  const auto close = [&](const char* what, float a, float b, double most) {
    const auto x = static_cast<double>(a), y = static_cast<double>(b);
    if (tolerance::within(x, y, most)) return true;
    result.difference = std::string(what) + " is " + std::to_string(y) + ", not " + std::to_string(x);
    return false;
  };
  const auto same = [&](const std::vector<index_t>& a, const std::vector<index_t>& b) {
    if (a == b) return true;
    const auto [x, y] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
    const auto token = [](auto at, auto end) { return at == end ? "none" : std::to_string(*at); };
    result.difference = "attends " + std::to_string(b.size()) + " tokens, not " + std::to_string(a.size()) +
                        "; the first other one is " + token(y, b.end()) + ", not " + token(x, a.end());
    return false;
  };
  if (expected.empty() || expected.size() != got.size()) throw std::logic_error("the logs have other tokens");
  for (const auto& entry : expected) {
    const token_result &wanted = entry.second, &found = got.at(entry.first);
    result.place = entry.first;
    const std::size_t attended = wanted.attended.size(), outputs = wanted.out.numbers.size();
    const std::size_t ends = wanted.lse.numbers.size(), width = ends > 0 ? outputs / ends : 0;
    if (found.attended.size() != attended || found.out.numbers.size() != outputs || found.lse.numbers.size() != ends) {
      throw std::logic_error("the logs have other rows");
    }
    for (std::size_t row = 0; row < std::max(ends, attended); ++row) {
      result.row = row;
      if (row < attended && !same(wanted.attended[row], found.attended[row])) return result;
      if (row >= ends) continue;
      for (std::size_t i = row * width; i < (row + 1) * width; ++i) {
        const float a = wanted.out.numbers[i], b = found.out.numbers[i];
        if (!close("an output", a, b, allowed.out)) return result;
        result.out = std::max(result.out, static_cast<double>(std::abs(a - b)));
      }
      if (!close("an lse", wanted.lse.numbers[row], found.lse.numbers[row], allowed.lse)) return result;
    }
  }
  return result;
}

/// How far a step gets before it is dropped; `committed`: not at all.
enum class fate { committed, dropped_at_once, dropped_between_layers, dropped_after_pass, dropped_after_first_pass };

/// One item of a step: the next tokens of one sequence.
struct part {
  index_t voice = 0;
  std::vector<token_id> ids;
  bool prompt_ends = false;
  bool accept_all = false;  // commit the tokens even if they are not the tape's
  bool prompt_begins = false;
  bool whole = false;
};

/// The next `count` tokens of a text after `now`, or fewer: a chunk of a prompt, or generated ones.
inline part part_of(const tape& says, index_t v, index_t now, index_t count) {
  if (const auto prompt = says.prompt_at(now)) {
    const index_t last = std::min(now + count, prompt->last);
    return {v, says.between(now, last), last == prompt->last, false, now > 0 && now == prompt->first};
  }
  return {v, says.between(now, std::min(now + count, says.generated_until(now)))};
}

/// An item of a text that is passed whole; behind it there is more where not all of it is accepted.
inline part whole_part(const tape& says, index_t v, const reference::whole_item& item) {
  part made{v, says.between(item.tokens.first, item.tokens.last)};
  if (!item.complete) made.ids.insert(made.ids.end(), {unspoken_id, 1, unspoken_id});
  made.whole = true;
  return made;
}

/// One sequence that a player plays.
struct voice {
  zoomr::sequence seq;
  const tape* says = nullptr;
  result_log log;
};

/// What drives a cache through some sequences that each follow a tape.
///
/// Its functions are defined outside of the class, so that they are compiled only once for the caches of players.hpp.
/// @tparam Cache  an any_kv_cache, or what passes for one
template <class Cache>
class driver {
 public:
  explicit driver(Cache& cache);
  driver(const driver&) = delete;
  ~driver();

  index_t open(const tape& says);
  voice& at(index_t v) { return voices[static_cast<std::size_t>(v)]; }
  index_t tokens(index_t v = 0);
  bool done(index_t v = 0);

  /// One step. Of a draft the longest prefix that the tape holds is accepted, unless `accept_all`.
  /// @return the number of accepted tokens of each part
  std::vector<index_t> play(const std::vector<part>& parts, fate until = fate::committed);

  /// Each prompt in one chunk, and what is generated one token after the other, up to `to`; the first prompt whole.
  void play_plainly(index_t v = 0, index_t to = zoomr::unlimited);

  /// The next `count` tokens of a tape after its prompt.
  part next(index_t v, index_t count);

  void rollback(index_t v, index_t to);

  std::vector<voice> voices;
  std::vector<index_t> donors = {};  // config.donors: the others append nothing
  bool layers_backwards = false;
  bool observe_prompts = false;  // the prompt's queries are only observed, as for an engine with its own prefill
  std::vector<const std::vector<index_t>*> tables = {};  // [voices]  block tables of an engine; empty: there are none
  std::int64_t second_passes = 0;
  std::int64_t failures = 0;  // of items; nothing of them was accepted
  /// Changes the numbers of a token before they are appended; for poison.
  void (*spoil)(token_id id, index_t position, index_t layer, index_t kv_head, float* key, float* value,
                index_t dim) = nullptr;

 private:
  using step_type = typename Cache::step_type;

  // What the cache says beforehand; nothing of one that does not plan.
  std::vector<index_t> planned_tokens(const std::vector<zoomr::step_item>& items) const {
    std::vector<index_t> taken;
    if constexpr (requires(view<const zoomr::step_item> of) { cache_.plan(of, view<index_t>()); }) {
      taken.resize(items.size());
      std::as_const(cache_).plan(view<const zoomr::step_item>(items), view<index_t>(taken));
    }
    return taken;
  }
  index_t accepts(const std::vector<part>& parts, const step_type& step, index_t i);
  void accept_nothing_failed(const step_type& step, std::vector<index_t>& accepted);

  // False if the step is to be dropped on the way.
  bool pass(step_type& step, const std::vector<part>& parts, index_t pass_number, std::vector<result_log>& logs,
            fate until);

  // How much further than its position a token's model position is; a device knows positions only.
  static index_t passed_by(const step_type& step, index_t item) {
    if constexpr (requires { step.model_position(item); }) return step.model_position(item) - step.position(item);
    return 0;
  }
  // body(part, position, packed, id)
  template <class Body>
  void for_each_token(const step_type& step, const std::vector<part>& parts, index_t pass_number, Body body) const;

  Cache& cache_;
  zoomr::attention_trace trace_;
};

template <class Cache>
driver<Cache>::driver(Cache& cache) : cache_(cache) {
  cache.trace(&trace_);
}

template <class Cache>
driver<Cache>::~driver() = default;

template <class Cache>
index_t driver<Cache>::open(const tape& says) {
  voices.push_back({cache_.open(), &says, {}});
  return static_cast<index_t>(voices.size()) - 1;
}

template <class Cache>
index_t driver<Cache>::tokens(index_t v) {
  return cache_.tokens(at(v).seq);
}

template <class Cache>
bool driver<Cache>::done(index_t v) {
  return tokens(v) == at(v).says->size();
}

template <class Cache>
std::vector<index_t> driver<Cache>::play(const std::vector<part>& parts, fate until) {
  std::vector<zoomr::step_item> items;
  std::vector<std::vector<index_t>> positions;
  std::vector<std::vector<zoomr::token_span>> spans;
  for (const part& p : parts) {
    const tape& says = *at(p.voice).says;
    spans.push_back(says.spans_from(tokens(p.voice), p.ids.size()));
    positions.push_back(says.tells ? says.positions_from(tokens(p.voice), p.ids.size()) : std::vector<index_t>{});
    items.push_back({at(p.voice).seq, view<const token_id>(p.ids), p.prompt_ends, {}, p.prompt_begins, {}, p.whole});
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    items[i].positions = view<const index_t>(positions[i]);
    items[i].spans = view<const zoomr::token_span>(spans[i]);
    if (!tables.empty()) items[i].pages = view<const index_t>(*tables[static_cast<std::size_t>(parts[i].voice)]);
  }
  const std::vector<index_t> planned = planned_tokens(items);
  auto step = cache_.begin(view<const zoomr::step_item>(items));
  for (std::size_t i = 0; i < planned.size(); ++i) {
    if (planned[i] != step.taken(static_cast<index_t>(i)))
      throw std::logic_error("a step takes other tokens than planned");
  }
  if (until == fate::dropped_at_once) return {};
  const index_t passes = step.passes();
  std::vector<index_t> accepted;
  std::vector<index_t> firsts;
  for (index_t i = 0; i < step.items(); ++i)
    accepted.push_back(accepts(parts, step, i)), firsts.push_back(step.position(i));
  std::vector<result_log> logs(parts.size());
  if (!pass(step, parts, 0, logs, until)) return {};
  if (until == fate::dropped_after_pass) return {};
  accept_nothing_failed(step, accepted);
  if (step.needs_second_pass(view<const index_t>(accepted))) {
    ++second_passes;
    if (passes != 2) throw std::logic_error("a second pass that was not announced");
    pass(step, parts, 1, logs, fate::committed);
  }
  if (until == fate::dropped_after_first_pass) return {};
  accept_nothing_failed(step, accepted);
  step.commit(view<const index_t>(accepted));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (auto& [place, result] : logs[i]) {
      if (place.first < firsts[i] + accepted[i]) at(parts[i].voice).log[place] = std::move(result);
    }
  }
  return accepted;
}

template <class Cache>
void driver<Cache>::play_plainly(index_t v, index_t to) {
  const tape& says = *at(v).says;
  to = std::max(says.prompt, std::min(to, says.size()));
  for (index_t now = tokens(v); now < to; now = tokens(v)) {
    const auto begins = [&](const reference::whole_item& item) { return item.tokens.first == now; };
    const auto item = std::find_if(says.whole_items.begin(), says.whole_items.end(), begins);
    if (item != says.whole_items.end()) {
      play({whole_part(says, v, *item)});
    } else {
      play({part_of(says, v, now, says.in_prompt(now) ? to - now : 1)});
    }
  }
}

template <class Cache>
part driver<Cache>::next(index_t v, index_t count) {
  return {v, at(v).says->between(tokens(v), tokens(v) + count), false};
}

template <class Cache>
void driver<Cache>::rollback(index_t v, index_t to) {
  cache_.rollback(at(v).seq, to);
  auto& log = at(v).log;
  log.erase(log.lower_bound({to, 0}), log.end());
}

template <class Cache>
index_t driver<Cache>::accepts(const std::vector<part>& parts, const step_type& step, index_t i) {
  const part& p = parts[static_cast<std::size_t>(i)];
  const tape& says = *at(p.voice).says;
  if (p.accept_all || says.in_prompt(step.position(i))) return step.taken(i);
  index_t count = 0;
  while (count < step.taken(i) && step.position(i) + count < says.size() &&
         p.ids[static_cast<std::size_t>(count)] == says.ids[static_cast<std::size_t>(step.position(i) + count)]) {
    ++count;
  }
  return count;
}

template <class Cache>
void driver<Cache>::accept_nothing_failed(const step_type& step, std::vector<index_t>& accepted) {
  if constexpr (requires { step.failure(0); }) {
    for (index_t i = 0; i < step.items(); ++i) {
      index_t& count = accepted[static_cast<std::size_t>(i)];
      if (step.failure(i) == nullptr || count == 0) continue;
      count = 0;
      ++failures;
    }
  }
}

template <class Cache>
bool driver<Cache>::pass(step_type& step, const std::vector<part>& parts, index_t pass_number,
                         std::vector<result_log>& logs, fate until) {
  const shape& m = cache_.model();
  const index_t tokens = step.tokens();
  const auto size = [&](index_t heads, index_t dim) {
    return static_cast<std::size_t>(tokens) * static_cast<std::size_t>(heads) * static_cast<std::size_t>(dim);
  };
  const index_t width = m.value_width();
  std::vector<float> keys(size(m.kv_heads, m.head_dim)), values(size(m.kv_heads, width));
  std::vector<float> queries(size(m.heads, m.head_dim)), wide(static_cast<std::size_t>(m.head_dim));
  const auto layers = static_cast<std::size_t>(m.layers);
  std::vector<float> out(layers * size(m.heads, width)), lse(layers * size(m.heads, 1));  // of all layers
  const auto out_of = [&](index_t layer) {
    return view<float, 3>(out.data() + static_cast<std::size_t>(layer) * size(m.heads, width),
                          {tokens, m.heads, width});
  };
  const auto lse_of = [&](index_t layer) {
    return view<float, 2>(lse.data() + static_cast<std::size_t>(layer) * size(m.heads, 1), {tokens, m.heads});
  };
  std::vector<index_t> attended;  // layers
  const view<float, 3> k(keys.data(), {tokens, m.kv_heads, m.head_dim});
  const view<float, 3> v(values.data(), {tokens, m.kv_heads, width});
  const view<float, 3> q(queries.data(), {tokens, m.heads, m.head_dim});
  trace_.clear();
  for (index_t count = 0; count < m.layers; ++count) {
    const index_t layer = layers_backwards ? m.layers - 1 - count : count;
    if (until == fate::dropped_between_layers && count == (m.layers + 1) / 2) return false;
    bool all_prompt = observe_prompts;
    for_each_token(step, parts, pass_number, [&](std::size_t part_at, index_t position, index_t packed, token_id id) {
      const tape& says = *at(parts[part_at].voice).says;
      const tensors& numbers = says.numbers;
      const index_t place = position < says.size() ? says.place(position) : position;
      all_prompt = all_prompt && says.in_prompt(position);
      const auto item = static_cast<index_t>(part_at);
      const quarter_turn turn(says.positions.empty() ? 0
                              : says.tells           ? says.positions_from(position, 1)[0]
                                                     : position + passed_by(step, item));
      for (index_t head = 0; head < m.kv_heads; ++head) {
        numbers.fill(role::key, id, place, layer, head, pass_number, &k(packed, head, 0));
        numbers.fill(role::value, id, place, layer, head, pass_number, wide.data());
        std::copy_n(wide.data(), width, &v(packed, head, 0));
        if (spoil) spoil(id, position, layer, head, &k(packed, head, 0), &v(packed, head, 0), m.head_dim);
        if (!says.positions.empty()) turn(layer, {&k(packed, head, 0), {m.head_dim}});
      }
      for (index_t head = 0; head < m.heads; ++head) {
        numbers.fill(role::query, id, place, layer, head, pass_number, &q(packed, head, 0));
        if (!says.positions.empty()) turn(layer, {&q(packed, head, 0), {m.head_dim}});
      }
    });
    if (!donors.empty() && donors[static_cast<std::size_t>(layer)] != layer) {
      // its keys are its donor's
    } else if (m.values_in_keys) {
      if constexpr (requires { step.append(layer, k); }) step.append(layer, k);
    } else {
      step.append(layer, k, v);
    }
    if (all_prompt) {
      step.observe(layer, q);
      continue;
    }
    step.attend(layer, q, out_of(layer), lse_of(layer));
    attended.push_back(layer);
  }
  if constexpr (requires { step.arrive(); }) step.arrive();
  for (const index_t layer : attended) {
    for_each_token(step, parts, pass_number, [&](std::size_t part_at, index_t position, index_t packed, token_id) {
      token_result& result = logs[part_at][{position, pass_number}];
      const auto heads = static_cast<std::size_t>(m.heads);
      const std::size_t row = heads * static_cast<std::size_t>(width);
      result.out.numbers.resize(row * static_cast<std::size_t>(m.layers));
      result.lse.numbers.resize(heads * static_cast<std::size_t>(m.layers));
      std::copy_n(out_of(layer).data() + static_cast<std::size_t>(packed) * row, row,
                  result.out.numbers.data() + static_cast<std::size_t>(layer) * row);
      std::copy_n(lse_of(layer).data() + static_cast<std::size_t>(packed) * heads, heads,
                  result.lse.numbers.data() + static_cast<std::size_t>(layer) * heads);
    });
  }
  for (zoomr::attended_record& record : trace_) {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (at(parts[i].voice).seq.id != record.seq) continue;
      token_result& result = logs[i][{record.position, record.second_pass ? 1 : 0}];
      result.attended.resize(static_cast<std::size_t>(m.layers) * static_cast<std::size_t>(m.heads));
      result.attended[static_cast<std::size_t>(record.layer * m.heads + record.head)] = std::move(record.positions);
    }
  }
  return true;
}

template <class Cache>
template <class Body>
void driver<Cache>::for_each_token(const step_type& step, const std::vector<part>& parts, index_t pass_number,
                                   Body body) const {
  for (index_t i = 0; i < step.items(); ++i) {
    if (!step.active(i)) continue;
    const index_t count = pass_number == 0 ? step.taken(i) : 1;
    const index_t skipped = pass_number == 0 ? 0 : step.taken(i) - 1;
    for (index_t t = 0; t < count; ++t) {
      body(static_cast<std::size_t>(i), step.position(i) + t, step.packed(i) + t,
           parts[static_cast<std::size_t>(i)].ids[static_cast<std::size_t>(skipped + t)]);
    }
  }
}

/// What of a cache does not depend on its policy.
template <class Cache>
struct driven_part {
  using type = Cache;
};
template <class Policy, class T>
struct driven_part<zoomr::kv_cache<Policy, T>> {
  using type = zoomr::any_kv_cache<T, decltype(Policy::placement)>;
};

template <class Cache>
struct cache_holder {
  Cache cache;
};

/// A cache and its driver.
template <class Policy, class T = float, class Cache = zoomr::kv_cache<Policy, T>>
class player : public cache_holder<Cache>, public driver<typename driven_part<Cache>::type> {
 public:
  player(const shape& model, const Policy& policy, const zoomr::config& limits)
      : cache_holder<Cache>{Cache(model, policy, with_voters(policy, limits, model))},
        driver<typename driven_part<Cache>::type>(this->cache) {
    this->donors.assign(limits.donors.begin(), limits.donors.end());
  }
};

/// A voice that goes on from a fork of voice `v`, with a text of its own.
template <class Player>
index_t fork(Player& plays, index_t v, const tape& says) {
  plays.voices.push_back({plays.cache.fork(plays.at(v).seq), &says, plays.at(v).log});
  return static_cast<index_t>(plays.voices.size()) - 1;
}

/// A config for texts of that length, with everything else generous.
inline zoomr::config limits_for(index_t tokens, index_t sequences = 1) {
  zoomr::config limits;
  limits.max_sequences = sequences;
  limits.max_tokens = tokens;
  limits.max_segments = tokens + 1;
  limits.max_batched_tokens = tokens * sequences;
  limits.max_draft_tokens = 8;
  limits.rollback_tokens = 24;
  limits.classes = classes;
  return limits;
}

/// The fewest tokens that a sequence of `tokens` tokens, whose prompt had `prompt`, can be rolled back to for all that
/// its policy evicts while decoding.
template <class Policy>
index_t least_rollback(const Policy& policy, index_t prompt, index_t tokens) {
  if constexpr (requires { policy.evict.every; }) {
    if (tokens > prompt) return prompt + (tokens - prompt) / policy.evict.every * policy.evict.every;
  }
  return 0;
}

/// Slots that each KV lane holds after so many tokens.
template <class Policy>
index_t slots_held(const Policy& policy, index_t prompt, index_t tokens) {
  const index_t pinned = policy.zone.prompt ? prompt : 0;
  index_t held = pinned + policy.evict.kept(prompt - pinned);
  for (index_t token = prompt + 1; token <= tokens; ++token) {
    ++held;
    if (token == least_rollback(policy, prompt, token)) held = pinned + policy.evict.kept(held - pinned);
  }
  return held;
}

/// A number as a cache of `T` keeps it under a scale.
template <class T>
float as_stored(float number, float scale) {
  return zoomr::to_float(zoomr::from_float<T>(number / scale)) * scale;
}

/// The key, or the value, of one token in one KV head as a cache of `T` keeps it under a scale.
template <class T>
void keep_as_stored(view<float> row, float scale) {
  if constexpr (zoomr::scales_rows<T>) {  // 127 stands for the largest magnitude
    float largest = 0.0f;
    for (const float number : row) largest = std::max(largest, std::abs(number));
    if (largest > 0.0f) scale *= largest / 127.0f / scale;
  }
  for (float& number : row) number = as_stored<T>(number, scale);
}

/// What the reference is told of a model's logits.
inline reference::logits_of_model logits_of(const zoomr::logit_rule& rule) {
  reference::logits_of_model made{double{rule.scale}, double{rule.soft_cap}, {}, {}, rule.window};
  for (index_t layer = 0; layer < rule.sinks.extent(0); ++layer) {
    for (index_t head = 0; head < rule.sinks.extent(1); ++head) made.sinks.push_back(double{rule.sinks(layer, head)});
  }
  for (const float slope : rule.alibi_slopes) made.slopes.push_back(double{slope});
  return made;
}

/// What the reference is told of a tape: the numbers as a cache of `T` stores them.
template <class T = float>
reference::history history_of(const tape& says, float key_scale = 1.0f, float value_scale = 1.0f) {
  const shape& m = says.numbers.model;
  reference::history made;
  made.model = m;
  for (index_t t = 0; t < says.size(); ++t) made.words.classes.push_back(says.class_at(t));
  made.words.prompt_end = says.prompt;
  made.later_prompts = says.later_prompts;
  made.whole_items = says.whole_items;
  const auto fill = [&](role of, index_t heads, index_t pass, std::vector<float>& rows) {
    rows.resize(says.ids.size() * static_cast<std::size_t>(m.layers * heads * m.head_dim));
    float* out = rows.data();
    for (index_t position = 0; position < says.size(); ++position) {
      for (index_t row = 0; row < m.layers * heads; ++row, out += m.head_dim) {
        const token_id id = says.ids[static_cast<std::size_t>(position)];
        says.numbers.fill(of, id, says.place(position), row / heads, row % heads, pass, out);
        if (of != role::value && !says.positions.empty()) {
          quarter_turn(says.positions_from(position, 1)[0])(0, {out, {m.head_dim}});
        }
        if (of != role::query) keep_as_stored<T>({out, {m.head_dim}}, of == role::key ? key_scale : value_scale);
      }
    }
  };
  for (index_t pass = 0; pass < 2; ++pass) {
    fill(role::query, m.heads, pass, made.queries[pass]);
    fill(role::key, m.kv_heads, pass, made.keys[pass]);
    fill(role::value, m.kv_heads, pass, made.values[pass]);
  }
  return made;
}

}  // namespace zoomr_test
