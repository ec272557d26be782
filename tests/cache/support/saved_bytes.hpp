// SPDX-License-Identifier: Apache-2.0
// Saved sequences in memory: what takes and gives their bytes, and what changes some of them.
#pragma once

#include <zoomr/kv_cache.hpp>

#include <algorithm>  // std::copy_n, std::min
#include <cstring>    // std::memcpy
#include <string>     // std::string
#include <vector>     // std::vector

namespace zoomr_test {

using zoomr::byte_count;
using saved_bytes = std::vector<unsigned char>;

/// Keeps what is saved. It has room from the start, so that it allocates nothing.
class memory_sink final : public zoomr::byte_sink {
 public:
  memory_sink() { bytes.reserve(std::size_t{4} << 20); }
  void write(const void* from, byte_count count) override {
    const auto* first = static_cast<const unsigned char*>(from);
    bytes.insert(bytes.end(), first, first + count);
    largest = std::max(largest, count);
  }
  void finish() override { ++finished; }

  saved_bytes bytes;
  byte_count largest = 0;  // piece
  int finished = 0;
};

/// Gives the first bytes of what was saved.
class memory_source final : public zoomr::byte_source {
 public:
  explicit memory_source(const saved_bytes& from) : memory_source(from, from.size()) {}
  memory_source(const saved_bytes& from, std::size_t count) : from_(from), left(count) {}
  byte_count read(void* to, byte_count count) override {
    const std::size_t given = std::min(left, static_cast<std::size_t>(count));
    if (given > 0) std::memcpy(to, from_.data() + at_, given);
    at_ += given, left -= given;
    return static_cast<byte_count>(given);
  }

 private:
  const saved_bytes& from_;
  std::size_t at_ = 0;

 public:
  std::size_t left;
};

/// What a cache saves of a sequence.
template <class T, class Placement>
saved_bytes saved(zoomr::any_kv_cache<T, Placement>& cache, zoomr::sequence seq) {
  memory_sink sink;
  cache.save(seq, sink);
  return sink.bytes;
}

/// A section of a saved sequence, by what its header says.
struct saved_section {
  std::string kind;
  std::uint32_t number = 0;
  std::size_t contents = 0;  // where they begin
  std::size_t length = 0;
};

template <class Number>
Number number_at(const saved_bytes& bytes, std::size_t at) {
  Number made;
  std::memcpy(&made, bytes.data() + at, sizeof made);
  return made;
}
template <class Number>
void put_at(saved_bytes& bytes, std::size_t at, Number number) {
  std::memcpy(bytes.data() + at, &number, sizeof number);
}

inline std::vector<saved_section> sections_of(const saved_bytes& bytes) {
  std::vector<saved_section> made;
  for (std::size_t at = 16; at < bytes.size();) {
    saved_section one{std::string(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                                  bytes.begin() + static_cast<std::ptrdiff_t>(at) + 4),
                      number_at<std::uint32_t>(bytes, at + 4), at + 16,
                      static_cast<std::size_t>(number_at<std::uint64_t>(bytes, at + 8))};
    at = one.contents + one.length + 8;
    made.push_back(std::move(one));
  }
  return made;
}
inline saved_section section_of(const saved_bytes& bytes, const std::string& kind) {
  for (const saved_section& one : sections_of(bytes)) {
    if (one.kind == kind) return one;
  }
  throw std::logic_error("there is no section " + kind);
}

/// Gives a section the checksum that its contents have now, as who damages files on purpose does. It is computed as
/// docs/sequence_format.md says, by no code of the library.
inline void reseal(saved_bytes& bytes, const saved_section& of) {
  constexpr std::uint64_t odd = 0x9e3779b97f4a7c15u;
  std::uint64_t sum = odd ^ of.length;
  const auto take = [&](std::uint64_t word) {
    sum = (sum ^ word) * odd;
    sum ^= sum >> 29;
  };
  take(number_at<std::uint64_t>(bytes, of.contents - 16));
  for (std::size_t at = 0; at < of.length; at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + of.contents + at, std::min<std::size_t>(8, of.length - at));
    take(word);
  }
  put_at(bytes, of.contents + of.length, sum);
}

}  // namespace zoomr_test
