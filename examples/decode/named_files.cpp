// SPDX-License-Identifier: Apache-2.0
#include "named_files.hpp"

#include <sys/stat.h>  // stat, fstat
#include <unistd.h>    // STDOUT_FILENO

#include <system_error>  // std::error_code

#include "input_error.hpp"
#include "trace_name.hpp"

namespace decode {
namespace {

std::optional<std::pair<dev_t, ino_t>> id_of(const struct stat& found) { return std::pair{found.st_dev, found.st_ino}; }

std::optional<std::pair<dev_t, ino_t>> id_of(const std::filesystem::path& file) {
  struct stat found = {};
  return ::stat(file.c_str(), &found) == 0 ? id_of(found) : std::nullopt;
}

}  // namespace

bool named_files::entry::is(const entry& other) const {
  if (file && other.file) return *file == *other.file;
  return !file && !other.file && folder && folder == other.folder && name == other.name;
}

named_files::named_files() {
  for (const auto& [number, what] :
       {std::pair{STDOUT_FILENO, "standard output"}, std::pair{STDERR_FILENO, "standard error"}}) {
    struct stat found = {};
    if (::fstat(number, &found) != 0 || !S_ISREG(found.st_mode)) continue;
    entries_.push_back({what, true, true, id_of(found), std::nullopt, ""});
  }
}

void named_files::reads(const std::string& what, const std::string& file) { add(what, false, file); }

void named_files::reads(const std::string& what, const std::vector<std::string>& files) {
  for (const std::string& file : files) reads(what, file);
}

void named_files::reads_model(const std::string& directory) {
  if (directory.empty()) return;
  const std::filesystem::path folder = directory;
  for (const char* const name : {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
                                 "chat_template.jinja", "model.safetensors.index.json", "ledger.json"}) {
    reads("the model's", (folder / name).string());
  }
  std::error_code unknown;
  for (std::filesystem::directory_iterator at(folder, unknown), end; !unknown && at != end; at.increment(unknown)) {
    if (at->path().extension() == ".safetensors") reads("the model's", at->path().string());
  }
}

void named_files::writes(const std::string& what, const std::string& file) { add(what, true, file); }

void named_files::writes_trace(const std::string& what, const std::string& path) {
  if (path.empty()) return;
  const std::string first = trace_file_name(path, 0);
  const file_place place = place_of(first);
  const auto folder = id_of(place.folder);
  for (const entry& known : entries_) {
    if (!known.stream && folder && known.folder == folder && trace_of(known.name) == trace_of(place.name))
      fail(what, " ", named(path), ": ", known.what, " is a file of this trace, and would be lost");
  }
  writes(what, first);
}

void named_files::add(const std::string& what, bool written, const std::string& file) {
  if (file.empty()) return;
  struct stat found = {};
  const bool exists = ::stat(file.c_str(), &found) == 0;
  if (exists && !S_ISREG(found.st_mode)) return;
  const file_place place = place_of(file);
  entry added{what + " " + named(file), written,   place.descriptor.has_value(), std::nullopt,
              id_of(place.folder),      place.name};
  if (exists) added.file = id_of(found);
  for (const entry& known : entries_) {
    if (!(known.written || added.written) || !known.is(added)) continue;
    if (known.written && added.written && known.stream && added.stream) continue;
    const entry &to = added.written ? added : known, &from = added.written ? known : added;
    fail(to.what, ": ", from.what, " is the same file, and would be lost");
  }
  entries_.push_back(std::move(added));
}

}  // namespace decode
