// SPDX-License-Identifier: Apache-2.0
// Layers in groups: what a grouped cache gives is what one cache gives where all layers are alike, and otherwise what
// caches give that are driven by hand, one for each group; and what fails in one group has happened in none.
#include <cache/support/conversations.hpp>
#include <cache/support/players.hpp>
#include <cache/support/reciting.hpp>
#include <cache/support/saved_bytes.hpp>
#include <zoomr/grouped_kv_cache.hpp>

#include <doctest/doctest.h>

#include <functional>  // std::function

namespace zoomr_test {
namespace {

using zoomr::any_kv_cache, zoomr::grouped_kv_cache, zoomr::sequence, zoomr::step_item;
using caches = std::vector<any_kv_cache<>>;
using table = std::vector<index_t>;

inline constexpr auto quest_everywhere = with(small::quest, [](auto& p) { p.zone.dense_layers = 0; });

/// A step in each of some caches, by nothing but their public calls: the oracle of `grouped_step`. At most one policy
/// has second passes. The others begin their step again, with the last tokens changed: they must not read queries.
/// Where the second pass has the numbers of the first (`repeats`) they have nothing to do, and may be of any kind.
class hand_driven {
 public:
  class step;

  hand_driven(caches& of, table group_of) : of_(of), group_of_(std::move(group_of)) {
    std::vector<index_t> counts(of.size());
    for (const index_t g : group_of_) own_.push_back(counts[static_cast<std::size_t>(g)]++);
  }
  sequence open() {
    std::vector<sequence> made;
    for (auto& cache : of_) made.push_back(cache.open());
    handles_.push_back(made);
    return {static_cast<index_t>(handles_.size()) - 1, 0};
  }
  sequence in_group(sequence seq, std::size_t g) const { return handles_[static_cast<std::size_t>(seq.id)][g]; }
  index_t tokens(sequence seq) const { return of_[0].tokens(in_group(seq, 0)); }
  void rollback(sequence seq, index_t to) {
    for (std::size_t g = 0; g < of_.size(); ++g) of_[g].rollback(in_group(seq, g), to);
  }
  void erase(sequence seq, zoomr::token_range span) {
    for (std::size_t g = 0; g < of_.size(); ++g) of_[g].erase(in_group(seq, g), span);
  }
  step begin(view<const step_item> items);

  bool repeats = false;

 private:
  caches& of_;
  table group_of_, own_;
  std::vector<std::vector<sequence>> handles_;
};

class hand_driven::step {
 public:
  using own_step = any_kv_cache<>::step_type;

  step(hand_driven& by, view<const step_item> items) : by_(by), items_(items.begin(), items.end()) {
    for (std::size_t g = 0; g < by.of_.size(); ++g) {  // the fewest that one takes
      const own_step tried = begin(g);
      for (index_t i = 0; i < items.size(); ++i) {
        step_item& item = items_[static_cast<std::size_t>(i)];
        item.ids = item.ids.slice(0, tried.taken(i));
      }
    }
    for (std::size_t g = 0; g < by.of_.size(); ++g) {
      steps_.push_back(std::make_unique<own_step>(begin(g)));
      if (steps_[g]->passes() == 2) asks_ = g;
    }
    first_.resize(by.group_of_.size());
    all_ = steps_[0]->tokens();
  }

  const own_step& any() const { return *steps_[asks_]; }
  index_t items() const { return any().items(); }
  index_t tokens() const { return any().tokens(); }
  index_t taken(index_t i) const { return any().taken(i); }
  index_t position(index_t i) const { return any().position(i); }
  index_t packed(index_t i) const { return any().packed(i); }
  bool active(index_t i) const { return any().active(i); }
  index_t passes() const { return any().passes(); }

  void append(index_t layer, view<float, 3> keys, view<float, 3> values) {
    if (by_.repeats && !alone(layer)) return;
    auto& kept = first_[static_cast<std::size_t>(layer)];
    if (!second_) kept = {{keys.data(), keys.data() + size(keys)}, {values.data(), values.data() + size(values)}};
    if (alone(layer)) return in(layer).append(own(layer), keys, values);
    const auto whole = [&](std::vector<float>& all, view<float, 3> changed) {
      const view<float, 3> made(all.data(), {all_, changed.extent(1), changed.extent(2)});
      copy_last(changed, made, true);
      return made;
    };
    in(layer).append(own(layer), whole(kept.first, keys), whole(kept.second, values));
  }
  void attend(index_t layer, view<float, 3> queries, view<float, 3> out, view<float, 2> lse) {
    const index_t heads = queries.extent(1), dims = queries.extent(2);
    std::vector<float>& got = got_[layer];
    std::vector<float>& sums = sums_[layer];
    if (alone(layer)) {
      in(layer).attend(own(layer), queries, out, lse);
      if (!second_) got.assign(out.data(), out.data() + size(out));
      if (!second_) sums.assign(lse.data(), lse.data() + lse.extent(0) * heads);
      return;
    }
    std::vector<float> asked(static_cast<std::size_t>(all_ * heads * dims));
    const view<float, 3> q(asked.data(), {all_, heads, dims}), o(got.data(), {all_, heads, dims});
    const view<float, 3> l(sums.data(), {all_, heads, 1});
    copy_last(queries, q, true);
    if (!by_.repeats) in(layer).attend(own(layer), q, o, view<float, 2>(sums.data(), {all_, heads}));
    copy_last(out, o, false);
    copy_last(view<float, 3>(lse.data(), {lse.extent(0), heads, 1}), l, false);
  }
  bool needs_second_pass(view<const index_t> accepted) {
    const bool needs = steps_[asks_]->needs_second_pass(accepted);
    for (std::size_t g = 0; g < steps_.size(); ++g) {
      if (g == asks_) continue;
      REQUIRE_FALSE(steps_[g]->needs_second_pass(accepted));
      if (!needs || by_.repeats) continue;
      steps_[g].reset();
      steps_[g] = std::make_unique<own_step>(begin(g));
    }
    second_ = second_ || needs;
    return needs;
  }
  void commit(view<const index_t> accepted) {
    for (auto& of : steps_) of->commit(accepted);
  }

 private:
  static index_t size(view<float, 3> of) { return of.extent(0) * of.extent(1) * of.extent(2); }
  own_step begin(std::size_t g) {
    std::vector<step_item> items = items_;
    for (step_item& item : items) item.seq = by_.in_group(item.seq, g);
    return by_.of_[g].begin(view<const step_item>(items));
  }
  own_step& in(index_t layer) {
    return *steps_[static_cast<std::size_t>(by_.group_of_[static_cast<std::size_t>(layer)])];
  }
  index_t own(index_t layer) const { return by_.own_[static_cast<std::size_t>(layer)]; }
  // The group's own step has the tokens of this pass.
  bool alone(index_t layer) const {
    return !second_ || by_.group_of_[static_cast<std::size_t>(layer)] == static_cast<index_t>(asks_);
  }
  // Rows of the second pass, from or to those of the last tokens of a first one.
  void copy_last(view<float, 3> rows, view<float, 3> all, bool to_all) {
    index_t end = 0;
    for (index_t i = 0; i < items(); ++i) {
      end += taken(i);
      if (!active(i)) continue;
      float* const one = &rows(packed(i), 0, 0);
      float* const other = &all(end - 1, 0, 0);
      const index_t count = rows.extent(1) * rows.extent(2);
      to_all ? std::copy_n(one, count, other) : std::copy_n(other, count, one);
    }
  }

  hand_driven& by_;
  std::vector<step_item> items_;
  std::vector<std::unique_ptr<own_step>> steps_;
  std::size_t asks_ = 0;                                                  // the group that may ask for a second pass
  std::vector<std::pair<std::vector<float>, std::vector<float>>> first_;  // [layers]  keys and values of the first pass
  std::map<index_t, std::vector<float>> got_, sums_;                      // by layer: outputs and lse of the first pass
  index_t all_ = 0;
  bool second_ = false;
};

hand_driven::step hand_driven::begin(view<const step_item> items) { return step(*this, items); }

std::vector<shape> shapes_of(const caches& of, const table& group_of) {
  std::vector<shape> made;
  for (const index_t g : group_of) made.push_back(of[static_cast<std::size_t>(g)].model());
  return made;
}
shape of_layers(shape model, index_t layers) {
  model.layers = layers;
  return model;
}

constexpr index_t longest = 150;

std::vector<tape> texts(std::uint64_t seed, index_t count = 2) {
  std::vector<tape> made;
  constexpr markup looks[] = {markup::pairs, markup::sentences, markup::summaries_alone};
  for (index_t s = 0; s < count; ++s) {
    const index_t prompt = 20 + s * 17;
    made.push_back(make_tape({1, 4, 2, 8}, s % 2 == 0 ? kind::uniform : kind::peaked, looks[s % 3], longest - s * 9,
                             prompt, seed + static_cast<std::uint64_t>(s)));
  }
  return made;
}

TEST_CASE("layers with one policy and shape, in groups, give the bits and the statistics of one cache") {
  constexpr shape model{5, 4, 2, 8};
  const auto check = [&](const char* name, const auto& policy, index_t back) {
    CAPTURE(std::string(name));
    std::vector<tape> says = texts(3);
    if (!frees_pages(policy)) says[0].later_prompts = {{40, 77}, {90, 91}}, says[1].later_prompts = {{70, 141}};
    says[1].spans = {{{5, 9}}, {{30, 41}}, {{90, 92}}};
    const zoomr::config limits = limits_for(longest, 2);
    any_kv_cache<> one = zoomr::kv_cache(model, policy, limits);
    const table group_of{0, 1, 0, 1, 1};
    caches two;
    two.push_back(zoomr::kv_cache(of_layers(model, 2), policy, limits));
    two.push_back(zoomr::kv_cache(of_layers(model, 3), policy, limits));
    grouped_kv_cache<> grouped(std::move(two), view<const index_t>(group_of));
    const std::vector<shape> shapes(5, model);
    reciter expected(one, shapes);
    reciter made(grouped, shapes);
    for (const tape& text : says) expected.open(text), made.open(text);
    expected.recite(7, back), made.recite(7, back);
    for (index_t v = 0; v < 2; ++v) {
      CHECK(difference(expected.at(v).log, made.at(v).log) == "");
      const zoomr::statistics got = grouped.stats(made.at(v).seq);
      const zoomr::statistics wanted = one.stats(expected.at(v).seq);
      CHECK(got.tokens == wanted.tokens);
      CHECK(got.passes == wanted.passes);
      CHECK(got.attended == wanted.attended);
      CHECK(got.refreshes == wanted.refreshes);
      CHECK(got.zooms == wanted.zooms);
      CHECK(got.chosen == wanted.chosen);
      CHECK(got.agreeability_count == wanted.agreeability_count);
      CHECK(got.agreeability_sum == doctest::Approx(wanted.agreeability_sum));
      CHECK(grouped.bytes(made.at(v).seq).details == one.bytes(expected.at(v).seq).details);
      const sequence in = grouped.in_group(made.at(v).seq, 1);
      const tape& text = says[static_cast<std::size_t>(v)];
      CHECK(grouped.group(1).pinned(in) ==
            pins_of(policy, text, grouped.tokens(made.at(v).seq), grouped.group(1).segments(in)));
    }
  };
  check("window", small::window, 20);
  check("zoomr_focus", small::zoomr_focus, 20);
  check("quest", quest_everywhere, 20);
  check("by_kv_head", small::by_kv_head, 20);
  check("h2o", small::h2o, 0);
  check("snapkv", small::snapkv, 0);
}

struct two_ways {
  caches by_hand, grouped;
  bool with_later_prompts = true;
  template <class Policy>
  void add(const shape& model, const Policy& policy, const zoomr::config& limits) {
    by_hand.push_back(zoomr::kv_cache(model, policy, limits));
    grouped.push_back(zoomr::kv_cache(model, policy, limits));
    with_later_prompts = with_later_prompts && !frees_pages(policy);
  }
  /// @return  second passes, and drafts that were cut short
  std::pair<std::int64_t, std::int64_t> compare(const table& group_of, index_t back, bool repeats = false,
                                                std::size_t longest_whole = 0) {
    std::vector<tape> says = texts(11, 3);
    if (with_later_prompts) says[0].later_prompts = {{60, 90}}, says[2].later_prompts = {{80, 83}, {100, 132}};
    says[2].spans = {{{5, 9}}, {{30, 41}}, {{90, 92}}};
    const std::vector<shape> shapes = shapes_of(by_hand, group_of);
    hand_driven hand(by_hand, group_of);
    grouped_kv_cache<> cache(std::move(grouped), view<const index_t>(group_of));
    reciter expected(hand, shapes);
    reciter made(cache, shapes);
    hand.repeats = expected.repeats = made.repeats = repeats;
    expected.longest_whole = made.longest_whole = longest_whole;
    for (const tape& text : says) expected.open(text), made.open(text);
    for (std::uint64_t seed = 5; seed < 8; ++seed) {  // again, from where a rollback goes to
      expected.recite(seed, back), made.recite(seed, back);
      for (index_t v = 0; v < 3; ++v) {
        CHECK(difference(expected.at(v).log, made.at(v).log) == "");
        for (std::size_t g = 0; g < by_hand.size(); ++g) {
          const auto& of = cache.group(static_cast<index_t>(g));
          const sequence own = cache.in_group(made.at(v).seq, static_cast<index_t>(g));
          const sequence other = hand.in_group(expected.at(v).seq, g);
          CHECK(of.bytes(own) == by_hand[g].bytes(other));
          CHECK(of.stats(own).tokens == by_hand[g].stats(other).tokens);
          CHECK(of.stats(own).zooms == by_hand[g].stats(other).zooms);
        }
        const index_t to = says[static_cast<std::size_t>(v)].size() - back;
        expected.rollback(v, to), made.rollback(v, to);
      }
      if (back == 0) break;
    }
    CHECK((made.wholes > 20) == (longest_whole > 0));
    return {made.second_passes, made.cut_short};
  }
};

TEST_CASE("groups of other shapes and policies give what separate caches give, also of items that are passed whole") {
  for (const std::size_t longest_whole : {0, 5}) {
    two_ways ways;
    const zoomr::config limits = limits_for(longest, 3);
    zoomr::config shorter = limits;
    shorter.max_draft_tokens = 5;
    ways.add({2, 4, 2, 8}, small::full, limits);
    ways.add({1, 6, 3, 16}, small::window, shorter);
    ways.add({2, 4, 1, 8}, small::zoomr_focus, limits);
    ways.add({1, 4, 4, 8}, small::by_kv_head, limits);
    const auto [second_passes, cut_short] = ways.compare({0, 2, 1, 3, 0, 2}, 20, false, longest_whole);
    CHECK(second_passes == 0);
    CHECK(cut_short > 20);
  }
}

TEST_CASE("groups that evict while decoding end drafts for all") {
  two_ways ways;
  const zoomr::config limits = limits_for(longest, 3);
  ways.add({1, 4, 2, 8}, small::h2o, limits);
  ways.add({2, 2, 1, 16}, small::window, limits);
  ways.add({1, 4, 2, 8}, small::evicting, limits);
  const auto [second_passes, cut_short] = ways.compare({1, 0, 2, 1}, 0);
  CHECK(second_passes == 0);
  CHECK(cut_short > 20);
}

TEST_CASE("a second pass that one group asks for goes through all groups") {
  for (const bool last : {false, true}) {  // the group that asks
    CAPTURE(last);
    two_ways ways;
    const zoomr::config limits = limits_for(longest, 3);
    const auto add_zoomr = [&] { ways.add({2, 4, 2, 8}, small::zoomr_second_pass, limits); };
    if (!last) add_zoomr();
    ways.add({2, 2, 1, 16}, small::window, limits);
    ways.add({1, 4, 4, 8}, small::full, limits);
    if (last) add_zoomr();
    const table group_of = last ? table{0, 2, 1, 0, 2} : table{1, 0, 2, 1, 0};
    const auto [second_passes, cut_short] = ways.compare(group_of, 20);
    CHECK(second_passes > 10);
    CHECK(cut_short > 20);
  }
}

TEST_CASE("a second pass with the numbers of the first changes nothing in the groups that have not asked for it") {
  const zoomr::config limits = limits_for(longest, 3);
  two_ways ways, evicting;
  ways.add({1, 4, 2, 8}, small::zoomr_second_pass, limits);
  ways.add({2, 4, 2, 8}, small::zoomr_focus, limits);
  ways.add({1, 4, 2, 16}, quest_everywhere, limits);
  ways.add({1, 4, 2, 8}, small::by_kv_head, limits);
  ways.add({1, 2, 2, 8}, small::zoomr_one_pass, limits);
  CHECK(ways.compare({1, 0, 2, 1, 3, 4}, 20, true).first > 10);
  evicting.add({1, 4, 2, 8}, small::zoomr_second_pass, limits);
  evicting.add({1, 4, 2, 8}, small::evicting, limits);
  evicting.add({2, 2, 1, 8}, small::h2o, limits);
  CHECK(evicting.compare({2, 0, 2, 1}, 0, true).first > 10);
}

/// Groups of all kinds, some of which choose, beside one that asks for second passes.
struct mixed_groups {
  static constexpr index_t count = 6;
  static inline const table group_of{5, 1, 0, 2, 3, 4, 0, 1};

  static caches all(const zoomr::config& limits) {
    caches made;
    made.push_back(zoomr::kv_cache(shape{2, 4, 2, 8}, small::zoomr_second_pass, limits));
    made.push_back(zoomr::kv_cache(shape{2, 4, 2, 8}, small::zoomr_focus, limits));
    made.push_back(zoomr::kv_cache(shape{1, 4, 2, 16}, quest_everywhere, limits));
    made.push_back(zoomr::kv_cache(shape{1, 4, 1, 8}, small::by_kv_head, limits));
    made.push_back(zoomr::kv_cache(shape{1, 2, 2, 8}, small::zoomr_one_pass, limits));
    made.push_back(zoomr::kv_cache(shape{1, 2, 2, 8}, small::window, limits));
    return made;
  }
  explicit mixed_groups(const zoomr::config& limits) : mixed_groups(all(limits), limits) {}
  mixed_groups(caches of, const zoomr::config&)
      : shapes(shapes_of(of, group_of)), cache(std::move(of), view<const index_t>(group_of)), says(cache, shapes) {}

  std::vector<shape> shapes;
  grouped_kv_cache<> cache;
  reciter<grouped_kv_cache<>> says;
};

TEST_CASE("in a second pass the groups that have not asked for it attend with the choices that they have") {
  const tape says = texts(21, 1)[0];
  mixed_groups groups(limits_for(longest, 1));
  groups.says.open(says);
  std::vector<zoomr::attention_trace> traces(std::size_t{mixed_groups::count});
  for (index_t g = 0; g < mixed_groups::count; ++g) groups.cache.trace(g, &traces[static_cast<std::size_t>(g)]);
  groups.says.recite_plainly();
  REQUIRE(groups.says.second_passes > 3);
  for (std::size_t g = 0; g < traces.size(); ++g) {
    std::map<std::array<index_t, 3>, std::vector<index_t>> first;
    std::int64_t again = 0, other = 0, sparse = 0;
    for (const zoomr::attended_record& of : traces[g]) {
      const std::array<index_t, 3> at{of.position, of.layer, of.head};
      if (!of.second_pass) {
        first[at] = of.positions;
        continue;
      }
      ++again;
      other += first.at(at) == of.positions ? 0 : 1;
      sparse += static_cast<index_t>(of.positions.size()) <= of.position ? 1 : 0;
    }
    CAPTURE(g);
    CHECK(again > 0);
    CHECK(sparse > 0);
    CHECK((other > 0) == (g == 0));
  }
}

TEST_CASE("drafts, batches, dropped steps, rollbacks, forks and saved sequences give the bits of single tokens") {
  const std::vector<tape> says = texts(31);
  mixed_groups plain(limits_for(longest, 3)), any(limits_for(longest, 3)), elsewhere(limits_for(longest, 3));
  for (const tape& text : says) plain.says.open(text), any.says.open(text);
  plain.says.recite_plainly();
  any.says.recite(3, 20);
  CHECK(any.says.second_passes > 3);
  CHECK(any.says.cut_short > 10);
  CHECK(any.says.rollbacks > 3);
  for (index_t v = 0; v < 2; ++v) CHECK(difference(plain.says.at(v).log, any.says.at(v).log) == "");
  for (const index_t back : {1, 7, 20}) {
    CAPTURE(back);
    const index_t to = says[0].size() - back;
    any.cache.rollback(any.says.at(0).seq, to);
    const sequence forked = any.cache.fork(any.says.at(0).seq);
    memory_sink sink;
    any.cache.save(any.says.at(0).seq, sink);
    CHECK(sink.finished == 1);
    const sequence loaded = elsewhere.cache.load(memory_source(sink.bytes));
    any.cache.close(any.says.at(0).seq);
    result_log log = any.says.at(0).log;
    log.erase(log.lower_bound({to, 0}), log.end());
    any.says.at(0) = {forked, &says[0], log};
    elsewhere.says.voices = {{loaded, &says[0], log}};
    any.says.recite(13, 0), elsewhere.says.recite(17, 0);
    CHECK(difference(plain.says.at(0).log, any.says.at(0).log) == "");
    CHECK(difference(plain.says.at(0).log, elsewhere.says.at(0).log) == "");
    CHECK(any.cache.bytes(forked).details == elsewhere.cache.bytes(loaded).details);
    elsewhere.cache.close(loaded);
  }
}

TEST_CASE("a fork takes the place of an open sequence in all groups") {
  const shape of{1, 4, 2, 8};
  const tape says = make_tape(of, kind::uniform, markup::pairs, 120, 40, 3);
  const tape before = make_tape(of, kind::uniform, markup::sentences, 120, 50, 4);
  caches groups;
  groups.push_back(zoomr::kv_cache(of, small::full, limits_for(says.size(), 2)));
  groups.push_back(zoomr::kv_cache(of, small::zoomr_focus, limits_for(says.size(), 2)));
  const table group_of{0, 1};
  grouped_kv_cache<> cache(std::move(groups), view<const index_t>(group_of));
  reciter plays(cache, {of, of});
  plays.open(says), plays.open(before);
  const auto go_on = [&](index_t v, index_t to) {
    while (plays.tokens(v) < to) plays.play({plays.next(v, plays.at(v).says->in_prompt(plays.tokens(v)) ? 60 : 1)});
  };
  go_on(0, 80), go_on(1, 100);
  cache.fork(plays.at(0).seq, plays.at(1).seq);
  plays.at(1).says = &says, plays.at(1).log = plays.at(0).log;
  CHECK(cache.bytes(plays.at(0).seq) == cache.bytes(plays.at(1).seq));
  go_on(1, 120), go_on(0, 120);
  CHECK(plays.at(0).log.size() == 120);
  CHECK(difference(plays.at(0).log, plays.at(1).log) == "");
}

/// What a grouped cache saves of a sequence: all that later steps can come to see.
saved_bytes saved(grouped_kv_cache<>& cache, sequence seq) {
  memory_sink sink;
  cache.save(seq, sink);
  return sink.bytes;
}

TEST_CASE("a question that is named stays where a group pins it, beside a group that attends to everything") {
  constexpr shape model{1, 4, 2, 8};
  zoomr::config limits = limits_for(longest, 2);
  caches two;
  two.push_back(zoomr::kv_cache(model, with(quest_everywhere, [](auto& p) { p.zone.question = 16; }), limits));
  limits.logits.window = 12;  // of the model
  two.push_back(zoomr::kv_cache(model, zoomr::presets::full, limits));
  const table group_of{0, 1};
  grouped_kv_cache<> cache(std::move(two), view<const index_t>(group_of));
  const sequence seq = cache.open();
  const auto pass = [&](index_t count, view<const zoomr::token_span> spans, bool ends) {
    const std::vector<zoomr::token_id> ids(static_cast<std::size_t>(count), plain_id);
    step_item item{seq, view<const zoomr::token_id>(ids), ends};
    item.spans = spans;
    auto step = cache.begin(view<const step_item>(&item, {1}));
    std::vector<float> keys(static_cast<std::size_t>(count * 2 * 8), 0.5f), queries(keys.size() * 2, 0.5f),
        out(queries);
    for (index_t layer = 0; layer < 2; ++layer) {
      step.append(layer, view<const float, 3>(keys.data(), {count, 2, 8}),
                  view<const float, 3>(keys.data(), {count, 2, 8}));
      step.attend(layer, view<const float, 3>(queries.data(), {count, 4, 8}),
                  view<float, 3>(out.data(), {count, 4, 8}));
    }
    step.commit();
  };
  const zoomr::token_span question{{18, 26}, zoomr::span_role::question};
  pass(30, view<const zoomr::token_span>(&question, {1}), true);
  for (index_t t = 0; t < 3; ++t) pass(1, {}, false);
  const std::vector<zoomr::pinned_range> pinned = cache.group(0).pinned(cache.in_group(seq, 0));
  REQUIRE(pinned.size() == 1);
  CHECK(pinned[0].tokens.first == 18);
  CHECK(pinned[0].tokens.last == 26);
  CHECK(pinned[0].role == zoomr::span_role::question);
}

TEST_CASE("a span is erased from all groups as from separate caches") {
  const zoomr::config limits = limits_for(longest, 2);
  two_ways ways;
  ways.add({2, 4, 2, 8}, small::full, limits);
  ways.add({1, 2, 1, 16}, small::sentence_kv, limits);
  ways.add({2, 4, 2, 8}, small::by_kv_head, limits);
  const table group_of{0, 2, 1, 0, 2};
  const std::vector<shape> shapes = shapes_of(ways.by_hand, group_of);
  hand_driven hand(ways.by_hand, group_of);
  grouped_kv_cache<> cache(std::move(ways.grouped), view<const index_t>(group_of));
  reciter expected(hand, shapes);
  reciter made(cache, shapes);
  const tape says = texts(61, 1)[0];
  const tape shorter = says.without({70, 83}), shortest = shorter.without({5, 12});
  const auto both = [&](auto call) { call(expected), call(made); };
  both([&](auto& of) {
    of.open(says);
    while (of.tokens(0) < 100) of.play({of.next(0, of.tokens(0) < says.prompt ? says.prompt : 1)});
    of.erase(0, {70, 83}, shorter);
    while (of.tokens(0) < 110) of.play({of.next(0, 1)});
    of.erase(0, {5, 12}, shortest);
    while (!of.done(0)) of.play({of.next(0, 3)});
  });
  CHECK(difference(expected.at(0).log, made.at(0).log) == "");
  const index_t now = made.tokens(0);
  CHECK(cache.model_position(made.at(0).seq, now) == now);
  CHECK_FALSE(cache.holds_all());  // sentence_kv keeps some of the prompt
  CHECK_FALSE(cache.evicts_while_decoding());
  for (const zoomr::token_range span : {zoomr::token_range{3, 9}, {now - 3, now}, {0, now - 1}}) {
    const saved_bytes before = saved(cache, made.at(0).seq);
    const sequence copy = cache.fork(made.at(0).seq);
    const std::string planned = sentence_of([&] { cache.plan_erase(copy, span); });
    CHECK(saved(cache, copy) == before);
    CHECK(sentence_of([&] { cache.erase(copy, span); }) == planned);
    CHECK(planned.empty() == (saved(cache, copy) != before));
    cache.close(copy);
  }
  cache.erase(made.at(0).seq, {4, 4});
  CHECK(made.tokens(0) == now);
  cache.erase(made.at(0).seq, {now - 5, now});  // a rollback
  CHECK(made.tokens(0) == now - 5);
  for (index_t g = 0; g < 3; ++g) CHECK(cache.group(g).tokens(cache.in_group(made.at(0).seq, g)) == now - 5);

  // Keys are turned by layers of the model.
  const auto key_of = [&](index_t layer, index_t slot) {
    const zoomr::grouped_layer place = cache.place(layer);
    const any_kv_cache<>& group = cache.group(place.group);
    return group.kv_lane(cache.in_group(made.at(0).seq, place.group), place.layer, 0).key(slot)[0];
  };
  std::vector<float> before;
  for (index_t layer = 0; layer < 5; ++layer) before.push_back(key_of(layer, 31));
  cache.erase(made.at(0).seq, {30, 31},
              [](index_t layer, view<float> key) { key[0] += static_cast<float>(layer + 1); });
  for (index_t layer = 0; layer < 5; ++layer) {
    CHECK(key_of(layer, 30) == before[static_cast<std::size_t>(layer)] + static_cast<float>(layer + 1));
  }
}

/// Where the last group begins in such bytes.
std::size_t last_group(const saved_bytes& bytes) {
  std::size_t at = bytes.size() - 8;
  while (std::memcmp(bytes.data() + at, "zoomrseq", 8) != 0) --at;
  return at;
}

/// Why a call is refused.
template <class Failure>
std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Failure& why) {
    return std::string(why.what()).substr(zoomr::error::prefix.size());
  }
  return "it is not refused";
}
bool begins(const std::string& text, const std::string& with) { return text.substr(0, with.size()) == with; }

TEST_CASE("what the second group refuses has not happened in the first") {
  const zoomr::config limits = limits_for(longest, 3);
  zoomr::config little = limits;
  little.max_sequences = 2, little.pool_tokens = 96, little.rollback_tokens = 4;
  caches two;
  two.push_back(zoomr::kv_cache(shape{1, 2, 2, 8}, small::full, limits));
  two.push_back(zoomr::kv_cache(shape{2, 4, 2, 8}, small::by_kv_head, little));
  const table group_of{1, 0, 1};
  const std::vector<shape> shapes = shapes_of(two, group_of);
  grouped_kv_cache<> cache(std::move(two), view<const index_t>(group_of));
  reciter made(cache, shapes);
  const std::vector<tape> says = texts(41);
  made.open(says[0]);
  const sequence seq = made.at(0).seq;
  made.play({made.next(0, 30)});
  while (cache.tokens(seq) < 40) made.play({made.next(0, 1)});
  const saved_bytes before = saved(cache, seq);
  CHECK(cache.save_bytes(seq) == static_cast<zoomr::byte_count>(before.size()));
  const zoomr::memory_use held = cache.bytes(seq);
  const auto unchanged = [&] {
    CHECK(saved(cache, seq) == before);
    CHECK(cache.bytes(seq) == held);
  };

  SUBCASE("open and fork") {
    const sequence other = cache.open();
    CHECK(begins(refusal<zoomr::error>([&] { cache.open(); }), "all 2 sequences are open"));
    CHECK(begins(refusal<zoomr::error>([&] { cache.fork(seq); }), "all 2 sequences are open"));
    cache.close(other);
    const sequence next = cache.open();
    CHECK_FALSE(next == other);
    cache.close(next);
  }
  SUBCASE("begin") {
    made.open(says[1]);
    made.play({made.next(1, 10)});
    const std::vector<token_id> ids(60, plain_id);
    const sequence other = made.at(1).seq;
    const zoomr::memory_use of_other = cache.bytes(other);
    CHECK(begins(refusal<zoomr::error>([&] { cache.begin(other, view<const token_id>(ids)); }),
                 "group 1: the step needs 4 pages"));
    CHECK(cache.bytes(other) == of_other);
    cache.close(other);
  }
  SUBCASE("rollback") {
    CHECK(begins(refusal<zoomr::error>([&] { cache.rollback(seq, 25); }), "group 1: cannot roll back from 40 to 25"));
  }
  SUBCASE("erase") {
    const sequence fork = cache.fork(seq);  // its pages are shared, and so many more are taken that none is free
    made.voices.push_back({fork, &says[0], {}});
    while (cache.tokens(fork) < 75) made.play({made.next(1, 1)});
    CHECK(refusal<zoomr::error>([&] {
            cache.erase(seq, {0, 5});
          }) ==
          "group 1: erase: 2 pages of 16 tokens are needed to move what lies behind, 0 are free; raise "
          "config.pool_tokens");
    CHECK(begins(refusal<zoomr::precondition_error>([&] {
                   cache.erase(seq, {3, 41});
                 }),
                 "erase: the span must lie in"));
    const std::vector<float> frequencies(5, 1.0f);
    const zoomr::key_rotation turn(view<const float>(frequencies), -5);
    CHECK(begins(refusal<zoomr::precondition_error>([&] {
                   cache.erase(seq, {0, 5}, turn);
                 }),
                 "group 0: key_rotation: there are more"));
    {
      const std::vector<token_id> ids(1, plain_id);
      auto step = cache.begin(seq, view<const token_id>(ids));
      CHECK(refusal<zoomr::precondition_error>([&] { cache.erase(seq, {0, 5}); }) != "it is not refused");
    }
    cache.close(fork);
  }
  SUBCASE("load") {
    const auto refused = [&](const saved_bytes& bytes, std::size_t count, zoomr::errc code) {
      std::string said;
      try {
        cache.load(memory_source(bytes, count));
        CHECK(false);
      } catch (const zoomr::error& why) {
        CHECK(why.code() == code);
        said = std::string(why.what()).substr(zoomr::error::prefix.size());
      }
      unchanged();
      return said;
    };
    const auto format = zoomr::errc::format;
    const std::size_t second = last_group(before);
    for (const std::size_t end : {std::size_t{3}, std::size_t{30}, std::size_t{200}}) refused(before, end, format);
    for (const std::size_t end : {second + 3, second + 500, before.size() - 1}) {
      CHECK(begins(refused(before, end, format), "group 1: load: the file is damaged"));
    }
    saved_bytes moved = before;
    const std::size_t first = 16 + 8;  // of the table of layers
    CHECK(number_at<index_t>(moved, first) == 1);
    put_at<index_t>(moved, first, 0);
    CHECK(begins(refused(moved, moved.size(), format), "load: the file's layers are in other groups"));
    const saved_bytes alone(before.begin() + static_cast<std::ptrdiff_t>(second), before.end());
    CHECK(begins(refused(alone, alone.size(), format), "load: this is no saved sequence of groups of layers"));

    // The second group holds another text.
    const sequence shorter = cache.fork(seq);
    cache.rollback(shorter, 39);
    saved_bytes mixed_up = saved(cache, shorter);
    cache.close(shorter);
    mixed_up.resize(last_group(mixed_up));
    mixed_up.insert(mixed_up.end(), alone.begin(), alone.end());
    CHECK(begins(refused(mixed_up, mixed_up.size(), format), "load: the groups of the file have different texts"));

    const sequence loaded = cache.load(memory_source(before));
    CHECK(saved(cache, loaded) == before);
    cache.close(loaded);
  }
  unchanged();
  made.voices.resize(1);
  made.rollback(0, 38);
  while (cache.tokens(seq) < 44) made.play({made.next(0, 1)});
}

TEST_CASE("what a grouped cache and its steps refuse") {
  const zoomr::config limits = limits_for(longest, 2);
  const auto two = [&] {
    caches made;
    made.push_back(zoomr::kv_cache(shape{1, 2, 2, 8}, small::full, limits));
    made.push_back(zoomr::kv_cache(shape{2, 4, 2, 8}, small::window, limits));
    return made;
  };
  const auto refuses = [&](caches of, const table& group_of) {
    return refusal<zoomr::precondition_error>(
        [&] { grouped_kv_cache<>(std::move(of), view<const index_t>(group_of)); });
  };
  CHECK(refuses({}, {}) == "groups: a cache needs at least one");
  CHECK(refuses(two(), {1, 2, 1}) == "groups: the table of layers names group 2 of 2");
  CHECK(refuses(two(), {1, 0}) == "groups: the shape of group 1 has 2 layers, the table of layers 1");
  caches used = two();
  used[1].open();
  CHECK(refuses(std::move(used), {1, 0, 1}) == "groups: sequences of group 1 are open");

  grouped_kv_cache<> cache(two(), view<const index_t>(table{1, 0, 1}));
  CHECK(cache.layers() == 3);
  CHECK(cache.place(2) == zoomr::grouped_layer{1, 1});
  const sequence seq = cache.open();
  const std::vector<token_id> ids(3, plain_id);
  std::vector<float> numbers(3 * 4 * 8);
  const view<float, 3> small(numbers.data(), {3, 2, 8}), large(numbers.data(), {3, 4, 8});
  const auto mistake = [](const auto& call) { return refusal<zoomr::precondition_error>(call); };
  auto step = cache.begin(seq, view<const token_id>(ids), true);
  CHECK(mistake([&] { cache.begin(seq, view<const token_id>(ids)); }) ==
        "a step is in progress: commit or drop it first");
  CHECK(mistake([&] { cache.rollback(seq, 0); }) == "group 0: a step is in progress: commit or drop it first");
  CHECK(mistake([&] { cache.close(seq); }) == "a step is in progress: commit or drop it first");
  CHECK(mistake([&] { step.append(3, small, small); }) == "append: there is no layer 3, the model has 3");
  CHECK(mistake([&] { step.attend(2, large, large); }) ==
        "layer 2, which is layer 1 of group 1: attend: append the keys of layer 1 before, in the same pass");
  for (index_t layer = 0; layer < 3; ++layer) {
    const view<float, 3> queries = layer == 1 ? small : large;
    step.append(layer, small, small);
    if (layer < 2) step.attend(layer, queries, queries);
  }
  CHECK(begins(mistake([&] { step.needs_second_pass(3); }), "group 1: needs_second_pass: tokens of item 0"));
  CHECK(begins(mistake([&] { step.commit(3); }), "group 1: commit: tokens of item 0 are accepted, but layer 1 of 2"));
  CHECK(cache.tokens(seq) == 0);
  step.attend(2, large, large);
  step.commit();
  CHECK(mistake([&] { step.tokens(); }) == "the step is over: begin another one");
  CHECK(cache.tokens(seq) == 3);
  CHECK_FALSE(cache.in_prompt(seq));
  CHECK(mistake([&] { cache.begin(seq, view<const token_id>(ids), true); }) ==
        "group 0: begin: the prompt of this sequence has already ended; another begins with `prompt_begins`");
  const std::vector<step_item> twice(2, step_item{seq, view<const token_id>(ids)});
  CHECK(begins(mistake([&] { cache.begin(view<const step_item>(twice)); }), "begin: a sequence can"));
}

}  // namespace
}  // namespace zoomr_test
