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

/// A number of so many digits, the first of which is not 0.
inline std::string digits(std::size_t count, dice& random) {
  std::string number(1, static_cast<char>('1' + below(9, random)));
  while (number.size() < count) number += static_cast<char>('0' + below(10, random));
  return number;
}

}  // namespace decode::retrieval
