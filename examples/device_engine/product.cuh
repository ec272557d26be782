// SPDX-License-Identifier: Apache-2.0
// The matrix product, and nothing else, is a library's: cuBLAS on a device, CBLAS where the host stands for one. Both
// count columns first and take the same arguments in the same order.
#pragma once

#include "memory.cuh"

#if defined(ZOOMR_SIMT)
#include <cblas.h>
#else
#include <cublas_v2.h>
#endif

namespace decode::device {

#if defined(ZOOMR_SIMT)

/// BLAS in single precision: y = Aᵀ x + beta y, and C = Aᵀ B + beta C.
class blas {
 public:
  explicit blas(zoomr::stream_ref on) : on_(on) {}
  void gemv(int m, int n, const float* a, int lda, const float* x, float beta, float* y) const {
    simt::enqueue(on_, [=] { cblas_sgemv(CblasColMajor, CblasTrans, m, n, 1.0f, a, lda, x, 1, beta, y, 1); });
  }
  void gemm(int m, int n, int k, const float* a, int lda, const float* b, int ldb, float beta, float* c,
            int ldc) const {
    simt::enqueue(on_, [=] {
      cblas_sgemm(CblasColMajor, CblasTrans, CblasNoTrans, m, n, k, 1.0f, a, lda, b, ldb, beta, c, ldc);
    });
  }

 private:
  zoomr::stream_ref on_;
};

#else

/// @throws zoomr::error(device) with what cuBLAS says, if it is not success
inline void expect_success(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw zoomr::error(zoomr::errc::device, std::string(what) + ": " + cublasGetStatusString(status));
}

/// BLAS in single precision, without TF32: y = Aᵀ x + beta y, and C = Aᵀ B + beta C. It works in memory of ours, so
/// that nothing is allocated while a pass is captured.
class blas {
 public:
  explicit blas(zoomr::stream_ref on) : workspace_(std::size_t{32} << 20) {
    expect_success(cublasCreate(&handle_), "cuBLAS cannot be used");
    expect_success(cublasSetStream(handle_, on), "cuBLAS: stream");
    expect_success(cublasSetWorkspace(handle_, workspace_.data(), workspace_.size()), "cuBLAS: workspace");
  }
  blas(const blas&) = delete;
  blas& operator=(const blas&) = delete;
  ~blas() {
    if (handle_ != nullptr) cublasDestroy(handle_);
  }

  void gemv(int m, int n, const float* a, int lda, const float* x, float beta, float* y) const {
    expect_success(cublasSgemv(handle_, CUBLAS_OP_T, m, n, &one, a, lda, x, 1, &beta, y, 1), "cuBLAS: sgemv");
  }
  void gemm(int m, int n, int k, const float* a, int lda, const float* b, int ldb, float beta, float* c,
            int ldc) const {
    expect_success(cublasSgemm(handle_, CUBLAS_OP_T, CUBLAS_OP_N, m, n, k, &one, a, lda, b, ldb, &beta, c, ldc),
                   "cuBLAS: sgemm");
  }

 private:
  static constexpr float one = 1.0f;
  cublasHandle_t handle_ = nullptr;
  device_array<std::byte> workspace_;
};

#endif

/// y [rows, out] = x [rows, in] · Wᵀ + beta y, with W [out, in]; all on the device, rows first. What is [a, b] here is
/// [b, a] for BLAS, so that W is its Aᵀ and the result its [out, rows].
/// @pre  rows > 0
inline void multiply(const blas& with, const float* x, index_t rows, const float* weight, index_t out, index_t in,
                     float beta, float* y) {
  if (rows == 1)  // reads W once, and needs nothing of it but that
    with.gemv(in, out, weight, in, x, beta, y);
  else
    with.gemm(out, rows, in, weight, in, x, in, beta, y, out);
}

}  // namespace decode::device
