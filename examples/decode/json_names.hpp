// SPDX-License-Identifier: Apache-2.0
// Finds a name that a JSON object has twice, in time in proportion to the text.
#pragma once

#include <cstddef>  // std::size_t
#include <set>      // std::set
#include <string>   // std::string
#include <vector>   // std::vector

#include <nlohmann/json.hpp>

#include "input_error.hpp"

namespace decode {

/// Listens to a parser, and ends with an input_error at the second of two equal names in one object.
class repeated_names : public nlohmann::json_sax<nlohmann::json> {
 public:
  /// @param where  what to call the text in a complaint; must outlive this
  explicit repeated_names(const std::string& where) : where_(where) {}

  bool start_object(std::size_t) override { return open_.emplace_back(), true; }
  bool end_object() override { return open_.pop_back(), true; }
  bool key(string_t& name) override {
    if (!open_.back().insert(name).second) fail(where_, ": ", shown(name), " appears twice in one object");
    return true;
  }
  // What is not JSON is told by whoever wants the values.
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception&) override { return false; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }

 private:
  const std::string& where_;
  std::vector<std::set<std::string>> open_;  // names of each object that is open
};

}  // namespace decode
