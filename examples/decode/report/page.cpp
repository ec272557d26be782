// SPDX-License-Identifier: Apache-2.0
#include "page.hpp"

#include <algorithm>    // std::max
#include <string_view>  // std::string_view

#include "embedded.hpp"
#include "recorder.hpp"

namespace report {
namespace {

constexpr int schema_version = 1;

std::size_t place(nlohmann::ordered_json& texts, const std::vector<std::string>& pieces) {
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (texts[i] == pieces) return i;
  }
  texts.push_back(pieces);
  return texts.size() - 1;
}

}  // namespace

page::page(std::string title, std::string command, std::size_t runs)
    : bytes_of_run_(most_bytes / std::max<std::size_t>(1, runs)),
      data_{{"zoomr_report", schema_version},
            {"title", std::move(title)},
            {"command", std::move(command)},
            {"texts", nlohmann::ordered_json::array()},
            {"runs", nlohmann::ordered_json::array()}} {}

void page::add(const recorder& recorded, const run_text& said) {
  std::size_t bytes = 1024 + said.options.size();  // of the text, escaped or not
  for (const std::string& piece : said.pieces)
    bytes += nlohmann::ordered_json(piece).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).size() + 1;
  nlohmann::ordered_json run = {{"policy", said.policy}, {"options", said.options}};
  run["text"] = place(data_["texts"], said.pieces);
  run["given"] = said.given;
  auto figures = nlohmann::ordered_json::array();
  for (const auto& [name, value] : said.figures) figures.push_back({name, value});
  run["figures"] = std::move(figures);
  run.update(recorded.to_json(bytes_of_run_ > bytes ? bytes_of_run_ - bytes : 0));
  data_["runs"].push_back(std::move(run));
}

std::string page::json() const {
  const std::string dumped = data_.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  std::string out;
  out.reserve(dumped.size());
  for (const char c : dumped) {  // it stands in strings alone
    if (c == '<')
      out += "\\u003c";
    else
      out += c;
  }
  return out;
}

void page::write(std::ostream& out) const {
  const auto put = [&](std::string_view text) { out.write(text.data(), static_cast<std::streamsize>(text.size())); };
  std::string_view left = embedded::html;
  for (const auto& [mark, what] : {std::pair{std::string_view("/*STYLES*/"), std::string(embedded::css)},
                                   std::pair{std::string_view("/*DATA*/"), json()},
                                   std::pair{std::string_view("/*SCRIPT*/"), std::string(embedded::script)}}) {
    const std::size_t at = left.find(mark);
    put(left.substr(0, at));
    put(what);
    left.remove_prefix(at + mark.size());
  }
  put(left);
}

}  // namespace report
