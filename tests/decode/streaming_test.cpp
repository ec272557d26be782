// SPDX-License-Identifier: Apache-2.0
// KV heads that stream: how they are found, the file, and a model that decodes so.
#include <doctest/doctest.h>
#include <zoomr/core/threads/thread_pool.hpp>

#include <algorithm>  // std::max
#include <cmath>      // std::exp
#include <fstream>    // std::ofstream
#include <random>     // std::mt19937
#include <string>     // std::string
#include <vector>     // std::vector

#include "input_error.hpp"
#include "session.hpp"
#include "streaming.hpp"
#include "streaming/streaming.hpp"
#include "support.hpp"
#include "voters.hpp"
#include "weights.hpp"

namespace decode::streaming {
namespace {

const fs::path trained = fs::path(DECODE_LEDGER) / "checkpoints" / "plain";

model load(streaming_heads heads = {}) {
  model_config c = read_config(trained);
  c.streaming = std::move(heads);
  return {c, read_weights(trained, c)};
}

std::vector<token_id> some_ids(std::size_t count, std::size_t vocab) {
  std::mt19937 random(7);
  std::vector<token_id> ids;
  for (std::size_t t = 0; t < count; ++t) ids.push_back(static_cast<token_id>(random() % vocab));
  return ids;
}

TEST_CASE("shares of attention far back are those of naive attention, of the head that pays most") {
  model net = load();
  const model_config& c = net.config();
  const index_t tokens = 150, sinks = 3, recent = 20;
  const perplexity::prefill prompt(net, some_ids(std::size_t{tokens}, c.vocab), [](std::size_t) {});
  const std::vector<index_t> layers{0, 2, 3};
  const std::vector<double> found = far_shares(prompt, layers, {sinks, recent}, 9, 4);
  const auto kv_heads = static_cast<index_t>(c.kv_heads), group = static_cast<index_t>(c.heads) / kv_heads;
  REQUIRE(found.size() == layers.size() * c.kv_heads);
  for (std::size_t i = 0; i < found.size(); ++i) {
    const index_t layer = layers[i / c.kv_heads], g = static_cast<index_t>(i) % kv_heads;
    const auto keys = prompt.keys(layer), queries = prompt.last_queries(layer);
    double mean = 0;
    for (const index_t back : {0, 4, 8}) {
      double most = 0;
      for (index_t head = g * group; head < (g + 1) * group; ++head) {
        double all = 0, far = 0;
        for (index_t t = 0; t < tokens - back; ++t) {
          double product = 0;
          for (index_t d = 0; d < keys.extent(2); ++d)
            product += double{queries(queries.extent(0) - 1 - back, head, d)} * double{keys(t, g, d)};
          const double weight = std::exp(product * double{prompt.scale()});
          all += weight;
          if (sinks <= t && t < tokens - back - recent) far += weight;
        }
        most = std::max(most, far / all);
      }
      mean += most / 3;
    }
    CHECK(found[i] == doctest::Approx(mean).epsilon(1e-4));
  }
  for (const double share : far_shares(prompt, layers, {sinks, tokens}, 9, 4)) CHECK(share == 0);
}

TEST_CASE("the largest shares are found, behind those that must be among them") {
  const std::vector<double> shares{0.1, 0.5, 0.2, 0.5, 0.0};
  CHECK(largest(shares, 2, std::vector<bool>(5)) == std::vector<index_t>{1, 3});
  CHECK(largest(shares, 2, {false, false, false, false, true}) == std::vector<index_t>{1, 4});
  CHECK(largest(shares, 3, {true, false, true, false, false}) == std::vector<index_t>{0, 1, 2});
}

TEST_CASE("a file of heads that do not stream is read, and what cannot be is refused") {
  model_config c;
  c.layers = 3, c.heads = 4, c.kv_heads = 2;
  const scratch folder;
  const fs::path file = folder / "streaming.json";
  const auto read = [&](const std::string& retrieval, const std::string& shape = R"("layers": 3, "kv_heads": 2)",
                        const std::string& kept = R"("sinks": 4, "recent": 60)") {
    std::ofstream(file) << "{" << shape << ", \"retrieval\": " << retrieval << ", " << kept << "}";
    return read_streaming(file, c);
  };
  const auto refusal = [&](const auto&... text) {
    const std::string sentence = complaint([&] { read(text...); });
    return sentence.substr(sentence.find(": ") + 2);
  };
  const streaming_heads heads = read("[[2, 0], [0, 1]]");
  CHECK(heads.retrieval == std::vector<bool>{false, true, false, false, true, false});
  CHECK(heads.sinks == 4);
  CHECK(heads.recent == 60);
  CHECK(refusal("[[0, 1]]", R"("layers": 3, "kv_heads": 3)") ==
        "it is for 3 layers of 3 KV heads, but the model has 3 of 2");
  CHECK(refusal("[[0, 1, 2]]") == "retrieval[0] must be [layer, KV head]");
  CHECK(refusal("[[0, 1], [3, 1]]") == "retrieval[1][0] is 3, but must lie between 0 and 2");
  CHECK(refusal("[[0, 2]]") == "retrieval[0][1] is 2, but must lie between 0 and 1");
  CHECK(refusal("[[0, 1], [0, 1]]") == "retrieval[1]: layer 0, KV head 1 is named already");
  const std::string some = "\"retrieval\" must name some of the KV heads, and leave some";
  CHECK(refusal("[]") == some);
  CHECK(refusal("[[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [2, 1]]") == some);
  CHECK(refusal("[[0, 1]]", R"("layers": 3, "kv_heads": 2)", R"("sinks": 4)") == "\"recent\" is missing");

  c.windows = {true, false, false}, c.window = 8;
  CHECK(refusal("[[0, 1]]") == "retrieval[0]: layer 0 has a sliding window");
  CHECK(refusal("[[1, 0], [1, 1], [2, 0], [2, 1]]") == some);
  c.streaming = read("[[1, 0], [2, 1]]");
  CHECK(kv_head_groups(c) == std::vector<index_t>{window_group, window_group, retrieval_group, streaming_group,
                                                  streaming_group, retrieval_group});
  for (std::size_t i = 0; i < 12; ++i) c.voters.push_back(static_cast<float>(i));
  CHECK(policy_voters(c) == std::vector<float>{4, 5, 10, 11});
  c.voters.assign(12, 0), c.voters[6] = 1;
  CHECK(complaint([&] { policy_voters(c); }) ==
        "this policy asks heads that vote, and none of them reads a retrieval head");
}

/// Logits of the last tokens, one after the other.
std::vector<float> decoded(model& net, const std::vector<token_id>& ids, std::size_t prompt, std::size_t threads = 1) {
  zoomr::thread_pool pool(static_cast<index_t>(threads));
  session run(net, zoomr::presets::full, 1, static_cast<index_t>(ids.size()), {}, 1, false, {}, 0,
              threads > 1 ? zoomr::executor(pool) : zoomr::executor{});
  run.prompt(0, std::span(ids).first(prompt));
  std::vector<float> logits;
  for (std::size_t t = prompt; t < ids.size(); ++t) {
    run.advance({&ids[t], 1});
    logits.insert(logits.end(), run.logits().begin(), run.logits().end());
  }
  return logits;
}

TEST_CASE("a model decodes with KV heads that stream, which hold few pages and count among all") {
  model_config c = read_config(trained);
  const std::size_t tokens = 300, prompt = 200, kv_heads = c.layers * c.kv_heads;
  streaming_heads heads{.retrieval = std::vector<bool>(kv_heads), .sinks = 4, .recent = 28};
  heads.retrieval[1] = heads.retrieval[kv_heads - 1] = true;
  const std::vector<token_id> ids = some_ids(tokens, c.vocab);
  model alike = load(), streams = load(heads);
  const std::vector<float> full = decoded(alike, ids, prompt);
  CHECK(decoded(streams, ids, prompt) != full);

  session run(streams, zoomr::presets::full, 1, static_cast<index_t>(tokens), {});
  CHECK(run.streams());
  run.prompt(0, std::span(ids).first(prompt));
  run.turn(0, std::span(ids).subspan(prompt));  // token by token, since a prompt would attend to what is gone
  const auto row = static_cast<zoomr::byte_count>(2 * c.head_dim * sizeof(float));
  const auto far = static_cast<zoomr::byte_count>(2), near = static_cast<zoomr::byte_count>(kv_heads) - far;
  CHECK(run.bytes_of(retrieval_group).details == row * far * 304);
  CHECK(run.bytes_of(streaming_group).details <= row * near * (32 + 2 * 16));
  CHECK(run.bytes().details == run.bytes_of(retrieval_group).details + run.bytes_of(streaming_group).details);
  double all = 0;  // tokens that the KV heads have read
  for (std::size_t t = prompt; t < tokens; ++t)
    all += static_cast<double>(far) * static_cast<double>(t + 1) + static_cast<double>(near) * 32;
  CHECK(run.attended_mean() == doctest::Approx(all / static_cast<double>((tokens - prompt) * kv_heads)));
  CHECK(run.policy_stats() == run.stats());
  CHECK(complaint([&] { run.cache(); }).find("KV heads that stream need a cache of their own") != std::string::npos);

  // Beside a session whose KV heads are alike each gets what it gets alone.
  session plain(alike, zoomr::presets::full, 1, static_cast<index_t>(tokens), {});
  session some(streams, zoomr::presets::full, 1, static_cast<index_t>(tokens), {});
  session<>* const both[] = {&plain, &some};
  for (session<>* const one : both) one->prompt(0, std::span(ids).first(prompt));
  std::vector<float> of_plain, of_some;
  for (std::size_t t = prompt; t < tokens; ++t) {
    const token_id next[] = {ids[t], ids[t]};
    session<>::advance_each(both, next);
    of_plain.insert(of_plain.end(), plain.logits().begin(), plain.logits().end());
    of_some.insert(of_some.end(), some.logits().begin(), some.logits().end());
  }
  CHECK(of_plain == full);
  CHECK(of_some == decoded(streams, ids, prompt));

  heads.recent = static_cast<index_t>(tokens);  // which is everything
  model wide = load(heads);
  CHECK(decoded(wide, ids, prompt) == full);
  CHECK(decoded(wide, ids, prompt, 2) == full);
}

}  // namespace
}  // namespace decode::streaming
