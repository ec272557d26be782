// SPDX-License-Identifier: Apache-2.0
#include "json_file.hpp"

#include <sys/stat.h>  // stat

#include <cerrno>        // errno
#include <cstring>       // std::strerror
#include <fstream>       // std::ifstream
#include <system_error>  // std::error_code

#include <nlohmann/json.hpp>

#include "input_error.hpp"
#include "json_names.hpp"

namespace decode {
namespace {

// Ends with an input_error if brackets nest deeper than 64 (real files need about ten levels, and walking over a deep
// value could exhaust the stack), or if there are more than 2^22 values (the largest tokenizer.json in use have some
// two million; each takes far more memory than its two bytes here).
void check_structure(std::string_view text, const std::string& where) {
  constexpr int deepest = 64;
  constexpr std::size_t most_values = std::size_t{1} << 22;
  int depth = 0;
  std::size_t values = 1;
  bool in_string = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string) {
      if (c == '\\') ++at;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == ',' && ++values > most_values) {
      fail(where, ": there are more than ", most_values, " values");
    } else if ((c == '[' || c == '{') && ++depth > deepest) {
      fail(where, ": brackets nest more than ", deepest, " levels deep at byte ", at);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
}

}  // namespace

bool is_there(const std::filesystem::path& path) {
  struct stat found = {};
  if (::stat(path.c_str(), &found) == 0) return true;
  if (errno == ENOENT) return false;
  fail(named(path), ": it cannot be opened: ", std::strerror(errno));
}

std::uint64_t file_bytes(const std::filesystem::path& path) {
  if (!is_there(path)) fail(named(path), ": no such file");
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) fail(named(path), ": not a regular file");
  const std::uint64_t bytes = std::filesystem::file_size(path, error);
  if (error) fail(named(path), ": its size cannot be read: ", error.message());
  return bytes;
}

void expect_open(const std::ifstream& file, const std::filesystem::path& path) {
  if (!file.is_open()) fail(named(path), ": the file cannot be read: ", std::strerror(errno));
}

std::string read_text(const std::filesystem::path& path, std::uint64_t most_bytes) {
  const std::uint64_t bytes = file_bytes(path);
  if (bytes > most_bytes) fail(named(path), ": the file has ", bytes, " bytes, and at most ", most_bytes, " are read");
  std::string text(static_cast<std::size_t>(bytes), '\0');
  std::ifstream file(path, std::ios::binary);
  expect_open(file, path);
  if (!file.read(text.data(), static_cast<std::streamsize>(bytes))) fail(named(path), ": the file cannot be read");
  return text;
}

std::string read_prompt(const std::filesystem::path& path, std::uint64_t most_bytes) {
  const std::string text = read_text(path, most_bytes);
  for (const std::string_view mark : {"\xff\xfe", "\xfe\xff"})
    if (text.starts_with(mark)) fail(named(path), ": it is UTF-16, but texts are read as UTF-8");
  return text;
}

json parse_json(std::string_view text, const std::string& where) {
  if (const std::size_t zero = text.find('\0'); zero != text.npos)  // where the parser would stop
    fail(where, ": not valid JSON, there is a zero byte at byte ", zero);
  check_structure(text, where);
  repeated_names names(where);  // apart: a parser that is watched takes quadratic time for arrays of objects
  try {
    json::sax_parse(text.begin(), text.end(), &names);
    return json::parse(text.begin(), text.end());
  } catch (const json::exception& error) {
    const std::string_view message = error.what();
    const auto prefix = message.find("] ");  // "[json.exception.…] "
    fail(where, ": not valid JSON, ", message.substr(prefix == message.npos ? 0 : prefix + 2));
  }
}

json read_json(const std::filesystem::path& path) {
  return parse_json(read_text(path, std::uint64_t{128} << 20), named(path));
}

std::optional<field> field::find(const std::string& name) const {
  if (!value_->is_object()) wrong("an object");
  const auto member = value_->find(name);
  if (member == value_->end() || member->is_null()) return std::nullopt;
  return field(*member, where_ + (where_.ends_with(": ") ? "" : ".") + name);
}

field field::at(const std::string& name) const {
  if (auto member = find(name)) return *member;
  fail(where_, where_.ends_with(": ") ? "" : ": ", shown(name), " is missing");
}

std::vector<field> field::elements() const {
  if (!value_->is_array()) wrong("an array");
  std::vector<field> all;
  for (const json& element : *value_) all.emplace_back(element, where_ + "[" + std::to_string(all.size()) + "]");
  return all;
}

std::size_t field::count(std::size_t low, std::size_t high) const {
  const bool natural =
      value_->is_number_unsigned() || (value_->is_number_integer() && value_->get<std::int64_t>() >= 0);
  if (!natural) wrong("a whole number that is not negative");
  const auto number = value_->get<std::uint64_t>();
  if (number < low || number > high) fail(where_, " is ", number, ", but must lie between ", low, " and ", high);
  return static_cast<std::size_t>(number);
}

double field::number(double low, double high) const {
  if (!value_->is_number()) wrong("a number");
  const auto number = value_->get<double>();
  if (!(number >= low && number <= high)) fail(where_, " is ", number, ", but must lie between ", low, " and ", high);
  return number;
}

bool field::boolean() const {
  if (!value_->is_boolean()) wrong("true or false");
  return value_->get<bool>();
}

const std::string& field::text() const {
  if (!value_->is_string()) wrong("a string");
  return value_->get_ref<const std::string&>();
}

bool field::boolean(const std::string& name, bool otherwise) const {
  const auto member = find(name);
  return member ? member->boolean() : otherwise;
}

std::string field::text(const std::string& name, const std::string& otherwise) const {
  const auto member = find(name);
  return member ? member->text() : otherwise;
}

void field::wrong(const char* wanted) const {
  const std::string type = value_->is_number() ? value_->dump() : value_->type_name();
  fail(where_, " must be ", wanted, ", but is ", value_->is_number() ? "" : "of type ", type);
}

}  // namespace decode
