// SPDX-License-Identifier: Apache-2.0
// What device arrays should hold, by Thrust and where they lie, so that sizes may be a model's. Under the shim its CPP
// back end runs the same lines on the host (oracles.cu is compiled apart: the shim declares what CUDA's headers do).
#pragma once

#include <zoomr/core/types.hpp>

namespace zoomr_test::oracle {

using zoomr::index_t;
using zoomr::votes_t;

/// The best ids of each row, ascending; ties to the lower id, never one that is not eligible.
/// @param scores  [rows, n]
/// @param ids     [rows, k]  out, padded with -1
/// @param counts  [rows]     out
void best_ids(const float* scores, index_t rows, index_t n, index_t k, index_t* ids, index_t* counts);
void best_ids(const votes_t* scores, index_t rows, index_t n, index_t k, index_t* ids, index_t* counts);

/// to[i] = the sum of from[0 ... i - 1].
void exclusive_sums(const index_t* from, index_t count, index_t* to);

/// True if both hold the same.
bool same(const index_t* a, const index_t* b, index_t count);

}  // namespace zoomr_test::oracle
