// SPDX-License-Identifier: Apache-2.0
// Writes what attention saw of one text as a trace that zoomr-replay reads (docs/replay.md).
//
// T = tokens that are held, L = layers that are recorded
#pragma once

#include <zoomr/core/shape.hpp>
#include <zoomr/core/types.hpp>

#include <cstddef>     // std::size_t
#include <functional>  // std::function
#include <optional>    // std::optional
#include <ostream>     // std::ostream
#include <span>        // std::span
#include <string>      // std::string
#include <vector>      // std::vector

#include "attention_tap.hpp"
#include "output.hpp"

namespace decode {

/// What a trace says of its model and its text.
struct trace_facts {
  zoomr::shape model;                           // of the layers that are recorded
  std::vector<index_t> layers;                  // their numbers in the model, ascending; empty: 0, 1, ...
  double scale = 0;                             // of logits; 0: 1/√head_dim
  index_t prompt = 0;                           // tokens
  std::string name, command;                    // of the model; what made the trace, for a shell
  std::span<const zoomr::token_class> classes;  // [V]  must outlive the writer
  std::function<std::string(token_id id, bool is_first)> bytes;  // of a token's text
};

/// One sequence in files of `tokens` tokens each, or some more where a chunk of the prompt is longer. A file is written
/// when its tokens are committed, so that memory is bounded and no total need be known before; it gets its name when
/// it is whole. What was interrupted leaves the trace of a shorter text.
class trace_writer : public attention_tap {
 public:
  static constexpr index_t usual_tokens = 256;

  /// @param path    "run" or "run.safetensors": for files run-0001.safetensors, run-0002.safetensors, ...
  /// @param tokens  of a file
  /// @throws        input_error  there is such a trace already: files of two would be taken for one
  trace_writer(std::string path, trace_facts facts, index_t tokens = usual_tokens);

  /// @throws input_error  no file can be made there: said before anything is passed
  void pass(zoomr::view<const token_id> ids, index_t first) override;
  void append(index_t layer, rows keys, rows values) override;
  void attend(index_t layer, rows queries) override;
  /// @throws input_error  a file cannot be written
  void commit(index_t tokens) override;

  /// Writes the last file.
  void finish();

  /// The name of file i, from 0.
  std::string file_name(index_t i) const;
  index_t files() const { return files_; }

 private:
  struct layer_rows {
    std::vector<float> q, k, v;  // [T, heads or kv_heads, head_dim]
  };

  layer_rows* rows_of(index_t layer);
  void put(rows from, std::vector<float>& to) const;
  void write(std::ostream& out) const;
  void write_file();

  std::string path_;
  trace_facts facts_;
  index_t tokens_;
  std::optional<output_file> file_;  // the next one
  index_t files_ = 0;                // written
  index_t first_ = 0;                // the position of the first token that is held
  index_t held_ = 0;                 // committed tokens, T
  index_t passed_ = 0;               // where the pass begins among those that are held
  std::vector<token_id> ids_;        // [T]
  std::vector<layer_rows> rows_;     // [L]
};

}  // namespace decode
