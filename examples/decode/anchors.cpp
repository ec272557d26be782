// SPDX-License-Identifier: Apache-2.0
#include "anchors.hpp"

#include "input_error.hpp"
#include "json_file.hpp"

#include <nlohmann/json.hpp>

namespace decode {
namespace {

void expect_count(const field& list, std::size_t found, std::size_t wanted, const char* what) {
  if (found != wanted) fail(list.where(), " has ", found, " entries, but the model has ", wanted, " ", what);
}

}  // namespace

layer_tables read_anchors(const std::filesystem::path& file, const model_config& c) {
  const json text = read_json(file);
  const field all(text, named(file) + ": ");
  const field layers = all.at("layers"), kv_heads = all.at("kv_heads");
  layer_tables read;
  for (const field& layer : layers.elements()) {
    if (read.layers.size() == c.layers) expect_count(layers, layers.elements().size(), c.layers, "layers");
    read.layers.push_back(static_cast<zoomr::index_t>(layer.count(0, read.layers.size())));
    if (read.layers[static_cast<std::size_t>(read.layers.back())] != read.layers.back())
      fail(layer.where(), ": layer ", read.layers.back(), " reads the choice of another one");
  }
  expect_count(layers, read.layers.size(), c.layers, "layers");
  expect_count(kv_heads, kv_heads.elements().size(), c.layers, "layers");
  for (const field& of_layer : kv_heads.elements()) {
    expect_count(of_layer, of_layer.elements().size(), c.kv_heads, "KV heads");
    for (const field& head : of_layer.elements()) {
      read.kv_heads.push_back(static_cast<zoomr::index_t>(head.count(0, c.kv_heads - 1)));
    }
  }
  return read;
}

layer_tables policy_anchors(const model_config& c) {
  std::vector<zoomr::index_t> numbers;  // of the layers without a window among these
  for (std::size_t layer = 0, number = 0; layer < c.layers; ++layer) {
    numbers.push_back(c.has_window(layer) ? -1 : static_cast<zoomr::index_t>(number++));
  }
  layer_tables own;
  for (std::size_t layer = 0; layer < c.anchors.layers.size(); ++layer) {
    if (c.has_window(layer)) continue;
    own.layers.push_back(numbers[static_cast<std::size_t>(c.anchors.layers[layer])]);
    if (own.layers.back() < 0) fail("anchors: layer ", layer, " reads the choice of a layer that has a sliding window");
    const auto first = c.anchors.kv_heads.begin() + static_cast<std::ptrdiff_t>(layer * c.kv_heads);
    own.kv_heads.insert(own.kv_heads.end(), first, first + static_cast<std::ptrdiff_t>(c.kv_heads));
  }
  return own;
}

}  // namespace decode
