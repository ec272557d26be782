// SPDX-License-Identifier: Apache-2.0
// What was enqueued once, to be launched again.
#pragma once

#include "device.hpp"

namespace zoomr_bench {

#if defined(ZOOMR_SIMT)

class graph {
 public:
  template <class Enqueue>
  void capture(Enqueue enqueue) {
    simt::begin_capture(the_stream());
    enqueue();
    made_ = simt::end_capture(the_stream());
  }
  void launch() { simt::launch(made_, the_stream()); }

 private:
  simt::graph made_;
};

#else

class graph {
 public:
  graph() = default;
  graph(const graph&) = delete;
  graph& operator=(const graph&) = delete;
  ~graph() {
    if (made_ != nullptr) cudaGraphExecDestroy(made_);
  }
  template <class Enqueue>
  void capture(Enqueue enqueue) {
    cudaGraph_t captured = nullptr;
    must(cudaStreamBeginCapture(the_stream(), cudaStreamCaptureModeThreadLocal), "no capture");
    enqueue();
    must(cudaStreamEndCapture(the_stream(), &captured), "no capture");
    must(cudaGraphInstantiate(&made_, captured, 0), "no graph");
    must(cudaGraphDestroy(captured), "no graph");
  }
  void launch() { must(cudaGraphLaunch(made_, the_stream()), "no graph"); }

 private:
  cudaGraphExec_t made_ = nullptr;
};

#endif

}  // namespace zoomr_bench
