// SPDX-License-Identifier: Apache-2.0
// Replays of small random traces against naive ones: full attention in double precision, what a cache of its own has
// attended token by token, and the same within little memory.
#include <doctest/doctest.h>

#include <zoomr/presets/full.hpp>
#include <zoomr/presets/h2o.hpp>
#include <zoomr/presets/quest.hpp>
#include <zoomr/presets/sentence_kv.hpp>
#include <zoomr/presets/voters.hpp>
#include <zoomr/presets/window.hpp>
#include <zoomr/presets/zoomr_thoughts.hpp>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ranges.hpp"
#include "replay_traces.hpp"
#include "resumed.hpp"

namespace replay {
namespace {

/// What a cache does that gets everything through `attend`, each token under an id of its own.
template <class Policy>
replay_result naive_replay(const Policy& policy, const std::vector<float>& voters = {}) {
  zoomr::config limits;
  limits.max_tokens = limits.max_segments = tokens;
  limits.max_batched_tokens = prompt, limits.max_draft_tokens = 1;
  limits.logits.scale = scale, limits.logits.soft_cap = soft_cap;
  limits.classes = data().classes;
  if (!voters.empty()) limits.voters = {voters.data(), {model.layers, model.heads}};
  zoomr::any_kv_cache<> cache = zoomr::kv_cache(model, policy, limits);
  zoomr::attention_trace records;
  cache.trace(&records);
  const zoomr::sequence seq = cache.open();
  std::vector<float> out(at(prompt * model.heads * model.value_width()));
  const auto pass = [&](index_t first, index_t count) {
    std::vector<zoomr::token_id> ids;
    for (index_t i = 0; i < count; ++i) ids.push_back(first + i);
    auto step = cache.begin(seq, ids, first + count == prompt);
    do {
      records.clear();
      for (index_t layer = 0; layer < model.layers; ++layer) {
        step.append(layer, {data().key(layer, first, 0), {count, model.kv_heads, model.head_dim}},
                    {data().value(layer, first, 0), {count, model.kv_heads, model.value_width()}});
        step.attend(layer, {data().query(layer, first, 0), {count, model.heads, model.head_dim}},
                    {out.data(), {count, model.heads, model.value_width()}});
      }
    } while (step.needs_second_pass(count));
    step.commit(count);
  };
  replay_result naive;
  const index_t heads = model.layers * model.heads;
  naive.heads.resize(at(heads));
  std::vector<std::set<index_t>> before(at(heads));
  std::vector<double> earlier(at(heads)), fresh(at(heads));
  pass(0, prompt);
  for (index_t t = prompt; t < tokens; ++t) {
    pass(t, 1);
    REQUIRE(records.size() == at(heads));
    bool left_out = false;
    for (const zoomr::attended_record& record : records) {
      const std::size_t head = at(record.layer * model.heads + record.head);
      head_figures& figures = naive.heads[head];
      const auto& [exact, best] = exact_query(record.layer, t, record.head);
      const naive_answer got = attend(record.layer, t, record.head, record.positions);
      double apart = 0, norm = 0;
      for (std::size_t d = 0; d < exact.out.size(); ++d) {
        apart += (got.out[d] - exact.out[d]) * (got.out[d] - exact.out[d]);
        norm += exact.out[d] * exact.out[d];
      }
      const double error = std::sqrt(apart / norm), count = tokens - prompt;
      figures.error += error / count, figures.worst_error = std::max(figures.worst_error, error);
      figures.captured += std::exp(got.lse - exact.lse) / count;
      double found = 0;
      for (const index_t position : record.positions) found += best.contains(position) ? 1 : 0;
      figures.recall += found / static_cast<double>(best.size()) / count;
      figures.attended += static_cast<double>(record.positions.size()) / count;
      for (const index_t position : record.positions) {
        if (position == t || t == prompt) continue;
        earlier[head] += 1, fresh[head] += before[head].contains(position) ? 0 : 1;
      }
      before[head] = {record.positions.begin(), record.positions.end()};
      ++naive.queries;
      naive.active += record.positions.size() < at(t + 1) ? 1 : 0;
      left_out = left_out || record.positions.size() < at(t + 1);
    }
    naive.active_tokens += left_out ? 1 : 0;
  }
  for (std::size_t head = 0; head < naive.heads.size(); ++head)
    naive.heads[head].churn = earlier[head] > 0 ? fresh[head] / earlier[head] : 0;
  naive.stats = cache.stats(seq);
  return naive;
}

void check_alike(const replay_result& replayed, const replay_result& naive) {
  CAPTURE(replayed.policy);
  CHECK(replayed.stats == naive.stats);
  CHECK(replayed.queries == naive.queries);
  CHECK(replayed.active == naive.active);
  CHECK(replayed.active_tokens == naive.active_tokens);
  REQUIRE(replayed.heads.size() == naive.heads.size());
  for (std::size_t i = 0; i < naive.heads.size(); ++i) {
    CAPTURE(i);
    CHECK(std::abs(replayed.heads[i].error - naive.heads[i].error) < 1e-5);
    CHECK(std::abs(replayed.heads[i].worst_error - naive.heads[i].worst_error) < 1e-4);
    CHECK(std::abs(replayed.heads[i].captured - naive.heads[i].captured) < 1e-5);
    CHECK(std::abs(replayed.heads[i].recall - naive.heads[i].recall) < 1e-12);
    CHECK(std::abs(replayed.heads[i].attended - naive.heads[i].attended) < 1e-9);
    CHECK(std::abs(replayed.heads[i].churn - naive.heads[i].churn) < 1e-12);
  }
}

std::vector<named_policy> policies(const std::vector<std::string>& names) { return named_policies(names, {}); }

constexpr zoomr::byte_count plenty = 1 << 30;

}  // namespace

TEST_CASE("full attention of blocks of tokens is that of a naive loop in double precision") {
  const scratch folder;
  trace from(written(folder));
  REQUIRE(from.facts().tokens == tokens);
  reference full(from, 37, top_keys);
  double apart = 0, lse_apart = 0;
  token_rows rows;
  for (index_t first = 40; first < tokens; first += 37) {
    read_rows(from, {first, std::min(first + 37, tokens)}, rows);
    const exact_answers& exact = full.attend(rows);
    for (index_t t = rows.tokens.first; t < rows.tokens.last; ++t) {
      for (index_t i = 0; i < model.layers * model.heads; ++i) {
        const index_t layer = i / model.heads, head = i % model.heads;
        const auto& [naive, best] = exact_query(layer, t, head);
        const std::size_t query = exact.query(layer, t, head), width = at(model.value_width());
        for (std::size_t d = 0; d < width; ++d)
          apart = std::max(apart, std::abs(exact.out[query * width + d] - naive.out[d]));
        lse_apart = std::max(lse_apart, std::abs(exact.lse[query] - naive.lse));
        const index_t* const top = &exact.top[query * at(top_keys)];
        REQUIRE(at(exact.top_count(t)) == best.size());
        CHECK(std::equal(best.begin(), best.end(), top));
      }
    }
  }
  CHECK(apart < 2e-6);
  CHECK(lse_apart < 4e-6);
}

TEST_CASE("each policy's figures are those of a naive replay, its statistics those of its own cache") {
  const scratch folder;
  trace from(written(folder));
  namespace presets = zoomr::presets;
  std::vector<float> voters(at(model.layers * model.heads));
  voters[3] = 2, voters[9] = 1;
  settings shared;
  shared.voters.weights = voters;
  const auto names = policies({"full", "window@40", "h2o@64", "sentence_kv@48", "zoomr_second_pass", "zoomr_voters",
                               "quest@64+zones.dense_layers=1"});
  const std::vector<replay_result> results = play(from, names, plenty, shared);
  REQUIRE(results.size() == 7);
  CHECK(results[0].all_heads().worst_error < 1e-5);
  CHECK(results[0].active == 0);
  CHECK(std::abs(results[0].all_heads().captured - 1) < 1e-5);
  CHECK(results[0].all_heads().recall == 1);
  CHECK(results[0].all_heads().churn == 0);
  auto window = presets::window;
  window.zone.recent = 40 - window.zone.sinks;
  auto quest = presets::quest;
  quest.select.segments = 4, quest.zone.dense_layers = 1;
  check_alike(results[0], naive_replay(presets::full));
  check_alike(results[1], naive_replay(window));
  check_alike(results[2], naive_replay(presets::h2o_with(64)));
  check_alike(results[3], naive_replay(presets::sentence_kv_with(48, 3.0f, presets::sentence_kv.refresh)));
  check_alike(results[4], naive_replay(presets::zoomr_second_pass));
  check_alike(results[5], naive_replay(presets::zoomr_voters, voters));
  check_alike(results[6], naive_replay(quest));
  for (std::size_t i = 1; i < results.size(); ++i) CHECK(results[i].conclusive());
  CHECK(results[6].active_share() < 0.7);  // of three layers one is dense
  CHECK(results[4].stats.passes > results[4].stats.tokens);
}

TEST_CASE("a replay within little memory, which nobody watches, has the same figures, and says what has moved") {
  const scratch folder;
  trace from(written(folder));
  settings shared;
  shared.limits.scratch = folder.path().string();
  const auto names = policies({"full", "h2o@64", "quest@64", "sentence_kv@48", "zoomr_second_pass"});
  double share = 0;
  std::optional<report::recorder> recorded;
  const watcher seen{
      [&](double now) {
        CHECK(now > share);
        share = now;
      },
      [&](std::size_t i, const report::policy_facts& facts) { return i == 2 ? &recorded.emplace(facts) : nullptr; }};
  const std::vector<replay_result> resident = play(from, names, plenty, shared, seen);
  CHECK(share == doctest::Approx(1));
  REQUIRE(recorded);
  CHECK(recorded->steps() == tokens - prompt);
  CHECK(recorded->attended.empty());  // it has taken what it was told
  const auto with_the_least = [](zoomr::byte_count& size, zoomr::byte_count step, const auto& played) {
    for (;; size += step) {
      try {
        return played();
      } catch (const decode::input_error&) {  // too small for one of the policies
      }
    }
  };
  zoomr::byte_count memory = 1 << 20;  // what is read of the trace takes most of it
  const auto squeezed = with_the_least(memory, 1 << 17, [&] { return play(from, names, memory, shared); });
  shared.limits.device = resident[0].bytes.total() / 2;
  const auto device = with_the_least(shared.limits.device, 1 << 13, [&] { return play(from, names, plenty, shared); });
  for (std::size_t i = 0; i < names.size(); ++i) {
    CAPTURE(names[i].text);
    CHECK(resident[i].heads == squeezed[i].heads);
    CHECK(resident[i].heads == device[i].heads);
    CHECK_FALSE(resident[i].tiers);
    REQUIRE(squeezed[i].tiers);
    REQUIRE(device[i].tiers);
    CHECK(squeezed[i].capacity.file > 0);
    CHECK(device[i].capacity.file > 0);
    CHECK(device[i].capacity.total() <= shared.limits.device);
  }
  CHECK(device[0].tiers->bytes_in > device[2].tiers->bytes_in);
  CHECK(decode::says(decode::complaint([&] { play(from, names, 1 << 20, settings{}); }), "--memory"));
}

TEST_CASE("numbers of all three types are read as floats, wherever files end") {
  const scratch folder;
  for (const std::string dtype : {"F32", "F16", "BF16"}) {
    CAPTURE(dtype);
    const std::vector<std::string> files = {(folder / "a").string(), (folder / "b").string()};
    write_trace(files[0], {0, 130}, dtype), write_trace(files[1], {130, tokens}, dtype);
    trace from(files);
    CHECK(from.facts().scale == scale);
    CHECK(from.facts().soft_cap == soft_cap);
    std::vector<float> keys;
    from.read(1, part::keys, {125, 140}, keys);
    REQUIRE(keys.size() == at(15 * model.kv_heads * model.head_dim));
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const float written_number = data().key(1, 125, 0)[i];
      const float wanted = dtype == "F32"   ? written_number
                           : dtype == "F16" ? zoomr::to_float(zoomr::from_float<zoomr::float16>(written_number))
                                            : zoomr::to_float(zoomr::from_float<zoomr::bfloat16>(written_number));
      CHECK(keys[i] == wanted);
    }
  }
}

TEST_CASE("a result that is kept in a file is the same when it is read") {
  const scratch folder;
  trace from(written(folder));
  const std::string file = (folder / "finished").string();
  settings shared;
  shared.limits.device = 1 << 20;
  shared.limits.scratch = folder.path().string();
  const replay_result ran = play(from, policies({"quest@64"}), plenty, shared).front();
  {
    resumed finished(file, from, "memory=1");
    CHECK(finished.find("quest@64") == nullptr);
    finished.add(ran);
  }
  REQUIRE(resumed(file, from, "memory=1").find("quest@64") != nullptr);
  CHECK(*resumed(file, from, "memory=1").find("quest@64") == ran);
  CHECK(resumed(file, from, "memory=2").find("quest@64") == nullptr);  // under other limits
  write_trace(folder / "0", {0, 90}, "BF16");
  write_trace(folder / "90", {90, 170}, "BF16");
  write_trace(folder / "170", {170, tokens}, "BF16");
  trace other({(folder / "0").string(), (folder / "90").string(), (folder / "170").string()});
  CHECK(decode::says(decode::complaint([&] { resumed(file, other, "memory=1"); }), "it is of another trace"));
}

TEST_CASE("ranges count what positions have in common") {
  range_set a, b;
  collect({0, 1, 2, 5, 9, 10}, a);
  collect({1, 2, 3, 5, 10, 11}, b);
  CHECK(a == range_set{{0, 3}, {5, 6}, {9, 11}});
  CHECK(overlap(a, b) == 4);
  CHECK(overlap(a, a) == 6);
  const std::vector<index_t> some = {0, 3, 4, 5, 6, 10, 12};
  CHECK(hits(a, some) == 3);
  CHECK(hits({}, some) == 0);
}

}  // namespace replay
