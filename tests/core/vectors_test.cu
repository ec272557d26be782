// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <core/random.hpp>
#include <core/type_lists.hpp>
#include <support/device_memory.hpp>
#include <zoomr/core/device/vectors.cuh>

#include <cstring>  // std::memcpy

namespace zoomr {

namespace {

using zoomr_test::device_array;

/// One thread for each piece: to floats, and back.
template <class T>
__global__ void unpack_pieces(const uint4* pieces, index_t count, float* numbers, uint4* again) {
  const auto at = static_cast<index_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (at >= count) return;
  float part[std::size_t{per_vector<T>}];
  unpack<T>(pieces[at], part);
  for (index_t i = 0; i < per_vector<T>; ++i) numbers[at * per_vector<T> + i] = part[i];
  again[at] = pack<T>(part);
}

template <class T>
__global__ void pack_pieces(const float* numbers, index_t count, uint4* pieces) {
  const auto at = static_cast<index_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (at >= count) return;
  float part[std::size_t{per_vector<T>}];
  for (index_t i = 0; i < per_vector<T>; ++i) part[i] = numbers[at * per_vector<T> + i];
  pieces[at] = pack<T>(part);
}

constexpr unsigned block = 64;
launch_shape shape_for(index_t pieces) {
  return {dim3((static_cast<unsigned>(pieces) + block - 1) / block), dim3(block)};
}

template <class T>
std::vector<uint4> in_pieces(const std::vector<T>& stored) {
  std::vector<uint4> made(stored.size() / unit::size(per_vector<T>));
  std::memcpy(static_cast<void*>(made.data()), stored.data(), made.size() * sizeof(uint4));
  return made;
}

template <class T>
std::vector<T> from_pieces(const std::vector<uint4>& pieces) {
  std::vector<T> made(pieces.size() * unit::size(per_vector<T>));
  std::memcpy(static_cast<void*>(made.data()), pieces.data(), pieces.size() * sizeof(uint4));
  return made;
}

/// Bits from a counter, then any bits: each pattern of one or two bytes comes, in each place of a piece.
template <class T>
std::vector<T> all_patterns() {
  std::vector<T> made;
  const index_t places = per_vector<T>;
  const std::uint32_t patterns = sizeof(T) == 1 ? 0x100u : 0x10000u;
  unit::random random(7);
  for (index_t place = 0; place < places; ++place) {
    for (std::uint32_t i = 0; i < patterns; ++i) {
      const std::uint32_t counted = i + static_cast<std::uint32_t>(place);
      if constexpr (sizeof(T) == 4) {
        made.push_back(random.any_float());
      } else {
        made.push_back({static_cast<decltype(T::bits)>(counted)});
      }
    }
  }
  return made;
}

/// Floats on a stored number, between two, and beside the middle; odd ones; and any float at all.
template <class T>
std::vector<float> floats_to_round() {
  std::vector<float> made{0.0f,     -0.0f,    infinity, -infinity, not_a_number, -not_a_number,   464.0f,   465.0f,
                          -1e30f,   65504.0f, 65519.9f, 65520.0f,  -65520.0f,    3.4e38f,         126.5f,   127.5f,
                          -127.51f, -128.0f,  1e-45f,   -1e-40f,   0x1p-25f,     0x1.000002p-25f, 0x1p-10f, 0x1.8p-10f};
  unit::random random(8);
  for (const T stored : all_patterns<T>()) {
    const auto bits = std::bit_cast<std::uint32_t>(to_float(stored));
    for (const std::uint32_t more :
         {0x7fffu, 0x8000u, 0x8001u, 0xfffu, 0x1000u, 0x1001u, 0x7ffffu, 0x80000u, 0x80001u}) {
      if (made.size() % 5 == 0) made.push_back(std::bit_cast<float>(bits + more));
    }
    made.push_back(sizeof(T) == 1 ? to_float(stored) + 0.5f : random.uniform(-1.0f, 1.0f));
    made.push_back(random.any_float());
  }
  made.resize(made.size() / 16 * 16);
  return made;
}

template <class T>
void check_unpack() {
  const std::vector<T> stored = all_patterns<T>();
  device_array<uint4> pieces(in_pieces(stored));
  const auto count = static_cast<index_t>(stored.size()) / per_vector<T>;
  device_array<float> numbers(static_cast<std::int64_t>(stored.size()), 0.0f);
  device_array<uint4> again(std::int64_t{count}, uint4{});
  launch(shape_for(count), {}, unpack_pieces<T>, static_cast<const uint4*>(pieces.data()), count, numbers.data(),
         again.data());
  const std::vector<float> got = numbers.values();
  const std::vector<T> back = from_pieces<T>(again.values());
  for (std::size_t i = 0; i < stored.size(); ++i) {
    const float want = to_float(stored[i]);
    CAPTURE(i);
    CAPTURE(want);
    REQUIRE(unit::same_bits(got[i], want));
    REQUIRE(unit::same_bits(to_float(back[i]), to_float(from_float<T>(want))));
  }
}

template <class T>
void check_pack() {
  const std::vector<float> numbers = floats_to_round<T>();
  device_array<float> given(numbers);
  const auto count = static_cast<index_t>(numbers.size()) / per_vector<T>;
  device_array<uint4> pieces(std::int64_t{count}, uint4{});
  launch(shape_for(count), {}, pack_pieces<T>, static_cast<const float*>(given.data()), count, pieces.data());
  const std::vector<T> got = from_pieces<T>(pieces.values());
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    CAPTURE(i);
    CAPTURE(numbers[i]);
    REQUIRE(unit::same_bits(to_float(got[i]), to_float(from_float<T>(numbers[i]))));
  }
}

}  // namespace

TEST_CASE("a piece holds 16 bytes of stored numbers") {
  CHECK(per_vector<float> == 4);
  CHECK(per_vector<bfloat16> == 8);
  CHECK(per_vector<float16> == 8);
  CHECK(per_vector<float8> == 16);
  CHECK(per_vector<int8> == 16);
}

TEST_CASE_TEMPLATE_DEFINE("every pattern of bits, in each place of a piece, becomes the float that it is on the host",
                          T, unpacked) {
  check_unpack<T>();
}
TEST_CASE_TEMPLATE_APPLY(unpacked, unit::as_tuple<unit::plain_types>);

TEST_CASE_TEMPLATE_DEFINE("a float becomes the same stored number as on the host", T, packed) { check_pack<T>(); }
TEST_CASE_TEMPLATE_APPLY(packed, unit::as_tuple<unit::plain_types>);

}  // namespace zoomr
