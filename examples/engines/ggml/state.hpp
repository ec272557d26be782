// SPDX-License-Identifier: Apache-2.0
// A sequence as bytes in memory: what zoomr saves. The positions that the engine has given to its tokens are in it.
#pragma once

#include <algorithm>  // std::min
#include <cstring>    // std::memcpy

#include "sequences.hpp"

namespace adaptor {

class memory_sink final : public zoomr::byte_sink {
 public:
  memory_sink(void* to, std::size_t size) : to_(static_cast<char*>(to)), left_(size) {}
  void write(const void* from, zoomr::byte_count bytes) override {
    const auto size = static_cast<std::size_t>(bytes);
    if (size > left_) throw refusal("state_get: there are fewer bytes than state_size says");
    std::memcpy(to_, from, size);
    to_ += size, left_ -= size;
  }
  std::size_t left() const { return left_; }

 private:
  char* to_;
  std::size_t left_;
};

class memory_source final : public zoomr::byte_source {
 public:
  memory_source(const void* from, std::size_t size) : from_(static_cast<const char*>(from)), left_(size) {}
  zoomr::byte_count read(void* to, zoomr::byte_count bytes) override {
    const std::size_t size = (std::min)(left_, static_cast<std::size_t>(bytes));
    std::memcpy(to, from_, size);
    from_ += size, left_ -= size;
    return static_cast<zoomr::byte_count>(size);
  }
  std::size_t left() const { return left_; }

 private:
  const char* from_;
  std::size_t left_;
};

/// The positions of a sequence's tokens, as zoomr has saved them: under its checksum, with the rest.
inline std::vector<std::int32_t> positions_of(const cache& in, zoomr::sequence seq) {
  std::vector<std::int32_t> positions;
  for (index_t token = 0; token < in.tokens(seq); ++token) positions.push_back(in.model_position(seq, token));
  return positions;
}

}  // namespace adaptor
