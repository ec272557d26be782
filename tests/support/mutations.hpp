// SPDX-License-Identifier: Apache-2.0
// Tests of kernels in every order of threads and blocks, and tests of those tests: each barrier of a kernel is left out
// once, and somebody must notice. On a device both run the body once.
#pragma once

#include <zoomr/core/device/device.cuh>

#include <exception>  // std::exception
#include <ostream>    // std::ostream
#include <set>        // std::set
#include <stdexcept>  // std::logic_error
#include <string>     // std::string
#include <utility>    // std::exchange
#include <vector>     // std::vector

namespace zoomr_test {

/// Barriers as "file:line", without folders; a failed assertion shows them.
struct barrier_list : std::vector<std::string> {
  friend std::ostream& operator<<(std::ostream& out, const barrier_list& list) {
    for (const std::string& barrier : list) out << barrier << " ";
    return out;
  }
};

#if defined(ZOOMR_SIMT)

/// An order of threads and blocks, for people.
inline std::string name_of(const simt::settings& how) {
  const char* const names[] = {"forward", "reverse", "random", "any"};
  return std::string("threads ") + names[static_cast<int>(how.threads)] + ", blocks " +
         names[static_cast<int>(how.blocks)] + ", seed " + std::to_string(how.seed);
}

/// Orders that differ much: both directions, and some shuffles.
inline std::vector<simt::settings> some_orders() {
  using enum simt::order;
  return {{forward, forward, 1, {}}, {reverse, reverse, 1, {}}, {random, random, 1, {}},
          {random, forward, 2, {}},  {forward, random, 3, {}},  {random, reverse, 4, {}}};
}

/// Calls `body(name of the order)` under each of them.
template <class Body>
void in_all_orders(Body body) {
  for (const simt::settings& how : some_orders()) {
    const simt::scoped_settings until_then(how);
    body(name_of(how));
  }
}

/// Calls `body()` with the blocks of launches forward, in reverse and at random.
template <class Body>
void in_block_orders(Body body) {
  for (const simt::order blocks : {simt::order::forward, simt::order::reverse, simt::order::random}) {
    simt::settings how = simt::how;
    how.blocks = blocks;
    const simt::scoped_settings until_then(how);
    body();
  }
}

/// What became of a barrier that was left out.
struct left_out_barrier {
  std::string barrier;  // "file:line", without folders
  bool noticed;
  std::string by;  // the order in which it was noticed, and how: the fault, or a wrong result
};

/// Those that are passed until the end of a scope; afterwards simt::barriers_seen is as before.
class barriers_of_scope {
 public:
  barriers_of_scope() : before_(std::exchange(simt::barriers_seen, {})) {}
  barriers_of_scope(const barriers_of_scope&) = delete;
  barriers_of_scope& operator=(const barriers_of_scope&) = delete;
  ~barriers_of_scope() { simt::barriers_seen = std::move(before_); }

 private:
  std::set<std::string> before_;
};

/// The barriers that `body` passes in any of the orders.
template <class Body>
std::set<std::string> barriers_passed(Body& body) {
  const barriers_of_scope seen;
  in_all_orders([&](const std::string& order) {
    if (!body()) throw std::logic_error("with all barriers in place the result is wrong: " + order);
  });
  if (simt::barriers_seen.empty()) throw std::logic_error("no barrier is passed: there is nothing to leave out");
  return simt::barriers_seen;
}

/// Leaves one barrier out, in one order after the other until that is noticed.
template <class Body>
left_out_barrier leave_out(const std::string& barrier, Body& body) {
  const barriers_of_scope seen;
  for (simt::settings how : some_orders()) {
    how.without = barrier;
    how.streams = simt::schedule::early;  // a fault ends the body, whose memory later work would miss
    const simt::scoped_settings until_then(how);
    try {
      if (!body()) return {barrier, true, name_of(how) + ": a wrong result"};
    } catch (const std::exception& caught) {
      return {barrier, true, name_of(how) + ": " + caught.what()};
    }
  }
  return {barrier, false, {}};
}

/// Runs a test with all its barriers, then without each of them in turn.
///
/// @param body    body() launches kernels on data of its own and returns whether the results are right; it is called
///                many times, must not fail assertions itself, and must leave simt::how alone
/// @param report  report(left_out_barrier) is called for each barrier, in the order of their names
/// @throws        std::logic_error if the results are wrong with all barriers in place, or if there are no barriers
/// @cost          6 runs, and 1 to 6 for each barrier
template <class Body, class Report>
void for_each_barrier_left_out(Body body, Report report) {
  for (const std::string& barrier : barriers_passed(body)) report(leave_out(barrier, body));
}

/// The barriers of a test that nobody misses: neither is there a fault without them, nor a wrong result. One that
/// orders only global memory may be among them by right. `CHECK(barriers_not_missed(body).empty())`, or, where some are
/// known to be there for a device alone, `== std::vector<std::string>{"gather.cuh:120"}`.
/// @cost  as above
template <class Body>
barrier_list barriers_not_missed(Body body) {
  barrier_list out;
  for_each_barrier_left_out(body, [&](const left_out_barrier& one) {
    if (!one.noticed) out.push_back(one.barrier);
  });
  return out;
}

#else

template <class Body>
void in_all_orders(Body body) {
  body(std::string("the device's order"));
}

template <class Body>
void in_block_orders(Body body) {
  body();
}

template <class Body>
barrier_list barriers_not_missed(Body body) {
  if (!body()) throw std::logic_error("the result is wrong");
  return {};
}

#endif

}  // namespace zoomr_test
