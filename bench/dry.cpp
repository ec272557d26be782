// SPDX-License-Identifier: Apache-2.0
// Runs every row once, at toy sizes, under the SIMT shim: that they run is all that is shown. No times.
#include <rows.hpp>

#include <cmath>   // std::isfinite
#include <cstdio>  // std::printf

int main() {
  using namespace zoomr_bench;
  add_copy_rows();
  add_attend_rows();
  add_choose_rows();
  add_step_rows();
  add_transfer_rows();
  add_host_rows();
  add_file_rows();
  int faults = 0;
  for (const row& each : rows()) {
    try {
      const result of = each.run(each.iterations);
      bool sound = static_cast<int>(of.seconds.size()) == each.iterations;
      for (const auto& [name, value] : of.figures) sound = sound && std::isfinite(value);
      faults += sound ? 0 : 1;
      std::printf("%s %s", sound ? "runs " : "WRONG", each.name.c_str());
      for (const auto& [name, value] : of.figures) {
        for (const char* count : {"attended", "context", "passes", "segments", "splits"}) {
          if (name == count) std::printf(", %s %g", count, value);
        }
      }
      std::printf("\n");
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
