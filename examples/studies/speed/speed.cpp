// SPDX-License-Identifier: Apache-2.0
#include "speed.hpp"

#include <unistd.h>  // sysconf
#if defined(__GLIBC__)
#include <malloc.h>  // malloc_trim
#endif

#include <algorithm>  // std::minmax_element, std::ranges::sort
#include <chrono>     // std::chrono::steady_clock
#include <fstream>    // std::ifstream
#include <iostream>   // std::cout
#include <optional>   // std::optional

#include <zoomr/core/threads/thread_pool.hpp>

#include "../../decode/input_error.hpp"
#include "../../decode/progress.hpp"
#include "../../decode/session.hpp"
#include "../../decode/table.hpp"
#include "../../decode/tiers.hpp"
#include "../evaluate/policy_spec.hpp"
#include "context.hpp"
#include "random_model.hpp"

namespace decode::speed {
namespace {

using zoomr::byte_count;

constexpr index_t warm_up = 24;  // tokens before the timed ones: one of them ends a sentence

/// Bytes of this process that are in memory, but for those of files, such as the program itself.
byte_count resident_bytes() {
#if defined(__GLIBC__)
  malloc_trim(0);  // what was freed does not count, and is not taken again unseen
#endif
  std::ifstream file("/proc/self/statm");
  byte_count all = 0, resident = 0, of_files = 0;
  file >> all >> resident >> of_files;
  return (resident - of_files) * sysconf(_SC_PAGESIZE);
}

/// One row of the table.
struct figures {
  std::string policy;
  index_t context = 0;
  std::vector<double> speeds;  // [rounds]  tokens per second
  double attended = 0;         // tokens per query, while timed
  byte_count device = 0;       // accounted peak; over tiers what memory has taken
  byte_count accounted = 0;    // what the cache says to hold
  byte_count grown = 0;        // what the process holds more with the cache

  double median() const {
    std::vector<double> sorted = speeds;
    std::ranges::sort(sorted);
    const std::size_t half = sorted.size() / 2;
    return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
  }
};

/// Everything that the measurements share.
struct bench {
  const options& given;
  tier_options tiers;
  model net;
  zoomr::executor threads;
  std::vector<zoomr::token_class> classes;  // [V]
  context_writer writer;

  bench(const options& from, const tier_options& of, model made, const zoomr::executor& on)
      : given(from),
        tiers(of),
        net(std::move(made)),
        threads(on),
        classes(text::classes(net.config().vocab)),
        writer(shape_of(net)) {}
};

/// The cache is filled, and read by tokens that the model decodes.
/// @param choosing  the policy chooses at each token
/// @param before    bytes of the process without the cache
template <class Placement>
void measure(bench& on, session<Placement>& run, bool choosing, const text& says, const std::string& label,
             byte_count before, figures& found) {
  constexpr bool tiered = zoomr::tiered_placement<Placement>;
  const zoomr::sequence seq = run.at(0);
  {
    progress bar(label, static_cast<std::size_t>(says.context));
    on.writer.write(run.cache(), seq, says, choosing,
                    [&](index_t written) { bar.at(static_cast<std::size_t>(written)); });
  }
  const auto advance = [&](index_t first, index_t count) {
    for (index_t t = first; t < first + count; ++t) {
      const token_id id = says.at(t);
      run.advance({&id, 1});
    }
  };
  advance(says.context, warm_up);
  const std::int64_t attended = run.cache().stats(seq).attended;
  const auto begin = std::chrono::steady_clock::now();
  advance(says.context + warm_up, on.given.generated);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  found.speeds.push_back(on.given.generated / seconds);
  if (found.speeds.size() > 1) return;  // the rest is the same in each round

  const zoomr::shape shape = shape_of(on.net);
  const zoomr::memory_use capacity = run.cache().capacity();
  found.attended = static_cast<double>(run.cache().stats(seq).attended - attended) /
                   (static_cast<double>(on.given.generated) * shape.layers * shape.heads);
  found.device = tiered ? capacity.total() : run.cache().stats(seq).device_peak;
  found.accounted = capacity.total();
  found.grown = resident_bytes() - before;
}

/// One round: a cache is made, filled, and read.
template <class Policy>
void measure(bench& on, const Policy& policy, const text& says, const std::string& label, figures& found) {
  constexpr bool tiered = zoomr::tiered_placement<decltype(Policy::placement)>;
  const index_t tokens = says.context + warm_up + on.given.generated;
  index_t segments = tiered ? on.tiers.segments : 0;
  if (segments == 0) {
    const auto resident = with_placement(policy, zoomr::placement{});
    segments = std::max(1, segments_of(resident, says, tokens, shape_of(on.net).layers, on.classes) + 1);
  }
  const byte_count before = resident_bytes();
  session run(on.net, policy, 1, tokens, on.classes, 1, false, on.tiers.limits(), segments, on.threads);
  measure(on, run, policy.refresh.each_token(), says, label, before, found);
}

/// A policy, and how it was written.
struct task {
  policy_choice choice;
  std::string spec;
};

/// What is to be compared; all checked before anything is made.
std::vector<task> tasks_of(const options& given) {
  std::vector<task> all;
  bool used = given.settings.empty();
  for (const std::string& spec : given.policies) {
    const policy_choice own = read_policy(spec);
    task t{own, spec};
    const bool full = own.name == "full";  // what others are compared with
    const auto everywhere = full ? std::vector<std::string>{} : given.settings;
    t.choice.settings.insert(t.choice.settings.begin(), everywhere.begin(), everywhere.end());
    with_policy(t.choice, [&](const auto& policy) { expect_options(policy, spec, own, everywhere); });
    used = used || !full;
    all.push_back(std::move(t));
  }
  if (!used) fail("--set ", given.settings.front(), ": it is not for full, and no other policy is chosen");
  return all;
}

model_config shape_from(const options& given) {
  const model_config c = read_config_file(given.shape_file);
  expect_layers_alike(c, "zoomr-eval speed");
  if (c.vocab <= static_cast<std::size_t>(text::plain))
    fail(given.shape_file, ": vocab_size is ", c.vocab, ", but must be at least ", text::plain + 1, " here");
  for (const index_t context : given.contexts) {
    const std::int64_t tokens = std::int64_t{context} + warm_up + given.generated;
    if (tokens > static_cast<std::int64_t>(c.context))
      fail("a context of ", context, " tokens, ", warm_up, " of warm-up and ", given.generated,
           " that are timed are more than this shape's ", c.context);
  }
  return c;
}

std::string mib(byte_count bytes) { return fixed(static_cast<double>(bytes) / (1 << 20), 1); }
std::string percent_more(byte_count a, byte_count than) {
  const double share = static_cast<double>(a) / static_cast<double>(than) - 1;
  return (share >= 0 ? "+" : "") + fixed(100 * share, 1);
}

void print_table(const std::vector<figures>& all) {
  table out({"policy", "context", "tokens/s", "min", "max", "x full", "attended", "device MiB", "cache MiB",
             "resident MiB", "beyond %"});
  for (const figures& f : all) {
    const auto [least, most] = std::minmax_element(f.speeds.begin(), f.speeds.end());
    const auto full = std::find_if(all.begin(), all.end(),
                                   [&](const figures& g) { return g.policy == "full" && g.context == f.context; });
    out.add({f.policy, std::to_string(f.context), fixed(f.median(), 2), fixed(*least, 2), fixed(*most, 2),
             full == all.end() ? "-" : fixed(f.median() / full->median(), 2), fixed(f.attended, 1), mib(f.device),
             mib(f.accounted), mib(f.grown), percent_more(f.grown, f.accounted)});
  }
  out.print(std::cout);
}

}  // namespace

void run(const options& given) {
  const std::vector<task> tasks = tasks_of(given);
  const tier_options tiers = given.tiers.empty() ? tier_options{} : parse_tiers(given.tiers);
  const model_config config = shape_from(given);
  std::optional<zoomr::thread_pool> pool;
  if (given.threads > 1) pool.emplace(given.threads);
  const zoomr::executor threads = pool ? zoomr::executor(*pool) : zoomr::executor{};

  const byte_count before = resident_bytes();
  model_weights weights = random_weights(config, threads);
  const auto bytes = static_cast<byte_count>(matrix_bytes(weights));
  std::cout << "The weights are random, " << mib(bytes) << " MiB of bfloat16, resident "
            << mib(resident_bytes() - before) << ".\nKeys and values of a context are random float32, written to the "
            << "cache as they are: the model has not computed them.\n"
            << given.generated << " tokens are decoded by the model after " << warm_up << " of warm-up, with "
            << given.threads << (given.threads > 1 ? " threads" : " thread") << ", " << zoomr::statistics::cpu_path()
            << ".\n\n"
            << std::flush;
  bench on(given, tiers, model(config, std::move(weights), threads), threads);

  std::vector<figures> all;
  for (const index_t context : given.contexts) {
    const std::size_t first = all.size();
    for (const task& t : tasks) all.push_back({t.spec, context, {}, 0, 0, 0, 0});
    for (index_t round = 0; round < given.rounds; ++round) {
      for (std::size_t i = 0; i < tasks.size(); ++i) {
        with_policy(tasks[i].choice, [&](const auto& policy) {
          constexpr bool thoughts = requires { policy.segment.own_cue; };
          const text says{context, thoughts, static_cast<index_t>(config.vocab)};
          const std::string label = tasks[i].spec + ", " + std::to_string(context) + " tokens, round " +
                                    std::to_string(round + 1) + "/" + std::to_string(given.rounds);
          if (tiers.given() && tasks[i].choice.name != "full")
            measure(on, with_placement(policy, zoomr::tiered<>{}), says, label, all[first + i]);
          else
            measure(on, policy, says, label, all[first + i]);
        });
      }
    }
  }
  print_table(all);
}

}  // namespace decode::speed
