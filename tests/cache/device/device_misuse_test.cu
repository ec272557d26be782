// SPDX-License-Identifier: Apache-2.0
// Mistakes in a step of a device cache that the host can tell, each in a sentence.
#include <cache/device/device_driving.hpp>
#include <cache/support/small_policies.hpp>
#include <zoomr/policy/placement/tiered.hpp>

#include <doctest/doctest.h>

namespace zoomr_test {
namespace {

using zoomr::sequence;
using zoomr::step_item;
using zoomr::stream_ref;

constexpr shape of_device{2, 4, 2, 8};
using snapkv_type = std::remove_const_t<decltype(small::snapkv)>;
using snapkv_cache = zoomr::device_cache<snapkv_type, float, 8, 2>;

/// A cache on the device, and numbers for steps of up to 40 tokens.
struct on_device {
  zoomr::config limits = limits_for(60, 2);
  device_array<std::byte> memory;
  device_array<float> given, out;
  snapkv_cache cache;
  const stream_ref on{};

  on_device()
      : memory(snapkv_cache::bytes(of_device, small::snapkv, limits, 2) + 256, std::byte{}),
        given(40 * 4 * 8, 0.5f),
        out(40 * 4 * 8, 0.0f),
        cache(of_device, small::snapkv, limits, aligned(), stream_ref{}, 2) {}
  void* aligned() { return memory.data() + (256 - reinterpret_cast<std::uintptr_t>(memory.data()) % 256) % 256; }
  zoomr::view<const float, 3> kv(index_t tokens) { return {given.data(), {tokens, 2, 8}}; }
  zoomr::view<const float, 3> q(index_t tokens) { return {given.data(), {tokens, 4, 8}}; }
  zoomr::view<float, 3> o(index_t tokens) { return {out.data(), {tokens, 4, 8}}; }

  template <class Step>
  void layer(Step& step, index_t at, index_t tokens) {
    step.append(at, kv(tokens), kv(tokens), on);
    step.attend(at, q(tokens), o(tokens), {}, on);
  }
  /// A sequence whose prompt of 12 tokens has ended.
  sequence after_prompt() {
    const sequence seq = cache.open();
    const std::vector<token_id> prompt(12, plain_id);
    auto step = cache.begin(seq, prompt, true);
    step.start(on);
    layer(step, 0, 12), layer(step, 1, 12);
    step.commit(12, on);
    return seq;
  }
};

TEST_CASE("a device cache refuses to measure captured attention") {
  zoomr::config limits = limits_for(60, 2);
  limits.audit = true;
  CHECK(mistake_of([&] { snapkv_cache::bytes(of_device, small::snapkv, limits, 2); }).find("config.audit") !=
        std::string::npos);
}

TEST_CASE("a device cache refuses layers that share keys") {
  const std::vector<zoomr::index_t> donors{0, 0};
  zoomr::config limits = limits_for(60, 2);
  limits.donors = zoomr::view<const zoomr::index_t>(donors);
  CHECK(mistake_of([&] { snapkv_cache::bytes(of_device, small::snapkv, limits, 2); }) ==
        "zoomr: config: donors are for host caches: in a device's each layer has keys of its own");
}

TEST_CASE("a device cache refuses layers that read another one's choice, and questions that are turned") {
  using focus_type = std::remove_const_t<decltype(small::zoomr_focus)>;
  const std::vector<zoomr::index_t> anchors{0, 0};
  zoomr::config limits = limits_for(60, 2);
  limits.anchors.layers = zoomr::view<const zoomr::index_t>(anchors);
  CHECK(mistake_of([&] {
          zoomr::device_cache<focus_type, float, 8, 2>::bytes(of_device, small::zoomr_focus, limits);
        }) == "zoomr: config: anchors are for host caches: in a device's each layer chooses for itself");
  const auto asked = with(small::sentence_voters, [](auto& p) { p.aggregate.question = 11; });
  limits = with_rotary(with_voters(asked, limits_for(60, 2), of_device));
  CHECK(mistake_of([&] {
          zoomr::device_cache<std::remove_const_t<decltype(asked)>, float, 8, 2>::bytes(of_device, asked, limits);
        }) == "zoomr: config: rotary, by which a question before a long text scores, is for host caches");
}

TEST_CASE("a device that evicts by attention takes no spans, and has no room for a question") {
  on_device given;
  const std::vector<token_id> ids(4, plain_id);
  const zoomr::token_span span{{0, 2}};
  step_item item{given.cache.open(), view<const token_id>(ids)};
  item.spans = view<const zoomr::token_span>(&span, {1});
  CHECK(mistake_of([&] { given.cache.begin(view<const step_item>(&item, {1})); }) ==
        "zoomr: begin: an item names spans, but on a device the policy evicts tokens by attention, theirs too");
  const auto with_question = with(small::snapkv, [](auto& p) { p.zone.question = 5; });
  CHECK(mistake_of([&] { snapkv_cache::bytes(of_device, with_question, given.limits, 2); }) ==
        "zoomr: device_cache: an evictor that observes keeps no question on a device: zones.question must be 0");
}

TEST_CASE("a device cache refuses a file under its pinned memory, and pinned memory for a part of its pages") {
  const auto policy = with_placement(small::snapkv, zoomr::tiered<>{});
  using tiered_cache = zoomr::device_cache<std::remove_const_t<decltype(policy)>, float, 8, 2>;
  zoomr::config limits = limits_for(60, 2);
  limits.tiers.device = 1 << 20;
  const auto refused = [&] { return mistake_of([&] { tiered_cache::bytes(of_device, policy, limits, 2); }); };
  CHECK(refused() == "");
  limits.tiers.file = 1 << 30;
  limits.tiers.path = "/tmp/details";
  CHECK(refused() ==
        "zoomr: device_cache: all pages are in pinned memory, with no file under it: config.tiers.file must be 0");
  limits.tiers.file = 0;
  const zoomr::byte_count all = tiered_cache::host_bytes(of_device, policy, limits);
  limits.tiers.host = all;
  CHECK(refused() == "");
  limits.tiers.host = all - 1;
  CHECK(refused() == "zoomr: config: tiers.host must be 0 or at least device_cache::host_bytes(...)");
}

TEST_CASE("a device cache refuses tables of scales") {
  const std::vector<float> ones(4, 1.0f);
  for (const bool of_keys : {true, false}) {
    zoomr::config limits = limits_for(60, 2);
    (of_keys ? limits.key_scale : limits.value_scale) = zoomr::view<const float, 2>(ones.data(), {2, 2});
    CHECK(mistake_of([&] { snapkv_cache::bytes(of_device, small::snapkv, limits, 2); }).find("no tables") !=
          std::string::npos);
  }
}

}  // namespace

TEST_CASE("calls of a device step that are forgotten, come twice or out of order are told") {
  on_device given;
  const std::vector<token_id> one{plain_id};
  const sequence seq = given.after_prompt();
  auto step = given.cache.begin(seq, one);
  CHECK(mistake_of([&] { given.layer(step, 0, 1); }) ==
        "zoomr: append: enqueue `start` before, and `restart` before the second pass");
  step.start(given.on);
  CHECK(mistake_of([&] { given.layer(step, 1, 1); }) ==
        "zoomr: append: layers ascend on a device, so that layer 0 comes before layer 1");
  CHECK(mistake_of([&] { step.attend(0, given.q(1), given.o(1), {}, given.on); }) ==
        "zoomr: attend: append the keys of layer 0 before, in the same pass");
  CHECK(mistake_of([&] { step.append(0, given.q(1), given.kv(1), given.on); }) ==
        "zoomr: append: keys are [1, 4, 8], wanted [1, 2, 8]");
  CHECK(mistake_of([&] { step.append(2, given.kv(1), given.kv(1), given.on); }) ==
        "zoomr: append: there is no layer 2, the model has 2");
  given.layer(step, 0, 1);
  CHECK(mistake_of([&] { given.layer(step, 0, 1); }).find("was attended or observed") != std::string::npos);
  CHECK(mistake_of([&] { step.commit(1, given.on); }) ==
        "zoomr: commit: tokens of item 0 are accepted, but layer 1 of 2 was not appended");
  step.append(1, given.kv(1), given.kv(1), given.on);
  CHECK(mistake_of([&] { step.commit(1, given.on); }).find("layer 1 of 2 was not attended") != std::string::npos);
  step.attend(1, given.q(1), given.o(1), {}, given.on);
  CHECK(mistake_of([&] { step.commit(2, given.on); }) ==
        "zoomr: commit: 2 tokens of item 0 are accepted, wanted 0 ... 1");
  CHECK(!step.needs_second_pass(0));
  CHECK(mistake_of([&] { step.commit(1, given.on); }) ==
        "zoomr: commit: `needs_second_pass` was told that 0 tokens of item 0 are accepted, not 1");
  CHECK(!step.needs_second_pass(1));
  step.commit(1, given.on);
  CHECK(given.cache.tokens(seq) == 13);
}

TEST_CASE("of a step for a graph all calls are made, or none, which a graph has made then") {
  on_device given;
  const std::vector<token_id> one{plain_id};
  const sequence seq = given.after_prompt();
  {
    auto step = given.cache.begin(seq, one, false, true);
    step.start(given.on);
    const index_t any = given.cache.arrays().sizes.decode_tokens;
    CHECK(mistake_of([&] { given.layer(step, 0, any - 1); }).find("wanted [" + std::to_string(any)) !=
          std::string::npos);
    given.layer(step, 0, any);
    CHECK(mistake_of([&] { step.commit(1, given.on); }).find("layer 1 of 2 was not appended") != std::string::npos);
  }
  auto replayed = given.cache.begin(seq, one, false, true);
  CHECK(mistake_of([&] { replayed.commit(1, given.on); }).find("the device was not told of this pass") !=
        std::string::npos);
  replayed.upload(given.on);
  CHECK(mistake_of([&] { replayed.commit(1, given.on); }) == "");
}

TEST_CASE("a device cache refuses sequences that were closed, ids without a class, and ends that nobody has seen") {
  on_device given;
  const std::vector<token_id> one{plain_id}, behind{static_cast<token_id>(vocabulary)}, many(40, plain_id);
  const sequence old = given.after_prompt();
  given.cache.close(old);
  const sequence seq = given.cache.open();
  CHECK(mistake_of([&] { given.cache.begin(old, one); }) ==
        "zoomr: sequence 0 is not open: it was closed, and another may have its id since");
  CHECK(mistake_of([&] { given.cache.begin(seq, behind); }).find("token id 64 has no class") != std::string::npos);
  {
    auto step = given.cache.begin(seq, many);
    step.start(given.on);
    for (index_t layer = 0; layer < 2; ++layer) step.append(layer, given.kv(40), given.kv(40), given.on);
    step.commit(40, given.on);
  }
  CHECK(mistake_of([&] { given.cache.begin(seq, one, true); }).find("from token 33 on") != std::string::npos);
  given.cache.rollback(seq, 33);
  const std::vector<token_id> rest(8, plain_id);
  CHECK(given.cache.begin(seq, rest, true).tokens() == 8);
}

TEST_CASE("heads that vote are refused what a device does not do for them") {
  zoomr::config limits = with_voters(small::zoomr_voters, limits_for(60), of_device);
  limits.tiers.device = 1 << 20;
  const auto refused = [&](const auto& policy) {
    using policy_type = std::remove_cvref_t<decltype(policy)>;
    return mistake_of([&] { zoomr::device_cache<policy_type, float, 8, 2>::bytes(of_device, policy, limits); });
  };
  CHECK(refused(small::zoomr_voters) == "");
  CHECK(refused(with_placement(small::zoomr_voters, zoomr::tiered<>{})) ==
        "zoomr: device_cache: heads that vote read the keys of all segments at each choice, so the placement must not "
        "be tiered");
  const auto sentence = "zoomr: device_cache: where heads vote, no query source that sums";
  CHECK(refused(zoomr::compose(small::zoomr_voters.segment, zoomr::key_mass{}, zoomr::head_posterior{},
                               zoomr::top_p{.share = 0.9f}, zoomr::every_token{}, zoomr::running_mean{})) == sentence);
  limits.voters = {};
  CHECK(refused(small::zoomr_voters).find("so voters must have the weights of all heads") != std::string::npos);
}

}  // namespace zoomr_test
