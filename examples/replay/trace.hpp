// SPDX-License-Identifier: Apache-2.0
// A recorded trace: what attention saw of each token of one sequence, in one or more safetensors files that follow one
// another (docs/replay.md). Headers are checked when it is opened; numbers are read when they are wanted, some tokens
// of one layer at a time, so that memory does not depend on how long the trace is.
#pragma once

#include <zoomr/core/shape.hpp>
#include <zoomr/core/token_range.hpp>

#include <cstddef>      // std::byte
#include <cstdint>      // std::uint64_t
#include <filesystem>   // std::filesystem::path
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "../decode/safetensors.hpp"

namespace replay {

using zoomr::index_t;
using zoomr::token_range;

/// What a trace says of itself, alike in all of its files.
struct trace_facts {
  zoomr::shape model;           // of the layers that were recorded
  std::vector<index_t> layers;  // their numbers in the model; empty: 0, 1, ...
  float scale = 0;              // of q · k; 0: 1/√head_dim
  float soft_cap = 0;           // of logits; 0: none
  index_t prompt = 0;           // tokens
  index_t tokens = 0;           // of all files
  std::string dtype;            // of q, k and v: F32, F16 or BF16
  std::string model_name;       // words for tables; may be empty
  std::string command;

  /// Numbers of one token in one layer.
  std::int64_t row_numbers() const {
    const std::int64_t of_values = std::int64_t{model.kv_heads} * model.value_width();
    return (std::int64_t{model.heads} + model.kv_heads) * model.head_dim + of_values;
  }
};

/// The bytes of each token, if the trace has them.
struct trace_text {
  std::string bytes;
  std::vector<std::uint64_t> ends;  // [tokens]; empty: there is no text

  bool empty() const { return ends.empty(); }
  std::string_view token(index_t position) const {
    const auto at = static_cast<std::size_t>(position);
    const std::uint64_t begin = at == 0 ? 0 : ends[at - 1];
    return std::string_view(bytes).substr(begin, ends[at] - begin);
  }
};

/// Which rows of a layer.
enum class part { queries, keys, values };

/// For one thread.
class trace {
 public:
  /// Reads the headers, and the classes or the text.
  /// @param files  in the order of their tokens
  /// @throws decode::input_error  with the file and what is wrong in it
  explicit trace(const std::vector<std::string>& files);

  const trace_facts& facts() const { return facts_; }
  /// [tokens]  those of the trace, or where its text ends sentences; empty: it has neither.
  const std::vector<zoomr::token_class>& classes() const { return classes_; }
  bool classes_from_text() const { return from_text_; }
  const trace_text& text() const { return text_; }
  /// Numbers of a row of all heads.
  index_t width(part of_row) const;

  /// Reads rows of one layer as floats.
  /// @param tokens  positions
  /// @param out     [tokens, heads or KV heads, width]; resized
  /// @throws decode::input_error  a NaN or an infinity, with its tensor and token; a file that has changed
  void read(index_t layer, part rows, token_range tokens, std::vector<float>& out);

  /// Tells this trace from others: made of headers, sizes, and some of the numbers.
  std::uint64_t fingerprint() const { return fingerprint_; }

 private:
  struct file {
    std::filesystem::path path;
    token_range tokens;
    std::vector<decode::tensor_place> places;  // [layers, parts]
  };

  void add(const std::filesystem::path& path);
  void add_layers(const decode::safetensors& tensors, file& added);
  void add_classes(const decode::safetensors& tensors, const file& added);
  void add_text(const decode::safetensors& tensors, const file& added);
  void take_facts(const std::string& where);
  void mark(const std::filesystem::path& path);
  std::string said(const std::string& name, const std::string& where) const;

  trace_facts facts_;
  std::vector<file> files_;
  std::map<std::string, std::string> metadata_, first_metadata_;  // of the present file, and of the first one
  std::vector<zoomr::token_class> classes_;
  bool from_text_ = false;
  trace_text text_;
  std::vector<std::byte> raw_;  // what was read last
  std::uint64_t fingerprint_ = 0xcbf29ce484222325;
};

/// Rows of some tokens in all layers.
struct token_rows {
  struct layer {
    std::vector<float> queries, keys, values;  // [tokens, heads or KV heads, width]
  };
  token_range tokens;
  std::vector<layer> layers;
};

/// @param rows  resized
void read_rows(trace& from, token_range tokens, token_rows& rows);

}  // namespace replay
