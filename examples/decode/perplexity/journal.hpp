// SPDX-License-Identifier: Apache-2.0
// What has been measured, one row for each policy and passage. With a file behind it, one line of JSON each: a run
// that was cut off goes on after its last whole line, and later runs add policies to the same passages.
#pragma once

#include <fstream>   // std::ofstream
#include <optional>  // std::optional
#include <sstream>   // std::istringstream
#include <string>    // std::string
#include <vector>    // std::vector

#include "../json_file.hpp"
#include "score.hpp"

namespace decode::perplexity {

/// One policy on one passage in one context.
struct row {
  std::string policy;
  std::string settings;  // what --set has changed
  index budget = 0;      // 0: the preset's own
  index context = 0;     // tokens
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
        .budget = static_cast<index>(from.at("budget").count(0, zoomr::unlimited)),
        .context = static_cast<index>(from.at("context").count(1, zoomr::unlimited)),
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
  journal(const std::string& path, const subject& about) {
    if (path.empty()) return;
    const bool fresh = !std::filesystem::exists(path) || file_bytes(path) == 0;
    if (!fresh) read(path, about);
    out_.open(path, std::ios::binary | std::ios::app);
    if (!out_) fail(path, ": cannot be written");
    if (fresh)
      write({{"probe_bits", about.probe_bits}, {"texts", about.texts}});
    else if (cut_off_)
      out_ << '\n';
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
    if (out_.is_open()) write(to_json(r));
  }
  const std::vector<row>& rows() const { return rows_; }

 private:
  void write(const nlohmann::ordered_json& line) {
    out_ << line.dump() << std::endl;  // at once: the next row takes minutes
    if (!out_) fail("the file of --resume cannot be written any more");
  }

  // Each line is a document; the last may be cut off.
  void read(const std::string& path, const subject& about) {
    const std::string text = read_text(path, std::uint64_t{1} << 30);
    cut_off_ = text.back() != '\n';
    std::istringstream lines(text);
    std::size_t number = 0;
    for (std::string line; std::getline(lines, line);) {
      ++number;
      const std::string where = path + ", line " + std::to_string(number);
      if (line.empty() || (lines.eof() && cut_off_ && number > 1)) continue;
      if (number > 1 && !json::accept(line)) continue;  // was cut off, and then gone on from
      const json document = parse_json(line, where);
      const field from(document, where + ": ");
      if (number > 1) {
        rows_.push_back(row_from(from));
        continue;
      }
      subject found{from.at("probe_bits").number(0, 1e15), {}};
      for (const field& one : from.at("texts").elements()) found.texts.push_back(one.text());
      if (!found.same_as(about)) fail(path, " holds results of another model or of other texts: name another file");
    }
  }

  std::vector<row> rows_;
  std::ofstream out_;
  bool cut_off_ = false;
};

}  // namespace decode::perplexity
