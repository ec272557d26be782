// SPDX-License-Identifier: Apache-2.0
#include "anchors.hpp"

#include <algorithm>  // std::find, std::sort, std::unique
#include <iostream>   // std::cout

#include <nlohmann/json.hpp>

#include "../../decode/input_error.hpp"
#include "../../decode/named_files.hpp"
#include "../../decode/output.hpp"
#include "../../decode/progress.hpp"
#include "../../decode/table.hpp"
#include "../evaluate/loaded_model.hpp"
#include "../perplexity/passages.hpp"
#include "captured.hpp"

namespace decode::anchors {
namespace {

// Of a passage, every so many of its last ones.
constexpr index_t query_tokens = 128, stride = 4;
static_assert(query_tokens <= static_cast<index_t>(perplexity::prefill::chunk / 2));  // whose queries are kept

/// The mean over layers that choose or read a choice.
double mean_share(const captured_shares& judged, const std::vector<index_t>& read, index_t dense,
                  const captured_shares& learnt) {
  double sum = 0;
  for (index_t layer = dense; layer < judged.layers(); ++layer)
    sum += judged.share(read[static_cast<std::size_t>(layer)], layer, learnt);
  return sum / (judged.layers() - dense);
}

/// @param in_any_case  numbers among the layers without a sliding window, ascending
std::vector<index_t> anchors_by(const captured_shares& shares, const options& given,
                                std::span<const index_t> in_any_case) {
  return best_anchors(shares.layers(), given.layers, given.dense_layers, in_any_case,
                      [&](index_t anchor, index_t layer) { return shares.share(anchor, layer, shares); });
}

/// Those of --with among the layers that a policy is for.
/// @throws input_error
std::vector<index_t> numbers_of(const loaded_model& on, const options& given) {
  std::vector<index_t> numbers;
  for (const index_t layer : given.in_any_case) {
    const auto found = std::find(on.layers.begin(), on.layers.end(), layer);
    numbers.push_back(static_cast<index_t>(found - on.layers.begin()));
    if (found == on.layers.end() || numbers.back() < given.dense_layers)
      fail("--with: layer ", layer, " cannot choose: the model has no such layer, or it is dense or has a window");
  }
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  const bool first_too = numbers.empty() || numbers.front() != given.dense_layers;
  if (const std::size_t least = numbers.size() + (first_too ? 1 : 0); least > static_cast<std::size_t>(given.layers))
    fail("--layers: ", given.layers, " are fewer than the ", least, " of --with and the first");
  return numbers;
}

/// The tables for all layers of the model, those with a sliding window among them.
nlohmann::ordered_json document_of(const loaded_model& on, const std::vector<index_t>& read,
                                   const captured_shares& shares, const options& given) {
  nlohmann::ordered_json layers = nlohmann::ordered_json::array(), kv_heads = nlohmann::ordered_json::array();
  std::size_t number = 0;  // among the layers without a window
  for (std::size_t layer = 0; layer < on.config.layers; ++layer) {
    const bool own = on.config.has_window(layer);
    const index_t anchor = own ? -1 : read[number];
    layers.push_back(own ? static_cast<index_t>(layer) : on.layers[static_cast<std::size_t>(anchor)]);
    nlohmann::ordered_json heads = nlohmann::ordered_json::array();
    for (index_t g = 0; g < shares.kv_heads(); ++g)
      heads.push_back(own ? g : shares.best_kv_head(anchor, static_cast<index_t>(number), g));
    kv_heads.push_back(std::move(heads));
    number += own ? 0 : 1;
  }
  nlohmann::ordered_json texts = nlohmann::ordered_json::array();
  for (const std::string& text : given.texts) texts.push_back(last_name(text));
  return {{"layers", std::move(layers)},
          {"kv_heads", std::move(kv_heads)},
          {"learnt",
           {{"texts", std::move(texts)},
            {"context", given.context},
            {"passages", given.passages},
            {"budget", given.budget},
            {"seed", given.seed}}}};
}

/// @param layers  of the model, whose numbers `read` has
void print(const captured_shares& learnt, const captured_shares& judged, const std::vector<index_t>& read,
           std::span<const index_t> layers, const options& given) {
  std::vector<index_t> each;
  for (index_t layer = 0; layer < judged.layers(); ++layer) each.push_back(layer);
  table found({"layers that choose", "share of attention read", "at equal distances"});
  const auto percent = [&](const std::vector<index_t>& by) {
    return fixed(100 * mean_share(judged, by, given.dense_layers, learnt), 1) + " %";
  };
  found.add({"each", percent(each), ""});
  found.add({std::to_string(given.layers), percent(read),
             percent(even_anchors(judged.layers(), given.layers, given.dense_layers))});
  found.print(std::cout);
  std::cout << "They are";
  for (index_t layer = given.dense_layers; layer < judged.layers(); ++layer) {
    const auto number = static_cast<std::size_t>(layer);
    if (read[number] == layer) std::cout << ' ' << layers[number];
  }
  std::cout << ".\n";
}

}  // namespace

void run(const options& given) {
  named_files files;
  files.reads_model(given.directory);
  files.reads("--text", given.texts);
  files.writes("--out", given.out);
  loaded_model on(given.directory);
  const auto sparse = static_cast<index_t>(on.layers.size()) - given.dense_layers;
  if (given.layers > sparse)
    fail("--layers: ", given.layers, " layers cannot choose, as the model has ", sparse, " without a sliding window");
  const std::vector<index_t> in_any_case = numbers_of(on, given);
  if (static_cast<std::size_t>(given.context) > on.config.context)
    fail("the context of ", given.context, " tokens is longer than this model's ", on.config.context);
  if (given.context <= query_tokens) fail("--context: a passage must have more than ", query_tokens, " tokens");
  std::vector<perplexity::long_text> texts;
  for (const std::string& path : given.texts) texts.push_back(perplexity::read_long_text(path, on.words));
  const auto passages = perplexity::cut(texts, {{given.context}, query_tokens, given.passages, given.seed});
  const auto layers = static_cast<index_t>(on.layers.size()), kv_heads = static_cast<index_t>(on.config.kv_heads);
  captured_shares halves[] = {{layers, kv_heads}, {layers, kv_heads}};
  for (std::size_t p = 0; p < passages.size(); ++p) {
    const auto ids =
        perplexity::tokens_of(passages[p], texts, given.context, on.words.bos() ? on.words.bos() : on.config.bos);
    progress bar("passage " + std::to_string(p + 1) + " of " + std::to_string(passages.size()), ids.size());
    const perplexity::prefill prompt(on.net, ids, [&](std::size_t passed) { bar.at(passed); });
    halves[p % 2].add(prompt, on.layers, {given.budget}, query_tokens, stride);
  }
  const auto& [learnt, judged] = halves;
  print(learnt, judged, anchors_by(learnt, given, in_any_case), on.layers, given);
  if (given.out.empty()) return;
  captured_shares all = learnt;
  all.add(judged);
  output_file file(given.out);
  file.stream() << document_of(on, anchors_by(all, given, in_any_case), all, given).dump(1) << '\n';
  file.finish();
}

}  // namespace decode::anchors
