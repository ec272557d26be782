// SPDX-License-Identifier: Apache-2.0
// Gives the rows to Google Benchmark: fixed iterations, five repetitions, times measured by the rows themselves.
#include <benchmark/benchmark.h>

#include <cstdio>       // std::puts
#include <iostream>     // std::cout
#include <string_view>  // std::string_view

#include "kernels.hpp"
#include "rows.hpp"
#if !defined(ZOOMR_BENCH_HOST)
#include <support/device_presence.hpp>
#endif

namespace {

bool failed = false;

/// The file of --benchmark_out, which must be whole.
class whole_json : public benchmark::JSONReporter {
 public:
  void Finalize() override {
    benchmark::JSONReporter::Finalize();
    if (GetOutputStream().flush()) return;
    std::fputs("the file of --benchmark_out: cannot be written\n", stderr);
    failed = true;
  }
};

void report(benchmark::State& state, const zoomr_bench::row& row) {
  try {
    const zoomr_bench::result of = row.run(static_cast<int>(state.max_iterations));
    auto seconds = of.seconds.begin();
    for (auto _ : state) state.SetIterationTime(*seconds++);
    if (of.bytes > 0) state.SetBytesProcessed(static_cast<std::int64_t>(of.bytes) * state.iterations());
    if (of.tokens > 0)
      state.counters["tokens_per_second"] =
          benchmark::Counter(of.tokens * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
    for (const auto& [name, value] : of.figures) state.counters[name] = value;
  } catch (const zoomr_bench::skipped& why) {
    state.SkipWithError(why.what());
  } catch (const std::exception& fault) {
    failed = true;
    state.SkipWithError(fault.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  using namespace zoomr_bench;
  bool to_file = false, as_json = true;  // Google Benchmark takes a reporter of ours only where there is such a file
  for (int a = 1; a < argc; ++a) {
    const std::string_view option = argv[a];
    to_file = to_file || option.starts_with("--benchmark_out=");
    if (option.starts_with("--benchmark_out_format=")) as_json = option.ends_with("=json");
  }
#if defined(ZOOMR_BENCH_HOST)
  add_host_rows();
#else
  const bool lists = zoomr_test::has_option(argc, argv, {"--help", "--benchmark_list_tests"});  // needs no device
  if (!lists) {
    if (const int status = zoomr_test::status_without_device(); status != 0) return status;
    for (const auto& [name, value] : device::described()) benchmark::AddCustomContext(name, value);
  }
  add_device_rows();
#endif
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  for (const row& each : rows()) {
    benchmark::RegisterBenchmark(each.name.c_str(), [&each](benchmark::State& state) { report(state, each); })
        ->Iterations(each.iterations)
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond)
        ->Repetitions(5)
        ->DisplayAggregatesOnly();
  }
  whole_json file;
  benchmark::RunSpecifiedBenchmarks(nullptr, to_file && as_json ? &file : nullptr);
  if (!std::cout.flush() || std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    std::fputs("standard output: cannot be written\n", stderr);
    failed = true;
  }
  return failed ? 1 : 0;
}
