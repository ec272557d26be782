// SPDX-License-Identifier: Apache-2.0
// How often a device of some size has what is read: replays what `zoomr-decode --trace-pages FILE` has written, for
// each order of replacement and many sizes. Prints lines of comma-separated values; tier_hits.py draws them.
#include <zoomr/tier/tiered_pool.hpp>

#include <algorithm>  // std::find, std::max, std::min
#include <array>      // std::array
#include <fstream>    // std::ifstream
#include <iostream>   // std::cout, std::cerr
#include <map>        // std::map
#include <set>        // std::set
#include <sstream>    // std::istringstream
#include <string>     // std::string
#include <utility>    // std::exchange, std::pair
#include <vector>     // std::vector

namespace {

using zoomr::index;
using pool = zoomr::tiered_pool<float, zoomr::farthest_use, zoomr::transfers_at_once>;  // for its rules

/// What one layer, or one KV head of it, reads when a token passes it.
struct reading {
  bool begins_pass = true;  // of a layer
  std::vector<index> blocks;
};

struct trace {
  index layers = 0;
  std::int64_t block_bytes = 0;
  index blocks = 0;  // different ones
  std::int64_t visits = 0;
  std::int64_t passes = 0;  // of a layer
  std::vector<reading> readings;
};

[[noreturn]] void fail(const std::string& path, std::size_t line, const char* what) {
  std::cerr << "tier_hits: " << path << ":" << line << ": " << what << '\n';
  std::exit(2);
}

/// Blocks are numbered as they come.
trace read(const std::string& path) {
  std::ifstream in(path);
  std::string line, pages, layers, bytes;
  trace made;
  std::getline(in, line);
  if (!(std::istringstream(line) >> pages >> made.layers >> layers >> made.block_bytes >> bytes) || pages != "pages" ||
      layers != "layers" || bytes != "bytes" || made.layers < 1 || made.block_bytes < 1) {
    fail(path, 1, "a trace begins with \"pages N layers N bytes\"");
  }
  std::map<std::array<index, 3>, index> numbers;  // of layer, KV head and page
  index layer = -1, head = -1;
  for (std::size_t count = 2; std::getline(in, line); ++count) {
    std::istringstream words(line);
    reading read;
    const index layer_before = std::exchange(layer, -1);
    const index head_before = std::exchange(head, 0);
    if (!(words >> layer) || layer < 0 || layer >= made.layers) fail(path, count, "no such layer");
    if (words.peek() == ':' && (!(words.ignore() >> head) || head < 0)) fail(path, count, "no such KV head");
    read.begins_pass = layer != layer_before || head <= head_before;
    index first = 0;
    while (words >> first) {
      index last = first;
      if (words.peek() == '-') words.ignore() >> last;
      if (first < 0 || last < first || last >= zoomr::unlimited) fail(path, count, "no such pages");
      for (index page = first; page <= last; ++page) {
        const auto number = static_cast<index>(numbers.size());
        read.blocks.push_back(numbers.try_emplace({layer, head, page}, number).first->second);
      }
    }
    if (!words.eof()) fail(path, count, "a line is a layer, or layer:head, and its pages, N or N-N");
    made.visits += static_cast<std::int64_t>(read.blocks.size());
    made.passes += read.begins_pass ? 1 : 0;
    made.readings.push_back(std::move(read));
  }
  made.blocks = static_cast<index>(numbers.size());
  return made;
}

/// Visits that find their block, when `slots` blocks have room; as tiered_pool asks an order.
template <zoomr::replacement Order>
std::int64_t hits(const trace& of, index slots) {
  Order order(slots, of.layers);
  std::vector<index> slot_of(static_cast<std::size_t>(of.blocks), -1);
  std::vector<index> block_in(static_cast<std::size_t>(slots), -1);
  index used = 0;
  std::int64_t found = 0;
  std::vector<index> recent(pool::guarded, -1);
  index turn = 0;
  for (const reading& read : of.readings) {
    if (read.begins_pass) order.begin_pass();
    for (const index block : read.blocks) {
      if (slot_of[static_cast<std::size_t>(block)] >= 0) order.touch(slot_of[static_cast<std::size_t>(block)]);
    }
    for (const index block : read.blocks) {
      index& slot = slot_of[static_cast<std::size_t>(block)];
      if (slot >= 0) {
        ++found;
      } else if (used < slots) {
        slot = used++;
      } else {
        slot = order.victim([&](index at) { return std::find(recent.begin(), recent.end(), at) == recent.end(); });
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
std::int64_t most_hits(const trace& of, index slots) {
  std::vector<std::int64_t> next(static_cast<std::size_t>(of.visits));  // visit of the same block
  std::vector<std::int64_t> soonest(static_cast<std::size_t>(of.blocks), of.visits);
  std::vector<index> visited;
  visited.reserve(next.size());
  for (const reading& read : of.readings) visited.insert(visited.end(), read.blocks.begin(), read.blocks.end());
  for (std::size_t v = visited.size(); v-- > 0;) {
    std::int64_t& later = soonest[static_cast<std::size_t>(visited[v])];
    next[v] = later;
    later = static_cast<std::int64_t>(v);
  }
  std::set<std::pair<std::int64_t, index>> held;  // by their next visits
  std::int64_t found = 0;
  for (std::size_t v = 0; v < visited.size(); ++v) {
    if (held.erase({static_cast<std::int64_t>(v), visited[v]}) > 0) {
      ++found;
    } else if (static_cast<index>(held.size()) == slots) {
      held.erase(std::prev(held.end()));
    }
    held.insert({next[v], visited[v]});
  }
  return found;
}

}  // namespace

int main(int argc, char** argv) {
  using zoomr::index;  // <strings.h> has one too
  if (argc < 2) {
    std::cerr << "tier_hits: usage: tier_hits FILE [SLOTS ...]\n";
    return 2;
  }
  const trace of = read(argv[1]);
  std::vector<index> sizes;
  for (int a = 2; a < argc; ++a) sizes.push_back(static_cast<index>(std::atoi(argv[a])));
  if (sizes.empty()) {
    for (index slots = pool::least_slots; slots < of.blocks; slots += std::max(1, slots / 8)) sizes.push_back(slots);
    sizes.push_back(std::max(of.blocks, pool::least_slots));
  }
  std::cout << "order,slots,bytes,hit_rate,fetched_per_pass_of_all_layers\n";
  const auto print = [&](const char* order, index slots, std::int64_t found) {
    const double circles = static_cast<double>(of.passes) / of.layers;
    std::cout << order << ',' << slots << ',' << slots * of.block_bytes << ','
              << static_cast<double>(found) / static_cast<double>(std::max<std::int64_t>(of.visits, 1)) << ','
              << static_cast<double>(of.visits - found) / std::max(circles, 1.0) << '\n';
  };
  for (const index slots : sizes) {
    if (slots < pool::least_slots) {
      std::cerr << "tier_hits: a device has at least " << pool::least_slots << " slots\n";
      return 2;
    }
    print("least_recent", slots, hits<zoomr::least_recent>(of, slots));
    print("least_frequent", slots, hits<zoomr::least_frequent>(of, slots));
    print("farthest_use", slots, hits<zoomr::farthest_use>(of, slots));
    print("future_known", slots, most_hits(of, slots));
  }
  return 0;
}
