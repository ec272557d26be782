// SPDX-License-Identifier: Apache-2.0
// What both programs beside ggml need: graphs of ggml that are computed and timed, numbers, medians and the like.
#pragma once

#include <ggml-cpu.h>
#include <ggml.h>

#include <algorithm>  // std::min_element, std::nth_element
#include <cstdint>    // std::uint64_t
#include <ctime>      // clock_gettime
#include <memory>     // std::unique_ptr
#include <stdexcept>  // std::runtime_error
#include <vector>     // std::vector

namespace graphs {

/// Numbers between -1 and 1.
class noise {
 public:
  float next() {
    state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
    return static_cast<float>(static_cast<double>(state_ >> 11) / static_cast<double>(std::uint64_t{1} << 52) - 1.0);
  }

 private:
  std::uint64_t state_ = 0x9e3779b97f4a7c15u;
};

template <auto Free>
struct freed_by {
  void operator()(auto* object) const { Free(object); }
};
using context = std::unique_ptr<ggml_context, freed_by<ggml_free>>;

/// A graph of one node, or a few, for each layer, and its results.
struct computed_graph {
  context in;
  ggml_cgraph* graph = nullptr;
  std::vector<ggml_tensor*> out;  // [layers]  [width, heads], of attention
  ggml_cplan plan{};
  std::vector<std::uint8_t> work;

  /// @param numbers  what its tensors hold, in floats
  explicit computed_graph(std::size_t numbers) {
    in.reset(ggml_init({(std::size_t{16} << 20) + numbers * sizeof(float), nullptr, false}));
    graph = ggml_new_graph_custom(in.get(), 4096, false);
  }
  void finish(int threads, ggml_threadpool* pool) {
    for (ggml_tensor* const node : out) ggml_build_forward_expand(graph, node);
    plan = ggml_graph_plan(graph, threads, pool);
    work.resize(plan.work_size);
    plan.work_data = work.data();
  }
  double compute() {
    const double from = now();
    if (ggml_graph_compute(graph, &plan) != GGML_STATUS_SUCCESS) throw std::runtime_error("a graph was not computed");
    return now() - from;
  }
  // Of one thread the processor's time, which other programs of the machine change less.
  double now() const {
    timespec at{};
    clock_gettime(plan.n_threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &at);
    return static_cast<double>(at.tv_sec) + 1e-9 * static_cast<double>(at.tv_nsec);
  }
};

inline double median(std::vector<double> times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

inline double least(const std::vector<double>& times) { return *std::min_element(times.begin(), times.end()); }

}  // namespace graphs
