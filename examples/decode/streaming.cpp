// SPDX-License-Identifier: Apache-2.0
#include "streaming.hpp"

#include <algorithm>  // std::count

#include "input_error.hpp"
#include "json_file.hpp"

#include <nlohmann/json.hpp>

namespace decode {

streaming_heads read_streaming(const std::filesystem::path& file, const model_config& c) {
  const json text = read_json(file);
  const field all(text, named(file) + ": ");
  const std::size_t layers = all.at("layers").count(1, 1 << 20), kv_heads = all.at("kv_heads").count(1, 1 << 20);
  if (layers != c.layers || kv_heads != c.kv_heads) {
    fail(named(file), ": it is for ", layers, " layers of ", kv_heads, " KV heads, but the model has ", c.layers,
         " of ", c.kv_heads);
  }
  streaming_heads read{.retrieval = std::vector<bool>(layers * kv_heads), .sinks = 0, .recent = 0};
  read.sinks = static_cast<zoomr::index_t>(all.at("sinks").count(0, zoomr::config::most_tokens));
  read.recent = static_cast<zoomr::index_t>(all.at("recent").count(1, zoomr::config::most_tokens));
  for (const field& one : all.at("retrieval").elements()) {
    const std::vector<field> numbers = one.elements();
    if (numbers.size() != 2) fail(one.where(), " must be [layer, KV head]");
    const std::size_t layer = numbers[0].count(0, layers - 1), head = numbers[1].count(0, kv_heads - 1);
    if (c.has_window(layer)) fail(one.where(), ": layer ", layer, " has a sliding window");
    const auto place = read.retrieval.begin() + static_cast<std::ptrdiff_t>(layer * kv_heads + head);
    if (*place) fail(one.where(), ": layer ", layer, ", KV head ", head, " is named already");
    *place = true;
  }
  const auto named_heads = static_cast<std::size_t>(std::count(read.retrieval.begin(), read.retrieval.end(), true));
  if (named_heads == 0 || named_heads == (layers - c.layers_in_window()) * kv_heads)
    fail(named(file), ": \"retrieval\" must name some of the KV heads, and leave some");
  return read;
}

std::vector<zoomr::index_t> kv_head_groups(const model_config& c) {
  std::vector<zoomr::index_t> groups;
  for (std::size_t i = 0; i < c.streaming.retrieval.size(); ++i) {
    groups.push_back(c.has_window(i / c.kv_heads) ? window_group
                     : c.streaming.retrieval[i]   ? retrieval_group
                                                  : streaming_group);
  }
  return groups;
}

}  // namespace decode
