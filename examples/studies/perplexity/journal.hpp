// SPDX-License-Identifier: Apache-2.0
// What has been measured, one row for each policy and passage. With a file behind it, a line each: later runs add
// policies to the same passages.
#pragma once

#include <cstddef>  // std::size_t
#include <string>   // std::string
#include <vector>   // std::vector

#include <nlohmann/json_fwd.hpp>

#include "../evaluate/line_file.hpp"
#include "score.hpp"

namespace decode::perplexity {

/// One policy on one passage in one context.
struct row {
  std::string policy;
  std::string settings;  // what is changed of it
  index_t budget = 0;    // 0: the preset's own
  index_t context = 0;   // tokens
  std::string text;
  std::size_t end = 0;     // of the passage in its text, in tokens
  std::size_t tokens = 0;  // scored
  std::size_t bytes = 0, words = 0;
  score found;

  /// Everything but what was found.
  bool same_task(const row& other) const {
    return policy == other.policy && settings == other.settings && budget == other.budget && same_passage(other);
  }
  bool same_passage(const row& other) const {
    return context == other.context && text == other.text && end == other.end && tokens == other.tokens;
  }
};

nlohmann::ordered_json to_json(const row& r);

/// @throws input_error
row row_from(const field& from);

/// What two runs must share to share a file: the model, by what it makes of the first tokens, and the texts.
struct subject {
  double probe_bits = 0;           // of the first tokens under full attention
  std::vector<std::string> texts;  // name and number of tokens of each

  bool same_as(const subject& other) const;
};

class journal {
 public:
  /// @param path  empty: nothing is kept
  /// @throws input_error  not such a file, or of another model or other texts
  journal(const std::string& path, const subject& about);

  /// The row of this task, if it is there.
  const row* find(const row& task) const;
  void add(const row& r);
  const std::vector<row>& rows() const { return rows_; }

 private:
  void read(const json& line, const std::string& where, const subject& about);

  std::vector<row> rows_;
  bool begun_ = false;  // the first line, which says of what these are, has been read
  line_file lines_;
};

}  // namespace decode::perplexity
