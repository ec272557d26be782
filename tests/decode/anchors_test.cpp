// SPDX-License-Identifier: Apache-2.0
// Layers that read an earlier layer's choice: what is learnt of them, the file, and a model that decodes so.
#include <doctest/doctest.h>

#include <fstream>  // std::ofstream
#include <random>   // std::mt19937
#include <string>   // std::string
#include <vector>   // std::vector

#include "anchors.hpp"
#include "anchors/captured.hpp"
#include "evaluate/token_controls.hpp"
#include "input_error.hpp"
#include "session.hpp"
#include "support.hpp"
#include "weights.hpp"

namespace decode::anchors {
namespace {

const fs::path trained = fs::path(DECODE_LEDGER) / "checkpoints" / "plain";

model load(layer_tables tables = {}) {
  model_config c = read_config(trained);
  c.anchors = std::move(tables);
  return {c, read_weights(trained, c)};
}

std::vector<token_id> some_ids(std::size_t count, std::size_t vocab) {
  std::mt19937 random(7);
  std::vector<token_id> ids;
  for (std::size_t t = 0; t < count; ++t) ids.push_back(static_cast<token_id>(random() % vocab));
  return ids;
}

TEST_CASE("the best anchors are those of all that there could be") {
  std::mt19937 random(3);
  for (index_t layers = 1; layers <= 8; ++layers) {
    for (index_t dense = 0; dense < std::min<index_t>(layers, 3); ++dense) {
      std::vector<double> shares(static_cast<std::size_t>(layers * layers));
      for (double& share : shares) share = static_cast<double>(random() % 1000) / 1000;
      const auto share = [&](index_t a, index_t l) { return shares[static_cast<std::size_t>(a * layers + l)]; };
      const auto sum_of = [&](const std::vector<index_t>& read) {
        double sum = 0;
        for (index_t l = dense; l < layers; ++l) sum += share(read[static_cast<std::size_t>(l)], l);
        return sum;
      };
      for (index_t count = 1; count <= layers - dense; ++count) {
        std::vector<index_t> chosen;
        if (count > 1)
          chosen.push_back(dense + 1 + static_cast<index_t>(random() % static_cast<unsigned>(layers - dense - 1)));
        for (const bool some_chosen : {false, true}) {
          const auto must = std::span(chosen).first(some_chosen ? chosen.size() : 0);
          double best = -1;
          for (unsigned set = 0; set < 1u << layers; ++set) {
            std::vector<index_t> read;
            index_t anchor = -1, anchors = 0;
            for (index_t l = 0; l < layers; ++l) {
              if (l >= dense && (set >> l & 1u) != 0) anchor = l, ++anchors;
              read.push_back(l < dense ? l : anchor);
            }
            bool possible = anchors == count && read[static_cast<std::size_t>(dense)] == dense;
            for (const index_t l : must) possible = possible && (set >> l & 1u) != 0;
            if (possible) best = std::max(best, sum_of(read));
          }
          const std::vector<index_t> found = best_anchors(layers, count, dense, must, share);
          CHECK(sum_of(found) == doctest::Approx(best));
          for (const index_t l : must) CHECK(found[static_cast<std::size_t>(l)] == l);
          for (const auto& read : {found, even_anchors(layers, count, dense)}) {
            index_t anchors = 0;
            for (index_t l = 0; l < layers; ++l) {
              const index_t anchor = read[static_cast<std::size_t>(l)];
              anchors += l >= dense && anchor == l ? 1 : 0;
              CHECK(anchor <= l);
              CHECK(read[static_cast<std::size_t>(anchor)] == anchor);
              CHECK((l >= dense ? anchor >= dense : anchor == l));
            }
            CHECK(anchors == count);
          }
        }
      }
    }
  }
}

TEST_CASE("what a KV head would choose is what the control reads, and its share is that of naive attention") {
  const std::size_t tokens = 150;
  const index_t budget = 40;
  model net = load();
  const model_config& c = net.config();
  const std::vector<token_id> ids = some_ids(tokens, c.vocab);
  const perplexity::prefill prompt(net, ids, [](std::size_t) {});
  std::vector<index_t> layers;
  for (std::size_t l = 0; l < c.layers; ++l) layers.push_back(static_cast<index_t>(l));
  captured_shares found(static_cast<index_t>(c.layers), static_cast<index_t>(c.kv_heads));
  found.add(prompt, layers, {budget}, 1, 1);  // of the last token alone
  captured_shares whole(found.layers(), found.kv_heads());
  whole.add(prompt, layers, {static_cast<index_t>(tokens)}, 9, 4);
  CHECK(whole.share(1, 0, 3, 1) == doctest::Approx(1));

  // The same token under the control, behind the prompt without it.
  zoomr::attention_trace trace;
  decode::detail::with_exact(budget, [&](const auto& policy) {
    session run(net, policy, 1, static_cast<index_t>(tokens), {});
    run.prompt(0, std::span(ids).first(tokens - 1));
    run.trace(&trace, nullptr);
    run.advance({&ids[tokens - 1], 1});
  });
  const index_t heads = static_cast<index_t>(c.heads), group = heads / static_cast<index_t>(c.kv_heads);
  const auto share_in = [&](const std::vector<index_t>& read, index_t layer, index_t head) {
    const auto keys = prompt.keys(layer), queries = prompt.last_queries(layer);
    double all = 0, in = 0;
    for (index_t t = 0; t < static_cast<index_t>(tokens); ++t) {
      double product = 0;
      for (index_t d = 0; d < keys.extent(2); ++d)
        product += double{queries(queries.extent(0) - 1, head, d)} * double{keys(t, head / group, d)};
      const double weight = std::exp(product * double{prompt.scale()});
      all += weight;
      if (std::find(read.begin(), read.end(), t) != read.end()) in += weight;
    }
    return in / all;
  };
  REQUIRE(trace.size() == c.layers * c.heads);
  for (const zoomr::attended_record& record : trace) {
    if (record.layer > 0 || record.head % group != 0) continue;  // behind it the queries are others than the prompt's
    CHECK(record.positions.size() == static_cast<std::size_t>(budget));
    for (index_t layer = 0; layer < static_cast<index_t>(c.layers); ++layer) {
      for (index_t g = 0; g < heads / group; ++g) {
        if (layer == 0 && g != record.head / group) continue;
        double mean = 0;
        for (index_t h = 0; h < group; ++h) mean += share_in(record.positions, layer, g * group + h) / group;
        CHECK(found.share(record.layer, record.head / group, layer, g) == doctest::Approx(mean).epsilon(1e-4));
      }
    }
  }
}

TEST_CASE("a file of anchors is read, and what cannot be is refused") {
  model_config c;
  c.layers = 3, c.heads = 4, c.kv_heads = 2;
  const scratch folder;
  const fs::path file = folder / "anchors.json";
  const auto read = [&](const std::string& text) {
    std::ofstream(file) << text;
    return read_anchors(file, c);
  };
  const auto refusal = [&](const std::string& text) {
    const std::string sentence = complaint([&] { read(text); });
    return sentence.substr(sentence.find(": ") + 2);
  };
  const layer_tables tables = read(R"({"layers": [0, 0, 2], "kv_heads": [[0, 1], [1, 1], [0, 1]]})");
  CHECK(tables.layers == std::vector<index_t>{0, 0, 2});
  CHECK(tables.kv_heads == std::vector<index_t>{0, 1, 1, 1, 0, 1});
  CHECK(refusal(R"({"layers": [0, 0], "kv_heads": []})") == "layers has 2 entries, but the model has 3 layers");
  CHECK(refusal(R"({"layers": [0, 0, 2, 3], "kv_heads": []})") == "layers has 4 entries, but the model has 3 layers");
  CHECK(refusal(R"({"layers": [0, 0, 1], "kv_heads": []})") == "layers[2]: layer 1 reads the choice of another one");
  CHECK(refusal(R"({"layers": [0, 2, 2], "kv_heads": []})") == "layers[1] is 2, but must lie between 0 and 1");
  CHECK(refusal(R"({"layers": [0, 0, 2], "kv_heads": [[0, 1], [1], [0, 1]]})") ==
        "kv_heads[1] has 1 entries, but the model has 2 KV heads");
  CHECK(refusal(R"({"layers": [0, 0, 2], "kv_heads": [[0, 1], [1, 2], [0, 1]]})") ==
        "kv_heads[1][1] is 2, but must lie between 0 and 1");
  CHECK(refusal(R"({"layers": [0, 0, 2]})") == "\"kv_heads\" is missing");

  c.layers = 4, c.windows = {true, false, true, false};
  c.anchors = {{0, 1, 2, 1}, {0, 1, 0, 1, 0, 1, 1, 0}};
  const layer_tables own = policy_anchors(c);
  CHECK(own.layers == std::vector<index_t>{0, 0});
  CHECK(own.kv_heads == std::vector<index_t>{0, 1, 1, 0});
  c.anchors.layers = {0, 1, 2, 0};
  CHECK_THROWS_WITH_AS(policy_anchors(c), "anchors: layer 3 reads the choice of a layer that has a sliding window",
                       input_error);
}

TEST_CASE("a model decodes with layers that read the choice of the first") {
  const std::size_t tokens = 150;
  const model_config c = read_config(trained);
  const auto kv_heads = static_cast<index_t>(c.kv_heads);
  layer_tables tables;
  for (std::size_t l = 0; l < c.layers; ++l) {
    tables.layers.push_back(0);
    for (index_t g = 0; g < kv_heads; ++g) tables.kv_heads.push_back(kv_heads - 1 - g);
  }
  model net = load(tables);
  const std::vector<token_id> ids = some_ids(tokens, c.vocab);
  zoomr::attention_trace trace;
  decode::detail::with_exact(90, [&](const auto& policy) {
    session run(net, policy, 1, static_cast<index_t>(tokens), {});
    run.prompt(0, std::span(ids).first(tokens - 1));
    run.trace(&trace, nullptr);
    run.advance({&ids[tokens - 1], 1});
  });
  const auto heads = static_cast<index_t>(c.heads), group = heads / kv_heads;
  std::vector<const zoomr::attended_record*> of_first(c.heads);
  for (const zoomr::attended_record& record : trace) {
    if (record.layer == 0) of_first[static_cast<std::size_t>(record.head)] = &record;
  }
  for (const zoomr::attended_record& record : trace) {
    const index_t g = record.head / group, source = record.layer == 0 ? g : kv_heads - 1 - g;
    CHECK(record.positions == of_first[static_cast<std::size_t>(source * group + record.head % group)]->positions);
  }
}

}  // namespace
}  // namespace decode::anchors
