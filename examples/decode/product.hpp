// SPDX-License-Identifier: Apache-2.0
// Products with a matrix of weights, most of what a model does. One token is a matter of reading the matrix: each row
// is read once, as it is stored. For many tokens rows are widened to float32, some at a time, and CBLAS multiplies.
#pragma once

#include <cstddef>  // std::size_t

#include <zoomr/core/executor.hpp>

#include "matrix.hpp"

namespace decode {

/// Up to so many tokens rows are read for each, and it gets the bits that it would get alone; more may share products.
inline constexpr std::size_t tokens_alike = 32;

/// y [tokens, rows] = x [tokens, columns] · Wᵀ, with W [rows, columns] of finite numbers.
/// @param threads  among whom the rows are divided; y does not depend on how many there are
void multiply(const float* x, std::size_t tokens, const matrix& w, const zoomr::executor& threads, float* y);

/// As many threads as OpenBLAS would take, which OPENBLAS_NUM_THREADS decides, or else the machine. From the first call
/// on it takes one: the threads of a product are its caller's.
zoomr::index_t usual_threads();

}  // namespace decode
