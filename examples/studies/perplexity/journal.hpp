// SPDX-License-Identifier: Apache-2.0
// What has been measured, one row for each policy and passage. With a file behind it, a line each: later runs add
// policies to the same passages.
#pragma once

#include <string>  // std::string
#include <vector>  // std::vector

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

inline nlohmann::ordered_json to_json(const row& r) {
  return {{"policy", r.policy},
          {"settings", r.settings},
          {"budget", r.budget},
          {"context", r.context},
          {"text", r.text},
          {"end", r.end},
          {"tokens", r.tokens},
          {"bytes", r.bytes},
          {"words", r.words},
          {"bits", r.found.bits},
          {"seconds", r.found.seconds},
          {"attended_mean", r.found.attended_mean},
          {"details", r.found.bytes.details},
          {"summaries", r.found.bytes.summaries},
          {"metadata", r.found.bytes.metadata},
          {"device_peak", r.found.device_peak}};
}

/// @throws input_error
inline row row_from(const field& from) {
  constexpr std::size_t most = std::size_t{1} << 50;
  const auto natural = [&](const char* name) { return from.at(name).count(0, most); };
  const auto bytes = [&](const char* name) { return static_cast<zoomr::byte_count>(natural(name)); };
  row r{.policy = from.at("policy").text(),
        .settings = from.at("settings").text(),
        .budget = static_cast<index_t>(from.at("budget").count(0, zoomr::unlimited)),
        .context = static_cast<index_t>(from.at("context").count(1, zoomr::unlimited)),
        .text = from.at("text").text(),
        .end = natural("end"),
        .tokens = natural("tokens"),
        .bytes = natural("bytes"),
        .words = natural("words"),
        .found = {}};
  r.found.bits = from.at("bits").number(0, 1e15);
  r.found.seconds = from.at("seconds").number(0, 1e15);
  r.found.attended_mean = from.at("attended_mean").number(0, 1e15);
  r.found.bytes = {.details = bytes("details"), .summaries = bytes("summaries"), .metadata = bytes("metadata")};
  r.found.device_peak = bytes("device_peak");
  return r;
}

/// What two runs must share to share a file: the model, by what it makes of the first tokens, and the texts.
struct subject {
  double probe_bits = 0;           // of the first tokens under full attention
  std::vector<std::string> texts;  // name and number of tokens of each

  bool same_as(const subject& other) const {
    return texts == other.texts && std::abs(probe_bits - other.probe_bits) <= 1e-4 * probe_bits;
  }
};

class journal {
 public:
  /// @param path  empty: nothing is kept
  /// @throws input_error  not such a file, or of another model or other texts
  journal(const std::string& path, const subject& about)
      : lines_(path, [&](const json& line, const std::string& where) { read(line, where, about); }) {
    if (!begun_) lines_.add({{"probe_bits", about.probe_bits}, {"texts", about.texts}});
  }

  /// The row of this task, if it is there.
  const row* find(const row& task) const {
    for (const row& r : rows_) {
      if (r.same_task(task)) return &r;
    }
    return nullptr;
  }
  void add(const row& r) {
    rows_.push_back(r);
    lines_.add(to_json(r));
  }
  const std::vector<row>& rows() const { return rows_; }

 private:
  void read(const json& line, const std::string& where, const subject& about) {
    const field from(line, where + ": ");
    if (begun_) return rows_.push_back(row_from(from));
    begun_ = true;
    subject found{from.at("probe_bits").number(0, 1e15), {}};
    for (const field& one : from.at("texts").elements()) found.texts.push_back(one.text());
    if (!found.same_as(about)) fail(where, ": results of another model or of other texts; name another file");
  }

  std::vector<row> rows_;
  bool begun_ = false;  // the first line, which says of what these are, has been read
  line_file lines_;
};

}  // namespace decode::perplexity
