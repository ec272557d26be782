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

/// A stretch of a saved sequence: a section of it, or what is in one.
struct saved_part {
  std::string kind;
  std::size_t begin = 0;
  std::size_t length = 0;

  std::size_t end() const { return begin + length; }
};

/// As many sections as the bytes have whole, each between its length and its checksum.
inline std::vector<saved_part> sections_of(const saved_bytes& bytes) {
  std::vector<saved_part> made;
  for (std::size_t at = 16; at + 16 <= bytes.size();) {
    const auto length = number_at<std::uint64_t>(bytes, at);
    if (length > bytes.size() - at - 16) break;
    made.push_back({"", at + 8, static_cast<std::size_t>(length)});
    at = made.back().end() + 8;
  }
  return made;
}

/// What is in the sections, found by what docs/sequence_format.md says, by no code of the library.
inline std::vector<saved_part> parts_of(const saved_bytes& bytes) {
  std::vector<saved_part> made;
  std::size_t at = 0;
  const auto part = [&](const char* kind, std::size_t length) { made.push_back({kind, at, length}), at += length; };
  const auto number = [&](std::size_t further) {
    return static_cast<std::size_t>(number_at<std::int32_t>(bytes, at + further));
  };
  const std::vector<saved_part> sections = sections_of(bytes);

  at = sections.at(0).begin;
  const std::size_t layers = number(0), heads = number(4), kv_heads = number(8), width = number(12);
  const std::size_t value_width = number(20) == 1 ? 0 : number(16);
  const std::string type(reinterpret_cast<const char*>(bytes.data() + at + 24));
  const std::size_t of_keys = 4 + 4 * number(40), of_values = 4 + 4 * number(40 + of_keys);
  part("model", 40 + of_keys + of_values + 28);
  part("policy", 8 + static_cast<std::size_t>(number_at<std::int64_t>(bytes, at)));
  const std::size_t tokens = number(0), kept = number(8), compacted_end = number(12), lanes = layers * kv_heads;
  part("counts", 172);

  at = sections.at(1).begin;
  part("classes", 2 * tokens);
  part("later", 4 + 8 * number(0));
  part("moved", 4 + 8 * number(0));
  part("kept", 4 * lanes * kept);
  const std::size_t slots = kept > 0 ? kept + tokens - compacted_end : tokens;
  std::size_t size = 0, scales = 0;
  zoomr::for_each_type(zoomr::number_types{}, [&]<class T>() {
    if (type != zoomr::storage_name<T>()) return;
    size = sizeof(T);
    if (zoomr::scales_rows<T>) scales = value_width > 0 ? 8 : 4;
  });
  while (at < sections.at(1).end()) {
    const std::size_t rows = std::min<std::size_t>(16, slots - 16 * number(0));
    part("page", 4 + lanes * rows * (size * (width + value_width) + scales));
  }

  at = sections.at(2).begin;
  const std::size_t record = 4 * layers * heads * width;
  part("sums", 4 + 4 * layers * heads * number(0));
  const std::size_t voters = number(0);
  part("prompted", 12 + 4 * voters + (voters > 0 ? 4 * voters * width : record) * number(8 + 4 * voters));
  part("questions", 8 + (4 + 4 * voters * width) * number(4));
  part("noted", 8 + record * number(4));
  part("records", 12 + record * number(4));
  part("choices", sections.at(2).end() - at);
  return made;
}
inline saved_part part_of(const saved_bytes& bytes, const std::string& kind) {
  for (const saved_part& one : parts_of(bytes)) {
    if (one.kind == kind) return one;
  }
  throw std::logic_error("there is no part " + kind);
}

/// Gives all sections the checksum that belongs to what is before it now, as who damages files on purpose does. It is
/// computed as docs/sequence_format.md says, by no code of the library.
inline void reseal(saved_bytes& bytes) {
  constexpr std::uint64_t odd = 0x9e3779b97f4a7c15u;
  std::uint64_t sum = odd;
  std::size_t taken = 0;
  const auto with = [&](std::uint64_t before, std::size_t at, std::size_t count) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, count);
    before = (before ^ word) * odd;
    return before ^ before >> 29;
  };
  for (const saved_part& section : sections_of(bytes)) {
    for (; taken + 8 <= section.end(); taken += 8) sum = with(sum, taken, 8);
    const std::size_t left = section.end() - taken;
    put_at(bytes, section.end(), left > 0 ? with(sum, taken, left) : sum);
  }
}

}  // namespace zoomr_test
