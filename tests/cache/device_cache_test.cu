// SPDX-License-Identifier: Apache-2.0
// The device cache plays what the host's plays: every query attends the same positions, and gets the same output but
// for the order of summation.
#include <cache/device_against_host.hpp>
#include <cache/small_policies.hpp>

#include <doctest/doctest.h>

namespace zoomr_test {
namespace {

// SentenceKV without retention: the running mean of queries asks.
inline constexpr auto running_sentences =
    zoomr::compose(zoomr::sentences{.longest = 20}, zoomr::key_mean{}, zoomr::mean_dot{}, zoomr::running_mean{},
                   zoomr::fill_budget{.tokens = 40}, zoomr::every_token{.everything_until = 1},
                   zoomr::zones{.sinks = 4, .recent = 6, .open = 30});
inline constexpr auto each_head = with(running_sentences, [](auto& p) { p.agree.per = zoomr::scope::head; });
inline constexpr auto each_layer = with(small::quest, [](auto& p) { p.agree.per = zoomr::scope::layer; });

/// Three texts of four; the last is fed as a graph would be.
template <class Policy>
void check_texts(const Policy& policy, std::uint64_t first = 1) {
  constexpr kind looks[] = {kind::uniform, kind::peaked, kind::ties};
  constexpr markup texts[] = {markup::pairs, markup::stray, markup::sentences, markup::summaries_alone};
  for (std::uint64_t seed = first; seed < first + 3; ++seed) {
    check(policy, looks[seed % 3], texts[seed % 4], seed, seed == first + 2);
  }
}

}  // namespace

TEST_CASE("full and window") {
  check_texts(small::full);
  check_texts(small::window);
}
TEST_CASE("zoomr: votes of all layers, stale") { check_texts(small::zoomr); }
TEST_CASE("zoomr_mass: mass of all layers, asked again") { check_texts(small::zoomr_mass); }
TEST_CASE("zoomr_focus: each layer alone, in the same pass") { check_texts(small::zoomr_focus); }
TEST_CASE("zoomr_follow: each layer alone, at every token") { check_texts(small::zoomr_follow); }
TEST_CASE("sentence_box") { check_texts(small::sentence_box); }
TEST_CASE("sentences by the running mean of queries, each KV head or each head alone") {
  check_texts(running_sentences);
  check(each_head, kind::peaked, markup::sentences, 5);
}
TEST_CASE("quest, and for each layer") {
  check_texts(small::quest);
  check(each_layer, kind::ties, markup::stray, 6);
}
TEST_CASE("arkvale and shadowkv") {
  check_texts(small::arkvale);
  check_texts(small::shadowkv, 2);
}
TEST_CASE("several sequences at once") {
  check_together(with(small::quest, [](auto& p) { p.segment.longest = 1; }), 1);
  check_together(small::zoomr_mass, 2);
  check_together(running_sentences, 3);
}
TEST_CASE("summaries only") { check_texts(small::summary_only); }

}  // namespace zoomr_test
