// SPDX-License-Identifier: Apache-2.0
// A page in one file that shows recorded runs: HTML with its styles, its script and its data, nothing from elsewhere.
#pragma once

#include <ostream>  // std::ostream
#include <string>   // std::string
#include <utility>  // std::pair
#include <vector>   // std::vector

#include <nlohmann/json.hpp>

namespace report {

class recorder;

/// What is said of a run beside what was recorded.
struct run_text {
  std::string policy;
  std::string options;                                       // all fields of the policy
  std::vector<std::string> pieces;                           // [tokens]  together they are the text
  std::vector<std::pair<std::string, std::string>> figures;  // a row of the table each: its name, as it is shown
  bool given = false;                                        // another one wrote the text
};

/// A document of the schema in docs/report.md.
class page {
 public:
  /// Of all data that change with a text's length, for one page.
  static constexpr std::size_t most_bytes = std::size_t{8} << 20;

  /// @param runs  how many will be added, which share the bytes
  page(std::string title, std::string command, std::size_t runs);

  /// Runs with the same text share it.
  void add(const recorder& recorded, const run_text& said);

  const nlohmann::ordered_json& data() const { return data_; }
  /// The data as they stand in the page: JSON without `<`, so that no text ends the script that holds it. Bytes that
  /// are not UTF-8 become U+FFFD.
  std::string json() const;
  void write(std::ostream& out) const;

 private:
  std::size_t bytes_of_run_;
  nlohmann::ordered_json data_;
};

}  // namespace report
