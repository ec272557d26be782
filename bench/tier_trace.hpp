// SPDX-License-Identifier: Apache-2.0
// What `zoomr-decode --trace-pages FILE` has written, in memory.
#pragma once

#include <zoomr/tier/tiered_pool.hpp>

#include <array>    // std::array
#include <cerrno>   // errno
#include <cstring>  // std::strerror
#include <fstream>  // std::ifstream
#include <map>      // std::map
#include <sstream>  // std::istringstream
#include <string>   // std::string
#include <utility>  // std::exchange
#include <vector>   // std::vector

#include "../examples/decode/input_error.hpp"
#include "../examples/decode/numbers.hpp"

namespace tier_trace {

using zoomr::index;
/// For its rules.
using pool = zoomr::tiered_pool<float, zoomr::farthest_use, zoomr::transfers_at_once>;

/// A layer, or a KV head of it.
struct reader {
  index layer = 0;
  index head = 0;
  friend auto operator<=>(const reader&, const reader&) = default;
};

/// Segments, best first.
struct choice {
  std::vector<index> chosen;
  std::vector<index> runners_up;
  bool made() const { return !chosen.empty() || !runners_up.empty(); }
};

/// What is read when a token passes a layer.
struct reading {
  reader who;
  bool begins_pass = true;  // of a layer
  choice first_served;      // by this reading, if one was made
  std::vector<index> blocks;
};

/// Where the details of a segment lie.
struct segment {
  index first = 0;             // page
  index last = 0;              // page
  std::size_t known_from = 0;  // this reading on
};

struct trace {
  index layers = 0;
  std::int64_t block_bytes = 0;
  std::int64_t visits = 0;
  std::int64_t passes = 0;  // of a layer
  std::vector<reading> readings;
  std::map<index, segment> segments;
  std::map<std::array<index, 3>, index> numbers;  // of blocks, as they come: by layer, KV head and page

  index blocks() const { return static_cast<index>(numbers.size()); }
  /// Tokens that have passed all layers, second passes added.
  double circles() const { return static_cast<double>(passes) / layers; }
  index number(reader of, index page) {
    return numbers.try_emplace({of.layer, of.head, page}, static_cast<index>(numbers.size())).first->second;
  }
};

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
  bool read_pages(std::istream& words, index& first, index& last) const {
    if (!(words >> first)) return false;
    last = first;
    if (words.peek() == '-') words.ignore() >> last;
    if (first < 0 || last < first || last >= zoomr::unlimited) fail("no such pages");
    return true;
  }
  void read_segment(std::istream& words) {
    std::string name;
    index id = 0, first = 0, last = 0;
    if (!(words >> name >> id) || !read_pages(words, first, last)) fail("a line is \"segment ID N-N\"");
    made_.segments[id] = {first, last, made_.readings.size()};
  }
  void read_choice(std::istream& words) {
    std::string word;
    words >> word;
    read_reader(words);  // the one that reads next
    for (std::vector<index>* into = &next_.chosen; words >> word;) {
      if (word == "|") {
        into = &next_.runners_up;
      } else {
        const auto id = decode::whole_number<index>(word, 0, zoomr::unlimited);
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
    for (index first = 0, last = 0; read_pages(words, first, last);) {
      for (index page = first; page <= last; ++page) read.blocks.push_back(made_.number(read.who, page));
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
inline std::vector<index> sizes_up_to(index all) {
  std::vector<index> sizes;
  for (index slots = pool::least_slots; slots < all; slots += std::max(1, slots / 8)) sizes.push_back(slots);
  sizes.push_back(std::max(all, pool::least_slots));
  return sizes;
}

/// The sizes after the file on a command line; all that matter if there are none.
/// @throws decode::input_error
inline std::vector<index> sizes_of(int argc, char** argv, index all) {
  std::vector<index> sizes;
  for (int a = 2; a < argc; ++a) {
    const auto slots = decode::whole_number<index>(argv[a], pool::least_slots, zoomr::unlimited);
    if (!slots) decode::fail("SLOTS ", decode::wrong_number(argv[a], pool::least_slots, zoomr::unlimited));
    sizes.push_back(*slots);
  }
  return sizes.empty() ? sizes_up_to(all) : sizes;
}

}  // namespace tier_trace
