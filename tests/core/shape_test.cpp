// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <zoomr/core/shape.hpp>

#include <string>  // std::string

namespace zoomr {

namespace {

std::string problem(shape model) {
  const char* sentence = model.problem();
  return sentence == nullptr ? "" : sentence;
}

}  // namespace

TEST_CASE("usual models have no problem") {
  CHECK(problem({32, 32, 8, 128}) == "");
  CHECK(problem({1, 1, 1, 8}) == "");
  CHECK(problem({1024, 1024, 1024, 256}) == "");
  CHECK(problem({27, 16, 16, 192, 128}) == "");
  CHECK(problem({27, 16, 1, 576, 512, true}) == "");
  CHECK(problem({1, 1, 1, 64, 72}) == "");
}

TEST_CASE("each problem of a shape has its sentence") {
  CHECK(problem({}) == "shape: layers, heads and kv_heads must be at least 1");
  CHECK(problem({1, 4, 0, 64}) == "shape: layers, heads and kv_heads must be at least 1");
  CHECK(problem({-1, 4, 4, 64}) == "shape: layers, heads and kv_heads must be at least 1");
  CHECK(problem({1, 7, 2, 64}) == "shape: heads must be a multiple of kv_heads");
  CHECK(problem({1, 2, 4, 64}) == "shape: heads must be a multiple of kv_heads");
  for (const index_t head_dim : {0, 4, 12, 577, 584, -8}) {
    CHECK(problem({1, 1, 1, head_dim}) == "shape: head_dim must be a multiple of 8 from 8 to 576");
  }
  for (const index_t value_dim : {4, 12, 577, 584, -8}) {
    CHECK(problem({1, 1, 1, 64, value_dim}) ==
          "shape: value_dim must be 0 (as wide as keys) or a multiple of 8 up to 576");
  }
  CHECK(problem({1, 1, 1, 64, 72, true}) == "shape: values that lie in keys cannot be wider than keys");
  CHECK(problem({1025, 1, 1, 64}) == "shape: more than 1024 layers or heads");
  CHECK(problem({1, 2048, 1, 64}) == "shape: more than 1024 layers or heads");
}

TEST_CASE("groups and KV lanes follow from the shape") {
  constexpr shape model{3, 8, 2, 16};
  CHECK(model.group() == 4);
  CHECK(model.kv_lanes() == 6);
  CHECK(model == shape{3, 8, 2, 16});
  CHECK(model != shape{3, 8, 4, 16});
  CHECK(model == shape{3, 8, 2, 16, 16});
  CHECK(model != shape{3, 8, 2, 16, 8});
  CHECK(model != shape{3, 8, 2, 16, 0, true});
  CHECK(model.stored_value_width() == 16);
  CHECK(shape{3, 8, 2, 16, 8, true}.value_width() == 8);
  CHECK(shape{3, 8, 2, 16, 8, true}.stored_value_width() == 0);
}

}  // namespace zoomr
