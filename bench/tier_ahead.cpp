// SPDX-License-Identifier: Apache-2.0
// Would it help to bring what the next choice is likely to take? Replays what `zoomr-decode --trace-pages FILE` has
// written on devices of many sizes. After each choice a predictor names segments, and what is not there of them comes,
// into empty slots and those whose blocks their layer has passed over. Prints lines of comma-separated values;
// tier_hits.py draws them.
#include <algorithm>  // std::find, std::max, std::min
#include <iostream>   // std::cout
#include <map>        // std::map
#include <string>     // std::string
#include <vector>     // std::vector

#include "../examples/decode/output.hpp"
#include "tier_trace.hpp"

namespace {

using tier_trace::choice, tier_trace::pool, tier_trace::reader, tier_trace::reading, tier_trace::trace;
using zoomr::index;

bool has(const std::vector<index>& ids, index id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); }

/// The choices of one reader: those made so far, the newest last, and the one that comes next.
struct known {
  const std::vector<const choice*>& made;
  const choice* next;
};

/// Segments that may be chosen next time, likeliest first.
using predictor = std::vector<index> (*)(const known&);

std::vector<index> nothing(const known&) { return {}; }

template <std::size_t Count>
std::vector<index> runners_up(const known& of) {
  const std::vector<index>& all = of.made.back()->runners_up;
  return {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(std::min(Count, all.size()))};
}

std::vector<index> neighbours(const known& of) {
  std::vector<index> made;
  for (const index id : of.made.back()->chosen) {
    for (const index beside : {id + 1, id - 1}) {
      if (!has(of.made.back()->chosen, beside) && !has(made, beside)) made.push_back(beside);
    }
  }
  return made;
}

/// Chosen at one of the last `Choices`, but not at the very last.
template <std::size_t Choices>
std::vector<index> lately_chosen(const known& of) {
  std::vector<index> made;
  for (std::size_t back = 1; back < std::min(Choices, of.made.size()); ++back) {
    for (const index id : of.made[of.made.size() - 1 - back]->chosen) {
      if (!has(of.made.back()->chosen, id) && !has(made, id)) made.push_back(id);
    }
  }
  return made;
}

/// What no predictor can beat.
std::vector<index> next_choice(const known& of) { return of.next == nullptr ? std::vector<index>{} : of.next->chosen; }

struct entry {
  const char* name;
  predictor predicts;
};
constexpr entry predictors[] = {{"nothing", nothing},
                                {"runners_up_1", runners_up<1>},
                                {"runners_up_4", runners_up<4>},
                                {"runners_up_16", runners_up<16>},
                                {"neighbours", neighbours},
                                {"lately_chosen_8", lately_chosen<8>},
                                {"layer_before", nullptr},  // what it has just chosen comes for the next layer
                                {"next_choice", next_choice}};

/// A device with the order farthest_use, asked as tiered_pool asks it.
class device {
 public:
  device(const trace& of, index slots)
      : layers_(of.layers),
        order_(slots, of.layers),
        slot_of_(static_cast<std::size_t>(of.blocks()), -1),
        slots_(static_cast<std::size_t>(slots)),
        recent_(pool::guarded, -1) {}

  void read(const reading& one) {
    if (one.begins_pass) order_.begin_pass(), ++pass_;
    const bool chosen_anew = one.first_served.made();
    for (const index block : one.blocks) {
      if (slot_of(block) >= 0) touch(slot_of(block));
    }
    for (const index block : one.blocks) {
      const bool here = slot_of(block) >= 0;
      if (!here) enter(block, empty_slot());
      slot& at = slots_[static_cast<std::size_t>(slot_of(block))];
      if (here && at.ahead) ++used;
      at.ahead = false;
      touch(slot_of(block));
      recent_[turn_++ % recent_.size()] = slot_of(block);
      (here ? hits : misses) += 1;
      if (chosen_anew) (here ? hits_after_choices : misses_after_choices) += 1;
    }
  }

  /// Brings a block, unless it is here.
  /// @return  false if all slots hold what is likelier to be read
  bool bring(index block) {
    if (slot_of(block) >= 0) return true;
    if (filled_ == slots_.size()) {
      const index goes = victim();
      if (goes < 0 || slots_[static_cast<std::size_t>(goes)].pass + layers_ >= pass_) return false;
    }
    enter(block, empty_slot());
    slots_[static_cast<std::size_t>(slot_of(block))].ahead = true;
    order_.expect(slot_of(block));
    slots_[static_cast<std::size_t>(slot_of(block))].pass = pass_ + 1;
    ++brought;
    return true;
  }

  std::int64_t hits = 0, misses = 0;
  std::int64_t hits_after_choices = 0, misses_after_choices = 0;  // of readings that a choice serves first
  std::int64_t brought = 0, used = 0;                             // ahead of their reading

 private:
  struct slot {
    index block = -1;
    std::int64_t pass = 0;  // of its last use
    bool ahead = false;     // it was brought, and not read yet
  };
  index& slot_of(index block) { return slot_of_[static_cast<std::size_t>(block)]; }
  void touch(index at) {
    order_.touch(at);
    slots_[static_cast<std::size_t>(at)].pass = pass_;
  }
  index victim() const {
    return order_.victim([&](index at) { return std::find(recent_.begin(), recent_.end(), at) == recent_.end(); });
  }
  index empty_slot() {
    if (filled_ < slots_.size()) return static_cast<index>(filled_++);
    const index at = victim();
    slot_of(slots_[static_cast<std::size_t>(at)].block) = -1;
    order_.forget(at);
    return at;
  }
  void enter(index block, index at) {
    slots_[static_cast<std::size_t>(at)] = {block, 0, false};
    slot_of(block) = at;
  }

  index layers_;
  zoomr::farthest_use order_;
  std::vector<index> slot_of_;
  std::vector<slot> slots_;
  std::size_t filled_ = 0;
  std::vector<index> recent_;
  std::size_t turn_ = 0;
  std::int64_t pass_ = 0;
};

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

device replay(trace& of, const std::vector<const choice*>& next, index slots, predictor predicts) {
  device made(of, slots);
  std::map<reader, std::vector<const choice*>> choices;
  const auto bring = [&](std::size_t i, reader who, const std::vector<index>& ids) {
    for (const index id : ids) {
      const auto segment = of.segments.find(id);
      if (segment == of.segments.end() || segment->second.known_from > i) continue;
      for (index page = segment->second.first; page <= segment->second.last; ++page) {
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
      for (index page = pages.first; page <= pages.last; ++page) of.number(who, page);
    }
  }
  std::cout << "ahead,slots,bytes,hit_rate,hit_rate_after_choices,fetched_per_pass_of_all_layers,"
               "wasted_per_pass_of_all_layers\n";
  for (const index slots : sizes) {
    for (const entry& each : predictors) {
      const device made = replay(of, next, slots, each.predicts);
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
