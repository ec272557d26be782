// SPDX-License-Identifier: Apache-2.0
// Gives the rows to Google Benchmark: fixed iterations and five repetitions, unless --benchmark_min_time or
// --benchmark_repetitions say otherwise. Times are measured by the rows themselves.
#include <benchmark/benchmark.h>
#include <zoomr/core/cpu_path.hpp>

#include <algorithm>    // std::min
#include <cmath>        // std::llround
#include <cstdio>       // std::puts
#include <iostream>     // std::cout
#include <string_view>  // std::string_view

#include "built.hpp"
#include "commit.hpp"
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

/// So many iterations of a row, never more at once than it has by itself: a scene has room for as many.
zoomr_bench::result measure(const zoomr_bench::row& row, benchmark::IterationCount iterations) {
  zoomr_bench::result sum;
  for (benchmark::IterationCount left = iterations; left > 0;) {
    const auto part = static_cast<int>(std::min<benchmark::IterationCount>(left, row.iterations));
    const zoomr_bench::result more = row.run(part);
    left -= part;
    const double share = static_cast<double>(part) / static_cast<double>(iterations);
    sum.seconds.insert(sum.seconds.end(), more.seconds.begin(), more.seconds.end());
    sum.bytes += share * more.bytes;
    sum.tokens = more.tokens;
    sum.figures.resize(more.figures.size());
    for (std::size_t i = 0; i < more.figures.size(); ++i) {
      sum.figures[i].first = more.figures[i].first;
      sum.figures[i].second += share * more.figures[i].second;
    }
  }
  return sum;
}

/// What tells two measurements apart, beside the machine.
void describe_build() {
  benchmark::AddCustomContext("commit", ZOOMR_BENCH_COMMIT);
  benchmark::AddCustomContext("compiler", ZOOMR_BENCH_COMPILER);
  benchmark::AddCustomContext("flags", ZOOMR_BENCH_FLAGS);
  benchmark::AddCustomContext("processor_path", zoomr::name_of(zoomr::fastest_cpu_path()));
}

void report(benchmark::State& state, const zoomr_bench::row& row) {
  try {
    const zoomr_bench::result of = measure(row, state.max_iterations);
    auto seconds = of.seconds.begin();
    for (auto _ : state) state.SetIterationTime(*seconds++);
    if (of.bytes > 0) state.SetBytesProcessed(std::llround(of.bytes * static_cast<double>(state.iterations())));
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
  bool to_file = false, as_json = true;    // Google Benchmark takes a reporter of ours only where there is such a file
  bool by_time = false, repeated = false;  // what a benchmark says by itself goes before what the command line says
  for (int a = 1; a < argc; ++a) {
    const std::string_view option = argv[a];
    to_file = to_file || option.starts_with("--benchmark_out=");
    if (option.starts_with("--benchmark_out_format=")) as_json = option.ends_with("=json");
    by_time = by_time || option.starts_with("--benchmark_min_time=");
    repeated = repeated || option.starts_with("--benchmark_repetitions=");
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
  describe_build();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  for (const row& each : rows()) {
    auto* const registered =
        benchmark::RegisterBenchmark(each.name.c_str(), [&each](benchmark::State& state) { report(state, each); });
    registered->UseManualTime()->Unit(benchmark::kMicrosecond)->DisplayAggregatesOnly();
    if (!by_time) registered->Iterations(each.iterations);
    if (!repeated) registered->Repetitions(5);
  }
  whole_json file;
  benchmark::RunSpecifiedBenchmarks(nullptr, to_file && as_json ? &file : nullptr);
  if (!std::cout.flush() || std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    std::fputs("standard output: cannot be written\n", stderr);
    failed = true;
  }
  return failed ? 1 : 0;
}
