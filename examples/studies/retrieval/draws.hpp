// SPDX-License-Identifier: Apache-2.0
// Draws that are the same on every machine: the distributions of <random> are not.
#pragma once

#include <cstddef>  // std::size_t
#include <numeric>  // std::iota
#include <random>   // std::mt19937_64
#include <string>   // std::string
#include <utility>  // std::swap
#include <vector>   // std::vector

namespace decode::retrieval {

using dice = std::mt19937_64;

/// In [0, end).
inline std::size_t below(std::size_t end, dice& random) { return static_cast<std::size_t>(random() % end); }

/// `count` different numbers below `all`, in any order.
inline std::vector<std::size_t> some_of(std::size_t all, std::size_t count, dice& random) {
  std::vector<std::size_t> ids(all);
  std::iota(ids.begin(), ids.end(), std::size_t{0});
  for (std::size_t i = 0; i < count; ++i) std::swap(ids[i], ids[i + below(all - i, random)]);
  ids.resize(count);
  return ids;
}

/// Different numbers below `all`, of which `first` is the first and the others are drawn; as many as there are.
inline std::vector<std::size_t> begun_with(std::size_t first, std::size_t all, std::size_t count, dice& random) {
  std::vector<std::size_t> ids = {first};
  if (count == 1) return ids;
  for (const std::size_t other : some_of(all, all, random)) {
    if (other != first && ids.size() < count) ids.push_back(other);
  }
  return ids;
}

/// A number of so many digits, the first of which is not 0.
inline std::string digits(std::size_t count, dice& random) {
  std::string number(1, static_cast<char>('1' + below(9, random)));
  while (number.size() < count) number += static_cast<char>('0' + below(10, random));
  return number;
}

}  // namespace decode::retrieval
