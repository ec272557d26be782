// SPDX-License-Identifier: Apache-2.0
// L3. One transfer of a block, and which ones have failed.
#pragma once

#include <zoomr/tier/block_file.hpp>

#include <algorithm>  // std::binary_search

namespace zoomr {
inline namespace v0 {

/// A transfer that was started, counted from 1; 0: none.
using ticket = std::uint64_t;

/// One block from memory or a file to memory or a file.
struct transfer {
  const void* from = nullptr;  // nullptr: block `block` of the file
  void* to = nullptr;          // nullptr: block `block` of the file
  byte_count bytes = 0;
  block_file* file = nullptr;
  std::int64_t block = 0;
  ticket after = 0;  // if that one has failed, this one fails too
};

/// @return  false if it has failed
inline bool moved(const transfer& one) {
  try {
    if (one.from == nullptr) {
      one.file->read(one.block, one.to);
    } else if (one.to == nullptr) {
      one.file->write(one.block, one.from);
    } else {
      std::memcpy(one.to, one.from, static_cast<std::size_t>(one.bytes));
    }
    return true;
  } catch (...) {  // it cannot be made; or memory ran out while an error was put into words
    return false;
  }
}

/// The failures so far. When there are very many, older transfers count as failed too: whoever asks makes them again.
class failed_tickets {
 public:
  failed_tickets() { failed_.reserve(1024); }
  void add(ticket of) {  // later ones have higher numbers
    if (failed_.size() == failed_.capacity()) {
      all_until_ = of;
      failed_.clear();
    } else {
      failed_.push_back(of);
    }
  }
  /// Of a ticket that is done; 0 has not failed.
  bool has(ticket of) const {
    return of != 0 && (of <= all_until_ || std::binary_search(failed_.begin(), failed_.end(), of));
  }

 private:
  std::vector<ticket> failed_;
  ticket all_until_ = 0;
};

}  // namespace v0
}  // namespace zoomr
