// SPDX-License-Identifier: Apache-2.0
// Launches and questions say what has become of themselves, whatever the thread's last error is, and leave it alone.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include <zoomr/core/device/streams.cuh>

#include "runtime_stub.hpp"

namespace {

__global__ void nothing_kernel(int) {}

/// A launch of a kernel that was never launched before.
void start(bool early) {
  zoomr::early_kernel kernel;
  zoomr::launch({dim3(7), dim3(32), early ? &kernel : nullptr}, nullptr, nothing_kernel, 1);
}

/// The sentence of the error that a call throws; empty if it throws none.
template <class Call>
std::string sentence_of(Call call) {
  try {
    call();
  } catch (const zoomr::error& why) {
    CHECK(why.code() == zoomr::errc::device);
    return why.what();
  }
  return "";
}

}  // namespace

TEST_CASE("an error that an engine has left is not a launch's, and is still there afterwards") {
  for (const bool early : {false, true}) {
    for (const cudaError_t left : {cudaErrorNotReady, cudaErrorMemoryAllocation, cudaSuccess}) {
      runtime = {};
      runtime.last = left;
      CHECK(sentence_of([&] { start(early); }) == "");
      CHECK(runtime.launches == 1);
      CHECK(runtime.blocks == 7);
      CHECK(runtime.attributes == (early ? 1 : 0));
      CHECK(runtime.last == left);
    }
  }
}

TEST_CASE("a launch that fails says why, whatever was left before") {
  for (const bool early : {false, true}) {
    for (const cudaError_t left : {cudaErrorNotReady, cudaSuccess}) {
      runtime = {};
      runtime.last = left, runtime.launch = cudaErrorInvalidConfiguration;
      CHECK(sentence_of([&] { start(early); }) ==
            "zoomr: a kernel could not be started: invalid configuration argument");
    }
  }
}

TEST_CASE("a kernel that cannot wait itself is not launched early") {
  runtime = {};
  runtime.ptx_version = 80;
  start(true);
  CHECK(runtime.attributes == 0);
}

TEST_CASE("whether a kernel waits itself is asked once for each device, not with each launch") {
  runtime = {};
  zoomr::early_kernel kernel;
  const auto attributes_on = [&](int device, int ptx_version) {
    runtime.device = device, runtime.ptx_version = ptx_version;
    zoomr::launch({dim3(7), dim3(32), &kernel}, nullptr, nothing_kernel, 1);
    return runtime.attributes;
  };
  CHECK(attributes_on(0, 90) == 1);
  CHECK(attributes_on(0, 80) == 1);
  CHECK(runtime.questions == 1);
  CHECK(attributes_on(63, 80) == 0);
  CHECK(attributes_on(63, 90) == 0);
  CHECK(attributes_on(0, 80) == 1);
  CHECK(runtime.questions == 2);
  CHECK(attributes_on(64, 80) == 0);
  CHECK(attributes_on(64, 90) == 1);
  CHECK(runtime.questions == 4);
}

TEST_CASE("an event that is not over leaves no error of its own behind, and clears none of an engine's") {
  zoomr::stream_event event;
  runtime = {};
  runtime.event = cudaErrorNotReady;
  CHECK(!event.done());
  CHECK(runtime.last == cudaSuccess);
  runtime.last = cudaErrorNotReady;  // the engine has asked for an event of its own
  CHECK(!event.done());
  CHECK(runtime.last == cudaErrorNotReady);
  runtime = {};
  runtime.last = cudaErrorMemoryAllocation;
  CHECK(event.done());
  CHECK(runtime.last == cudaErrorMemoryAllocation);
}
