// SPDX-License-Identifier: Apache-2.0
// L6. What a saved sequence is made of: a few sections under one checksum, which stands after each of them, as far as
// the file has come. Numbers are little-endian on any machine. docs/sequence_format.md describes every byte.
//
// A checksum finds what disks do to bytes, not what people do: whoever reads a number checks it before it is used.
#pragma once

#include <zoomr/core/bytes.hpp>
#include <zoomr/core/error.hpp>

#include <cstdint>  // std::uint64_t
#include <string>   // std::string

namespace zoomr::inline v0::detail {

/// Refuses a file, with the reason.
[[noreturn]] inline void refuse_file(const std::string& reason) { raise(errc::format, "load: " + reason); }

inline constexpr char sequence_magic[] = {'z', 'o', 'o', 'm', 'r', 's', 'e', 'q'};
inline constexpr char groups_magic[] = {'z', 'o', 'o', 'm',
                                        'r', 'g', 'r', 'p'};  // one for each group of layers follows
inline constexpr char kv_head_groups_magic[] = {'z', 'o', 'o', 'm', 'r', 'g', 'k', 'v'};
inline constexpr std::uint64_t sequence_version = 11;

/// Working memory of a writer or reader.
struct section_memory {
  static constexpr byte_count size = 4096;
  unsigned char at[size];
};

}  // namespace zoomr::inline v0::detail
