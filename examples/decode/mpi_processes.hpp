// SPDX-License-Identifier: Apache-2.0
// The processes that mpirun has started, as one program; no word of MPI.
#pragma once

#include <zoomr/core/function_ref.hpp>
#include <zoomr/core/ranks/rank_group.hpp>

namespace decode {

/// Runs work(ranks) in each process. Only what the first one prints is seen. Whatever fails, on one rank or on all,
/// ends them all, and one of them says why: one that has failed by itself before one that waited for others in vain.
/// @param work  returns the exit status
/// @throws input_error  in a build without MPI; on the rank that speaks what `work` throws
/// @cost   a rank that is gone is waited for 30 s where heads meet, and 10 s at the end
int run_by_mpi(zoomr::function_ref<int(const zoomr::rank_group& ranks)> work);

}  // namespace decode
