// SPDX-License-Identifier: Apache-2.0
#include <soak/life.hpp>

#include <support/file_calls.hpp>

#include <algorithm>  // std::count, std::min
#include <atomic>     // std::atomic
#include <cmath>      // std::sqrt

namespace soak {

namespace {

using file_calls::fault;
using zoomr::sequence;
using zoomr::token_id;
using zoomr_test::dice;
using zoomr_test::role;

constexpr std::size_t size(index_t i) { return static_cast<std::size_t>(i); }
void expect(bool holds, const std::string& what) {
  if (!holds) throw difference(what);
}

// Queries that eviction observes at a prompt's end, under the policies that are tried here.
constexpr index_t least_observed = 5;
constexpr index_t most_observed = 8;

/// What one token got, in each pass, as a number; 0: nobody looked.
struct seen {
  std::uint64_t out[2] = {};
  std::uint64_t lse[2] = {};
};

/// Tokens of an item that was passed whole.
struct whole_item {
  zoomr::token_range tokens;  // that were committed, and are left
  bool complete = true;       // they are all of the step's
};

/// Tokens that were committed, and what they got: since the sequence was opened, or since a span of it was edited.
struct told {
  std::vector<token_id> ids;    // [tokens]
  std::vector<index_t> places;  // [tokens]  where each token's numbers stand
  std::vector<char> unasked;    // [tokens]  1: a step ended here and `needs_second_pass` was not called
  std::vector<seen> got;        // [tokens]
  std::vector<char> roles;      // [tokens]  0: in no span, 1: in a pinned one, 2: in a question
  index_t from = 0;             // tokens before this one came before the span was edited
  index_t prompt = 1;           // tokens that the prompt will have, or has
  bool in_prompt = true;
  std::vector<zoomr::token_range> later_prompts;  // of one that has not ended: where it will
  bool in_later_prompt = false;
  std::vector<whole_item> wholes;  // ascending, from `from` on
  editing edit;                    // at the end

  index_t length() const { return static_cast<index_t>(ids.size()); }
  /// In some prompt.
  bool open() const { return in_prompt || in_later_prompt; }
  /// Where that prompt will end.
  index_t goal() const { return in_later_prompt ? later_prompts.back().last : prompt; }
};

/// A sequence as it must be.
struct line : told {
  sequence seq;
  zoomr_test::tensors numbers;
  std::vector<token_id> text;      // what comes next, unless something else does
  std::vector<told> before;        // each span that was edited
  index_t shift = 0;               // tokens that were erased
  index_t floor = 0;               // fewer tokens than these are not promised after a rollback
  index_t forgotten = 0;           // queries of the prompt's tokens before this one are not known any more
  index_t failures = 0;            // in a row
  std::int64_t prompt_tokens = 0;  // committed since it was opened, rolled back or not
  std::int64_t tokens = 0;

  index_t place(index_t position) const { return position < length() ? places[size(position)] : position + shift; }
  void cut(index_t to) {
    ids.resize(size(to)), places.resize(size(to)), unasked.resize(size(to)), got.resize(size(to));
    roles.resize(size(to));
    from = std::min(from, to);
    while (!wholes.empty() && wholes.back().tokens.first >= to) wholes.pop_back();
    if (wholes.empty() || wholes.back().tokens.last <= to) return;
    wholes.back() = {{wholes.back().tokens.first, to}, false};
  }
  /// A prompt that is still coming is one that never had the spans, if keys stayed as they were and nothing adds up.
  void forget_spans() {
    const auto stays = [](const told& each) { return !each.edit.plain(); };
    if (!in_prompt || std::any_of(before.begin(), before.end(), stays)) return;
    std::fill(got.begin(), got.begin() + from, seen{});
    before.clear(), from = 0;
  }
  /// What is there so far was edited.
  void edited(const editing& made) {
    before.push_back(*this);
    before.back().edit = made;
    if (made.erases()) erase(made.span);
    wholes.clear();
    from = length();
  }
  void erase(zoomr::token_range span) {
    const auto drop = [&](auto& of) { of.erase(of.begin() + span.first, of.begin() + span.last); };
    drop(ids), drop(places), drop(unasked), drop(got), drop(roles);
    shift += span.size();
    prompt = zoomr::detail::without(span, prompt);
    forgotten = zoomr::detail::without(span, forgotten);
    if (in_prompt) prompt = std::max({prompt, length() + 1, forgotten > 0 ? forgotten + most_observed : 0});
    for (zoomr::token_range& later : later_prompts)
      later = {zoomr::detail::without(span, later.first), zoomr::detail::without(span, later.last)};
    if (in_later_prompt) go_on();
    std::erase_if(later_prompts, [](zoomr::token_range later) { return later.size() == 0; });
  }
  /// A later prompt that has not ended ends so late that the queries which are observed then are known.
  void go_on() {
    zoomr::token_range& later = later_prompts.back();
    later.last = std::max({later.last, length() + 1, forgotten > later.first ? forgotten + most_observed : 0});
  }
  /// It has lost tokens.
  /// @param undo   config.rollback_tokens
  /// @param votes  what the heads that vote have lost does not come back
  void reopen_later_prompts(index_t undo, bool votes) {
    while (!later_prompts.empty() && later_prompts.back().first >= length()) {
      later_prompts.pop_back();
      in_later_prompt = false;
    }
    if (later_prompts.empty() || later_prompts.back().last <= length()) return;
    in_later_prompt = true;
    if (!votes) floor = std::max(length() - undo, std::min(floor, later_prompts.back().first + 1));
    go_on();
  }
  /// It was saved and loaded: no query sums from before its last prompt were.
  void forget_sums() {
    if (!later_prompts.empty()) floor = std::max(floor, later_prompts.back().first + 1);
  }
};

/// One item of a step.
struct part {
  line* of = nullptr;
  sequence seq;
  std::vector<token_id> ids = {};
  bool prompt_ends = false;
  bool prompt_begins = false;        // a later one
  bool whole = false;                // passed so
  index_t goal = 0;                  // where the later prompt will end
  std::vector<index_t> places = {};  // [ids]  where their numbers stand; empty: where the line says
  std::vector<seen> got = {};        // [tokens of the step]
  std::vector<zoomr::token_span> spans = {};

  bool prompt() const { return of->open() || prompt_begins; }
};

/// The role of a token among the ids of an item, as `told::roles` has it.
char role_in(const std::vector<zoomr::token_span>& spans, index_t id) {
  for (const zoomr::token_span& span : spans) {
    if (span.ids.first <= id && id < span.ids.last) return span.role == zoomr::span_role::pinned ? 1 : 2;
  }
  return 0;
}
/// The spans of some tokens that have these roles.
std::vector<zoomr::token_span> spans_of(const std::vector<char>& roles, index_t first, index_t last) {
  std::vector<zoomr::token_span> spans;
  for (index_t t = first; t < last; ++t) {
    const char role = roles[size(t)];
    if (role == 0) continue;
    if (t > first && role == roles[size(t - 1)]) {
      ++spans.back().ids.last;
      continue;
    }
    const auto named = role == 1 ? zoomr::span_role::pinned : zoomr::span_role::question;
    spans.push_back({{t - first, t - first + 1}, named});
  }
  return spans;
}

/// Passes steps through a cache, with the numbers that the tokens of each line have.
class passes {
 public:
  explicit passes(index_t most, bool values_are_keys = false)
      : values_are_keys_(values_are_keys),
        keys_(size(most * model.kv_heads * model.head_dim)),
        values_(keys_.size()),
        queries_(size(most * model.heads * model.head_dim)),
        out_(queries_.size()),
        lse_(size(most * model.heads)) {}

  /// @param parts  of the step in progress
  void fill(const subject& in, std::vector<part>& parts, index_t pass, index_t layer) {
    tokens_ = in.step_tokens();
    each(in, parts, pass, [&](part& p, index_t position, index_t t, index_t row) {
      const index_t place = p.places.empty() ? p.of->place(position) : p.places[size(t)];
      const auto write = [&](role of, index_t heads, std::vector<float>& to) {
        for (index_t head = 0; head < heads; ++head) {
          p.of->numbers.fill(of, p.ids[size(t)], place, layer, head, pass,
                             &to[size((row * heads + head) * model.head_dim)]);
        }
      };
      write(role::key, model.kv_heads, keys_);
      write(values_are_keys_ ? role::key : role::value, model.kv_heads, values_);
      write(role::query, model.heads, queries_);
    });
  }
  /// Adds one layer's outputs to what the tokens got.
  void note(const subject& in, std::vector<part>& parts, index_t pass, index_t layer, bool with_lse) {
    each(in, parts, pass, [&](part& p, index_t, index_t t, index_t row) {
      const auto sum = [&](const float* of, index_t count) {
        const auto bytes = static_cast<zoomr::byte_count>(sizeof(float)) * count;
        return zoomr_test::mixed(zoomr::checksum(of, bytes) + static_cast<std::uint64_t>(layer)) | 1;
      };
      constexpr index_t numbers = model.heads * model.head_dim;
      for (float* x = &out_[size(row * numbers)]; x != &out_[size(row * numbers)] + numbers; ++x) one_of_nan(*x);
      for (float* x = &lse_[size(row * model.heads)]; x != &lse_[size(row * model.heads)] + model.heads; ++x)
        one_of_nan(*x);
      p.got[size(t)].out[pass] += sum(&out_[size(row * numbers)], numbers) << 1;
      if (with_lse) p.got[size(t)].lse[pass] += sum(&lse_[size(row * model.heads)], model.heads) << 1;
    });
  }

  view<const float, 3> keys(index_t fewer = 0) const { return rows(keys_, model.kv_heads, fewer); }
  view<const float, 3> values(index_t fewer = 0) const { return rows(values_, model.kv_heads, fewer); }
  view<const float, 3> queries(index_t fewer = 0) const { return rows(queries_, model.heads, fewer); }
  view<float, 3> out(index_t fewer = 0) { return {out_.data(), {tokens_, model.heads, model.head_dim - fewer}}; }
  view<float, 2> lse(index_t fewer = 0) { return {lse_.data(), {tokens_, model.heads - fewer}}; }

 private:
  // Which bits a NaN has is not promised.
  static void one_of_nan(float& x) {
    if (x != x) x = zoomr::not_a_number;
  }
  view<const float, 3> rows(const std::vector<float>& of, index_t heads, index_t fewer) const {
    return {of.data(), {tokens_, heads, model.head_dim - fewer}};
  }
  // body(part, position, token of the part, packed row)
  template <class Body>
  void each(const subject& in, std::vector<part>& parts, index_t pass, Body body) {
    for (index_t i = 0; i < static_cast<index_t>(parts.size()); ++i) {
      part& p = parts[size(i)];
      if (!in.active(i)) continue;
      const index_t taken = in.step_tokens(i);
      p.got.resize(size(taken));
      for (index_t t = pass == 0 ? 0 : taken - 1; t < taken; ++t) {
        const index_t row = in.packed(i) + (pass == 0 ? t : 0);
        body(p, in.position(i) + (pass == 0 ? t : 0), t, row);
      }
    }
  }

  bool values_are_keys_;
  index_t tokens_ = 0;
  std::vector<float> keys_, values_, queries_, out_, lse_;
};

class life {
 public:
  life(const sort& of, const life_options& with, votes_t& all)
      : sort_(of), with_(with), all_(all), random_(with.seed), faults_(with.seed + 1), rows_(0), lie_(with.lie) {
    limits_.max_tokens = random_.between(40, 200);
    any_sizes(1);
    if (random_.chance(30) && !of.frees_unreachable) limits_.min_sparse_context = random_.between(10, 80);
    limits_.audit = random_.chance(10);
    if (of.type == "scaled_int8") limits_.key_scale = limits_.value_scale = 1.0f / 32;
    if (of.type == "float8") limits_.key_scale = 0.5f;
    limits_.classes = zoomr_test::classes;
    stored_ = random_.chance(40) ? any_widths() : of.least;
    if (leaves_out("widths") || lie_ == pages::groups) stored_ = sort_.least;
    odd_ = stored_.plain() && random_.chance(limits_.audit ? 50 : 5) && !leaves_out("odd");
    if (stored_.values_in_keys) limits_.value_scale = limits_.key_scale;
    if (!stored_.plain()) limits_.logits.scale = 1.0f / std::sqrt(static_cast<float>(model.head_dim));
    if (random_.chance(25)) any_logits();
    if (leaves_out("logits")) limits_.logits = {.scale = limits_.logits.scale};
    // In an engine's pages blocks are never transformed, so lives of transformed ones stay out of those. A wider row is
    // transformed to other numbers than the least one, which a rebuilt cache has.
    if (of.least.key > 1) {
      const bool may_be = lie_ != pages::engine && stored_ == sort_.least;
      limits_.transform_blocks = may_be && random_.chance(70);
    }
    rows_ = passes(std::max(4 * 48, limits_.max_tokens), stored_.values_in_keys);
    make_cache();
  }
  ~life() {
    cache_.reset();
    file_calls::now = {};
    constexpr const char* names[] = {"", "EIO", "ENOSPC", "EINTR", "short transfer", "flipped bit"};
    for (std::size_t how = 1; how < std::size(names); ++how)
      all_.events[std::string("file: ") + names[how]] += faults_made_[how];
  }
  life(const life&) = delete;

  void live() {
    const std::int64_t until = all_.operations() + with_.operations;
    while (all_.operations() < until) {
      const index_t what = random_.between(1, 100);
      if (lines_.empty() || (what <= 6 && static_cast<index_t>(lines_.size()) <= limits_.max_sequences)) {
        const bool forks = !lines_.empty() && !leaves_out("forks") && random_.chance(50);
        !forks ? open() : random_.chance(70) ? fork(pick()) : copy();
      } else if (what <= 8) {
        close(pick());
      } else if (what <= 10) {
        leaves_out("reloads") ? close(pick()) : save_and_load();
      } else if (what <= 14) {
        roll_back(pick());
      } else if (what <= 16) {
        leaves_out("erases") ? roll_back(pick()) : random_.chance(60) ? erase(pick()) : shift(pick());
      } else if (what <= 22) {
        mistake_between_steps();
      } else if (what <= 25) {
        check(pick());
      } else if (what <= 28) {
        look(pick());
      } else {
        step();
      }
    }
    while (!lines_.empty()) {
      check(0);
      close(0);
    }
    everything_is_free();
  }

 private:
  // What may differ from cache to cache in which a sequence lives.
  void any_sizes(index_t least_sequences) {
    limits_.max_sequences = random_.between(least_sequences, 4);
    limits_.max_batched_tokens = limits_.max_sequences * random_.between(16, 48);
    limits_.max_draft_tokens = random_.between(1, random_.chance(70) ? 6 : 14);
    limits_.rollback_tokens = random_.chance(30) ? 0 : random_.between(1, 30);
    most_rollback_ = std::max(most_rollback_, limits_.rollback_tokens);
    limits_.max_segments = random_.chance(20) ? random_.between(6, 20) : limits_.max_tokens + 1;
    limits_.pool_tokens =
        random_.chance(25) ? random_.between(limits_.max_tokens, limits_.max_sequences * limits_.max_tokens) : 0;
  }
  // The cache under test, over tiers whose file goes wrong now and then.
  void make_cache() {
    fault_percent_ = lie_ == pages::tiered && random_.chance(70) ? random_.between(1, 60) : 0;  // of a thousand
    file_calls::now = {.path = path_.c_str(), .chooses = &chooses_, .named = random_.chance(20)};
    const tier_sizes sizes{random_.between(6, 20), path_.c_str()};
    while (cache_ == nullptr) {
      try {
        cache_ = lie_ == pages::tiered   ? sort_.tiered(limits_, stored_, sizes)
                 : lie_ == pages::engine ? sort_.engine(limits_, stored_, any_layout())
                 : lie_ == pages::groups ? sort_.grouped(limits_, stored_)
                                         : sort_.resident(limits_, stored_);
      } catch (const zoomr::error& why) {
        expect(why.code() == zoomr::errc::storage && fault_percent_ > 0, std::string("no cache: ") + why.what());
        event("no file could be made");
      }
    }
  }
  // What the model does to its logits, and which tokens it sees; both caches get the same.
  void any_logits() {
    zoomr::logit_rule& rule = limits_.logits;
    if (random_.chance(50)) rule.scale = 0.1f * static_cast<float>(random_.between(1, 12));
    if (random_.chance(50)) rule.soft_cap = static_cast<float>(random_.between(1, 30));
    if (random_.chance(50)) {
      for (float& sink : sinks_)
        sink = random_.chance(20) ? -zoomr::infinity : static_cast<float>(random_.between(-3, 3));
      rule.sinks = {sinks_, {model.layers, model.heads}};
    }
    if (random_.chance(50)) {
      for (float& slope : slopes_) slope = 1.0f / static_cast<float>(1 << random_.between(0, 8));
      rule.alibi_slopes = {slopes_, {model.heads}};
    }
    if (!sort_.evicts && random_.chance(60) && !leaves_out("windows")) rule.window = random_.between(1, 60);
  }
  // Not of whole vectors, where these are multiplied in pairs on some paths: a plain cache's rows are not.
  widths any_widths() {
    constexpr widths any[] = {{16, 8}, {8, 16}, {24, 16}, {16, 8, true}, {24, 8, true}, {16, 16}, {32, 16}};
    constexpr widths any_blocks[] = {{64, 32}, {32, 64}, {32, 32, true}, {64, 32, true}};
    if (!sort_.least.plain()) return random_.one_of(any_blocks);
    const bool in_pairs = sort_.type == "bfloat16";
    return any[random_.between(0, in_pairs ? 4 : 6)];
  }
  zoomr_test::engine_layout any_layout() {
    constexpr index_t sizes[] = {1, 3, 7, 16, 16, 32, 48};
    return {random_.one_of(sizes), random_.chance(50), random_.chance(50), random_.chance(50) ? sort_.least.key : 0};
  }
  fault goes_wrong(file_calls::call which) {
    if (!armed_ || faults_.between(1, 1000) > fault_percent_) return fault::none;
    constexpr fault any[] = {fault::error, fault::full, fault::interrupted, fault::partial, fault::flipped};
    const fault how = faults_.one_of(any);
    const bool moves = which == file_calls::call::read || which == file_calls::call::write;
    if (!moves && (how == fault::partial || how == fault::flipped)) return fault::none;
    ++faults_made_[static_cast<std::size_t>(how)];
    return how;
  }

  void count(call which) { ++all_.calls[static_cast<std::size_t>(which)]; }
  void event(const std::string& what) { ++all_.events[what]; }
  // It gives up pages while their sequence goes on.
  bool frees_pages() const { return sort_.frees_unreachable || limits_.logits.window > 0; }
  bool leaves_out(const char* what) const { return with_.without.count(what) > 0; }
  std::size_t pick() { return size(random_.between(0, static_cast<index_t>(lines_.size()) - 1)); }

  void open() {
    count(call::open);
    line made;
    try {
      made.seq = cache_->open();
    } catch (const zoomr::error& why) {
      expect(why.code() == zoomr::errc::capacity && static_cast<index_t>(lines_.size()) == limits_.max_sequences,
             std::string("open: ") + why.what());
      return event("refused: all sequences are open");
    }
    expect(static_cast<index_t>(lines_.size()) < limits_.max_sequences, "more sequences are open than there can be");
    constexpr zoomr_test::kind looks[] = {zoomr_test::kind::uniform, zoomr_test::kind::peaked, zoomr_test::kind::ties};
    constexpr zoomr_test::markup texts[] = {zoomr_test::markup::pairs, zoomr_test::markup::summaries_alone,
                                            zoomr_test::markup::sentences, zoomr_test::markup::marks,
                                            zoomr_test::markup::stray};
    const std::uint64_t seed = random_.roll();
    made.prompt = any_prompt(1, -8);
    made.numbers = {model, odd_ ? zoomr_test::kind::with_infinities : random_.one_of(looks), seed};
    made.text = zoomr_test::text_of(random_.one_of(texts), limits_.max_tokens + 64, made.prompt, seed);
    lines_.push_back(std::move(made));
    expect(looks_of(lines_.back()) == expected(lines_.back(), looks_of(lines_.back())), "a new sequence is not empty");
  }

  // Where a prompt will end that has at least so many tokens; of those that evict often just before any of them goes,
  // or just behind.
  index_t any_prompt(index_t least, index_t beside) {
    const index_t kept = sort_.kept, first = std::max(least, kept + std::min(beside, 0)),
                  last = kept + std::max(beside, 0);
    if (kept > 0 && first <= last && last <= limits_.max_tokens && random_.chance(50))
      return random_.between(first, last);
    return random_.between(least, std::max(least + 1, limits_.max_tokens * 2 / 3));
  }

  // Both lines go on with the same numbers, until they are given other tokens.
  void fork(std::size_t which) {
    count(call::fork);
    line made = lines_[which];
    const looks before = looks_of(made);
    try {
      made.seq = cache_->fork(lines_[which].seq);
    } catch (const zoomr::error& why) {
      expect(why.code() == zoomr::errc::capacity && static_cast<index_t>(lines_.size()) == limits_.max_sequences,
             std::string("fork: ") + why.what());
      expect(looks_of(lines_[which]) == before, "a fork that was refused has changed something");
      return event("refused: all sequences are open");
    }
    if (made.in_prompt && random_.chance(50)) {  // behind all queries that are forgotten
      const index_t least = std::max(made.length() + 1, made.forgotten > 0 ? made.forgotten + most_observed : 0);
      made.prompt = random_.between(least, std::max(least, made.prompt));
    }
    expect(looks_of(made) == before && looks_of(lines_[which]) == before, "a fork is not what it was made of");
    lines_.push_back(std::move(made));
  }

  // A line becomes what another one is.
  void copy() {
    const std::size_t from = pick(), into = pick();
    count(call::fork);
    const looks before = looks_of(lines_[from]);
    cache_->fork(lines_[from].seq, lines_[into].seq);
    const sequence kept = lines_[into].seq;
    lines_[into] = line(lines_[from]);
    lines_[into].seq = kept;
    expect(looks_of(lines_[into]) == before && looks_of(lines_[from]) == before, "a copy is not what it was made of");
    event("copied into an open sequence");
  }

  void save_and_load() {
    const index_t how = random_.between(1, 100);
    if (how <= 10) return move();
    how <= 50 ? reload(pick()) : twin(pick());
  }
  // Empty if it cannot be had.
  zoomr_test::saved_bytes saved(const line& of) {
    const looks before = looks_of(of);
    zoomr_test::saved_bytes bytes;
    try {
      bytes = cache_->save(of.seq);
    } catch (const zoomr::error& why) {
      expect(why.code() == zoomr::errc::storage && fault_percent_ > 0, std::string("save: ") + why.what());
      event("saves that have failed");
    }
    expect(looks_of(of) == before, "a save has changed something");
    return bytes;
  }
  // The sequence is loaded beside itself, and what comes next is the same for both; one of them stays.
  void twin(std::size_t which) {
    if (static_cast<index_t>(lines_.size()) == limits_.max_sequences) return;
    count(call::twin);
    line& of = lines_[which];
    const zoomr_test::saved_bytes bytes = saved(of);
    if (bytes.empty()) return;
    line other = of;
    try {
      other.seq = cache_->load(bytes);
    } catch (const zoomr::error& why) {
      const bool full = why.code() == zoomr::errc::capacity && limits_.pool_tokens > 0;
      const bool bad = why.code() == zoomr::errc::storage && fault_percent_ > 0;
      expect(full || bad, std::string("load: ") + why.what());
      return event("loads that have failed");
    }
    expect(looks_of(other) == looks_of(of), "a sequence that was loaded is not what was saved");
    std::vector<part> mine(1), others(1);
    const bool ends = of.open() && of.length() + 1 >= of.goal();
    mine[0] = {.of = &of, .seq = of.seq, .ids = {random_.between(1, 30)}, .prompt_ends = ends};
    others[0] = {.of = &of, .seq = other.seq, .ids = mine[0].ids, .prompt_ends = ends};
    armed_ = false;
    if (tries(mine) && tries(others)) compare(mine[0].got[0], others[0].got[0], of.length());
    armed_ = true;
    if (random_.chance(50)) std::swap(of.seq, other.seq), of.forget_sums();
    stale_ = other.seq;
    cache_->close(other.seq);
  }
  // Passes the tokens of one sequence, and drops the step. False if it cannot be done.
  bool tries(std::vector<part>& parts) {
    const auto items = items_of(parts);
    try {
      count(call::begin);
      cache_->begin(view<const zoomr::step_item>(items));
    } catch (const zoomr::error&) {
      return event("probes refused"), false;
    }
    pass_plainly(*cache_, parts, 0);
    for (index_t layer = 0; layer < model.layers; ++layer) count(call::append), count(call::attend);
    const bool failed = cache_->failure(0) != nullptr;
    drop();
    if (failed) event("probes failed");
    return !failed;
  }
  // All sequences go to another cache, of other sizes and in another place; those that cannot are gone.
  void move() {
    count(call::move);
    std::vector<zoomr_test::saved_bytes> bytes;
    for (std::size_t which = 0; which < lines_.size();) {
      bytes.push_back(saved(lines_[which]));
      if (!bytes.back().empty()) {
        ++which;
        continue;
      }
      bytes.pop_back();
      close(which);
    }
    cache_.reset();
    any_sizes(std::max<index_t>(1, static_cast<index_t>(lines_.size())));
    if (lie_ != pages::groups && !sort_.frees_unreachable) {
      constexpr pages places[] = {pages::resident, pages::tiered, pages::engine};
      lie_ = random_.one_of(places);
      const bool transformed = sort_.least.key > 1 && limits_.transform_blocks;
      if (lie_ == pages::engine && (!sort_.engine || transformed || leaves_out("engines"))) lie_ = pages::resident;
      if (lie_ == pages::tiered && !sort_.tiered) lie_ = pages::resident;
    }
    make_cache();
    stale_ = {};
    std::vector<line> stay;
    for (std::size_t which = 0; which < lines_.size(); ++which) {
      line& of = lines_[which];
      try {
        of.seq = cache_->load(bytes[which]);
      } catch (const zoomr::error& why) {
        const bool small = limits_.pool_tokens > 0 || limits_.max_segments <= limits_.max_tokens;
        const bool full = why.code() == zoomr::errc::capacity && small;
        const bool bad = why.code() == zoomr::errc::storage && fault_percent_ > 0;
        expect(full || bad, std::string("load elsewhere: ") + why.what());
        event("loads that have failed");
        continue;
      }
      of.floor = std::max(of.floor, of.length() - limits_.rollback_tokens);
      of.forget_sums();
      const index_t last_end = of.later_prompts.empty() ? of.prompt : of.later_prompts.back().last;
      const index_t end = of.open() ? of.length() : std::min(last_end, of.length());
      of.forgotten = std::max(of.forgotten, end - least_observed - limits_.rollback_tokens);
      if (of.in_prompt && of.forgotten > 0) of.prompt = std::max(of.prompt, of.forgotten + most_observed);
      if (of.in_later_prompt) of.go_on();
      const looks now = looks_of(of);
      expect(now == expected(of, now), "a sequence that was loaded elsewhere has other tokens");
      stay.push_back(std::move(of));
    }
    lines_ = std::move(stay);
  }
  // The sequence leaves the cache, and comes back. If it cannot, it stays or is gone.
  void reload(std::size_t which) {
    count(call::reload);
    line& of = lines_[which];
    const looks before = looks_of(of);
    const zoomr_test::saved_bytes bytes = saved(of);
    if (bytes.empty()) return;
    stale_ = of.seq;
    cache_->close(of.seq);
    try {
      of.seq = cache_->load(bytes);
    } catch (const zoomr::error& why) {
      const bool full = why.code() == zoomr::errc::capacity && limits_.pool_tokens > 0;  // it shares no pages any more
      const bool bad = why.code() == zoomr::errc::storage && fault_percent_ > 0;
      expect(full || bad, std::string("load: ") + why.what());
      lines_.erase(lines_.begin() + static_cast<std::ptrdiff_t>(which));
      return event("loads that have failed");
    }
    expect(looks_of(of) == before, "a sequence that was loaded is not what was saved");
    of.forget_sums();
  }

  void close(std::size_t which) {
    count(call::close);
    stale_ = lines_[which].seq;
    cache_->close(stale_);
    lines_.erase(lines_.begin() + static_cast<std::ptrdiff_t>(which));
  }

  looks looks_of(const line& of) const { return cache_->look(of.seq); }
  // With the counts that a line knows itself.
  looks expected(const line& of, looks made) const {
    made.tokens = of.length();
    made.counted_prompt_tokens = of.prompt_tokens;
    made.counted_tokens = of.tokens;
    return made;
  }
  void look(std::size_t which) {
    count(call::look);
    const line& of = lines_[which];
    const looks now = looks_of(of);
    expect(now == expected(of, now), "a sequence has " + std::to_string(now.tokens) + " tokens rather than " +
                                         std::to_string(of.length()) + ", or has counted others than were committed");
  }

  void roll_back(std::size_t which) {
    line& of = lines_[which];
    const index_t now = of.length();
    index_t to = random_.chance(60) ? std::max(0, now - random_.between(0, 12)) : random_.between(0, now);
    if (sort_.kept > 0 && !of.in_prompt && random_.chance(40)) to = std::max(0, of.prompt - random_.between(1, 6));
    to = std::min(to, now);
    // voters choose at the commit of a part of an item that is passed whole, but not at a rollback into it
    for (const whole_item& each : of.wholes)
      if (sort_.votes && each.tokens.first < to && to < each.tokens.last) to = each.tokens.first;
    // where queries are forgotten, the prompt's end must be so far behind that none of them is observed
    if (std::min(of.forgotten, to) + most_observed > limits_.max_tokens) to = 0;
    const looks before = looks_of(of);
    count(call::rollback);
    try {
      cache_->rollback(of.seq, to);
    } catch (const zoomr::error& why) {
      expect(why.code() == zoomr::errc::rollback_depth, std::string("rollback: ") + why.what());
      const bool edited = !of.before.empty() && to < of.before.back().length() - of.before.back().edit.erased();
      expect(sort_.evicts || frees_pages() || edited || to < of.floor,
             std::string("rollback within config.rollback_tokens: ") + why.what());
      expect(looks_of(of) == before, "a rollback that was refused has changed something");
      return event("refused: rollback");
    }
    of.cut(to);
    of.forgotten = std::min(of.forgotten, to);
    const bool was_later = of.in_later_prompt;
    of.reopen_later_prompts(limits_.rollback_tokens, sort_.votes);
    if (sort_.votes) of.floor = std::min(of.floor, to);
    if (of.in_later_prompt && !was_later) event("rolled back into a later prompt");
    if (!of.in_prompt && to < of.prompt) {
      of.in_prompt = true;
      of.prompt = any_prompt(to + 1, 8);
      if (leaves_out("short_prompts")) of.prompt = std::min(limits_.max_tokens, std::max(of.prompt, to + 8));
      if (!sort_.votes) of.floor = std::max(0, to - limits_.rollback_tokens);
      event("rolled back into the prompt");
    }
    if (sort_.votes && random_.chance(50)) end_soon(of);
    if (forgets_spans()) of.forget_spans();
    if (of.in_prompt && of.forgotten > 0) of.prompt = std::max(of.prompt, of.forgotten + most_observed);
    const looks after = looks_of(of);
    expect(after == expected(of, after), "a rollback has not gone where it should, or has changed what is counted");
  }

  // A prompt that is open ends while queries of before the rollback still count.
  void end_soon(line& of) {
    const index_t end = std::min(limits_.max_tokens, of.length() + random_.between(1, 6));
    if (end <= of.length()) return;
    if (of.in_prompt) of.prompt = end;
    if (of.in_later_prompt) of.later_prompts.back().last = end;
  }
  // Nothing that adds up, or counts for a while, has been of the spans.
  bool forgets_spans() const { return !sort_.accumulates && !sort_.votes; }
  // Model positions may differ from positions.
  bool may_move() const { return !sort_.evicts || limits_.logits.alibi_slopes.size() == 0; }
  editing::kind any_kind() {
    if (!leaves_out("gaps") && may_move() && random_.chance(25)) return editing::kind::gap;
    const bool turns = !stored_.values_in_keys && !leaves_out("turns") && random_.chance(40);
    return turns ? editing::kind::erase_and_turn : editing::kind::erase;
  }
  // False if the edit is refused.
  bool edited(line& of, const editing& made, const std::string& name) {
    const looks before = looks_of(of);
    try {
      cache_->edit(of.seq, made);
    } catch (const zoomr::error& why) {
      const bool gone = why.code() == zoomr::errc::not_held && (sort_.evicts || frees_pages());
      const bool full = why.code() == zoomr::errc::capacity;
      const bool bad = why.code() == zoomr::errc::storage && fault_percent_ > 0;
      expect(gone || full || bad, name + ": " + why.what());
      expect(looks_of(of) == before, "an edit that was refused has changed something");
      event(gone ? "refused: tokens are not held" : full ? "refused: full" : "edits that have failed");
      return false;
    }
    of.edited(made);
    if (sort_.votes) of.floor = std::max(of.floor, of.length());
    if (forgets_spans()) of.forget_spans();
    const looks after = looks_of(of);
    expect(after == expected(of, after), name + " has left other tokens, or has changed what is counted");
    return true;
  }

  // A span gets other model positions, between those of its neighbours.
  void shift(std::size_t which) {
    line& of = lines_[which];
    const index_t now = of.length();
    if (now < 2 || !may_move() || leaves_out("shifts")) return;
    zoomr::token_range span{random_.between(0, now - 1), now};
    if (random_.chance(60)) span.last = random_.between(span.first + 1, now);
    const auto position = [&](index_t t) { return cache_->model_position(of.seq, t); };
    const index_t least = (span.first > 0 ? position(span.first - 1) : 0) - position(span.first);
    const index_t most = span.last < now ? position(span.last) - position(span.last - 1) : 40;
    const index_t distance = random_.between(std::max(least, -60), std::min(most, 60));
    const bool turns = !stored_.values_in_keys && !leaves_out("turns") && random_.chance(60);
    count(call::shift);
    edited(of, {turns ? editing::kind::shift_and_turn : editing::kind::shift, span, distance}, "shift");
  }

  void erase(std::size_t which) {
    line& of = lines_[which];
    const index_t now = of.length();
    if (now < 3) return;
    zoomr::token_range span{random_.between(0, now - 2), 0};
    const bool to_the_prompt = !of.in_prompt && random_.chance(50);  // evicting policies hold all of what comes last
    if (to_the_prompt) span.first = std::max(span.first, now - random_.between(2, std::min(now, 12)));
    const bool in_short = sort_.kept > 0 && !of.in_prompt && of.prompt > 2 && of.prompt <= sort_.kept;
    const bool reopens = in_short && random_.chance(50);  // its queries are observed at another end
    if (reopens) span.first = random_.between(0, of.prompt - 2);
    span.last = reopens              ? std::min(now - 1, span.first + random_.between(1, 2))
                : random_.chance(60) ? std::min(now - 1, span.first + random_.between(1, 20))
                                     : random_.between(span.first + 1, now - 1);
    if (span.first == 0 && !of.in_prompt && span.last >= of.prompt) span.first = 1;
    if (span.size() <= 0) return;
    count(call::erase);
    if (!edited(of, {any_kind(), span}, "erase")) return;
    if (reopens) roll_back(which);
  }

  // The next ids of some lines, as a step can take them.
  std::vector<part> next_parts() {
    std::vector<part> parts;
    const index_t most = random_.chance(50) ? 1 : random_.between(1, static_cast<index_t>(lines_.size()));
    std::vector<std::size_t> order;
    for (std::size_t l = 0; l < lines_.size(); ++l)
      order.insert(order.begin() + random_.between(0, static_cast<index_t>(l)), l);
    order.resize(size(most));
    for (const std::size_t l : order) {
      line& of = lines_[l];
      const index_t room = limits_.max_batched_tokens / most;
      part made{.of = &of, .seq = of.seq};
      const index_t now = of.length();
      index_t count = 0;
      made.prompt_begins = begins_prompt(of);
      if (made.prompt_begins) made.goal = std::min(limits_.max_tokens, now + random_.between(1, 40));
      if (made.prompt()) {
        const index_t left = (made.prompt_begins ? made.goal : of.goal()) - now;
        count = random_.between(1, std::min(left, room));
        if (left <= room && random_.chance(40)) count = left;
        const bool long_end = leaves_out("short_prompts");  // the last chunk holds all that eviction observes
        if (long_end && left - count < 8) count = left <= room ? left : std::max(1, std::min(left - 8, room));
        made.prompt_ends = count == left;
      } else {
        made.whole = random_.chance(25) && !leaves_out("wholes");
        const index_t most_ids = limits_.max_draft_tokens + (made.whole ? 0 : 2);
        count = !made.whole && random_.chance(60) ? 1 : random_.between(1, most_ids);
        if (made.whole) count = std::max(1, std::min({count, room, limits_.max_tokens - now}));
      }
      for (index_t t = 0; t < count; ++t) {
        const auto at = size(now + t);
        const bool other = at >= of.text.size() || random_.chance(5);
        made.ids.push_back(other ? random_.between(1, 30) : of.text[at]);
      }
      if (!leaves_out("spans") && random_.chance(25)) made.spans = any_span(of, made);
      parts.push_back(std::move(made));
    }
    return parts;
  }
  // Of the ids of a part; none where it would be refused. The second of two groups has no room for questions.
  std::vector<zoomr::token_span> any_span(const line& of, const part& made) {
    const auto count = static_cast<index_t>(made.ids.size());
    const index_t first = random_.between(0, count - 1), last = std::min(count, first + random_.between(1, 9));
    const bool may_be_question = sort_.questions && made.prompt() && lie_ != pages::groups;
    if (may_be_question && random_.chance(50)) return {{{first, last}, zoomr::span_role::question}};
    const auto pinned = static_cast<index_t>(std::count(of.roles.begin(), of.roles.end(), 1));
    if (last - first > sort_.pinned_room - pinned) return {};
    event("pinned spans");
    return {{{first, last}}};
  }
  // Not where it would be refused, as in the resident cache that `check` makes.
  bool begins_prompt(const line& of) {
    const bool may = !of.open() && of.length() < limits_.max_tokens && !sort_.frees_unreachable;
    return may && !leaves_out("later_prompts") && random_.chance(6);
  }
  static std::vector<zoomr::step_item> items_of(const std::vector<part>& parts) {
    std::vector<zoomr::step_item> items;
    for (const part& p : parts)
      items.push_back({p.seq,
                       view<const token_id>(p.ids),
                       p.prompt_ends,
                       {},
                       p.prompt_begins,
                       {},
                       p.whole,
                       view<const zoomr::token_span>(p.spans)});
    return items;
  }

  std::vector<looks> all_looks(const std::vector<part>& parts) const {
    std::vector<looks> all;
    for (const part& p : parts) all.push_back(looks_of(*p.of));
    return all;
  }

  // False if the step is refused, which is then told.
  bool begin(const std::vector<part>& parts) {
    const std::vector<looks> before = all_looks(parts);
    const auto items = items_of(parts);
    count(call::begin);
    try {
      cache_->begin(view<const zoomr::step_item>(items));
      return true;
    } catch (const zoomr::precondition_error& why) {
      const bool evicted = std::string(why.what()).find("evicts tokens in its middle") != std::string::npos;
      if (!sort_.evicts || !evicted) throw;
      event("refused: evicted in the middle of an item");
      expect(all_looks(parts) == before, "a step that was refused has changed something");
      return false;
    } catch (const zoomr::error& why) {
      bool roomy = limits_.pool_tokens == 0 && limits_.max_segments > limits_.max_tokens;
      for (const part& p : parts) {
        const auto wanted = static_cast<index_t>(p.ids.size());
        const index_t taken = p.prompt() ? wanted : std::min(wanted, limits_.max_draft_tokens);
        roomy = roomy && p.of->length() + taken <= limits_.max_tokens;
      }
      const bool full = why.code() == zoomr::errc::capacity;
      const bool bad = why.code() == zoomr::errc::storage && fault_percent_ > 0;
      expect((full && !roomy) || bad, std::string("begin: ") + why.what());
      event(full ? "refused: full" : "refused: summaries cannot be made again");
      expect(all_looks(parts) == before, "a step that was refused has changed something");
      make_room(parts, bad);
      return false;
    }
  }
  // After a refusal: less is asked for, now and then.
  void make_room(const std::vector<part>& parts, bool bad) {
    for (const part& p : parts) p.of->failures += bad ? 1 : 0;
    const std::size_t which = pick();
    const index_t chance = random_.between(1, 100);
    if (chance <= 50 || lines_[which].failures > 3) {
      check(which);
      close(which);
    } else if (chance <= 80) {
      roll_back(which);
    }
  }

  void step() {
    std::vector<part> parts = next_parts();
    const std::vector<looks> before = all_looks(parts);
    if (!begin(parts)) return;
    const bool all_prompt = std::all_of(parts.begin(), parts.end(), [](const part& p) { return p.prompt(); });
    const bool observes = all_prompt && random_.chance(20);
    const index_t drops_after = random_.chance(8) ? random_.between(0, 2 * model.layers) : -1;
    if (!pass(parts, 0, observes, drops_after)) return expect_dropped(parts, before);
    std::vector<index_t> accepted;
    for (index_t i = 0; i < items(parts); ++i) {
      const index_t taken = cache_->step_tokens(i);
      const bool some = random_.chance(25);
      index_t takes = !some ? taken : parts[size(i)].prompt() ? 0 : random_.between(0, taken);
      if (cache_->failure(i) != nullptr && (leaves_out("accept_failed") || random_.chance(50))) takes = 0;
      accepted.push_back(takes);
    }
    const bool asks = random_.chance(95);
    bool second = false;
    if (asks) {
      count(call::again);
      second = cache_->needs_second_pass(view<const index_t>(accepted));
    }
    if (second) {
      event("second passes");
      const index_t drops_second_pass = random_.chance(8) ? random_.between(0, 2 * model.layers) : -1;
      if (!pass(parts, 1, false, drops_second_pass)) return expect_dropped(parts, before);
      for (index_t i = 0; i < items(parts); ++i) {
        if (cache_->failure(i) != nullptr && leaves_out("accept_failed")) accepted[size(i)] = 0;
      }
    }
    commit(parts, before, accepted, asks);
  }
  static index_t items(const std::vector<part>& parts) { return static_cast<index_t>(parts.size()); }

  // False if the step was dropped on the way.
  bool pass(std::vector<part>& parts, index_t number, bool observes, index_t drops_after) {
    const bool backwards = random_.chance(20);
    const bool with_lse = !random_.chance(5);
    for (index_t l = 0, calls = 0; l < model.layers; ++l) {
      const index_t layer = backwards ? model.layers - 1 - l : l;
      rows_.fill(*cache_, parts, number, layer);
      if (calls++ == drops_after) return drop();
      if (random_.chance(3)) mistake_in_step(parts, layer, false);
      count(call::append);
      cache_->append(layer, rows_.keys(), rows_.values());
      if (calls++ == drops_after) return drop();
      if (observes) {
        count(call::observe);
        cache_->observe(layer, rows_.queries());
      } else {
        count(call::attend);
        cache_->attend(layer, rows_.queries(), rows_.out(), with_lse ? rows_.lse() : view<float, 2>());
        rows_.note(*cache_, parts, number, layer, with_lse);
      }
      if (random_.chance(3)) mistake_in_step(parts, layer, true);
    }
    for (index_t i = 0; i < items(parts); ++i) {
      if (cache_->failure(i) != nullptr) event("items that failed in a pass");
    }
    return drops_after < 2 * model.layers || drops_after < 0 || drop();
  }
  bool drop() {
    count(call::drop);
    cache_->drop();
    return false;
  }
  void expect_dropped(const std::vector<part>& parts, const std::vector<looks>& before) {
    expect(all_looks(parts) == before, "a step that was dropped has changed something");
  }

  void commit(std::vector<part>& parts, const std::vector<looks>& before, const std::vector<index_t>& accepted,
              bool asked) {
    const index_t all = items(parts);
    std::vector<char> failed(parts.size());
    std::vector<index_t> taken;
    for (index_t i = 0; i < all; ++i) {
      failed[size(i)] = cache_->failure(i) != nullptr;
      taken.push_back(cache_->step_tokens(i));
    }
    bool told = true;  // of each that has failed, if somebody wanted it
    for (index_t i = 0; i < all; ++i) told = told && !(failed[size(i)] && accepted[size(i)] > 0);
    count(call::commit);
    try {
      cache_->commit(view<const index_t>(accepted));
    } catch (const zoomr::error& why) {
      const std::string what = why.what();
      expect(why.code() == zoomr::errc::storage && fault_percent_ > 0, "commit: " + what);
      told = true;
      for (index_t i = 0; i < all; ++i) {
        const bool named = what.find("item " + std::to_string(i) + ": ") != what.npos;
        if (named && !failed[size(i)]) event("items that failed in commit");
        told = told && (named || !failed[size(i)] || accepted[size(i)] == 0);
        failed[size(i)] = failed[size(i)] || named;
      }
    }
    expect(told, "commit has left out an item without saying so");
    for (index_t i = 0; i < all; ++i) {
      part& p = parts[size(i)];
      line& of = *p.of;
      const index_t takes = failed[size(i)] ? 0 : accepted[size(i)];
      of.failures = failed[size(i)] ? of.failures + 1 : 0;
      if (takes == 0) {
        expect(looks_of(of) == before[size(i)], failed[size(i)] ? "an item that has failed is not what it was"
                                                                : "nothing was accepted, and something has changed");
        continue;
      }
      const bool prompt = p.prompt();
      if (p.prompt_begins) {
        event("later prompts");
        of.later_prompts.push_back({of.length(), p.goal});
        of.in_later_prompt = true;
        of.forgotten = std::max(of.forgotten, of.length());
      }
      if (p.whole) {
        const zoomr::token_range tokens{of.length(), of.length() + takes};
        of.wholes.push_back({tokens, takes == taken[size(i)]});
        event("items passed whole");
      }
      for (index_t t = 0; t < takes; ++t) {
        of.places.push_back(of.length() + of.shift);
        of.ids.push_back(p.ids[size(t)]);
        of.roles.push_back(role_in(p.spans, t));
        of.got.push_back(p.got.empty() ? seen{} : p.got[size(t)]);
        of.unasked.push_back(!asked && t + 1 == taken[size(i)] ? 1 : 0);
      }
      (prompt ? of.prompt_tokens : of.tokens) += takes;
      if (prompt) {
        of.forgotten = std::max(of.forgotten, of.length() - least_observed - limits_.rollback_tokens);
      }
      if (p.prompt_ends) of.in_prompt = of.in_later_prompt = false;
      of.floor = std::max(of.floor, of.length() - limits_.rollback_tokens);
      const looks after = looks_of(of);
      expect(after == expected(of, after), "what was committed is not what was accepted");
    }
    after_failures(parts);
  }
  // What an engine does when an item fails: tries again, some times, then goes back or begins anew.
  void after_failures(const std::vector<part>& parts) {
    for (const part& p : parts) {
      if (p.of->failures == 0) continue;
      const auto which = static_cast<std::size_t>(p.of - lines_.data());
      if (p.of->failures > 3) {
        event("given up after failures");
        close(which);
        return;  // lines have moved
      }
      if (random_.chance(20)) return roll_back(which);
    }
  }

  // Calls what must be refused, and looks whether anything has changed.
  template <class Mistake>
  void mistaken(const char* what, Mistake mistake) {
    count(call::mistaken);
    std::vector<looks> before, after;
    for (const line& each : lines_) before.push_back(looks_of(each));
    bool refused = false;
    try {
      mistake();
    } catch (const zoomr::precondition_error&) {
      refused = true;
    } catch (const zoomr::error& why) {  // what comes before the mistake is too much already
      refused = why.code() == zoomr::errc::capacity || (why.code() == zoomr::errc::storage && fault_percent_ > 0);
    }
    expect(refused, std::string("this is not refused: ") + what);
    for (const line& each : lines_) after.push_back(looks_of(each));
    expect(before == after, std::string("this is refused, but changes something: ") + what);
  }

  void mistake_between_steps() {
    const line& of = lines_[pick()];
    const std::vector<token_id> one{9}, none, negative{9, -1}, unknown{9, 1 << 20},
        many(size(limits_.max_batched_tokens + 1), 9);
    const auto begins = [&](sequence seq, const std::vector<token_id>& ids, bool prompt_ends = false) {
      const zoomr::step_item item{seq, view<const token_id>(ids), prompt_ends};
      cache_->begin(view<const zoomr::step_item>(&item, {1}));
    };
    const sequence no_such{random_.chance(50) ? -1 : limits_.max_sequences + random_.between(0, 9)};
    switch (random_.between(0, leaves_out("strict") ? 9 : 11)) {
      case 0:
        return mistaken("a step without items", [&] { cache_->begin({}); });
      case 1:
        return mistaken("a step of no sequence", [&] { begins(no_such, one); });
      case 2:
        return mistaken("a step without tokens", [&] { begins(of.seq, none); });
      case 3:
        return mistaken("a negative id", [&] { begins(of.seq, negative); });
      case 4:
        if (of.in_later_prompt) {
          return mistaken("a prompt that begins in another", [&] {
            const zoomr::step_item item{of.seq, view<const token_id>(one), false, {}, true};
            cache_->begin(view<const zoomr::step_item>(&item, {1}));
          });
        }
        if (of.in_prompt) {
          return mistaken("a chunk longer than config.max_batched_tokens", [&] { begins(of.seq, many); });
        }
        return mistaken("a prompt that ends twice", [&] { begins(of.seq, one, true); });
      case 5:
        return mistaken("a sequence twice in a step", [&] {
          const zoomr::step_item both[] = {{of.seq, view<const token_id>(one)}, {of.seq, view<const token_id>(one)}};
          cache_->begin(view<const zoomr::step_item>(both, {2}));
        });
      case 6:
        return mistaken("a rollback to the future", [&] { cache_->rollback(of.seq, of.length() + 1); });
      case 7:
        return mistaken("a rollback before the beginning", [&] { cache_->rollback(of.seq, -1); });
      case 8:
        return mistaken("no such sequence is closed", [&] { cache_->close(no_such); });
      case 9:
        return mistaken("a row that there is not", [&] { cache_->selected(of.seq, -1); });
      case 10:
        return mistaken("an id that has no class", [&] { begins(of.seq, unknown); });
      default: {
        const bool is_open = std::any_of(lines_.begin(), lines_.end(), [&](const line& l) { return l.seq == stale_; });
        if (is_open) return;
        return mistaken("a sequence that was closed", [&] { cache_->tokens(stale_); });
      }
    }
  }

  void mistake_in_step(const std::vector<part>& parts, index_t layer, bool attended) {
    const std::vector<index_t> none(parts.size()), short_by_one(parts.size() - 1), many(parts.size(), 1000),
        negative(parts.size(), -1);
    const index_t no_layer = random_.chance(50) ? -1 : model.layers + random_.between(0, 3);
    const auto accepts = [&](const std::vector<index_t>& counts) {
      random_.chance(50) ? static_cast<void>(cache_->needs_second_pass(view<const index_t>(counts)))
                         : cache_->commit(view<const index_t>(counts));
    };
    switch (random_.between(0, leaves_out("strict") ? 12 : 14)) {
      case 0:
        return mistaken("append of no layer", [&] { cache_->append(no_layer, rows_.keys(), rows_.values()); });
      case 1:
        return mistaken("keys of another shape", [&] { cache_->append(layer, rows_.keys(1), rows_.values()); });
      case 2:
        return mistaken("values of another shape", [&] { cache_->append(layer, rows_.keys(), rows_.values(1)); });
      case 3:
        return mistaken("attend of no layer", [&] { cache_->attend(no_layer, rows_.queries(), rows_.out(), {}); });
      case 4:
        return mistaken("queries of another shape", [&] { cache_->attend(layer, rows_.queries(1), rows_.out(), {}); });
      case 5:
        return mistaken("out of another shape", [&] { cache_->attend(layer, rows_.queries(), rows_.out(1), {}); });
      case 6:
        return mistaken("lse of another shape",
                        [&] { cache_->attend(layer, rows_.queries(), rows_.out(), rows_.lse(1)); });
      case 7:
        return mistaken("too few counts of accepted tokens", [&] { accepts(short_by_one); });
      case 8:
        return mistaken("more accepted than there are", [&] { accepts(many); });
      case 9:
        return mistaken("fewer than none accepted", [&] { accepts(negative); });
      case 10:
        return mistaken("a step in a step", [&] { begin(parts); });
      case 11:
        return mistaken("a rollback in a step", [&] { cache_->rollback(parts[0].seq, 0); });
      case 12:
        return mistaken("a close in a step", [&] { cache_->close(parts[0].seq); });
      case 13:
        if (!attended) {
          return mistaken("attend before append", [&] { cache_->attend(layer, rows_.queries(), rows_.out(), {}); });
        }
        return mistaken("append after attend", [&] { cache_->append(layer, rows_.keys(), rows_.values()); });
      default:
        if (attended) {
          return mistaken("attend twice", [&] { cache_->attend(layer, rows_.queries(), rows_.out(), {}); });
        }
        for (index_t i = 0; i < items(parts); ++i) {
          if (cache_->failure(i) != nullptr) return;
        }
        std::vector<index_t> all;
        for (index_t i = 0; i < items(parts); ++i) all.push_back(cache_->step_tokens(i));
        return mistaken("commit without a layer", [&] { cache_->commit(view<const index_t>(all)); });
    }
  }

  // Feeds a line's tokens to a cache of its own, and compares what each got; then what the next one gets in both.
  void check(std::size_t which) {
    line& of = lines_[which];
    if (sort_.frees_unreachable && (lie_ == pages::tiered || lie_ == pages::engine) && !of.before.empty()) {
      return event("not rebuilt: a resident cache would have freed pages");  // and could not erase or go back
    }
    event("rebuilt");
    zoomr::config limits = limits_;
    limits.max_sequences = 1;
    limits.max_batched_tokens = limits.max_tokens;
    limits.max_draft_tokens = 16;
    limits.max_segments = limits.max_tokens + 1;
    limits.rollback_tokens = limits.pool_tokens = 0;
    limits.audit = false;
    if (!of.before.empty()) limits.rollback_tokens = limits.logits.window > 0 ? limits.max_tokens : most_rollback_;
    const auto fresh = lie_ == pages::groups ? sort_.grouped(limits, sort_.least) : sort_.resident(limits, sort_.least);
    const sequence seq = fresh->open();
    for (const told& each : of.before) {
      tell(*fresh, seq, of, each);
      fresh->edit(seq, each.edit);
    }
    tell(*fresh, seq, of, of);
    const looks a = looks_of(of), b = fresh->look(seq);
    expect(a.segments == b.segments, "segments are not those of a rebuilt cache");
    const bool as_wide = stored_.key == sort_.least.key;
    const zoomr::byte_count at_hand = lie_ == pages::tiered ? zoomr::pages_for(of.length()) * sort_.at_hand : 0;
    expect(!as_wide || a.use.summaries == b.use.summaries + at_hand,
           "the summaries of a rebuilt cache take other bytes");
    const bool other_pages = frees_pages() || lie_ == pages::engine || stored_ != sort_.least;
    expect(other_pages || a.use.details == b.use.details, "the pages of a rebuilt cache take other bytes");
    probe(of, *fresh, seq);
  }
  // Passes what has come since a span was edited, and compares.
  void tell(subject& fresh, sequence seq, line& of, const told& all) {
    const index_t known = fresh.tokens(seq);
    if (all.from < known) fresh.rollback(seq, all.from);
    zoomr::token_range prompt{0, all.in_prompt ? all.length() : all.prompt};  // that `now` is in, or the one before it
    for (index_t now = all.from; now < all.length();) {
      index_t last = std::min(all.length(), now + 8);
      for (const zoomr::token_range& later : all.later_prompts) {
        if (later.first <= now) prompt = {later.first, std::min(later.last, all.length())};
        if (later.first > now) last = std::min(last, later.first);
      }
      const whole_item* whole = nullptr;
      for (const whole_item& each : all.wholes) {
        if (each.tokens.first == now) whole = &each, last = each.tokens.last;
        if (each.tokens.first > now) last = std::min(last, each.tokens.first);
      }
      const bool in_prompt = now < prompt.last;
      if (in_prompt) last = prompt.last;
      const bool open = all.in_prompt || (all.in_later_prompt && prompt.first == all.later_prompts.back().first);
      for (index_t t = now; t < last && !in_prompt && whole == nullptr; ++t) {
        if (all.unasked[size(t)] == 1) last = t + 1;
      }
      std::vector<part> parts(1);
      parts[0] = {.of = &of,
                  .seq = seq,
                  .ids = {all.ids.begin() + now, all.ids.begin() + last},
                  .prompt_ends = in_prompt && !open,
                  .prompt_begins = in_prompt && now == prompt.first && now > 0,
                  .whole = whole != nullptr,
                  .places = {all.places.begin() + now, all.places.begin() + last},
                  .spans = spans_of(all.roles, now, last)};
      if (whole != nullptr && !whole->complete) parts[0].ids.push_back(9), parts[0].places.push_back(0);
      const auto items = items_of(parts);
      fresh.begin(view<const zoomr::step_item>(items));
      const index_t taken = whole != nullptr ? whole->tokens.size() : fresh.step_tokens(0);
      pass_plainly(fresh, parts, 0);
      const bool asks = all.unasked[size(now + taken - 1)] == 0;
      if (asks && fresh.needs_second_pass(view<const index_t>(&taken, {1}))) pass_plainly(fresh, parts, 1);
      fresh.commit(view<const index_t>(&taken, {1}));
      for (index_t t = 0; t < taken; ++t) compare(all.got[size(now + t)], parts[0].got[size(t)], now + t);
      now += taken;
    }
  }
  void compare(const seen& mine, const seen& fresh, index_t position) {
    if (mine.out[0] == 0) return;  // only observed
    event("compared tokens");
    for (index_t pass = 0; pass < 2; ++pass) {
      const bool lse = mine.lse[pass] == 0 || mine.lse[pass] == fresh.lse[pass];
      expect(mine.out[pass] == fresh.out[pass] && lse, "position " + std::to_string(position) + " pass " +
                                                           std::to_string(pass) +
                                                           " got other numbers than in a rebuilt cache");
    }
  }
  void pass_plainly(subject& in, std::vector<part>& parts, index_t number) {
    for (index_t layer = 0; layer < model.layers; ++layer) {
      rows_.fill(in, parts, number, layer);
      in.append(layer, rows_.keys(), rows_.values());
      in.attend(layer, rows_.queries(), rows_.out(), rows_.lse());
      rows_.note(in, parts, number, layer, true);
    }
  }
  // The next token, in both; then it never was.
  void probe(line& of, subject& fresh, sequence seq) {
    std::vector<part> mine(1), other(1);
    const std::vector<token_id> ids{random_.between(1, 30)};
    mine[0] = {.of = &of, .seq = of.seq, .ids = ids};
    other[0] = {.of = &of, .seq = seq, .ids = ids};
    armed_ = false;
    const auto disarmed = [&] {
      if (!tries(mine)) return;
      const auto others = items_of(other);
      fresh.begin(view<const zoomr::step_item>(others));
      pass_plainly(fresh, other, 0);
      fresh.drop();
      compare(mine[0].got[0], other[0].got[0], of.length());
    };
    disarmed();
    armed_ = true;
  }

  // When no sequence is open, the longest has room.
  void everything_is_free() {
    line whole;
    whole.seq = cache_->open();
    const index_t fits = std::min(limits_.max_tokens, limits_.max_batched_tokens);
    const std::vector<token_id> ids(size(fits), 9);
    const zoomr::step_item item{whole.seq, view<const token_id>(ids), false};
    try {
      cache_->begin(view<const zoomr::step_item>(&item, {1}));
    } catch (const zoomr::error& why) {
      expect(limits_.max_segments <= limits_.max_tokens, std::string("an empty cache is full: ") + why.what());
      return;
    }
    drop();
  }

  const sort& sort_;
  const life_options& with_;
  votes_t& all_;
  dice random_;
  dice faults_;  // of the file, so that what is tried next does not depend on them
  zoomr::config limits_;
  float sinks_[std::size_t{model.layers * model.heads}] = {};
  float slopes_[std::size_t{model.heads}] = {};
  widths stored_;
  bool odd_ = false;           // some keys are not finite
  index_t most_rollback_ = 0;  // of the caches so far
  passes rows_;
  pages lie_;
  std::string path_ = "/tmp/zoomr_soak";
  index_t fault_percent_ = 0;
  std::atomic<bool> armed_ = true;                 // the file may be moved by another thread
  std::atomic<std::int64_t> faults_made_[6] = {};  // by kind
  const std::function<fault(file_calls::call)> chooses_ = [this](file_calls::call which) { return goes_wrong(which); };
  std::unique_ptr<subject> cache_;
  std::vector<line> lines_;
  sequence stale_;
};

}  // namespace

void live(const sort& of, const life_options& with, votes_t& all) { life(of, with, all).live(); }

}  // namespace soak
