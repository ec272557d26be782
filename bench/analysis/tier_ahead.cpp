// SPDX-License-Identifier: Apache-2.0
// Would it help to bring what the next choice is likely to take? Replays what `zoomr-decode --trace-pages FILE` has
// written on devices of many sizes. After each choice a predictor names segments, and what is not there of them comes,
// into empty slots and those whose blocks their layer has passed over. Prints lines of comma-separated values;
// tier_hits.py draws them.
#include <iostream>  // std::cout
#include <map>       // std::map
#include <utility>   // std::exchange
#include <vector>    // std::vector

#include "../../examples/decode/output.hpp"
#include "foreseeing_device.hpp"
#include "predictors.hpp"
#include "trace_file.hpp"

namespace {

using namespace tier_trace;

/// For each reading that a choice serves first: that of its reader's next choice.
std::vector<const choice*> next_choices(const trace& of) {
  std::vector<const choice*> next(of.readings.size(), nullptr);
  std::map<reader, const choice*> soonest;
  for (std::size_t i = of.readings.size(); i-- > 0;) {
    if (!of.readings[i].first_served.made()) continue;
    const choice*& later = soonest.try_emplace(of.readings[i].who, nullptr).first->second;
    next[i] = std::exchange(later, &of.readings[i].first_served);
  }
  return next;
}

foreseeing_device replay(trace& of, const std::vector<const choice*>& next, index_t slots, predictor predicts) {
  foreseeing_device made(of, slots);
  std::map<reader, std::vector<const choice*>> choices;
  const auto bring = [&](std::size_t i, reader who, const std::vector<index_t>& ids) {
    for (const index_t id : ids) {
      const auto segment = of.segments.find(id);
      if (segment == of.segments.end() || segment->second.known_from > i) continue;
      for (index_t page = segment->second.first; page <= segment->second.last; ++page) {
        if (!made.bring(of.number(who, page))) return;
      }
    }
  };
  for (std::size_t i = 0; i < of.readings.size(); ++i) {
    const reading& one = of.readings[i];
    made.read(one);
    if (!one.first_served.made()) continue;
    std::vector<const choice*>& its = choices[one.who];
    its.push_back(&one.first_served);
    if (predicts != nullptr) {
      bring(i, one.who, predicts({its, next[i]}));
    } else if (one.who.layer + 1 < of.layers) {
      bring(i, {one.who.layer + 1, one.who.head}, one.first_served.chosen);
    }
  }
  return made;
}

double share(std::int64_t part, std::int64_t rest) {
  return static_cast<double>(part) / static_cast<double>(std::max<std::int64_t>(part + rest, 1));
}

int run(int argc, char** argv) {
  if (argc < 2) decode::fail("usage: tier_ahead FILE [SLOTS ...]");
  trace of = tier_trace::trace_file(argv[1]).read();
  const auto sizes = tier_trace::sizes_of(argc, argv, of.blocks());
  const auto next = next_choices(of);
  std::map<reader, bool> readers;
  for (const reading& one : of.readings) readers[one.who] = true;
  for (const auto& [who, reads] : readers) {  // blocks that only a predictor would bring
    for (const auto& [id, pages] : of.segments) {
      for (index_t page = pages.first; page <= pages.last; ++page) of.number(who, page);
    }
  }
  std::cout << "ahead,slots,bytes,hit_rate,hit_rate_after_choices,fetched_per_pass_of_all_layers,"
               "wasted_per_pass_of_all_layers\n";
  for (const index_t slots : sizes) {
    for (const entry& each : predictors) {
      const foreseeing_device made = replay(of, next, slots, each.predicts);
      const double circles = std::max(of.circles(), 1.0);
      std::cout << each.name << ',' << slots << ',' << slots * of.block_bytes << ',' << share(made.hits, made.misses)
                << ',' << share(made.hits_after_choices, made.misses_after_choices) << ','
                << static_cast<double>(made.misses + made.brought) / circles << ','
                << static_cast<double>(made.brought - made.used) / circles << '\n';
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return decode::run_program("tier_ahead", [&] { return run(argc, argv); });
}
