// SPDX-License-Identifier: Apache-2.0
// The first minute on a GPU: is it right, and what does a token take? The program needs a driver and nothing else.
//   device_smoke [check] [times] [--policies=NAME,...] [--contexts=TOKENS,...]    without a word: check, then times
// Some presets, in bfloat16, head_dim 128, four query heads to a KV head.
//   check  A device cache and the host's play the same texts: a prompt in chunks, then single tokens, begun as for a
//          graph; and another one with drafts. Each query must attend the same tokens, and outputs may differ by what
//          rounding explains. Presets have small numbers, so that all they do happens within some hundred tokens.
//   times  A decoding step of one sequence, 8 KV heads, 8 layers, with a cold L2: launch by launch, and as a replayed
//          graph; beside them a copy on the device that reads and writes as many bytes as the keys and values that are
//          attended. bench/support/step_rows.hpp makes the steps, and says what it checks before it times them.
// Exit status: 0; 1 if something is wrong; 2 for a command line that is; 77 without a device.
// Under the SIMT shim sizes are toys, and times mean nothing.
#include <bench/support/step_rows.hpp>
#include <cache/device/device_driving.hpp>
#include <cache/support/small_policies.hpp>

#include <algorithm>    // std::find
#include <concepts>     // std::same_as
#include <cstdio>       // std::fflush, std::fprintf, std::printf
#include <cstdlib>      // std::strtol
#include <exception>    // std::exception
#include <stdexcept>    // std::invalid_argument
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#if !defined(ZOOMR_SIMT)
#include <support/device_presence.hpp>
#endif

namespace {

using zoomr::bfloat16, zoomr::index_t;
using zoomr_bench::head_dim, zoomr_bench::toy;

constexpr index_t group = 4;                              // query heads of a KV head
constexpr zoomr::shape model{2, 2 * group, 2, head_dim};  // that is checked

/// What the command line says.
struct command {
  bool help = false, check = true, times = true;
  std::vector<std::string> policies = {};  // none: all
  std::vector<index_t> contexts = toy ? std::vector<index_t>{120} : std::vector<index_t>{4096, 32768, 131072};

  bool names(std::string_view policy) const {
    return policies.empty() || std::find(policies.begin(), policies.end(), policy) != policies.end();
  }
};

/// A preset as it is timed: sentences of 24 tokens, and no layer that attends to everything.
template <class Policy>
constexpr Policy timed(Policy preset) {
  if constexpr (std::same_as<decltype(preset.segment), zoomr::sentences>) preset.segment.longest = 24;
  preset.zone.dense_layers = 0;
  return toy ? zoomr_test::shrunk(preset) : preset;
}

/// visit(name, preset, the same as it is timed, text of so many tokens) for each policy that the command names; `full`
/// is the first.
template <class Visit>
void each_policy(const command& wanted, Visit visit) {
  namespace presets = zoomr::presets;
  using namespace zoomr_bench;
  const auto next = [&](const char* name, const auto& preset, const auto& as_timed, auto text_of) {
    if (wanted.names(name)) visit(name, preset, as_timed, text_of);
  };
  next("full", presets::full, presets::full, long_prompt);
  next("sentence_kv", presets::sentence_kv, timed(presets::sentence_kv_with(1024, 0)), long_prompt);  // evicts nothing
  next("quest", presets::quest, timed(presets::quest), long_prompt);
  next("sentence_voters", presets::sentence_voters, timed(presets::sentence_voters), long_prompt);
  next("zoomr_focus", presets::zoomr_focus, timed_policies::zoomr_focus, thoughts_after_prompt);
  next("zoomr_mass", presets::zoomr_mass, timed_policies::zoomr_mass, thoughts_after_prompt);
}

/// A line, written at once: what a time limit leaves is whole.
template <class... Parts>
void say(const char* line, Parts... parts) {
  std::printf(line, parts...);
  std::fflush(stdout);
}

/// Plays one text with both caches.
/// @param drafts    of three tokens each; or single tokens, begun as for a graph
/// @param rounding  what outputs may differ by beside the order of summation
/// @throws std::exception  where a step does not become what was planned, or the device has failed
template <class Policy>
zoomr_test::log_comparison play_both(const Policy& policy, bool drafts, double rounding) {
  using namespace zoomr_test;
  constexpr index_t tokens = toy ? 135 : 400, prompt = toy ? 45 : 200, chunk = 33;
  tape says = make_tape(model, kind::peaked, markup::pairs, tokens, prompt, drafts ? 2 : 1);
  says.numbers.in_16_bits = true;
  zoomr::config limits = limits_for(tokens);
  limits.max_draft_tokens = drafts ? 3 : 1;
  player<Policy, bfloat16> host(model, policy, limits);
  player<Policy, bfloat16, device_as_host<Policy, bfloat16, head_dim, group, bfloat16>> device(model, policy, limits);
  device.cache.fixed = !drafts;
  const auto play = [&](auto& plays) {
    plays.open(says);
    while (!plays.done()) {
      const index_t most = says.in_prompt(plays.tokens()) ? chunk : limits.max_draft_tokens;
      plays.play({part_of(says, 0, plays.tokens(), most)});
    }
  };
  play(host), play(device);
  return compared(host.at(0).log, device.at(0).log, tolerance_of(head_dim, tokens, rounding));
}

/// @return  whether all is right
template <class Policy>
bool check(const char* name, const Policy& policy) {
  using namespace zoomr_test::tolerance;
  // weights on the device, and on a host that multiplies 16 bits in pairs; and outputs, of which none exceeds 1
  constexpr double rounding = 2 * rounded_weights(7, 0) + rounded(7);
  for (const bool drafts : {false, true}) {
    const char* const steps = drafts ? "drafts" : "single tokens";
    try {
      const zoomr_test::log_comparison found = play_both(policy, drafts, rounding);
      if (!found.difference.empty()) {
        const auto row = static_cast<index_t>(found.row);
        say("%-16s %-14s WRONG: token %d, pass %d, layer %d, head %d: %s\n", name, steps, found.place.first,
            found.place.second + 1, row / model.heads, row % model.heads, found.difference.c_str());
        return false;
      }
      say("%-16s %-14s ok, outputs differ by at most %.5f\n", name, steps, found.out);
    } catch (const std::exception& fault) {
      say("%-16s %-14s FAILED: %s\n", name, steps, fault.what());
      return false;
    }
  }
  return true;
}

/// What the repetitions of a row have: the median of their times, and what the last one has counted.
struct timing {
  double us = 0, attended = 0, passes = 0;
};
timing measured(const zoomr_bench::row& row) {
  std::vector<double> us;
  timing result;
  for (int repetition = 0; repetition < (toy ? 1 : 5); ++repetition) {
    const zoomr_bench::result each = row.run(row.iterations);
    us.push_back(zoomr_bench::mean(each.seconds) * 1e6);
    for (const auto& [figure, value] : each.figures) {
      if (figure == "attended") result.attended = value;
      if (figure == "passes") result.passes = value;
    }
  }
  result.us = zoomr_bench::quantile(us, 0.5);
  return result;
}

/// One line of the table.
/// @param full  of the same context, launch by launch and replayed; 0: it was not timed
/// @return  false if an output is wrong, or the device has failed
template <class Policy>
bool time_policy(const char* name, const Policy& policy, const zoomr_bench::text& says, double (&full)[2]) {
  constexpr zoomr_bench::head_count one{.batch = 1};
  constexpr index_t layers = toy ? 2 : 8;
  zoomr_bench::rows().clear();
  zoomr_bench::add_policy<one>(name, policy, says, layers);
  say("%-16s %7d", name, says.timed_from);
  try {
    const timing eager = measured(zoomr_bench::rows().at(0)), graph = measured(zoomr_bench::rows().at(1));
    zoomr_bench::last_kept() = {};  // so that the copy has room
    if (std::string_view(name) == "full") full[0] = eager.us, full[1] = graph.us;
    const double token = 2.0 * one.kv_heads * head_dim * sizeof(bfloat16);
    const double bytes = token * layers * graph.attended * graph.passes;
    const double copy_us = zoomr_bench::copy_seconds(static_cast<std::int64_t>(bytes)) * 1e6;
    say(" %9.1f %9.1f %10.0f %9.1f %9.1f %10.2f %10.2f %10.2f\n", eager.us, graph.us, graph.attended, bytes * 1e-6,
        copy_us, copy_us / graph.us, full[0] / eager.us, full[1] / graph.us);
  } catch (const zoomr_bench::skipped& why) {
    say(" skipped: %s\n", why.what());
  } catch (const std::exception& fault) {
    say(" FAILED: %s\n", fault.what());
    return false;
  }
  return true;
}

int run(const command& wanted) {
  bool right = true;
  if (wanted.check) {
    each_policy(wanted, [&](const char* name, const auto& preset, const auto&, auto) {
      right = check(name, zoomr_test::shrunk(preset)) && right;
    });
  }
  if (wanted.times) {
    say("a copy of 1 GiB on the device: %.0f GB/s, read and written\n", zoomr_bench::copy_bandwidth() * 1e-9);
    say("%-16s %7s %9s %9s %10s %9s %9s %10s %10s %10s\n", "policy", "context", "eager us", "graph us", "attended",
        "MB", "copy us", "copy/graph", "full/eager", "full/graph");
    for (const index_t context : wanted.contexts) {
      double full[2] = {};
      each_policy(wanted, [&](const char* name, const auto&, const auto& as_timed, auto text_of) {
        right = time_policy(name, as_timed, text_of(context), full) && right;
      });
    }
  }
  return right ? 0 : 1;
}

std::vector<std::string> policy_names() {
  std::vector<std::string> names;
  each_policy({}, [&](const char* name, const auto&...) { names.push_back(name); });
  return names;
}

/// What stands between the commas of a list.
std::vector<std::string> split(std::string list) {
  std::vector<std::string> parts;
  for (std::size_t comma; (comma = list.find(',')) != list.npos; list.erase(0, comma + 1)) {
    parts.push_back(list.substr(0, comma));
  }
  parts.push_back(list);
  return parts;
}

/// @throws std::invalid_argument  for what is not known
command command_of(const std::vector<std::string>& words) {
  command result;
  bool only_check = false, only_times = false;
  for (const std::string& word : words) {
    const std::size_t behind = word.find('=') + 1;  // 0: there is none
    const std::string option = word.substr(0, behind);
    if (word == "--help") {
      result.help = true;
    } else if (word == "check" || word == "times") {
      (word == "check" ? only_check : only_times) = true;
    } else if (option == "--policies=") {
      const std::vector<std::string> known = policy_names();
      result.policies = split(word.substr(behind));
      for (const std::string& name : result.policies) {
        if (std::find(known.begin(), known.end(), name) == known.end()) {
          throw std::invalid_argument("there is no policy " + name);
        }
      }
    } else if (option == "--contexts=") {
      result.contexts.clear();
      for (const std::string& number : split(word.substr(behind))) {
        char* end = nullptr;
        const long tokens = std::strtol(number.c_str(), &end, 10);
        if (*end != '\0' || tokens < (toy ? 64 : 1024) || tokens > 1 << 24) {
          throw std::invalid_argument("a context has 1024 tokens or more, not " + number);
        }
        result.contexts.push_back(static_cast<index_t>(tokens));
      }
    } else {
      throw std::invalid_argument(word + " is no option");
    }
  }
  if (only_check != only_times) result.check = only_check, result.times = only_times;
  return result;
}

void help() {
  say("device_smoke [check] [times] [--policies=NAME,...] [--contexts=TOKENS,...]\n"
      "check: what a device cache attends and gives, against the host's; times: what a token takes; else both\n"
      "policies:");
  for (const std::string& name : policy_names()) say(" %s", name.c_str());
  say("\n");
}

}  // namespace

int main(int argc, char** argv) {
  command wanted;
  try {
    wanted = command_of({argv + 1, argv + argc});
  } catch (const std::invalid_argument& fault) {
    std::fprintf(stderr, "device_smoke: %s\n", fault.what());
    return 2;
  }
  if (wanted.help) return help(), 0;
#if !defined(ZOOMR_SIMT)
  if (const int status = zoomr_test::status_without_device(); status != 0) return status;
#endif
  try {
    return run(wanted);
  } catch (const std::exception& fault) {
    std::fprintf(stderr, "device_smoke: %s\n", fault.what());
    return 1;
  }
}
