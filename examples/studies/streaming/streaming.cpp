// SPDX-License-Identifier: Apache-2.0
#include "streaming.hpp"

#include <algorithm>  // std::binary_search, std::copy_n, std::count
#include <iostream>   // std::cout

#include <nlohmann/json.hpp>

#include "../../decode/input_error.hpp"
#include "../../decode/named_files.hpp"
#include "../../decode/output.hpp"
#include "../../decode/progress.hpp"
#include "../../decode/table.hpp"
#include "../evaluate/loaded_model.hpp"
#include "../perplexity/passages.hpp"

namespace decode::streaming {
namespace {

// Of a passage, every so many of its last ones.
constexpr index_t query_tokens = 128, stride = 4;
static_assert(query_tokens <= static_cast<index_t>(perplexity::prefill::chunk / 2));  // whose queries are kept

/// Of the layers that a policy is for, the KV heads that some voter reads.
std::vector<bool> read_by_voters(const loaded_model& on, const options& given) {
  std::vector<bool> read(on.layers.size() * on.config.kv_heads);
  if (given.voters.empty()) return read;
  const std::vector<float> weights = read_voters(given.voters, on.config).weights;
  for (std::size_t l = 0; l < on.layers.size(); ++l) {
    for (std::size_t head = 0; head < on.config.heads; ++head) {
      const std::size_t g = head / (on.config.heads / on.config.kv_heads);
      if (weights[static_cast<std::size_t>(on.layers[l]) * on.config.heads + head] > 0)
        read[l * on.config.kv_heads + g] = true;
    }
  }
  if (const auto count = std::count(read.begin(), read.end(), true); count > given.heads)
    fail("--heads: ", given.heads, " are fewer than the ", count, " that the heads of --with read");
  return read;
}

nlohmann::ordered_json document_of(const loaded_model& on, const std::vector<index_t>& found, const options& given) {
  nlohmann::ordered_json retrieval = nlohmann::ordered_json::array(), texts = nlohmann::ordered_json::array();
  const auto kv_heads = static_cast<index_t>(on.config.kv_heads);
  for (const index_t place : found)
    retrieval.push_back({on.layers[static_cast<std::size_t>(place / kv_heads)], place % kv_heads});
  for (const std::string& text : given.texts) texts.push_back(last_name(text));
  return {{"layers", on.config.layers},
          {"kv_heads", kv_heads},
          {"retrieval", std::move(retrieval)},
          {"sinks", given.sinks},
          {"recent", given.recent},
          {"learnt",
           {{"texts", std::move(texts)},
            {"context", given.context},
            {"passages", given.passages},
            {"repeated", given.repeated},
            {"seed", given.seed}}}};
}

void print(std::span<const double> learnt, std::span<const double> judged, const std::vector<index_t>& found) {
  double sums[2] = {}, counts[2] = {};
  const std::vector<index_t> others =
      largest(judged, static_cast<index_t>(found.size()), std::vector<bool>(judged.size()));
  index_t both = 0;
  for (index_t place = 0; place < static_cast<index_t>(learnt.size()); ++place) {
    const bool far = std::binary_search(found.begin(), found.end(), place);
    sums[far] += judged[static_cast<std::size_t>(place)], counts[far] += 1;
    both += far && std::binary_search(others.begin(), others.end(), place) ? 1 : 0;
  }
  const auto percent = [](double share) { return fixed(100 * share, 1) + " %"; };
  table rows({"KV heads", "number", "attention beyond sinks and recent tokens"});
  rows.add({"retrieval", fixed(counts[1], 0), percent(sums[1] / counts[1])});
  rows.add({"streaming", fixed(counts[0], 0), percent(sums[0] / counts[0])});
  rows.print(std::cout);
  std::cout << both << " of the retrieval heads are those of the other passages, too.\n";
}

}  // namespace

void run(const options& given) {
  named_files files;
  files.reads_model(given.directory);
  files.reads("--text", given.texts);
  files.reads("--with", given.voters);
  files.writes("--out", given.out);
  loaded_model on(given.directory);
  const auto lanes = static_cast<index_t>(on.layers.size() * on.config.kv_heads);
  if (given.heads >= lanes)
    fail("--heads: ", given.heads, " leave none that streams, as the model has ", lanes,
         " KV heads in layers without a sliding window");
  const std::vector<bool> must = read_by_voters(on, given);
  if (static_cast<std::size_t>(given.context) > on.config.context)
    fail("the context of ", given.context, " tokens is longer than this model's ", on.config.context);
  if (given.context <= 2 * query_tokens) fail("--context: a passage must have more than ", 2 * query_tokens, " tokens");
  std::vector<perplexity::long_text> texts;
  for (const std::string& path : given.texts) texts.push_back(perplexity::read_long_text(path, on.words));
  const auto passages = perplexity::cut(texts, {{given.context}, query_tokens, given.passages, given.seed});
  std::vector<double> halves[2];
  for (std::vector<double>& half : halves) half.resize(static_cast<std::size_t>(lanes));
  for (std::size_t p = 0; p < passages.size(); ++p) {
    auto ids =
        perplexity::tokens_of(passages[p], texts, given.context, on.words.bos() ? on.words.bos() : on.config.bos);
    const std::size_t half = ids.size() / 2;
    if (given.repeated) std::copy_n(ids.begin(), half, ids.end() - static_cast<std::ptrdiff_t>(half));
    progress bar("passage " + std::to_string(p + 1) + " of " + std::to_string(passages.size()), ids.size());
    const perplexity::prefill prompt(on.net, ids, [&](std::size_t passed) { bar.at(passed); });
    const auto shares = far_shares(prompt, on.layers, {given.sinks, given.recent}, query_tokens, stride);
    const auto own = static_cast<double>((passages.size() + 1 - p % 2) / 2);  // passages of this half
    for (std::size_t i = 0; i < shares.size(); ++i) halves[p % 2][i] += shares[i] / own;
  }
  print(halves[0], halves[1], largest(halves[0], given.heads, must));
  if (given.out.empty()) return;
  for (std::size_t i = 0; i < halves[0].size(); ++i) halves[0][i] += halves[1][i];
  output_file file(given.out);
  file.stream() << document_of(on, largest(halves[0], given.heads, must), given).dump(1) << '\n';
  file.finish();
}

}  // namespace decode::streaming
