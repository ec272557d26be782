// SPDX-License-Identifier: Apache-2.0
// JSON files from strangers: bounded in size and depth, without repeated names, and read through
// `field`, which checks each value's type and range and knows the way to it for the complaint.
#pragma once

#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint64_t
#include <filesystem>   // std::filesystem::path
#include <iosfwd>       // std::ifstream
#include <optional>     // std::optional
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move
#include <vector>       // std::vector

#include <nlohmann/json_fwd.hpp>

namespace decode {

using json = nlohmann::json;

/// Whether something has that name. What cannot be known (a folder that may not be searched, a file in its place) is an
/// input_error with the system's reason, not absence.
bool is_there(const std::filesystem::path& path);

/// Size of a regular file, in bytes; anything else (a folder, a pipe, nothing) is an input_error.
std::uint64_t file_bytes(const std::filesystem::path& path);

/// An input_error unless the file could be opened.
void expect_open(const std::ifstream& file, const std::filesystem::path& path);

/// A whole file as bytes.
///
/// @param most_bytes  larger files are an input_error, before anything is allocated
std::string read_text(const std::filesystem::path& path, std::uint64_t most_bytes);

/// The same of a text in UTF-8; one that begins with the mark of UTF-16 is an input_error.
std::string read_prompt(const std::filesystem::path& path, std::uint64_t most_bytes);

/// A JSON value from text; a name that an object has twice is an input_error, not a silent choice.
///
/// @param where  what to call the text in a complaint
json parse_json(std::string_view text, const std::string& where);

/// A JSON file, at most 128 MiB (the largest tokenizer.json in use have some 35 MB).
json read_json(const std::filesystem::path& path);

/// One value of a JSON file, and the way to it: "config.json: rope_scaling.factor".
/// Refers to the value: the `json` that it was made from must outlive it.
class field {
 public:
  field(const json& value, std::string where) : value_(&value), where_(std::move(where)) {}

  const json& value() const { return *value_; }
  const std::string& where() const { return where_; }

  /// The member of this object by that name; `find` treats null like absence.
  std::optional<field> find(const std::string& name) const;
  field at(const std::string& name) const;

  /// The elements of this array.
  std::vector<field> elements() const;

  /// A whole number in [low, high], both inclusive and not negative.
  std::size_t count(std::size_t low, std::size_t high) const;
  /// A number in [low, high], both inclusive.
  double number(double low, double high) const;
  bool boolean() const;
  const std::string& text() const;

  /// The same for a member that may be absent (or null): then the default counts.
  bool boolean(const std::string& name, bool otherwise) const;
  std::string text(const std::string& name, const std::string& otherwise) const;

 private:
  [[noreturn]] void wrong(const char* wanted) const;

  const json* value_;
  std::string where_;
};

}  // namespace decode
