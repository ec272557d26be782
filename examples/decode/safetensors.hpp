// SPDX-License-Identifier: Apache-2.0
// The safetensors format: 8 bytes of length (little endian), that many bytes of JSON
//   {"name": {"dtype": "BF16", "shape": [rows, columns], "data_offsets": [begin, end]}, …}
// and the tensors side by side. Offsets count from the end of the JSON. A header is believed only
// where it agrees with the size of the file: offsets must tile the rest of it, without hole or
// overlap, and each tensor's bytes must be the product of its shape.
#pragma once

#include <cstddef>     // std::size_t
#include <cstdint>     // std::uint64_t
#include <filesystem>  // std::filesystem::path
#include <map>         // std::map
#include <memory>      // std::shared_ptr
#include <string>      // std::string
#include <vector>      // std::vector

#include "json_file.hpp"
#include "matrix.hpp"

namespace decode {

/// "[4, 8]".
std::string shown(const std::vector<std::size_t>& shape);

/// Where one tensor lies. Its extents multiply to `bytes` without overflow: checked on reading.
struct tensor_place {
  std::filesystem::path file;
  std::string dtype;
  std::vector<std::size_t> shape;
  std::uint64_t begin = 0;  // bytes from the beginning of the file
  std::uint64_t bytes = 0;
};

/// The tensors of a checkpoint directory, one file or many with an index; or of a single file.
class safetensors {
 public:
  explicit safetensors(const std::filesystem::path& directory);
  /// One file alone.
  /// @param metadata  out: the strings that its header has beside the tensors, by name
  safetensors(const std::filesystem::path& file, std::map<std::string, std::string>& metadata);

  const std::map<std::string, tensor_place>& tensors() const { return tensors_; }

  /// One tensor as it is stored, row-major. It stays in its file (mapped_file.hpp), unless the file has it at an odd
  /// place for its type, or cannot be mapped: then it is copied.
  ///
  /// @param shape  what it must have
  /// @throws       input_error: no such tensor, another shape, another type, a NaN or infinity
  stored load(const std::string& name, const std::vector<std::size_t>& shape) const;

 private:
  void add_file(const std::filesystem::path& path, std::map<std::string, std::string>* metadata = nullptr);
  void add_tensors(const json& header, const std::filesystem::path& path, std::uint64_t data, std::uint64_t size);
  static tensor_place read_place(const field& entry, std::uint64_t data, std::uint64_t size);
  void add_shards(const std::filesystem::path& index_file);
  template <class T>
  stored_numbers<T> read(const tensor_place& place, const std::string& where) const;

  std::map<std::string, tensor_place> tensors_;
  std::string source_;  // the file that a missing tensor is missing from
  mutable std::map<std::filesystem::path, std::shared_ptr<const mapped_file>> mapped_;  // once tensors are read
};

}  // namespace decode
