// SPDX-License-Identifier: Apache-2.0
// The page of a run: its numbers against the cache's traces and statistics, its size, and text that could break it.
#include <doctest/doctest.h>

#include <zoomr/presets/h2o.hpp>
#include <zoomr/presets/quest.hpp>
#include <zoomr/presets/zoomr_thoughts.hpp>

#include <array>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "ledger/evaluate.hpp"
#include "recording.hpp"
#include "support.hpp"
#include "token_classes.hpp"

namespace decode {
namespace {

using nlohmann::ordered_json;
using level_matrix = std::vector<std::vector<std::uint8_t>>;  // [pieces][columns]

/// The levels that a class of lanes says.
level_matrix levels_of(const ordered_json& grid, std::size_t lane, std::size_t pieces, std::size_t columns) {
  level_matrix out(pieces, std::vector<std::uint8_t>(columns));
  const auto numbers = grid["classes"][grid["lanes"][lane].get<std::size_t>()].get<std::vector<std::size_t>>();
  for (std::size_t at = 0; at < numbers.size();) {
    std::vector<std::uint8_t>& row = out.at(numbers[at]);
    std::size_t column = 0;
    const std::size_t runs = numbers.at(at + 1);
    at += 2;
    for (std::size_t r = 0; r < runs; ++r, at += 3) {
      column += numbers[at];
      REQUIRE(numbers[at + 1] > 0);
      for (std::size_t end = column + numbers[at + 1]; column < end; ++column)
        row.at(column) = static_cast<std::uint8_t>(numbers[at + 2]);
    }
  }
  return out;
}

struct run_of_ledger {
  std::string directory = (fs::path(DECODE_LEDGER) / "checkpoints" / "indexed").string();
  model net = load_model(directory);
  tokenizer words{directory, net.config().vocab};
  std::vector<zoomr::token_class> classes = classify(words, net.config().vocab, {";"});
  ledger::problem_set set{ledger::read_task(directory), words, 0, 1, 5};
  const std::vector<token_id>& ids() const { return set.ids.front(); }
  std::size_t prompt() const { return set.problems.front().prompt_length; }

  /// play(passed) after the prompt, then after each token.
  template <class Placement, class Passed>
  void play(session<Placement>& run, Passed passed) const {
    run.prompt(0, std::span(ids()).first(prompt()));
    passed(std::span(ids()).first(prompt()));
    for (std::size_t p = prompt(); p < ids().size(); ++p) {
      run.advance(std::span(ids()).subspan(p, 1));
      passed(std::span(ids()).subspan(p, 1));
    }
  }
};

/// What the page says of a text under this policy, and what another session's own traces say.
/// @return  of cells of pinned pieces how many are read whole
template <class Policy>
std::size_t check_run(run_of_ledger& text, Policy policy, zoomr::tier_bytes tiers = {}) {
  const auto tokens = static_cast<index_t>(text.ids().size());
  const auto open = [&] { return session(text.net, policy, 1, tokens, text.classes, 1, tiers.host == 0, tiers); };
  report::page page("a title", "a command", 1);
  zoomr::statistics before, after;
  {
    auto run = open();
    recording recorded(run, report::facts_of(policy, tokens));
    text.play(run, [&](std::span<const token_id> ids) {
      recorded.passed(ids);
      if (ids.size() > 1) before = run.stats();
    });
    after = run.stats();
    recorded.add_to(page, text.words, run_report());
  }
  const ordered_json& run = page.data()["runs"][0];
  const auto& series = run["series"];
  const auto sum = [&](const char* name) {
    double all = 0;
    for (const double value : series.value(name, std::vector<double>{})) all += value;
    return all;
  };
  CHECK(sum("attended") == static_cast<double>(after.attended - before.attended));
  CHECK(sum("refreshes") == static_cast<double>(after.refreshes - before.refreshes));
  CHECK(sum("zooms") == static_cast<double>(after.zooms - before.zooms));
  CHECK(sum("chosen") == static_cast<double>(after.chosen - before.chosen));
  CHECK(sum("captured_count") == static_cast<double>(after.captured_count - before.captured_count));
  CHECK(sum("captured_sum") == doctest::Approx(after.captured_sum - before.captured_sum).epsilon(1e-4));
  CHECK(sum("agreeability_sum") == doctest::Approx(after.agreeability_sum - before.agreeability_sum).epsilon(1e-4));
  CHECK(run["prompt"] == text.prompt());
  CHECK(run["tokens"] == tokens);
  const std::size_t steps = text.ids().size() - text.prompt();
  REQUIRE(run["steps"] == steps);
  REQUIRE(run["levels"]["stride"] == 1);

  // the same again, with a trace of our own
  auto again = open();
  zoomr::attention_trace attended;
  zoomr::choice_trace choices;
  again.trace(&attended, &choices);
  const zoomr::shape& model = again.cache().model();
  const std::size_t pieces = run["pieces"].size() / 5;
  const auto field = [&](std::size_t id, std::size_t what) {
    return run["pieces"][5 * id + what].template get<index_t>();
  };
  std::vector<level_matrix> said;
  for (index_t lane = 0; lane < model.kv_lanes(); ++lane)
    said.push_back(levels_of(run["levels"], static_cast<std::size_t>(lane), pieces, steps));
  std::size_t step = 0, known = 1, chosen_cells = 0, chosen_sum = 0, pinned_cells = 0;
  std::vector<zoomr::pinned_range> pinned;  // by the page, at a step
  const auto list_pinned = [&] {
    pinned.clear();
    for (std::size_t at = 0; at < run["pinned"].size(); at += 5) {
      const auto number = [&](std::size_t what) { return run["pinned"][at + what].template get<index_t>(); };
      if (number(3) > static_cast<index_t>(step) || static_cast<index_t>(step) >= number(4)) continue;
      pinned.push_back({{number(0), number(1)}, static_cast<zoomr::span_role>(number(2))});
    }
    std::ranges::sort(pinned, {}, [](const zoomr::pinned_range& range) { return range.tokens.first; });
  };
  bool prompt = true;
  std::vector<std::vector<zoomr::level>> active;  // [rows]  what was selected before the step
  const auto selected = [&](index_t row) -> std::vector<zoomr::level> {
    const zoomr::view<const zoomr::level> levels = again.cache().selected(again.at(0), row).levels;
    return {levels.begin(), levels.end()};
  };
  const auto save_active = [&] {
    active.clear();
    for (index_t row = 0; row < again.cache().selection_rows(); ++row) active.push_back(selected(row));
  };
  const auto is_chosen = [&](index_t lane, index_t segment, bool now) {  // by the selection that the lane has read
    const index_t group = model.group(), rows = policy.aggregate.per == zoomr::scope::head ? group : 1;
    for (index_t i = 0; i < rows && !active.empty(); ++i) {
      const index_t layer = lane / model.kv_heads;
      const index_t row = policy.aggregate.per == zoomr::scope::sequence ? 0
                          : policy.aggregate.per == zoomr::scope::layer  ? layer
                                                                         : lane * rows + i;
      const std::vector<zoomr::level> levels = now ? selected(row) : active[static_cast<std::size_t>(row)];
      const auto at = static_cast<std::size_t>(segment);
      if (at < levels.size() && levels[at] == zoomr::level::details) return true;
    }
    return false;
  };
  text.play(again, [&](std::span<const token_id>) {
    if (std::exchange(prompt, false)) return save_active();
    const index_t position = again.cache().tokens(again.at(0)) - 1;
    while (known < pieces && field(known, 3) <= static_cast<index_t>(step)) ++known;
    list_pinned();
    REQUIRE(pinned == again.cache().pinned(again.at(0)));
    std::map<std::pair<index_t, bool>, std::set<index_t>> read;  // by lane and pass
    for (const zoomr::attended_record& one : attended) {
      if (one.position != position) continue;
      read[{one.layer * model.kv_heads + one.head / model.group(), one.second_pass}].insert(one.positions.begin(),
                                                                                            one.positions.end());
    }
    for (index_t lane = 0; lane < model.kv_lanes(); ++lane) {
      const auto second = read.find({lane, true});
      const std::set<index_t>& of_lane = second != read.end() ? second->second : read[{lane, false}];
      const index_t covered = known > 1 ? field(known - 1, 2) : 0;
      for (std::size_t id = 0; id < known; ++id) {
        const index_t begin = id == 0 ? covered : field(id, 0), split = id == 0 ? position + 1 : field(id, 1);
        const index_t end = id == 0 ? position + 1 : field(id, 2);
        index_t details = 0, summary = 0;
        for (index_t at = begin; at < end; ++at) (at < split ? details : summary) += of_lane.count(at) > 0 ? 1 : 0;
        const int level = details == 0 ? (summary > 0 ? 1 : 0) : details == split - begin ? 3 : 2;
        const std::uint8_t cell = said[static_cast<std::size_t>(lane)][id][step];
        REQUIRE((cell & 3) == level);
        for (const zoomr::pinned_range& range : pinned) {
          const bool is_pinned = id > 0 && range.tokens.first <= begin && end <= range.tokens.last;
          pinned_cells += is_pinned && cell == 3 ? 1 : 0;
        }
        const bool now = policy.aggregate.per != zoomr::scope::sequence || second != read.end();
        REQUIRE((cell >= 4) == (id > 0 && field(id, 4) >= 0 && level >= 2 && is_chosen(lane, field(id, 4), now)));
        chosen_cells += cell >= 4 ? 1 : 0;
      }
    }
    attended.clear();
    save_active();
    ++step;
  });
  CHECK(step == steps);
  if (run["choices"].is_null()) {
    CHECK(chosen_cells == 0);
    CHECK(choices.empty());
    return pinned_cells;
  }
  CHECK(chosen_cells > 0);
  std::map<std::pair<index_t, index_t>, const zoomr::choice_record*> by_token;  // by step and row, as they were made
  for (const zoomr::choice_record& made : choices) {
    const index_t when = std::max(0, made.position - static_cast<index_t>(text.prompt()));
    by_token[{when, made.row}] = &made;
    chosen_sum += made.chosen.size();
  }
  CHECK(chosen_sum >= static_cast<std::size_t>(after.chosen - before.chosen));
  REQUIRE(run["choices"]["stride"] == 1);
  REQUIRE(!run["choices"]["list"].empty());
  for (const ordered_json& one : run["choices"]["list"]) {
    const auto made = by_token.find({one[0], one[1]});
    REQUIRE(made != by_token.end());
    const std::size_t named = one[3];
    REQUIRE(named == std::min<std::size_t>(8, made->second->chosen.size()));
    double all = 0, agreed = 0;
    for (std::size_t i = 0; i < made->second->votes.size(); ++i) {
      all += static_cast<double>(made->second->votes[i]);
      agreed += i < made->second->chosen.size() ? static_cast<double>(made->second->votes[i]) : 0;
    }
    for (std::size_t i = 0; i < named; ++i) {
      REQUIRE(one[4 + 2 * i] == made->second->chosen[i]);
      if (run["choices"]["unit"] == "share")
        REQUIRE(one[5 + 2 * i].get<double>() ==
                doctest::Approx(static_cast<double>(made->second->votes[i]) / all).epsilon(0.001));
    }
    if (run["choices"]["unit"] == "share") REQUIRE(one[2] == (all > 0 ? std::lround(agreed / all * 1e4) : -1));
  }
  return pinned_cells;
}

TEST_CASE("a page says of each token what it has read, and adds up to the statistics") {
  run_of_ledger text;
  namespace presets = zoomr::presets;
  check_run(text, presets::zoomr_one_pass);
  check_run(text, presets::zoomr_second_pass);
  check_run(text, presets::zoomr_focus);
  auto heads = presets::zoomr_mass;
  heads.aggregate.per = zoomr::scope::head;
  check_run(text, heads);
  auto quest = presets::quest;
  quest.segment.longest = 8, quest.select.segments = 3, quest.zone.dense_layers = 0;
  CHECK(check_run(text, quest) == 0);
  check_run(text, presets::h2o_with(32));
  text.classes[static_cast<std::size_t>(text.ids().front())] = zoomr::token_class::message;
  quest.zone.preamble = 8, quest.zone.question = 9;
  CHECK(check_run(text, quest) > 0);
}

TEST_CASE("a page says which segments are in memory") {
  run_of_ledger text;
  const auto policy = zoomr::with_placement(zoomr::presets::zoomr_focus, zoomr::tiered<>{});
  const auto tokens = static_cast<index_t>(text.ids().size());
  const auto tiers = [](zoomr::byte_count memory) {
    return zoomr::tier_bytes{.host = memory, .file = 1 << 28, .path = "/tmp"};
  };
  const auto needed = complaint([&] {
    try {
      session(text.net, policy, 1, tokens, text.classes, 1, false, tiers(1));
    } catch (const zoomr::precondition_error& why) {
      throw input_error(why.what());
    }
  });
  const zoomr::byte_count least = std::stoll(needed.substr(needed.find("at least ") + 9));
  check_run(text, policy, tiers(least + (least >> 3)));
  session run(text.net, policy, 1, tokens, text.classes, 1, false, tiers(least));
  report::page page("", "", 1);
  recording recorded(run, report::facts_of(policy, tokens));
  std::size_t some = 0, all = 0;
  std::vector<std::vector<int>> here;  // [steps][lanes]  of the first page of the prompt
  text.play(run, [&](std::span<const token_id> ids) {
    recorded.passed(ids);
    if (ids.size() > 1) return;
    here.emplace_back();
    const zoomr::shape& model = run.cache().model();
    for (index_t layer = 0; layer < model.layers; ++layer) {
      for (index_t head = 0; head < model.kv_heads; ++head)
        here.back().push_back(run.cache().in_memory(run.at(0), layer, head, 0) ? 1 : 0);
    }
  });
  recorded.add_to(page, text.words, run_report());
  const ordered_json& of = page.data()["runs"][0];
  const std::size_t pieces = of["pieces"].size() / 5;
  for (std::size_t lane = 0; lane < here.front().size(); ++lane) {
    const level_matrix said = levels_of(of["in_memory"], lane, pieces, here.size());
    for (std::size_t step = 0; step < here.size(); ++step) {
      REQUIRE((here[step][lane] == 0 ? said[1][step] < 2 : said[1][step] > 0));  // the first piece has this page
      ++(here[step][lane] == 0 ? some : all);
    }
  }
  CHECK(some > 0);
  CHECK(all > 0);
  double hits = 0, misses = 0;
  for (const double value : of["series"]["hits"]) hits += value;
  for (const double value : of["series"]["misses"]) misses += value;
  CHECK(hits > 0);
  CHECK(misses > 0);
  CHECK(hits <= static_cast<double>(run.cache().tiers().hits));
}

report::policy_facts small_facts() {
  report::policy_facts facts;
  facts.model = {1, 1, 1, 8}, facts.query_heads = 1;
  return facts;
}

TEST_CASE("a page says what is pinned, and for how long; as long it has no summary but is read whole") {
  report::recorder recorded(small_facts());
  std::vector<zoomr::segment> segments = {{0, 0, 4, 0, 4, 3}, {4, 4, 8, 4, 8, 7}};  // the cache's: no details
  report::step_view now;
  const auto pass = [&](index_t tokens, std::vector<index_t> read) {
    now.segments = zoomr::view<const zoomr::segment>(segments);
    now.tokens = tokens;
    if (tokens == 8) return recorded.begin(now);
    recorded.attended.push_back({0, tokens - 1, 0, 0, false, std::move(read)});
    recorded.step(now);
  };
  using enum zoomr::span_role;
  now.pinned = {{{0, 4}, pinned}, {{4, 8}, question}};
  pass(8, {});
  pass(9, {0, 1, 2, 3, 4, 5, 6, 7, 8});
  segments[1].split = 6;
  now.pinned = {{{0, 4}, pinned}};
  pass(10, {0, 1, 2, 3, 6, 7, 9});
  now.pinned = {};
  segments[0].split = 4;
  pass(11, {10});
  report::page page("", "", 1);
  page.add(recorded, {"policy", "", std::vector<std::string>(11, "x"), {}});
  const ordered_json& run = page.data()["runs"][0];
  CHECK(run["pinned"] == ordered_json({0, 4, 0, 0, 2, 4, 8, 1, 0, 1}));
  CHECK(run["pieces"] == ordered_json({-1, -1, -1, 0, -1, 0, 4, 4, 0, 0, 4, 6, 8, 0, 1}));
  const level_matrix levels = levels_of(run["levels"], 0, 3, 3);
  CHECK(levels[1] == std::vector<std::uint8_t>{3, 3, 0});
  CHECK(levels[2] == std::vector<std::uint8_t>{3, 1, 0});
}

TEST_CASE("levels over time come back as they went in, or in larger columns as the highest of each") {
  std::mt19937 random(4);
  for (const std::size_t limit : {std::size_t{1} << 20, std::size_t{2500}, std::size_t{700}, std::size_t{10}}) {
    constexpr index_t lanes = 3, steps = 300;
    report::level_grid grid(lanes);
    std::vector<level_matrix> truth(lanes, level_matrix(20, std::vector<std::uint8_t>(steps)));
    for (index_t lane = 0; lane < lanes; ++lane) {
      std::vector<std::uint8_t> levels;
      for (index_t step = 0; step < steps; ++step) {
        if (step % 10 == 0 && levels.size() < 20) levels.push_back(0);
        for (std::uint8_t& level : levels) {
          if (random() % 16 == 0) level = static_cast<std::uint8_t>(lane == 2 ? 3 : random() % 8);
        }
        grid.set(lane, step, levels);
        for (std::size_t piece = 0; piece < levels.size(); ++piece)
          truth[static_cast<std::size_t>(lane)][piece][static_cast<std::size_t>(step)] = levels[piece];
      }
    }
    const ordered_json made = grid.to_json(steps, limit);
    const std::size_t stride = made["stride"];
    CAPTURE(stride);
    CHECK((stride == 1) == (limit > 100'000));
    if (stride < steps) CHECK(made["classes"].dump().size() <= limit + 8);
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      const std::size_t columns = (steps + stride - 1) / stride;
      const level_matrix said = levels_of(made, lane, 20, columns);
      for (std::size_t piece = 0; piece < 20; ++piece) {
        for (std::size_t column = 0; column < columns; ++column) {
          const auto from = truth[lane][piece].begin() + static_cast<std::ptrdiff_t>(column * stride);
          const auto to = truth[lane][piece].begin() +
                          static_cast<std::ptrdiff_t>(std::min<std::size_t>(steps, (column + 1) * stride));
          REQUIRE(said[piece][column] == *std::max_element(from, to));
        }
      }
    }
  }
}

TEST_CASE("16,384 tokens in 24 layers that choose at each token take at most 8 MiB") {
  constexpr index_t layers = 24, tokens = 16384, prompt = 64, piece = 32;
  report::policy_facts facts;
  facts.model = {layers, 2, 1, 8}, facts.query_heads = 2 * layers;
  facts.per = zoomr::scope::layer, facts.chooses = true;
  report::recorder recorded(facts);
  std::vector<zoomr::segment> segments;
  std::mt19937 random(9);
  report::step_view now;
  std::vector<std::array<index_t, 6>> chosen(layers);
  std::vector<std::string> words;
  for (index_t t = 0; t < tokens; ++t) {
    words.push_back(t % 7 == 0 ? " \"quoted\"\n" : " word");
    if ((t + 1) % piece == 0) segments.push_back({t + 1 - piece, t + 1, t + 1, t + 1 - piece, t + 1, t});
    if (t + 1 < prompt) continue;
    now.segments = zoomr::view<const zoomr::segment>(segments);
    now.tokens = t + 1;
    now.stats.attended += static_cast<std::int64_t>(random() % 100'000);
    now.stats.zooms += static_cast<std::int64_t>(random() % 100);
    now.bytes.details = 4096 * (t + 1);
    if (t + 1 == prompt) {
      recorded.begin(now);
      continue;
    }
    for (index_t layer = 0; layer < layers; ++layer) {
      auto& ids = chosen[static_cast<std::size_t>(layer)];
      if (random() % 4 == 0) ids[random() % ids.size()] = static_cast<index_t>(random() % segments.size());
      std::set<index_t> distinct(ids.begin(), ids.end());
      zoomr::choice_record made{0, t, layer, {distinct.begin(), distinct.end()}, {0, 1}, {}};
      for (std::size_t i = 0; i < made.chosen.size() + 2; ++i)
        made.votes.push_back(static_cast<zoomr::votes_t>(random() % 1000));
      zoomr::attended_record head{0, t, layer, 0, false, {}};
      for (const index_t id : distinct) head.positions.push_back(id * piece), head.positions.push_back(id * piece + 1);
      head.positions.push_back(t);
      recorded.attended.push_back(std::move(head));
      recorded.choices.push_back(std::move(made));
    }
    recorded.step(now);
  }
  report::page page("t", "c", 1);
  page.add(recorded, {"policy", "", words, {}});
  const std::size_t bytes = page.json().size();
  MESSAGE("bytes: " << bytes << ", a column of levels is " << page.data()["runs"][0]["levels"]["stride"] << " tokens");
  CHECK(bytes <= report::page::most_bytes);
  CHECK(bytes > report::page::most_bytes / 8);
  CHECK(page.data()["runs"][0]["levels"]["stride"] <= 8);
}

TEST_CASE("no text ends the script that holds it, and what is no text is replaced") {
  const std::vector<std::string> nasty = {"</script><script>alert(1)</script>",
                                          "<!-- <script>",
                                          "\xff\xfe broken \xc3",
                                          std::string("nul \0 and \x01\x1f\x7f", 13),
                                          "\xe2\x80\xa8 line \xe2\x80\xa9",
                                          "/*DATA*/ /*SCRIPT*/",
                                          "\"quotes\" \\ and \ttabs\r\n",
                                          "π 😀"};
  report::recorder recorded(small_facts());
  report::step_view now;
  now.tokens = static_cast<index_t>(nasty.size());
  recorded.begin(now);
  report::page page(nasty[0], nasty[1] + nasty[2], 1);
  page.add(recorded, {nasty[0], nasty[3], nasty, {{nasty[0], nasty[2]}}});
  CHECK(page.json().find('<') == std::string::npos);
  const ordered_json back = ordered_json::parse(page.json());
  CHECK(back["zoomr_report"] == 1);
  CHECK(back["title"] == nasty[0]);
  for (const std::size_t i : {0, 1, 3, 4, 5, 6, 7}) CHECK(back["texts"][0][i] == nasty[i]);
  CHECK(back["texts"][0][2] == "\xef\xbf\xbd\xef\xbf\xbd broken \xef\xbf\xbd");
  std::ostringstream out;
  page.write(out);
  const std::string html = out.str();
  const auto count = [&](std::string_view what) {
    std::size_t found = 0;
    for (std::size_t at = html.find(what); at != html.npos; at = html.find(what, at + 1)) ++found;
    return found;
  };
  CHECK(count("</script>") == 2);  // the page's own: data and script
  CHECK(count("<script") == 2);
  CHECK(count("http://") + count("https://") + count("src=") == 0);
  const std::size_t data = html.find("<script id=\"data\" type=\"application/json\">");
  REQUIRE(data != html.npos);
  const std::size_t begin = html.find('>', data) + 1;
  CHECK(ordered_json::parse(html.substr(begin, html.find("</script>", begin) - begin)) == back);
}

TEST_CASE("runs that pass the same text share it") {
  report::recorder recorded(small_facts());
  report::page page("", "", 3);
  for (const char* text : {"a", "b", "a"}) page.add(recorded, {"policy", "", {text}, {}});
  CHECK(page.data()["texts"].size() == 2);
  CHECK(page.data()["runs"][0]["text"] == 0);
  CHECK(page.data()["runs"][1]["text"] == 1);
  CHECK(page.data()["runs"][2]["text"] == 0);
}

}  // namespace
}  // namespace decode
