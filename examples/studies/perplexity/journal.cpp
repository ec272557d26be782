// SPDX-License-Identifier: Apache-2.0
#include "journal.hpp"

#include <cmath>  // std::abs

#include <nlohmann/json.hpp>

#include "../../decode/input_error.hpp"

namespace decode::perplexity {

nlohmann::ordered_json to_json(const row& r) {
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
          {"block_bits", r.found.block_bits},
          {"seconds", r.found.seconds},
          {"attended_mean", r.found.attended_mean},
          {"details", r.found.bytes.details},
          {"summaries", r.found.bytes.summaries},
          {"metadata", r.found.bytes.metadata},
          {"device_peak", r.found.device_peak}};
}

row row_from(const field& from) {
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
  if (const auto blocks = from.find("block_bits")) {  // a file from before they were kept has none
    for (const field& one : blocks->elements()) r.found.block_bits.push_back(one.number(0, 1e15));
  }
  r.found.seconds = from.at("seconds").number(0, 1e15);
  r.found.attended_mean = from.at("attended_mean").number(0, 1e15);
  r.found.bytes = {.details = bytes("details"), .summaries = bytes("summaries"), .metadata = bytes("metadata")};
  r.found.device_peak = bytes("device_peak");
  return r;
}

bool subject::same_as(const subject& other) const {
  return texts == other.texts && std::abs(probe_bits - other.probe_bits) <= 1e-4 * probe_bits;
}

journal::journal(const std::string& path, const subject& about)
    : lines_(path, [&](const json& line, const std::string& where) { read(line, where, about); }) {
  if (!begun_) lines_.add({{"probe_bits", about.probe_bits}, {"texts", about.texts}});
}

const row* journal::find(const row& task) const {
  for (const row& r : rows_) {
    if (r.same_task(task)) return &r;
  }
  return nullptr;
}

void journal::add(const row& r) {
  rows_.push_back(r);
  lines_.add(to_json(r));
}

void journal::read(const json& line, const std::string& where, const subject& about) {
  const field from(line, where + ": ");
  if (begun_) return rows_.push_back(row_from(from));
  begun_ = true;
  subject found{from.at("probe_bits").number(0, 1e15), {}};
  for (const field& one : from.at("texts").elements()) found.texts.push_back(one.text());
  if (!found.same_as(about)) fail(where, ": results of another model or of other texts; name another file");
}

}  // namespace decode::perplexity
