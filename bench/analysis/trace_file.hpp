// SPDX-License-Identifier: Apache-2.0
// Reads a trace, and the sizes of devices on a command line.
#pragma once

#include <cerrno>   // errno
#include <cstring>  // std::strerror
#include <fstream>  // std::ifstream
#include <sstream>  // std::istringstream
#include <string>   // std::string
#include <utility>  // std::exchange

#include "../../examples/decode/input_error.hpp"
#include "../../examples/decode/numbers.hpp"
#include "trace.hpp"

namespace tier_trace {

/// Reads a trace, or throws decode::input_error, which says what is wrong with it.
class trace_file {
 public:
  explicit trace_file(const std::string& path) : path_(path), in_(path) {}

  trace read() {
    if (!in_) decode::fail(path_, ": the file cannot be read: ", std::strerror(errno));
    std::string line, pages, layers, bytes;
    std::getline(in_, line);
    if (!(std::istringstream(line) >> pages >> made_.layers >> layers >> made_.block_bytes >> bytes) ||
        pages != "pages" || layers != "layers" || bytes != "bytes" || made_.layers < 1 || made_.block_bytes < 1) {
      fail("a trace begins with \"pages N layers N bytes\"");
    }
    while (++line_, std::getline(in_, line)) {
      std::istringstream words(line);
      if (line.starts_with("segment ")) {
        read_segment(words);
      } else if (line.starts_with("choice ")) {
        read_choice(words);
      } else {
        read_reading(words);
      }
    }
    if (in_.bad()) decode::fail(path_, ": the file cannot be read to its end");
    return std::move(made_);
  }

 private:
  [[noreturn]] void fail(const char* what) const { decode::fail(path_, ":", line_, ": ", what); }

  reader read_reader(std::istream& words) const {
    reader of;
    if (!(words >> of.layer) || of.layer < 0 || of.layer >= made_.layers) fail("no such layer");
    if (words.peek() == ':' && (!(words.ignore() >> of.head) || of.head < 0)) fail("no such KV head");
    return of;
  }
  // N or N-N; false at the end of the line.
  bool read_pages(std::istream& words, index_t& first, index_t& last) const {
    if (!(words >> first)) return false;
    last = first;
    if (words.peek() == '-') words.ignore() >> last;
    if (first < 0 || last < first || last >= zoomr::unlimited) fail("no such pages");
    return true;
  }
  void read_segment(std::istream& words) {
    std::string name;
    index_t id = 0, first = 0, last = 0;
    if (!(words >> name >> id) || !read_pages(words, first, last)) fail("a line is \"segment ID N-N\"");
    made_.segments[id] = {first, last, made_.readings.size()};
  }
  void read_choice(std::istream& words) {
    std::string word;
    words >> word;
    read_reader(words);  // the one that reads next
    for (std::vector<index_t>* into = &next_.chosen; words >> word;) {
      if (word == "|") {
        into = &next_.runners_up;
      } else {
        const auto id = decode::whole_number<index_t>(word, 0, zoomr::unlimited);
        if (!id) fail("no such segment");
        into->push_back(*id);
      }
    }
  }
  void read_reading(std::istream& words) {
    reading read;
    read.who = read_reader(words);
    read.begins_pass = read.who.layer != last_.layer || read.who.head <= last_.head;
    last_ = read.who;
    read.first_served = std::exchange(next_, {});
    for (index_t first = 0, last = 0; read_pages(words, first, last);) {
      for (index_t page = first; page <= last; ++page) read.blocks.push_back(made_.number(read.who, page));
    }
    if (!words.eof()) fail("a line is a layer, or layer:head, and its pages, N or N-N");
    made_.visits += static_cast<std::int64_t>(read.blocks.size());
    made_.passes += read.begins_pass ? 1 : 0;
    made_.readings.push_back(std::move(read));
  }

  std::string path_;
  std::ifstream in_;
  std::size_t line_ = 1;
  trace made_;
  reader last_{-1, -1};
  choice next_;
};

/// Sizes to try, from the least that a tier can work with to `all`, eight for each doubling.
inline std::vector<index_t> sizes_up_to(index_t all) {
  std::vector<index_t> sizes;
  for (index_t slots = pool::least_frames; slots < all; slots += std::max(1, slots / 8)) sizes.push_back(slots);
  sizes.push_back(std::max(all, pool::least_frames));
  return sizes;
}

/// The sizes after the file on a command line; all that matter if there are none.
/// @throws decode::input_error
inline std::vector<index_t> sizes_of(int argc, char** argv, index_t all) {
  std::vector<index_t> sizes;
  for (int a = 2; a < argc; ++a) {
    const auto slots = decode::whole_number<index_t>(argv[a], pool::least_frames, zoomr::unlimited);
    if (!slots) decode::fail("SLOTS ", decode::wrong_number(argv[a], pool::least_frames, zoomr::unlimited));
    sizes.push_back(*slots);
  }
  return sizes.empty() ? sizes_up_to(all) : sizes;
}

}  // namespace tier_trace
