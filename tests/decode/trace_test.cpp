// SPDX-License-Identifier: Apache-2.0
// Traces for zoomr-replay hold what attention saw.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <zoomr/presets/zoomr_thoughts.hpp>

#include <nlohmann/json.hpp>

#include "dense_step.hpp"
#include "ledger/evaluate.hpp"
#include "safetensors.hpp"
#include "session.hpp"
#include "support.hpp"
#include "token_classes.hpp"
#include "trace_writer.hpp"

namespace decode {
namespace {

const fs::path ledger_model = fs::path(DECODE_LEDGER) / "checkpoints" / "plain";

/// A pass without any cache, of which all queries are kept too.
struct kept_pass : dense_step {
  using dense_step::dense_step;
  void append(index_t layer, tensor k, tensor v) {
    keys.emplace_back(k.data(), k.data() + std::size_t(k.extent(0)) * std::size_t(k.extent(1) * k.extent(2)));
    values.emplace_back(v.data(), v.data() + keys.back().size());
    dense_step::append(layer, k, v);
  }
  void attend(index_t layer, tensor q, zoomr::view<float, 3> out) {
    queries.emplace_back(q.data(), q.data() + std::size_t(q.extent(0)) * std::size_t(q.extent(1) * q.extent(2)));
    dense_step::attend(layer, q, out);
  }
  std::vector<std::vector<float>> queries, keys, values;  // [layers][tokens, heads or kv_heads, head_dim]
};

/// Records a session under `policy` whose prompt passes in chunks of 5 tokens.
template <class Policy>
void record(trace_writer& trace, model& net, const Policy& policy, const std::vector<token_id>& ids, std::size_t prompt,
            std::size_t last, std::span<const zoomr::token_class> classes) {
  session run(net, policy, 1, static_cast<index_t>(ids.size()), classes, 1, false, {}, 0, {}, 5);
  run.listen(&trace);
  run.prompt(0, std::span(ids).first(prompt));
  for (std::size_t p = prompt; p < last; ++p) run.advance({&ids[p], 1});
  trace.finish();
}

/// One file of a trace, read as a checkpoint is.
struct trace_part {
  trace_part(const trace_writer& trace, index_t i) {
    fs::create_hard_link(trace.file_name(i), folder / "model.safetensors");
    const std::string all = read_file(folder / "model.safetensors");
    std::uint64_t length = 0;
    std::memcpy(&length, all.data(), 8);
    CHECK(length % 8 == 0);
    header = json::parse(all.substr(8, length));
    bytes = all.substr(8 + length);
    tensors.emplace(folder.path());
  }
  /// Numbers that are no float.
  template <class T>
  std::vector<T> load(const std::string& name, const std::string& dtype) const {
    CHECK(header[name]["dtype"] == dtype);
    const std::size_t begin = header[name]["data_offsets"][0], end = header[name]["data_offsets"][1];
    std::vector<T> out((end - begin) / sizeof(T));
    std::memcpy(out.data(), bytes.data() + begin, end - begin);
    return out;
  }
  scratch folder;
  json header;
  std::string bytes;
  std::optional<safetensors> tensors;
};

/// Compares tensors of `count` tokens from `first` on with those of all tokens: the largest difference.
double difference(const trace_part& part, const std::string& name, std::size_t count, std::size_t heads,
                  std::size_t dims, std::size_t first, const std::vector<float>& all) {
  const std::vector<float> read = widened(part.tensors->load(name, {count, heads, dims}), 0, count * heads * dims);
  double worst = 0;
  for (std::size_t i = 0; i < read.size(); ++i)
    worst = std::max<double>(worst, std::abs(read[i] - all[first * heads * dims + i]));
  return worst;
}

}  // namespace

TEST_CASE("a trace holds what attention saw of each token, in layers without a window, file by file") {
  for (const std::string name : {"qwen3", "gemma3"}) {
    CAPTURE(name);
    model net = load_model(fixture(name));
    const model_config& c = net.config();
    const std::vector<token_id> ids = read_json(fixture(name) / "expected.json")["tokens"];
    const std::size_t prompt = 12, last = 19;
    REQUIRE(ids.size() >= last);
    kept_pass kept(c);
    std::vector<index_t> rows(ids.size());
    std::iota(rows.begin(), rows.end(), 0);
    std::vector<float> logits(ids.size() * c.vocab);
    net.forward(kept, ids, rows, rows,
                {logits.data(), {static_cast<index_t>(ids.size()), static_cast<index_t>(c.vocab)}});

    std::vector<zoomr::token_class> classes(c.vocab);
    classes[static_cast<std::size_t>(ids[13])] = zoomr::token_class::delimiter;
    trace_facts facts{shape_of(c, c.layers), {}, c.attention_scale, 12, "tiny", "made here", classes, {}};
    facts.bytes = [](token_id id, bool is_first) { return (is_first ? "first" : "") + std::to_string(id); };
    for (std::size_t layer = 0; layer < c.layers && c.window > 0; ++layer) {
      if (!c.has_window(layer)) facts.layers.push_back(static_cast<index_t>(layer));
    }
    if (c.window > 0) facts.model.layers = static_cast<index_t>(facts.layers.size());
    CHECK((facts.model.layers < static_cast<index_t>(c.layers)) == (name == "gemma3"));
    const scratch folder;
    trace_writer trace((folder / "run.safetensors").string(), facts, 6);
    record(trace, net, zoomr::presets::full, ids, prompt, last, classes);
    CHECK(trace.files() == 3);  // chunks of the prompt have 5 tokens, so that the first one has more than 6
    std::size_t first = 0;
    for (const std::size_t count : {10, 6, 3}) {
      CAPTURE(first);
      const trace_part part(trace, first == 0 ? 0 : count == 6 ? 1 : 2);
      const json& said = part.header["__metadata__"];
      CHECK(said["zoomr_trace"] == "1");
      CHECK(said["layers"] == std::to_string(facts.model.layers));
      CHECK(said["heads"] == std::to_string(c.heads));
      CHECK(said["kv_heads"] == std::to_string(c.kv_heads));
      CHECK(said["head_dim"] == std::to_string(c.head_dim));
      CHECK(said["first"] == std::to_string(first));
      CHECK(said["prompt"] == "12");
      CHECK(said["model"] == "tiny");
      CHECK(said["command"] == "made here");
      CHECK(said.contains("layer_ids") == (name == "gemma3"));
      if (c.attention_scale > 0) CHECK(std::stod(said["scale"].get<std::string>()) == c.attention_scale);
      for (index_t l = 0; l < facts.model.layers; ++l) {
        const std::size_t layer =
            facts.layers.empty() ? std::size_t(l) : std::size_t(facts.layers[static_cast<std::size_t>(l)]);
        CAPTURE(layer);
        const std::string place = "layers." + std::to_string(l);
        CHECK(difference(part, place + ".q", count, c.heads, c.head_dim, first, kept.queries[layer]) <= 2e-5);
        CHECK(difference(part, place + ".k", count, c.kv_heads, c.head_dim, first, kept.keys[layer]) <= 2e-5);
        CHECK(difference(part, place + ".v", count, c.kv_heads, c.head_dim, first, kept.values[layer]) <= 2e-5);
      }
      const auto said_ids = part.load<token_id>("token_ids", "I32");
      CHECK(said_ids ==
            std::vector<token_id>(ids.begin() + std::ptrdiff_t(first), ids.begin() + std::ptrdiff_t(first + count)));
      const auto said_classes = part.load<std::uint8_t>("token_classes", "U8");
      const auto text = part.load<char>("text", "U8");
      const auto ends = part.load<std::int32_t>("text_ends", "I32");
      REQUIRE(ends.size() == count);
      for (std::size_t t = 0, begin = 0; t < count; begin = std::size_t(ends[t++])) {
        CHECK(zoomr::token_class{said_classes[t]} == classes[std::size_t(ids[first + t])]);
        const std::string piece(text.data() + begin, text.data() + ends[t]);
        CHECK(piece == facts.bytes(ids[first + t], first + t == 0));
      }
      first += count;
    }
    CHECK(first == last);
    CHECK(says(complaint([&] { trace_writer((folder / "run").string(), facts); }), "is there already"));
    CHECK(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()) == 3);
    trace_writer nowhere((folder / "none" / "run").string(), facts);  // is said before the model has passed anything
    CHECK(says(complaint([&] { nowhere.pass({ids.data(), {1}}, 0); }), "cannot be written"));
  }
}

TEST_CASE("what a second pass sees of a token takes the place of what the first one saw") {
  struct last_pass : attention_tap {
    void pass(zoomr::view<const token_id>, index_t at) override { first = at, ++passes; }
    void append(index_t layer, rows from, rows) override { put(layer, from); }
    void attend(index_t, rows) override {}
    void commit(index_t) override {}
    void put(index_t layer, rows from) {
      const auto row = std::size_t(from.extent(1) * from.extent(2));
      auto& to = keys[std::size_t(layer)];
      to.resize(std::max(to.size(), std::size_t(first + from.extent(0)) * row));
      std::copy_n(from.data(), std::size_t(from.extent(0)) * row,
                  to.begin() + std::ptrdiff_t(std::size_t(first) * row));
    }
    index_t first = 0, passes = 0;
    std::vector<std::vector<float>> keys;
  } expected;
  model net = load_model(ledger_model);
  const model_config& c = net.config();
  const tokenizer words(ledger_model, c.vocab);
  const auto classes = classify(words, c.vocab, {";"});
  const ledger::problem_set set(ledger::read_task(ledger_model), words, 0, 1, 5);
  const std::size_t prompt = set.problems[0].prompt_length, last = prompt + 60;
  const std::vector<token_id> ids(set.ids[0].begin(), set.ids[0].begin() + std::ptrdiff_t(last));
  expected.keys.resize(c.layers);
  session run(net, zoomr::presets::zoomr_second_pass, 1, static_cast<index_t>(last), classes, 1, false, {}, 0, {}, 5);
  run.listen(&expected);
  run.prompt(0, std::span(ids).first(prompt));
  const index_t before = expected.passes;
  for (std::size_t p = prompt; p < last; ++p) run.advance({&ids[p], 1});
  CHECK(expected.passes - before > 60);  // there were second passes

  const scratch folder;
  const trace_facts facts{
      shape_of(c, c.layers), {}, 0, static_cast<index_t>(prompt), "", "", classes, [](token_id, bool) {
        return std::string("x");
      }};
  trace_writer trace((folder / "run").string(), facts, 1000);
  record(trace, net, zoomr::presets::zoomr_second_pass, ids, prompt, last, classes);
  REQUIRE(trace.files() == 1);
  const trace_part part(trace, 0);
  for (std::size_t layer = 0; layer < c.layers; ++layer)
    CHECK(difference(part, "layers." + std::to_string(layer) + ".k", last, c.kv_heads, c.head_dim, 0,
                     expected.keys[layer]) == 0);
}

}  // namespace decode
