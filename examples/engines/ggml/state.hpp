// SPDX-License-Identifier: Apache-2.0
// A sequence as bytes in memory: the positions that the engine has given to its tokens, and what zoomr saves.
#pragma once

#include <algorithm>  // std::min
#include <bit>        // std::endian
#include <cstring>    // std::memcpy, std::memcmp

#include "sequences.hpp"

namespace adaptor {

static_assert(std::endian::native == std::endian::little, "positions are saved as they lie in memory");

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

/// What comes before zoomr's bytes.
struct state_header {
  char magic[8] = {'z', 'o', 'o', 'm', 'r', 'g', 'g', '1'};
  std::uint64_t tokens = 0;
};

/// @pre  s is settled
inline std::size_t state_bytes(cache& in, const held_sequence& s) {
  return sizeof(state_header) + s.positions.size() * sizeof(std::int32_t) +
         static_cast<std::size_t>(in.save_bytes(s.handle));
}

inline void write_state(cache& in, const held_sequence& s, memory_sink& to) {
  state_header header;
  header.tokens = s.positions.size();
  to.write(&header, sizeof header);
  to.write(s.positions.data(), static_cast<zoomr::byte_count>(s.positions.size() * sizeof(std::int32_t)));
  in.save(s.handle, to);
}

/// @throws refusal where these are no such bytes
inline std::vector<std::int32_t> read_positions(memory_source& from) {
  state_header header;
  const state_header expected;
  const bool whole = from.read(&header, sizeof header) == sizeof header;
  if (!whole || std::memcmp(header.magic, expected.magic, sizeof header.magic) != 0) {
    throw refusal("state_set: these are not the bytes of a state");
  }
  if (header.tokens > from.left() / sizeof(std::int32_t)) throw refusal("state_set: the state is cut off");
  std::vector<std::int32_t> positions(static_cast<std::size_t>(header.tokens));
  from.read(positions.data(), static_cast<zoomr::byte_count>(positions.size() * sizeof(std::int32_t)));
  if (!std::is_sorted(positions.begin(), positions.end())) throw refusal("state_set: the state is damaged");
  return positions;
}

}  // namespace adaptor
