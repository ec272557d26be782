// SPDX-License-Identifier: Apache-2.0
#include "trace_writer.hpp"

#include <algorithm>    // std::copy_n, std::ranges::find
#include <bit>          // std::endian
#include <cstdint>      // std::int32_t, std::uint8_t
#include <cstdio>       // std::snprintf
#include <filesystem>   // std::filesystem::directory_iterator
#include <string_view>  // std::string_view
#include <utility>      // std::move

#include <nlohmann/json.hpp>

#include "file_place.hpp"
#include "input_error.hpp"
#include "trace_name.hpp"

namespace decode {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are written as they lie");

// Tensors one after the other, in the order in which they are added. Their bytes must stay until `write`.
class tensor_list {
 public:
  template <class T>
  void add(const std::string& name, const char* dtype, std::vector<std::size_t> shape, std::span<const T> numbers) {
    const std::size_t end = bytes_ + numbers.size_bytes();
    header_[name] = {{"dtype", dtype}, {"shape", std::move(shape)}, {"data_offsets", {bytes_, end}}};
    parts_.push_back({reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes()});
    bytes_ = end;
  }
  void write(nlohmann::ordered_json metadata, std::ostream& out) const {
    nlohmann::ordered_json all = {{"__metadata__", std::move(metadata)}};
    all.update(header_);
    std::string text = all.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    text.resize((text.size() + 7) / 8 * 8, ' ');  // so that numbers are aligned
    for (int byte = 0; byte < 8; ++byte) out.put(static_cast<char>(std::uint64_t{text.size()} >> 8 * byte & 255));
    out << text;
    for (const std::string_view part : parts_) out.write(part.data(), static_cast<std::streamsize>(part.size()));
  }

 private:
  nlohmann::ordered_json header_ = nlohmann::ordered_json::object();
  std::vector<std::string_view> parts_;
  std::size_t bytes_ = 0;
};

std::string exactly(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", number);
  return text;
}

nlohmann::ordered_json metadata_for(const trace_facts& facts, index_t first) {
  const auto number = [](index_t n) { return std::to_string(n); };
  nlohmann::ordered_json out = {{"zoomr_trace", "1"},
                                {"layers", number(facts.model.layers)},
                                {"heads", number(facts.model.heads)},
                                {"kv_heads", number(facts.model.kv_heads)},
                                {"head_dim", number(facts.model.head_dim)},
                                {"first", number(first)},
                                {"prompt", number(facts.prompt)}};
  if (facts.scale > 0) out["scale"] = exactly(facts.scale);
  if (!facts.name.empty()) out["model"] = facts.name;
  if (!facts.command.empty()) out["command"] = facts.command;
  std::string ids;
  for (const index_t layer : facts.layers) (ids += ids.empty() ? "" : ",") += number(layer);
  if (!ids.empty()) out["layer_ids"] = ids;
  return out;
}

}  // namespace

trace_writer::trace_writer(std::string path, trace_facts facts, index_t tokens)
    : path_(std::move(path)),
      facts_(std::move(facts)),
      tokens_(tokens),
      rows_(static_cast<std::size_t>(facts_.model.layers)) {
  const file_place first = place_of(file_name(0));
  const auto of_this_trace = [&](std::string_view name) { return trace_of(name) == trace_of(first.name); };
  remove_left_over(first.folder, of_this_trace);
  std::error_code unknown;
  for (std::filesystem::directory_iterator at(first.folder, unknown), end; !unknown && at != end;
       at.increment(unknown)) {
    if (of_this_trace(at->path().filename().native()))
      fail(named(at->path()), " is there already, and files of two traces would be taken for one; remove them first");
  }
}

std::string trace_writer::file_name(index_t i) const { return trace_file_name(path_, i); }

void trace_writer::pass(zoomr::view<const token_id> ids, index_t first) {
  if (!file_) file_.emplace(file_name(files_));
  passed_ = first - first_;
  ids_.resize(static_cast<std::size_t>(passed_));
  ids_.insert(ids_.end(), ids.begin(), ids.end());
}

// nullptr: a layer that is not recorded.
trace_writer::layer_rows* trace_writer::rows_of(index_t layer) {
  if (facts_.layers.empty()) return &rows_[static_cast<std::size_t>(layer)];
  const auto found = std::ranges::find(facts_.layers, layer);
  return found == facts_.layers.end() ? nullptr : &rows_[static_cast<std::size_t>(found - facts_.layers.begin())];
}

void trace_writer::put(rows from, std::vector<float>& to) const {
  const auto row = static_cast<std::size_t>(from.extent(1)) * static_cast<std::size_t>(from.extent(2));
  to.resize(static_cast<std::size_t>(passed_) * row);  // what was passed before and not committed goes
  to.insert(to.end(), from.data(), from.data() + static_cast<std::size_t>(from.extent(0)) * row);
}

void trace_writer::append(index_t layer, rows keys, rows values) {
  if (layer_rows* const to = rows_of(layer)) put(keys, to->k), put(values, to->v);
}

void trace_writer::attend(index_t layer, rows queries) {
  if (layer_rows* const to = rows_of(layer)) put(queries, to->q);
}

void trace_writer::commit(index_t tokens) {
  held_ = tokens - first_;
  if (held_ >= tokens_) write_file();
}

void trace_writer::finish() {
  if (held_ > 0) write_file();
}

void trace_writer::write_file() {
  write(file_->stream());
  file_->finish();
  file_.reset();
  ++files_;
  first_ += held_, held_ = 0;
  ids_.clear();
  for (layer_rows& of : rows_) of.q.clear(), of.k.clear(), of.v.clear();
}

void trace_writer::write(std::ostream& out) const {
  const auto count = static_cast<std::size_t>(held_), dims = static_cast<std::size_t>(facts_.model.head_dim);
  tensor_list list;
  for (std::size_t l = 0; l < rows_.size(); ++l) {
    const std::string layer = "layers." + std::to_string(l);
    const auto add = [&](const char* name, index_t heads, const std::vector<float>& numbers) {
      const auto width = static_cast<std::size_t>(heads);
      list.add(layer + name, "F32", {count, width, dims}, std::span(numbers).first(count * width * dims));
    };
    add(".q", facts_.model.heads, rows_[l].q);
    add(".k", facts_.model.kv_heads, rows_[l].k);
    add(".v", facts_.model.kv_heads, rows_[l].v);
  }
  std::string text;
  std::vector<std::int32_t> ends;
  std::vector<std::uint8_t> classes;
  for (std::size_t t = 0; t < count; ++t) {
    text += facts_.bytes(ids_[t], first_ == 0 && t == 0);
    ends.push_back(static_cast<std::int32_t>(text.size()));
    classes.push_back(static_cast<std::uint8_t>(facts_.classes[static_cast<std::size_t>(ids_[t])]));
  }
  list.add("token_ids", "I32", {count}, std::span<const token_id>(ids_).first(count));
  list.add("text_ends", "I32", {count}, std::span<const std::int32_t>(ends));
  list.add("token_classes", "U8", {count}, std::span<const std::uint8_t>(classes));
  list.add("text", "U8", {text.size()}, std::span<const char>(text));
  list.write(metadata_for(facts_, first_), out);
}

}  // namespace decode
