// SPDX-License-Identifier: Apache-2.0
// What happens to one cache in its life, at random, and what it must look like all the time.
#pragma once

#include <soak/subject.hpp>
#include <support/inputs.hpp>

#include <map>        // std::map
#include <set>        // std::set
#include <stdexcept>  // std::runtime_error

namespace soak {

/// A public call of a cache or a step, with arguments drawn at random, or one that is refused as a mistake.
enum class call {
  open,
  fork,    // in a new sequence, or in an open one
  reload,  // save, close, load
  twin,    // save, load beside it
  move,    // save all, load into another cache
  close,
  begin,
  append,
  attend,
  observe,
  again,
  commit,
  drop,
  rollback,
  erase,
  shift,
  look,      // tokens, segments, bytes and stats of a sequence
  mistaken,  // refused with a precondition_error
  count
};
inline constexpr const char* call_names[] = {"open",
                                             "fork",
                                             "reload",
                                             "twin",
                                             "move",
                                             "close",
                                             "begin",
                                             "append",
                                             "attend",
                                             "observe",
                                             "needs_second_pass",
                                             "commit",
                                             "drop",
                                             "rollback",
                                             "erase",
                                             "shift",
                                             "look",
                                             "mistaken"};

/// What all lives have seen.
struct votes_t {
  std::int64_t calls[static_cast<std::size_t>(call::count)] = {};  // of the caches under test, not of rebuilt ones
  std::map<std::string, std::int64_t> events;                      // what came of them

  std::int64_t operations() const {
    std::int64_t all = 0;
    for (const std::int64_t each : calls) all += each;
    return all;
  }
};

/// The cache is not what it must be.
class difference : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Where the pages of the cache under test lie.
enum class pages { resident, tiered, engine, groups };
inline constexpr const char* pages_names[] = {"resident", "tiered", "in an engine's pages", "in groups of layers"};

struct life_options {
  std::uint64_t seed = 1;
  std::int64_t operations = 2000;
  pages lie = pages::resident;
  std::set<std::string> without;  // what older headers do not know; see soak.cpp
};

/// Lives once.
/// @return  the life's sizes, in words
/// @throws difference
void live(const sort& of, const life_options& with, votes_t& all);

}  // namespace soak
