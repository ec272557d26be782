// SPDX-License-Identifier: Apache-2.0
// Part of support/simt.hpp: streams, events between them, and what was captured of them as a graph.
//
// A stream is a queue. When its work is done, simt::how.streams says: at once; or only when the host waits for it, and
// then no more than that wait needs; or at any time between two calls of the host, with the queues in any order that
// their events allow. A copy reads its source when it is done, and a source that has changed meanwhile is a fault.
#pragma once

#include <support/simt/block.hpp>

#include <algorithm>   // std::find
#include <chrono>      // std::chrono::steady_clock
#include <cstddef>     // std::byte
#include <deque>       // std::deque
#include <functional>  // std::function
#include <map>         // std::map
#include <set>         // std::set
#include <utility>     // std::exchange

namespace simt {

struct stream;
struct capture;

/// A point in the work of a stream.
struct mark {
  std::shared_ptr<stream> on;
  std::weak_ptr<capture> in;  // which holds this; none: of a stream that is not captured
  bool done = false;
  bool captured = false;
};

/// A piece of work of a stream.
struct operation {
  std::function<void()> work;         // or, if there is none:
  std::shared_ptr<mark> sets, waits;  // the point that this is, or the one that comes before what follows
  const void* source = nullptr;       // of a copy
  std::size_t bytes = 0;
  std::vector<std::byte> sent;  // what lay there when the copy was enqueued
  settings how;                 // when it was enqueued
};

struct stream : std::enable_shared_from_this<stream> {
  std::deque<operation> pending;
  std::shared_ptr<capture> into;  // while it is captured
};

/// What streams were given between the beginning and the end of a capture.
struct capture {
  struct captured {
    std::size_t stream = 0;  // of `streams`
    operation what;
  };
  std::vector<std::shared_ptr<stream>> streams;  // the first is the one whose capture was begun
  std::vector<captured> all;
  bool open = true;
};

/// Of all that goes on.
struct stream_state {
  std::shared_ptr<stream> first = std::make_shared<stream>();
  std::vector<std::shared_ptr<stream>> queues{first};
  std::mt19937_64 random{streams_of_environment.seed};
  std::uint64_t calls_left = 0;  // of the host, until the device's mood changes
  std::uint64_t mood = 0;
  std::exception_ptr failure;  // of work that was done where nobody could be told
};
inline stream_state streams;

/// Kernels that were said to be loaded, and those that were launched.
inline std::set<const void*> loaded_kernels, launched_kernels;

/// The device that a thread has made current: a number for tests to change.
inline int device_number = 0;
inline int current_device() { return device_number; }

/// What a handle of a stream is: the first stream, unless it says otherwise.
struct stream_ref {
  stream* of = nullptr;
  stream& get() const { return of == nullptr ? *streams.first : *of; }
};

// Doing what is pending.

inline bool can_go_on(const stream& q) {
  return !q.pending.empty() && (!q.pending.front().waits || q.pending.front().waits->done);
}

/// Does the first piece of a stream.
inline void do_first(stream& q) {
  operation first = std::move(q.pending.front());
  q.pending.pop_front();
  if (first.source != nullptr && std::memcmp(first.source, first.sent.data(), first.bytes) != 0) {
    throw fault("the source of a copy to the device changes before the copy is made");
  }
  if (first.sets) first.sets->done = true;
  if (!first.work) return;
  const scoped_settings until_then(first.how);
  first.work();
}

/// Does the first piece of a stream, or one that it waits for.
inline void advance(stream& q) {
  if (can_go_on(q)) return do_first(q);
  advance(*q.pending.front().waits->on);
}

/// One piece of any stream; false if there is none.
inline bool do_any() {
  std::vector<stream*> able;
  for (const auto& q : streams.queues) {
    if (can_go_on(*q)) able.push_back(q.get());
  }
  if (able.empty()) return false;
  do_first(*able[how.streams == schedule::random ? streams.random() % able.size() : 0]);
  return true;
}

inline void forget_finished_streams() {
  std::erase_if(streams.queues, [](const auto& q) { return q.use_count() == 1 && q->pending.empty(); });
}

/// What each call of the host begins with, or, if it enqueues something, ends with.
/// @throws what work that was done meanwhile throws
inline void host_call() {
  if (streams.failure) std::rethrow_exception(std::exchange(streams.failure, nullptr));
  if (how.streams == schedule::late) return;
  if (how.streams == schedule::early) {
    while (do_any()) continue;
    return;
  }
  if (streams.calls_left == 0) {
    streams.calls_left = 1 + streams.random() % 40;
    streams.mood = streams.random() % 4;
  }
  --streams.calls_left;
  if (streams.mood == 0) return;                                    // far behind
  std::uint64_t pieces = streams.mood == 1 ? 1000                   // caught up
                                           : streams.random() % 4;  // or somewhere between
  while (pieces-- > 0 && do_any()) continue;
}

template <class Done>
void work_until(stream& waited_for, Done done) {
  host_call();
  while (!done()) {
    if (how.streams == schedule::random) {
      do_any();
    } else {
      advance(waited_for);
    }
  }
}

/// The host waits for all that a stream was given.
inline void finish(stream_ref on) {
  if (on.get().into) throw fault("a stream is waited for while it is captured");
  stream& q = on.get();
  work_until(q, [&] { return q.pending.empty(); });
}

/// The host waits for everything.
inline void finish_all() {
  host_call();
  while (do_any()) continue;
  forget_finished_streams();
}

/// The same where nothing can be thrown: the next call of the host throws it.
inline void finish_all_quietly() {
  try {
    finish_all();
  } catch (...) {
    streams.failure = std::current_exception();
  }
}

/// Memory that copies are made from goes.
inline void forget_source(const void* memory, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  for (const auto& q : streams.queues) {
    for (operation& each : q->pending) {
      const auto at = reinterpret_cast<std::uintptr_t>(each.source);
      if (each.source == nullptr || at < begin || at >= begin + bytes) continue;
      each.source = nullptr, each.work = nullptr;
      streams.failure = std::make_exception_ptr(fault("pinned memory is freed before a copy from it is made"));
    }
  }
}

// Giving work to streams.

inline void give(stream& q, operation what) {
  if (block.running) throw fault("a kernel enqueues something");
  if (q.into) {
    const auto& known = q.into->streams;
    const auto at =
        static_cast<std::size_t>(std::find(known.begin(), known.end(), q.shared_from_this()) - known.begin());
    return q.into->all.push_back({at, std::move(what)});
  }
  what.how = how;
  if (what.source != nullptr) {
    const auto* const from = static_cast<const std::byte*>(what.source);
    what.sent.assign(from, from + what.bytes);
  }
  q.pending.push_back(std::move(what));
  host_call();
}

inline void enqueue(stream_ref on, std::function<void()> work) {
  operation what;
  what.work = std::move(work);
  give(on.get(), std::move(what));
}

/// @param on  must find the source as it is now
inline void copy(void* to, const void* from, std::size_t bytes, stream_ref on) {
  operation what;
  what.work = [=] {
    std::memcpy(to, from, bytes);
    counted.copied += static_cast<std::int64_t>(bytes);
  };
  what.source = from, what.bytes = bytes;
  give(on.get(), std::move(what));
}

/// A stream of its own. What it was given goes on when it is destroyed.
class own_stream {
 public:
  own_stream() : stream_(std::make_shared<stream>()) { streams.queues.push_back(stream_); }
  own_stream(const own_stream&) = delete;
  own_stream& operator=(const own_stream&) = delete;
  ~own_stream() {
    stream_.reset();
    forget_finished_streams();
  }
  stream_ref get() const { return {stream_.get()}; }

 private:
  std::shared_ptr<stream> stream_;
};

/// The shim's zoomr::stream_event.
class stream_event {
 public:
  stream_event() = default;
  stream_event(const stream_event&) = delete;
  stream_event& operator=(const stream_event&) = delete;

  void record(stream_ref on) {
    stream& q = on.get();
    mark_ = std::make_shared<mark>(mark{q.shared_from_this(), q.into, false, q.into != nullptr});
    operation what;
    what.sets = mark_;
    give(q, std::move(what));
  }
  void order(stream_ref earlier, stream_ref later) {
    record(earlier);
    stream& q = later.get();
    const std::shared_ptr<capture> in = mark_->in.lock();
    if (!q.into && in) {
      q.into = in;  // it is captured too
      auto& known = q.into->streams;
      if (std::find(known.begin(), known.end(), q.shared_from_this()) == known.end()) {
        known.push_back(q.shared_from_this());
      }
    }
    if (q.into != in) throw fault("a stream that is captured waits for one that is not");
    operation what;
    what.waits = mark_;
    give(q, std::move(what));
  }
  bool done() {
    must_be_outside();
    host_call();
    return !mark_ || mark_->done;
  }
  void wait() {
    must_be_outside();
    if (mark_) work_until(*mark_->on, [this] { return mark_->done; });
  }
  void settle() noexcept {
    try {
      wait();
    } catch (...) {
    }
  }

 private:
  void must_be_outside() const {
    if (mark_ && mark_->captured) throw fault("the host asks for an event that was recorded in a capture");
  }
  std::shared_ptr<mark> mark_;
};

// Graphs.

inline bool is_captured(stream_ref on) { return on.get().into != nullptr; }

inline void begin_capture(stream_ref on) {
  stream& q = on.get();
  if (q.into) throw fault("a capture is begun of a stream that is captured");
  q.into = std::make_shared<capture>();
  q.into->streams.push_back(q.shared_from_this());
}

/// What is captured, and can be launched.
using graph = std::shared_ptr<const capture>;

inline graph end_capture(stream_ref on) {
  const std::shared_ptr<capture> made = on.get().into;
  if (!made || made->streams.front().get() != &on.get()) throw fault("no capture of this stream was begun");
  for (const auto& q : made->streams) q->into = nullptr;
  made->open = false;
  for (std::size_t s = 1; s < made->streams.size(); ++s) {
    const mark* last = nullptr;
    bool joined = false;
    for (const capture::captured& each : made->all) {
      if (each.stream == s) last = each.what.sets.get(), joined = false;
      if (each.stream != s && last != nullptr && each.what.waits.get() == last) joined = true;
    }
    if (!joined) throw fault("a capture ends, and a stream that it has forked was not joined");
  }
  return made;
}

inline void launch(const graph& of, stream_ref on) {
  std::vector<std::shared_ptr<stream>> run_on{on.get().shared_from_this()};
  while (run_on.size() < of->streams.size()) {
    run_on.push_back(std::make_shared<stream>());
    streams.queues.push_back(run_on.back());
  }
  std::map<const mark*, std::shared_ptr<mark>> marks;
  for (const capture::captured& each : of->all) {
    operation what = each.what;
    if (what.sets)
      what.sets = marks[what.sets.get()] = std::make_shared<mark>(mark{run_on[each.stream], {}, false, false});
    if (what.waits) what.waits = marks.at(what.waits.get());
    give(*run_on[each.stream], std::move(what));
  }
}

/// The shim's zoomr::stream_timer: the host's clock.
class stream_timer {
 public:
  void start(stream_ref on) {
    enqueue(on, [this] { from_ = clock::now(); });
  }
  void stop(stream_ref on) {
    enqueue(on, [this] { to_ = clock::now(); });
    on_ = on;
  }
  double seconds() {
    finish(on_);
    return std::chrono::duration<double>(to_ - from_).count();
  }

 private:
  using clock = std::chrono::steady_clock;
  clock::time_point from_, to_;
  stream_ref on_;
};

}  // namespace simt
