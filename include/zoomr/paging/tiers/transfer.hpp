// SPDX-License-Identifier: Apache-2.0
// L3. One transfer of a block, and which ones have failed. Transfers are plain data in a queue; whoever makes one needs
// no memory for it, and reports a failure as plain data too (block_fault).
#pragma once

#include <zoomr/paging/block_file.hpp>

#include <algorithm>  // std::lower_bound

namespace zoomr::inline v0 {

/// A transfer that was started, counted from 1; 0: none.
using ticket = std::uint64_t;

/// One block between memory and a file. Nothing else may use the memory until it is made; the owner of the frames sees
/// to that (tiered_blocks).
struct transfer {
  block_file* file = nullptr;
  std::int64_t block = 0;
  void* memory = nullptr;
  bool writes = false;  // to the file; false: from it
};

/// Makes a transfer in the calling thread.
/// @return  what went wrong, or nothing
inline block_fault move_one(const transfer& moved) {
  return moved.writes ? moved.file->try_write(moved.block, moved.memory)
                      : moved.file->try_read(moved.block, moved.memory);
}

/// The failures so far, and why. When there are very many, older transfers count as failed too, for the reason of the
/// last of them: whoever needs them makes them again.
class failed_tickets {
 public:
  failed_tickets() { failed_.reserve(1024); }
  void add(ticket number, const block_fault& fault = {}) {  // later ones have higher numbers
    if (failed_.size() == failed_.capacity()) {
      until_ = {number, fault};
      failed_.clear();
    } else {
      failed_.push_back({number, fault});
    }
  }
  /// Of a ticket that is done; 0 has not failed.
  bool has(ticket number) const { return number != 0 && (number <= until_.number || find(number) != failed_.end()); }
  /// Of one that has failed.
  block_fault why(ticket number) const {
    if (number <= until_.number) return until_.why;
    const auto at = find(number);
    return at == failed_.end() ? block_fault{} : at->why;
  }

 private:
  struct failure {
    ticket number = 0;
    block_fault why;
  };
  std::vector<failure>::const_iterator find(ticket number) const {
    const auto at = std::lower_bound(failed_.begin(), failed_.end(), number,
                                     [](const failure& each, ticket sought) { return each.number < sought; });
    return at != failed_.end() && at->number == number ? at : failed_.end();
  }

  std::vector<failure> failed_;
  failure until_;  // this one and all before it
};

}  // namespace zoomr::inline v0
