// SPDX-License-Identifier: Apache-2.0
// Compiles only if all of zoomr can be imported into the global namespace beside the names of POSIX and the standard
// library, and beside an `index` of the user's own.
#include <algorithm>
#include <cmath>
#include <functional>
#include <ranges>
#include <string>
#include <thread>
#include <vector>

#if defined(__unix__)
#include <dirent.h>
#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <termios.h>
#include <unistd.h>
#endif

#include <zoomr/policy/placement/tiered.hpp>
#include <zoomr/presets/table.hpp>
#include <zoomr/zoomr.hpp>

using namespace zoomr;

/// The user's own; POSIX has one for strings.
static int index(int of) { return of; }

constexpr auto mine = compose(sentences{.longest = 64}, key_mean{}, mean_dot{}, top_p{}, head_mass{}, every_token{},
                              zones{.sinks = 4, .recent = 32}, placement{.details_on_host = true});

kv_cache<policy_of<mine>> open_mine(const std::vector<token_class>& classes) {
  const shape model{2, 4, 2, 64};
  return {model, mine, config{.max_tokens = 1024, .classes = classes}};
}

index_t pass(kv_cache<policy_of<mine>>& cache, sequence seq, view<const token_id> ids) {
  auto step = cache.begin(seq, ids, true);
  token_range range{0, step.taken(0)};
  return index(range.size());
}
