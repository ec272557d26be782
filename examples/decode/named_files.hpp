// SPDX-License-Identifier: Apache-2.0
// The files that a command line names, so that none is lost under another one.
#pragma once

#include <sys/types.h>  // dev_t, ino_t

#include <optional>  // std::optional
#include <string>    // std::string
#include <utility>   // std::pair
#include <vector>    // std::vector

#include "file_place.hpp"

namespace decode {

/// Inputs and outputs of a run. An output that is an input, or another output, is refused: the same file by any name,
/// through links too, and before it is there. What keeps nothing (a device, a pipe) may be named again and again.
/// Empty names stand for files that are not given.
class named_files {
 public:
  /// Standard output and standard error are outputs.
  named_files();

  /// @param what  of the command line: "--text"
  /// @throws input_error  it is an output
  void reads(const std::string& what, const std::string& file);
  void reads(const std::string& what, const std::vector<std::string>& files);
  /// What is read of a checkpoint's directory.
  void reads_model(const std::string& directory);
  /// @throws input_error  it is an input, or another output
  void writes(const std::string& what, const std::string& file);
  /// The files of a trace, of which nobody knows how many there will be. The last that is said.
  /// @param path  as trace_writer takes it
  void writes_trace(const std::string& what, const std::string& path);

 private:
  using file_id = std::pair<dev_t, ino_t>;
  struct entry {
    std::string what;  // for the complaint
    bool written = false;
    bool stream = false;                  // it goes on where a descriptor stands
    std::optional<file_id> file, folder;  // none: it is not there
    std::string name;                     // in that folder

    bool is(const entry& other) const;
  };

  void add(const std::string& what, bool written, const std::string& file);

  std::vector<entry> entries_;
};

}  // namespace decode
