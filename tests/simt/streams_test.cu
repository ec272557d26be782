// SPDX-License-Identifier: Apache-2.0
// The shim's streams, events and graphs: what runs when, and which mistakes with them are faults.
#include <zoomr/core/device/streams.cuh>

#include <doctest/doctest.h>
#include <support/device_memory.hpp>

#if defined(ZOOMR_SIMT)
#include <set>  // std::set

namespace zoomr {
namespace {

/// Everything under one schedule until the end of a scope.
struct under {
  explicit under(simt::schedule when)
      : until_then([&] {
          simt::settings how;
          how.streams = when;
          return how;
        }()) {}
  simt::scoped_settings until_then;
};

/// Appends a digit to what has been done.
void note(int* done, int digit) { *done = *done * 10 + digit; }
void fails(int*, int) { throw simt::fault("it fails"); }

struct notes {
  int done = 0;
  void put(stream_ref on, int digit) { launch({1, 1}, on, note, &done, digit); }
};

/// Two pieces beside another, then one after the join.
int beside(simt::schedule when) {
  const under schedule(when);
  notes of;
  side_stream side;
  of.put({}, 1);
  const stream_ref on = side.fork({});
  of.put(on, 2);
  of.put(on, 3);
  of.put({}, 4);
  CHECK(side.is_forked());
  side.join({});
  CHECK(!side.is_forked());
  of.put({}, 5);
  side.join({});  // there is nothing to join
  simt::finish({});
  return of.done;
}

std::string what_of(auto call) {
  try {
    call();
  } catch (const simt::fault& caught) {
    return caught.what();
  }
  return "";
}

}  // namespace

TEST_CASE("what goes on beside is done at the fork, at the join, or in between, and each time in its order") {
  CHECK(beside(simt::schedule::early) == 12345);
  CHECK(beside(simt::schedule::late) == 14235);
  std::set<int> seen;
  for (int i = 0; i < 300; ++i) seen.insert(beside(simt::schedule::random));
  CHECK(seen == std::set<int>{12345, 12435, 14235});
}

TEST_CASE("a late stream does nothing until the host waits, and then no more than that wait needs") {
  const under schedule(simt::schedule::late);
  notes of;
  own_stream first, second, third;
  stream_event between, end, after_prefill;
  CHECK(after_prefill.done());
  after_prefill.wait();
  of.put(first.get(), 1);
  between.order(first.get(), second.get());
  of.put(first.get(), 2);
  of.put(third.get(), 9);
  of.put(second.get(), 3);
  end.record(second.get());
  of.put(second.get(), 4);
  CHECK(!end.done());
  CHECK(of.done == 0);
  end.wait();
  CHECK(end.done());
  CHECK(of.done == 13);
  simt::finish(first.get());
  CHECK(of.done == 132);
  simt::finish_all();
  CHECK((of.done == 13294 || of.done == 13249));
}

TEST_CASE("an early stream has done everything when a call returns; a random one is sometimes behind") {
  {
    const under schedule(simt::schedule::early);
    notes of;
    stream_event end;
    for (const int digit : {1, 2, 3}) of.put({}, digit);
    end.record({});
    CHECK(of.done == 123);
    CHECK(end.done());
  }
  const under schedule(simt::schedule::random);
  int behind = 0;
  for (int i = 0; i < 300; ++i) {
    notes of;
    stream_event end;
    of.put({}, 1);
    end.record({});
    behind += end.done() ? 0 : 1;
    end.wait();
    CHECK(of.done == 1);
  }
  CHECK((behind > 20 && behind < 280));
}

TEST_CASE("a copy is made of what lies there then; a source that has changed, or is gone, is a fault") {
  const under schedule(simt::schedule::late);
  int from = 7, to = 0;
  copy_to_device(&to, &from, sizeof to, {});
  CHECK(to == 0);
  simt::finish({});
  CHECK(to == 7);
  copy_to_device(&to, &from, sizeof to, {});
  from = 8;
  CHECK(what_of([] { simt::finish({}); }) == "the source of a copy to the device changes before the copy is made");
  CHECK(to == 7);
  simt::finish({});  // the next wait is none the worse
  {
    pinned_memory goes(4);
    std::memset(goes.data(), 1, 4);
    copy_to_device(&to, goes.data(), sizeof to, {});
  }
  CHECK(what_of([] { simt::finish({}); }) == "pinned memory is freed before a copy from it is made");
  simt::finish({});
  CHECK(to == 7);
  {
    pinned_memory stays(4);
    std::memset(stays.data(), 0, 4);
    copy_to_device(&to, stays.data(), sizeof to, {});
    simt::finish({});
  }
  CHECK(to == 0);
  zero_on_device(&from, sizeof from, {});
  CHECK(from == 8);
  simt::finish({});
  CHECK(from == 0);
}

TEST_CASE("what a kernel throws comes out of the wait, or out of the call after one that cannot throw") {
  const under schedule(simt::schedule::late);
  notes of;
  launch({1, 1}, stream_ref{}, fails, &of.done, 0);
  of.put({}, 1);
  CHECK(what_of([] { simt::finish({}); }) == "it fails");
  CHECK(of.done == 0);
  simt::finish({});
  CHECK(of.done == 1);
  launch({1, 1}, stream_ref{}, fails, &of.done, 0);
  { const zoomr_test::device_array<int> goes(1, 0); }
  CHECK(what_of([&] { simt::finish({}); }) == "it fails");
  CHECK_THROWS_AS(launch({0, 1}, stream_ref{}, fails, &of.done, 0), simt::fault);  // at once
}

TEST_CASE("a graph does what was captured, fork and join with it, and copies from where it copied then") {
  for (const simt::schedule when : {simt::schedule::early, simt::schedule::late, simt::schedule::random}) {
    const under schedule(when);
    CAPTURE(static_cast<int>(when));
    notes of;
    own_stream on;
    side_stream side;
    int from = 5, to = 0;
    zoomr_test::stream_graph graph;
    CHECK(!is_captured(on.get()));
    graph.begin(on.get());
    CHECK(is_captured(on.get()));
    of.put(on.get(), 1);
    const stream_ref forked = side.fork(on.get());
    CHECK(is_captured(forked));
    of.put(forked, 2);
    copy_to_device(&to, &from, sizeof to, forked);
    side.join(on.get());
    of.put(on.get(), 3);
    graph.end(on.get());
    CHECK(!is_captured(on.get()));
    simt::finish_all();
    CHECK((of.done == 0 && to == 0));
    for (const int number : {5, 6}) {
      from = number;
      graph.launch(on.get());
      simt::finish(on.get());
      CHECK(to == number);
    }
    CHECK(of.done == 123123);
  }
}

TEST_CASE("what a capture does not allow is a fault") {
  const under schedule(simt::schedule::late);
  own_stream on, other;
  stream_event event;
  simt::begin_capture(on.get());
  CHECK(what_of([&] { simt::begin_capture(on.get()); }) == "a capture is begun of a stream that is captured");
  CHECK(what_of([&] { simt::finish(on.get()); }) == "a stream is waited for while it is captured");
  CHECK(what_of([&] { event.order(other.get(), on.get()); }) == "a stream that is captured waits for one that is not");
  event.record(on.get());
  CHECK(what_of([&] { event.done(); }) == "the host asks for an event that was recorded in a capture");
  CHECK(what_of([&] { event.wait(); }) == "the host asks for an event that was recorded in a capture");
  side_stream side;
  notes of;
  of.put(side.fork(on.get()), 1);
  CHECK(what_of([&] { simt::end_capture(on.get()); }) ==
        "a capture ends, and a stream that it has forked was not joined");
  CHECK(what_of([&] { simt::end_capture(on.get()); }) == "no capture of this stream was begun");
  simt::finish_all();
  CHECK(of.done == 0);
}

}  // namespace zoomr
#endif
