// SPDX-License-Identifier: Apache-2.0
// Presets attend what the released code of their papers attends: each rule written down here a second time, in double,
// from the rule and not from the library.
#include <doctest/doctest.h>
#include <cache/support/driving.hpp>

#include <algorithm>  // std::max, std::sort
#include <cmath>      // std::exp, std::sqrt
#include <numeric>    // std::iota
#include <set>        // std::set

namespace zoomr_test {
namespace {

namespace presets = zoomr::presets;
using positions = std::vector<index_t>;

/// What a policy attends after the prompt.
template <class Policy>
result_log played(const Policy& policy, const tape& says) {
  player<Policy> plays(says.numbers.model, policy, limits_for(says.size()));
  plays.open(says);
  plays.play_plainly();
  return plays.at(0).log;
}

bool is_delimiter(const tape& says, index_t position) {
  return has(class_of(says.ids[static_cast<std::size_t>(position)]), token_class::delimiter);
}

std::vector<double> row_of(const tape& says, role of, index_t position, index_t layer, index_t head) {
  std::vector<float> row(static_cast<std::size_t>(says.numbers.model.head_dim));
  says.numbers.fill(of, says.ids[static_cast<std::size_t>(position)], position, layer, head, 0, row.data());
  return {row.begin(), row.end()};
}

double product(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t d = 0; d < a.size(); ++d) sum += a[d] * b[d];
  return sum;
}

/// The `count` best of `scores`, ascending; empty if the last of them is hardly better than the next.
positions best(const std::vector<double>& scores, index_t count, double clear) {
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return scores[a] > scores[b]; });
  const auto kept = static_cast<std::size_t>(count);
  if (kept < order.size() && scores[order[kept - 1]] - scores[order[kept]] < clear) return {};
  positions made;
  for (std::size_t i = 0; i < std::min(kept, order.size()); ++i) made.push_back(static_cast<index_t>(order[i]));
  std::sort(made.begin(), made.end());
  return made;
}

/// What R-KV's released code keeps of one KV head: `held` tokens, ascending, the last `window` queries theirs.
positions kept_by_r_kv(const tape& says, const positions& held, index_t layer, index_t kv_head, index_t budget,
                       bool& clear) {
  const shape& model = says.numbers.model;
  const index_t group = model.heads / model.kv_heads;
  constexpr std::size_t window = 8;
  const std::size_t n = held.size(), past = n - window;
  std::vector<std::vector<double>> keys;
  for (const index_t t : held) keys.push_back(row_of(says, role::key, t, layer, kv_head));
  // attention: the largest logit of the group, a softmax over the past, the mean of the window, the largest of seven
  std::vector<double> attention(past);
  for (std::size_t q = past; q < n; ++q) {
    std::vector<double> logits(past, -1e300);
    for (index_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      const auto query = row_of(says, role::query, held[q], layer, head);
      for (std::size_t t = 0; t < past; ++t)
        logits[t] = std::max(logits[t], product(query, keys[t]) / std::sqrt(double(model.head_dim)));
    }
    double all = 0;
    for (double& logit : logits) all += logit = std::exp(logit);
    for (std::size_t t = 0; t < past; ++t) attention[t] += logits[t] / all / window;
  }
  std::vector<double> smooth(past);
  for (std::size_t t = 0; t < past; ++t) {
    for (std::size_t u = t < 3 ? 0 : t - 3; u <= std::min(past - 1, t + 3); ++u)
      smooth[t] = std::max(smooth[t], attention[u]);
  }
  // redundancy: the mean of each column of cosines, each row without its last repetition or else its first number
  std::vector<double> redundancy(n);
  double all = 0;
  for (std::size_t row = 0; row < n; ++row) {
    std::vector<double> cosines(n);
    std::size_t spared = 0;
    for (std::size_t t = 0; t < n; ++t) {
      if (t == row) continue;
      const double lengths = std::sqrt(product(keys[row], keys[row]) * product(keys[t], keys[t]));
      cosines[t] = product(keys[row], keys[t]) / lengths;
      if (cosines[t] > 0.5) spared = t;
    }
    cosines[spared] = 0;
    for (std::size_t t = 0; t < n; ++t) redundancy[t] += cosines[t] / double(n);
  }
  for (double& r : redundancy) all += r = std::exp(r);
  std::vector<double> rated(past);
  for (std::size_t t = 0; t < past; ++t) rated[t] = 0.07 * smooth[t] - 0.93 * redundancy[t] / all;
  positions kept = best(rated, budget - static_cast<index_t>(window), 2e-8);
  clear = !kept.empty();
  for (std::size_t i = past; i < n; ++i) kept.push_back(static_cast<index_t>(i));
  for (index_t& i : kept) i = held[static_cast<std::size_t>(i)];
  return kept;
}

}  // namespace

TEST_CASE("sentence_kv_published attends to all that it keeps at each delimiter, and at the token after it") {
  const auto preset = presets::sentence_kv_published;
  auto policy = preset;
  policy.evict.tokens = zoomr::unlimited;
  policy.select.tokens = 96, policy.zone.open = 64;
  const tape says = make_tape({2, 4, 2, 8}, kind::uniform, markup::sentences, 420, 200, 5);
  index_t delimiters = 0;
  for (const auto& [at, got] : played(policy, says)) {
    const index_t position = at.first;
    if (position < says.prompt) continue;
    CAPTURE(position);
    const bool after = position > says.prompt && is_delimiter(says, position - 1);
    const bool first = position == says.prompt;  // the end of the prompt has ended a sentence too
    const bool everything = is_delimiter(says, position) || after || first;
    delimiters += is_delimiter(says, position) ? 1 : 0;
    for (const positions& of_head : got.attended) {
      REQUIRE((everything ? index_t(of_head.size()) == position + 1 : index_t(of_head.size()) <= 96));
    }
  }
  CHECK(delimiters >= 10);
  // and what was evicted stays evicted
  policy.evict.tokens = 120;
  for (const auto& [at, got] : played(policy, says)) {
    if (at.first < says.prompt || !is_delimiter(says, at.first)) continue;
    for (const positions& of_head : got.attended) REQUIRE(index_t(of_head.size()) == 120 + at.first + 1 - says.prompt);
  }
}

TEST_CASE("sentence_kv keeps its budget at delimiters") {
  const tape says = make_tape({1, 2, 1, 8}, kind::uniform, markup::sentences, 300, 200, 6);
  for (const auto& [at, got] : played(presets::sentence_kv_with(96, 3.0f), says)) {
    if (at.first < says.prompt) continue;
    for (const positions& of_head : got.attended) REQUIRE(of_head.size() <= 96);
  }
}

TEST_CASE("arkvale attends to 32 pages: the first, the last two, and the 29 best by the cuboid mean of their keys") {
  constexpr index_t page = 32, attended_pages = 32;
  const tape says = make_tape({4, 4, 2, 8}, kind::peaked, markup::no_delimiter, 1430, 1360, 9);
  const shape& model = says.numbers.model;
  std::int64_t compared = 0, doubtful = 0;
  for (const auto& [at, got] : played(presets::arkvale, says)) {
    const index_t position = at.first;
    if (position < says.prompt) continue;
    CAPTURE(position);
    const index_t open = position / page;  // the page that is being written
    for (index_t layer = 0; layer < model.layers; ++layer) {
      CAPTURE(layer);
      std::set<index_t> pages{0, open - 1, open};
      if (layer < 2) {
        for (index_t p = 0; p <= open; ++p) pages.insert(p);
      } else {
        std::vector<double> scores;  // of the pages 1 ... open - 2
        for (index_t p = 1; p < open - 1; ++p) {
          double sum = 0;
          for (index_t head = 0; head < model.heads; ++head) {
            const auto query = row_of(says, role::query, position, layer, head);
            for (std::size_t d = 0; d < query.size(); ++d) {
              double low = 1e300, high = -1e300, apart = 0;
              std::vector<double> along;
              for (index_t t = p * page; t < (p + 1) * page; ++t)
                along.push_back(row_of(says, role::key, t, layer, head / 2)[d]);
              for (const double key : along) low = std::min(low, key), high = std::max(high, key);
              for (const double key : along) apart += std::abs((low + high) / 2 - key) / page;
              sum += std::max(query[d] * ((low + high) / 2 - apart), query[d] * ((low + high) / 2 + apart));
            }
          }
          scores.push_back(sum);
        }
        const positions chosen = best(scores, attended_pages - 3, 1e-4);
        if (chosen.empty()) {
          ++doubtful;
          continue;
        }
        for (const index_t p : chosen) pages.insert(p + 1);
        REQUIRE(pages.size() == attended_pages);
      }
      positions wanted;
      for (const index_t p : pages) {
        for (index_t t = p * page; t < std::min((p + 1) * page, position + 1); ++t) wanted.push_back(t);
      }
      for (index_t head = 0; head < model.heads; ++head) {
        REQUIRE(got.attended[static_cast<std::size_t>(layer * model.heads + head)] == wanted);
      }
      ++compared;
    }
  }
  CHECK(compared > 50 * doubtful);
}

TEST_CASE("r_kv keeps the tokens that its released code keeps, again and again") {
  constexpr index_t budget = 48;
  std::int64_t compared = 0, doubtful = 0;
  for (const index_t heads : {2, 4, 8}) {
    for (const kind look : {kind::uniform, kind::peaked}) {
      const index_t head_dim =
          look == kind::uniform ? 40 : 8;  // where hardly any key repeats another, and where many do
      const tape says =
          make_tape({2, heads, 2, head_dim}, look, markup::no_delimiter, 390, 120, 11 + std::uint64_t(heads));
      const shape& model = says.numbers.model;
      const result_log log = played(presets::r_kv_with(budget), says);
      for (index_t layer = 0; layer < model.layers; ++layer) {
        for (index_t kv_head = 0; kv_head < model.kv_heads; ++kv_head) {
          positions held(static_cast<std::size_t>(says.prompt));
          std::iota(held.begin(), held.end(), 0);
          for (const index_t end : {says.prompt, says.prompt + 128, says.prompt + 256}) {
            while (held.back() + 1 < end) held.push_back(held.back() + 1);
            bool clear = true;
            held = kept_by_r_kv(says, held, layer, kv_head, budget, clear);
            if (!clear) {
              ++doubtful;
              break;
            }
            positions wanted = held;
            wanted.push_back(end);
            CAPTURE(heads);
            CAPTURE(end);
            const auto row = static_cast<std::size_t>(layer * model.heads + kv_head * (heads / model.kv_heads));
            REQUIRE(log.at({end, 0}).attended[row] == wanted);
            ++compared;
          }
        }
      }
    }
  }
  CHECK(compared > 10 * doubtful);
}

TEST_CASE("zoomr in one pass serves the tokens after a sentence end, in a second pass the sentence end too") {
  CHECK_FALSE(presets::zoomr_one_pass.refresh.second_pass);
  CHECK(presets::zoomr_second_pass.refresh.second_pass);
  CHECK(presets::zoomr_second_pass.aggregate == zoomr::head_votes{.k = 2});
  CHECK(presets::zoomr_second_pass.select == zoomr::top_k{.segments = 2});
  auto small_zones = presets::thought_zones;
  small_zones.recent = 4;
  auto one = presets::zoomr_one_pass, two = presets::zoomr_second_pass;
  one.zone = two.zone = small_zones;
  const tape says = make_tape({2, 4, 2, 8}, kind::uniform, markup::pairs, 360, 60, 12);
  const result_log once = played(one, says), twice = played(two, says);
  index_t changed = 0;
  for (index_t position = says.prompt; position + 1 < says.size(); ++position) {
    CAPTURE(position);
    CHECK_FALSE(once.contains({position, 1}));
    CHECK(twice.contains({position, 1}) == is_delimiter(says, position));
    if (!is_delimiter(says, position)) continue;
    // the second pass sees what the next token sees, but for itself and the window's first token
    const auto& asked = twice.at({position, 1}).attended;
    const auto& next = twice.at({position + 1, 0}).attended;
    for (std::size_t row = 0; row < asked.size(); ++row) {
      const std::set<index_t> seen(asked[row].begin(), asked[row].end());
      for (const index_t t : next[row]) REQUIRE((t > position || seen.contains(t)));
    }
    changed += asked != twice.at({position, 0}).attended ? 1 : 0;
  }
  CHECK(changed >= 3);
}

}  // namespace zoomr_test
