// SPDX-License-Identifier: Apache-2.0
// How often a device of some size has what is read: replays what `zoomr-decode --trace-pages FILE` has written, for
// each order of replacement and many sizes. Prints lines of comma-separated values; tier_hits.py draws them.
#include <algorithm>  // std::find, std::max
#include <iostream>   // std::cout
#include <set>        // std::set
#include <utility>    // std::pair
#include <vector>     // std::vector

#include "../../examples/decode/output.hpp"
#include "trace_file.hpp"

namespace {

using tier_trace::pool, tier_trace::reading, tier_trace::trace;
using zoomr::index_t;

/// Visits that find their block, when `slots` blocks have room; as tiered_pool asks an order.
template <zoomr::replacement Order>
std::int64_t hits(const trace& of, index_t slots) {
  Order order(slots, of.layers);
  std::vector<index_t> slot_of(static_cast<std::size_t>(of.blocks()), -1);
  std::vector<index_t> block_in(static_cast<std::size_t>(slots), -1);
  index_t used = 0;
  std::int64_t found = 0;
  std::vector<index_t> recent(pool::guarded, -1);
  index_t turn = 0;
  for (const reading& read : of.readings) {
    if (read.begins_pass) order.begin_pass();
    for (const index_t block : read.blocks) {
      if (slot_of[static_cast<std::size_t>(block)] >= 0) order.touch(slot_of[static_cast<std::size_t>(block)]);
    }
    for (const index_t block : read.blocks) {
      index_t& slot = slot_of[static_cast<std::size_t>(block)];
      if (slot >= 0) {
        ++found;
      } else if (used < slots) {
        slot = used++;
      } else {
        slot = order.victim([&](index_t at) { return std::find(recent.begin(), recent.end(), at) == recent.end(); });
        slot_of[static_cast<std::size_t>(block_in[static_cast<std::size_t>(slot)])] = -1;
        order.forget(slot);
      }
      block_in[static_cast<std::size_t>(slot)] = block;
      order.touch(slot);
      recent[static_cast<std::size_t>(turn++ % pool::guarded)] = slot;
    }
  }
  return found;
}

/// The same if the future were known: what is used again last goes.
std::int64_t most_hits(const trace& of, index_t slots) {
  std::vector<std::int64_t> next(static_cast<std::size_t>(of.visits));  // visit of the same block
  std::vector<std::int64_t> soonest(static_cast<std::size_t>(of.blocks()), of.visits);
  std::vector<index_t> visited;
  visited.reserve(next.size());
  for (const reading& read : of.readings) visited.insert(visited.end(), read.blocks.begin(), read.blocks.end());
  for (std::size_t v = visited.size(); v-- > 0;) {
    std::int64_t& later = soonest[static_cast<std::size_t>(visited[v])];
    next[v] = later;
    later = static_cast<std::int64_t>(v);
  }
  std::set<std::pair<std::int64_t, index_t>> held;  // by their next visits
  std::int64_t found = 0;
  for (std::size_t v = 0; v < visited.size(); ++v) {
    if (held.erase({static_cast<std::int64_t>(v), visited[v]}) > 0) {
      ++found;
    } else if (static_cast<index_t>(held.size()) == slots) {
      held.erase(std::prev(held.end()));
    }
    held.insert({next[v], visited[v]});
  }
  return found;
}

int run(int argc, char** argv) {
  if (argc < 2) decode::fail("usage: tier_hits FILE [SLOTS ...]");
  const trace of = tier_trace::trace_file(argv[1]).read();
  const auto sizes = tier_trace::sizes_of(argc, argv, of.blocks());
  std::cout << "order,slots,bytes,hit_rate,fetched_per_pass_of_all_layers\n";
  const auto print = [&](const char* order, index_t slots, std::int64_t found) {
    std::cout << order << ',' << slots << ',' << slots * of.block_bytes << ','
              << static_cast<double>(found) / static_cast<double>(std::max<std::int64_t>(of.visits, 1)) << ','
              << static_cast<double>(of.visits - found) / std::max(of.circles(), 1.0) << '\n';
  };
  for (const index_t slots : sizes) {
    print("lru", slots, hits<zoomr::lru>(of, slots));
    print("lfu", slots, hits<zoomr::lfu>(of, slots));
    print("cyclic_mru", slots, hits<zoomr::cyclic_mru>(of, slots));
    print("future_known", slots, most_hits(of, slots));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return decode::run_program("tier_hits", [&] { return run(argc, argv); });
}
