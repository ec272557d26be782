// SPDX-License-Identifier: Apache-2.0
// What the headers of a trace must say, and that its files belong together.
#include <algorithm>  // std::min
#include <charconv>   // std::from_chars
#include <optional>   // std::optional

#include "../decode/input_error.hpp"
#include "../decode/numbers.hpp"
#include "trace.hpp"

namespace replay {
namespace {

using decode::fail;
using decode::shown;

constexpr index_t most_tokens = 1 << 30;  // config::most_tokens

index_t whole(const std::string& text, const std::string& where, const std::string& name, index_t low, index_t high) {
  const auto number = decode::whole_number<index_t>(text, low, high);
  if (!number || std::to_string(*number) != text)  // 01 is written by nobody who writes decimal numbers
    fail(where, ": \"", name, "\" ", decode::wrong_number(text, low, high));
  return *number;
}

float positive(const std::string& text, const std::string& where, const std::string& name) {
  float number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_padded = text.size() > 1 && text[0] == '0' && text[1] >= '0' && text[1] <= '9';
  const bool is_number = error == std::errc() && end == text.data() + text.size() && !is_padded;
  if (!is_number || !(number > 0 && number < zoomr::infinity))
    fail(where, ": \"", name, "\" must be a positive number, but is ", shown(text));
  return number;
}

/// "0,5,11": ascending.
std::vector<index_t> layer_numbers(const std::string& text, const std::string& where) {
  std::vector<index_t> numbers;
  for (std::size_t first = 0; first <= text.size();) {
    const std::size_t last = std::min(text.find(',', first), text.size());
    const index_t least = numbers.empty() ? 0 : numbers.back() + 1;
    numbers.push_back(whole(text.substr(first, last - first), where, "layer_ids", least, 1 << 20));
    first = last + 1;
  }
  return numbers;
}

bool known(const std::string& name, index_t layers, const std::string& where) {
  for (const char* const other : {"token_ids", "token_classes", "text", "text_ends"})
    if (name == other) return true;
  if (!name.starts_with("layers.")) return false;
  const std::size_t dot = name.find('.', 7);
  if (dot == name.npos) return false;
  const std::string layer = name.substr(7, dot - 7), last = name.substr(dot + 1);
  if (last == "index_q" || last == "index_k")
    fail(where, ": ", shown(name), " is an index of the model's own: models that choose themselves are not replayed");
  const auto number = decode::whole_number<index_t>(layer, 0, layers - 1);
  return number && std::to_string(*number) == layer && (last == "q" || last == "k" || last == "v");
}

}  // namespace

std::string trace::said(const std::string& name, const std::string& where) const {
  const auto found = metadata_.find(name);
  if (found == metadata_.end()) fail(where, ": its metadata has no \"", name, "\"");
  return found->second;
}

void trace::take_facts(const std::string& where) {
  const auto perhaps = [&](const char* name) {
    const auto found = metadata_.find(name);
    return found == metadata_.end() ? std::string() : found->second;
  };
  const auto number = [&](const char* name, index_t high) { return whole(said(name, where), where, name, 1, high); };
  zoomr::shape& model = facts_.model;
  model.layers = number("layers", 1024);
  model.heads = number("heads", 1024);
  model.kv_heads = number("kv_heads", 1024);
  model.head_dim = number("head_dim", zoomr::shape::most_head_dim);
  if (const std::string text = perhaps("value_dim"); !text.empty())
    model.value_dim = whole(text, where, "value_dim", 1, zoomr::shape::most_head_dim);
  if (const char* const problem = model.problem()) fail(where, ": ", problem);
  if (const std::string text = perhaps("scale"); !text.empty()) facts_.scale = positive(text, where, "scale");
  if (const std::string text = perhaps("softcap"); !text.empty()) facts_.soft_cap = positive(text, where, "softcap");
  facts_.prompt = number("prompt", most_tokens);
  facts_.model_name = perhaps("model");
  facts_.command = perhaps("command");
  const std::string numbers = perhaps("layer_ids");
  if (numbers.empty()) return;
  facts_.layers = layer_numbers(numbers, where);
  if (facts_.layers.size() != static_cast<std::size_t>(model.layers))
    fail(where, ": \"layer_ids\" has ", facts_.layers.size(), " numbers for ", model.layers, " layers");
}

void trace::add(const std::filesystem::path& path) {
  const std::string where = decode::named(path);
  metadata_.clear();
  const decode::safetensors tensors(path, metadata_);
  if (const std::string version = said("zoomr_trace", where); version != "1")
    fail(where, ": it is a trace of version ", shown(version), ", and version 1 is read");
  if (files_.empty()) {
    first_metadata_ = metadata_;
    take_facts(where);
  }
  for (const char* const name :
       {"layers", "heads", "kv_heads", "head_dim", "value_dim", "scale", "softcap", "prompt", "layer_ids"}) {
    const auto here = metadata_.find(name), there = first_metadata_.find(name);
    const std::string one = here == metadata_.end() ? "" : here->second;
    const std::string other = there == first_metadata_.end() ? "" : there->second;
    if (one != other)
      fail(where, ": \"", name, "\" is ", shown(one), ", but ", shown(other), " in ",
           decode::named(files_.front().path));
  }
  file added{path, {}, {}};
  added.tokens.first = whole(said("first", where), where, "first", 0, most_tokens);
  if (added.tokens.first != facts_.tokens) {
    fail(where, ": its first token is ", added.tokens.first, ", but the files before it have ", facts_.tokens,
         ": one is missing, out of order, or named twice");
  }
  add_layers(tensors, added);
  facts_.tokens = added.tokens.last;
  add_classes(tensors, added);
  add_text(tensors, added);
  mark(path);
  files_.push_back(std::move(added));
}

void trace::add_layers(const decode::safetensors& tensors, file& added) {
  const std::string where = decode::named(added.path);
  const zoomr::shape& model = facts_.model;
  for (const auto& [name, place] : tensors.tensors())
    if (!known(name, model.layers, where))
      fail(where, ": a trace of ", model.layers, " layers has no tensor ", shown(name));
  std::size_t tokens = 0;
  for (index_t layer = 0; layer < model.layers; ++layer) {
    for (const part rows : {part::queries, part::keys, part::values}) {
      const std::string name = "layers." + std::to_string(layer) + "." + "qkv"[static_cast<int>(rows)];
      const auto found = tensors.tensors().find(name);
      if (found == tensors.tensors().end()) fail(where, ": the tensor ", shown(name), " is missing");
      const decode::tensor_place& place = found->second;
      if (layer == 0 && rows == part::queries && !place.shape.empty()) tokens = place.shape[0];
      const std::size_t heads = static_cast<std::size_t>(rows == part::queries ? model.heads : model.kv_heads);
      const std::vector<std::size_t> wanted = {tokens, heads, static_cast<std::size_t>(width(rows)) / heads};
      if (place.shape != wanted)
        fail(where, ": ", name, " has the shape ", shown(place.shape), ", but must have ", shown(wanted));
      if (place.dtype != "F32" && place.dtype != "F16" && place.dtype != "BF16")
        fail(where, ": ", name, " has the type ", place.dtype, "; F32, F16 and BF16 are read");
      if (facts_.dtype.empty()) facts_.dtype = place.dtype;
      if (place.dtype != facts_.dtype)
        fail(where, ": ", name, " has the type ", place.dtype, ", but others of the trace have ", facts_.dtype);
      added.places.push_back(place);
    }
  }
  if (tokens == 0) fail(where, ": there are no tokens in it");
  if (tokens > static_cast<std::size_t>(most_tokens - added.tokens.first)) fail(where, ": more than 2^30 tokens");
  added.tokens.last = added.tokens.first + static_cast<index_t>(tokens);
  const auto ids = tensors.tensors().find("token_ids");
  if (ids != tensors.tensors().end() && (ids->second.dtype != "I32" || ids->second.shape != std::vector{tokens}))
    fail(where, ": token_ids must be I32 [", tokens, "]");
}

}  // namespace replay
