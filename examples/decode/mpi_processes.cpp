// SPDX-License-Identifier: Apache-2.0
#include "mpi_processes.hpp"

#if defined(DECODE_MPI)
#include <zoomr/core/error.hpp>
#include <zoomr/core/ranks/mpi_ranks.hpp>

#include <algorithm>  // std::max_element
#include <chrono>     // std::chrono::seconds
#include <exception>  // std::exception_ptr
#include <memory>     // std::make_unique
#include <string>     // std::to_string
#include <thread>     // std::this_thread::sleep_for
#include <vector>     // std::vector

#include <fcntl.h>   // open
#include <unistd.h>  // dup, dup2
#else
#include "input_error.hpp"
#endif

namespace decode {

#if defined(DECODE_MPI)
int run_by_mpi(zoomr::function_ref<int(const zoomr::rank_group& ranks)> work) {
  int threads = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &threads);
  auto heads = std::make_unique<zoomr::mpi_ranks>(MPI_COMM_WORLD);
  auto ends = std::make_unique<zoomr::mpi_ranks>(MPI_COMM_WORLD, std::chrono::seconds(10));
  const zoomr::index_t rank = ends->rank(), ranks = ends->ranks();
  const int errors = dup(STDERR_FILENO);
  if (const int nothing = open("/dev/null", O_WRONLY); rank > 0)
    dup2(nothing, STDOUT_FILENO), dup2(nothing, STDERR_FILENO);

  enum : std::int64_t { well, left_alone, failed } outcome = well;
  int status = 0;
  std::exception_ptr why;
  try {
    status = work(*heads);
  } catch (const zoomr::error& error) {
    outcome = error.code() == zoomr::errc::ranks ? left_alone : failed;
    why = std::current_exception();
  } catch (...) {
    outcome = failed;
    why = std::current_exception();
  }
  const std::int64_t own = outcome;
  std::vector<std::int64_t> all(static_cast<std::size_t>(ranks));
  const zoomr::index_t silent = ranks == 1 ? -1 : ends->all_gather({&own, {1}}, {all.data(), {ranks, 1}});
  if (silent < 0) {
    if (ranks == 1) all[0] = own;
    heads.reset(), ends.reset();
    MPI_Finalize();
    const auto worst = std::max_element(all.begin(), all.end());
    if (*worst == well) return status;
    if (worst - all.begin() != rank) return 0;  // an error would make mpirun end the one that speaks
  } else {
    heads.release(), ends.release();  // to end them, as MPI itself, would wait for all ranks; mpirun ends the others
    if (outcome != failed && rank != (silent == 0 ? 1 : 0)) {
      std::this_thread::sleep_for(std::chrono::seconds(1));  // until the other one has spoken
      return 0;
    }
  }
  dup2(errors, STDERR_FILENO);
  if (why) std::rethrow_exception(why);
  throw zoomr::error(zoomr::errc::ranks, "ranks: rank " + std::to_string(silent) + " has not come to its end");
}
#else
int run_by_mpi(zoomr::function_ref<int(const zoomr::rank_group& ranks)>) {
  fail("--mpi: this build has no MPI; install libopenmpi-dev, or another MPI, and configure again");
}
#endif

}  // namespace decode
