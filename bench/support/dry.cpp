// SPDX-License-Identifier: Apache-2.0
// Runs every row once, at toy sizes, under the SIMT shim: that it runs, and that its output is right. No times.
//   bench_dry            exit status 1 if a row fails
//   bench_dry --faults   plants a fault into what each row compares: exit status 1 if one does not notice
#include <cmath>        // std::isfinite
#include <cstdio>       // std::printf
#include <string_view>  // std::string_view

#include "check.hpp"
#include "kernels.hpp"
#include "rows.hpp"

namespace {

using namespace zoomr_bench;

/// @return  faults
int run(const row& each) {
  const result of = each.run(each.iterations);
  bool sound = static_cast<int>(of.seconds.size()) == each.iterations;
  for (const auto& [name, value] : of.figures) sound = sound && std::isfinite(value);
  std::printf("%s %s", sound ? "runs " : "WRONG", each.name.c_str());
  if (each.name.starts_with("flashinfer")) std::printf(", with a stand-in for FlashInfer");
  for (const auto& [name, value] : of.figures) {
    for (const char* count : {"attended", "context", "passes", "segments", "splits"}) {
      if (name == count) std::printf(", %s %g", count, value);
    }
  }
  std::printf("\n");
  return sound ? 0 : 1;
}

/// @return  1 if the planted fault is not noticed
int run_with_fault(const row& each) {
  const bool has_output = !each.name.starts_with("nothing/");
  try {
    each.run(each.iterations);
  } catch (const wrong& noticed) {
    std::printf("notices %s: %s\n", each.name.c_str(), noticed.what());
    return has_output ? 0 : 1;
  }
  std::printf("%s %s\n", has_output ? "OVERLOOKS" : "has no output:", each.name.c_str());
  return has_output ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  planted_faults() = argc > 1 && std::string_view(argv[1]) == "--faults";
  add_device_rows();
  add_host_rows();
  int faults = 0;
  for (const row& each : rows()) {
    try {
      faults += planted_faults() ? run_with_fault(each) : run(each);
    } catch (const std::exception& fault) {
      ++faults;
      std::printf("WRONG %s: %s\n", each.name.c_str(), fault.what());
    }
    std::fflush(stdout);
  }
  std::printf("%zu rows, %d faults\n", rows().size(), faults);
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    std::fputs("bench_dry: standard output: cannot be written\n", stderr);
    return 2;
  }
  return faults == 0 ? 0 : 1;
}
