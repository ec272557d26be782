// SPDX-License-Identifier: Apache-2.0
// What a program writes, so that nothing is lost unsaid: the standard output and files throw at the first byte that
// cannot be written, with the system's reason, and a file gets its name when it is whole.
#pragma once

#include <array>        // std::array
#include <filesystem>   // std::filesystem::path
#include <functional>   // std::function
#include <iostream>     // std::cerr
#include <new>          // std::bad_alloc
#include <ostream>      // std::ostream
#include <streambuf>    // std::streambuf
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move

#include "input_error.hpp"

namespace decode {

/// Writes all of `bytes`, also where the system takes them in parts.
/// @return  0, or errno
int write_all(int file, std::string_view bytes);

/// The buffer of a stream that throws where bytes are lost; the stream must let exceptions pass (std::ios::badbit).
class checked_buffer : public std::streambuf {
 public:
  /// @param file  a descriptor, which stays the caller's
  /// @param name  for the complaint
  checked_buffer(int file, std::string name) : file_(file), name_(std::move(name)) { begin(); }

 protected:
  /// @throws input_error  "NAME: cannot be written: REASON"
  int_type overflow(int_type c) override;
  int sync() override;

 private:
  void begin() { setp(bytes_.data(), bytes_.data() + bytes_.size()); }

  int file_;
  std::string name_;
  std::array<char, 1 << 15> bytes_;
};

/// A file that is whole or absent. It is written beside the place that it is for and renamed by `finish`; without
/// that, whatever ends the writing, the place stays as it was. What is no regular file (a device, a pipe) is written
/// directly, and so is a file in a folder where none can be made. /dev/stdout, /dev/fd/N and /proc/self/fd/N are the
/// descriptors that the process was started with: what comes there goes on behind what others have written.
///
/// A process that is killed leaves its unfinished file, PATH.PROCESS.part. The next one that writes to PATH removes it.
class output_file {
 public:
  /// @throws input_error  "PATH: cannot be written: REASON"
  explicit output_file(const std::string& path);
  output_file(const output_file&) = delete;
  output_file& operator=(const output_file&) = delete;
  ~output_file();

  /// Throws input_error where the disk is full.
  std::ostream& stream() { return stream_; }

  /// Gives the file its name.
  /// @throws input_error  if it is not whole
  void finish();

 private:
  [[noreturn]] void refuse(int error) const;

  int open_for(const std::string& path);
  int descriptor(int number);
  int opened(int file) const;

  std::string path_;
  std::string target_;   // path_ without links
  std::string written_;  // what is removed if it is not finished
  int file_;             // -1: standard output, or finished
  checked_buffer buffer_;
  std::ostream stream_;
};

/// Removes what processes that were killed have left unfinished of files in a folder.
/// @param is_meant  is_meant(NAME): those of output_file for this name
void remove_left_over(const std::filesystem::path& folder, const std::function<bool(std::string_view name)>& is_meant);

/// Keeps a sentence that is no error until `run_program` ends well, and tells it on standard error then: what fails
/// says one sentence.
void tell(const std::string& sentence);

/// Tells what is kept.
void tell_all();

/// std::cout as a stream that throws where bytes are lost. One object, in main.
class standard_output {
 public:
  /// Closed standard streams are replaced by /dev/null, so that no file gets their numbers.
  /// @throws input_error  nobody can read what would be printed
  standard_output();
  standard_output(const standard_output&) = delete;
  standard_output& operator=(const standard_output&) = delete;
  ~standard_output();
  /// @throws input_error  if not all has been written
  void finish();

 private:
  checked_buffer buffer_;
  std::streambuf* before_ = nullptr;
};

/// What `main` is: calls run(), and turns an exception into one sentence on standard error and exit status 2.
/// @return  what run() returns, once all that it printed is written
template <class Run>
int run_program(const char* name, Run run) {
  const auto complain = [&](const char* sentence) { std::cerr << name << ": " << shortened(sentence, 2000) << '\n'; };
  try {
    standard_output out;
    const int status = run();
    out.finish();
    tell_all();
    return status;
  } catch (const std::bad_alloc&) {
    complain("there is not enough memory");
  } catch (const std::exception& wrong) {
    complain(wrong.what());
  }
  return 2;
}

}  // namespace decode
