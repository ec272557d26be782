// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <zoomr/core/buffer.hpp>
#include <zoomr/core/storage.hpp>

namespace zoomr {

TEST_CASE("a buffer begins at a cache line and is all there") {
  for (const std::int64_t count : {0, 1, 3, 16, 1000}) {
    buffer<float> memory(count);
    CHECK(reinterpret_cast<std::uintptr_t>(memory.data()) % 64 == 0);
    CHECK(memory.size() == count);
    CHECK(memory.bytes() == 4 * count);
    for (std::int64_t i = 0; i < count; ++i) memory.data()[i] = static_cast<float>(i);
    if (count > 0) CHECK(memory.data()[count - 1] == static_cast<float>(count - 1));
  }
}

TEST_CASE("an empty buffer owns nothing") {
  const buffer<bfloat16> nothing;
  CHECK(nothing.data() == nullptr);
  CHECK(nothing.size() == 0);
  CHECK(nothing.bytes() == 0);
}

TEST_CASE("moving a buffer does not move its contents") {
  buffer<index_t> from(8);
  from.data()[7] = 42;
  const index_t* where = from.data();
  const buffer<index_t> to = std::move(from);
  CHECK(to.data() == where);
  CHECK(to.data()[7] == 42);
  CHECK(to.size() == 8);
}

TEST_CASE("memory that cannot be had is an error of capacity that says how much was asked for") {
  try {
    const buffer<float> impossible(std::int64_t{1} << 60);
    FAIL("this machine has 4 EiB of memory");
  } catch (const error& e) {
    CHECK(e.code() == errc::capacity);
    CHECK(std::string(e.what()) == "zoomr: cannot allocate 4611686018427387904 bytes of host memory");
  }
}

}  // namespace zoomr
