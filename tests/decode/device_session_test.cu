// SPDX-License-Identifier: Apache-2.0
// The device's decoder and the host's give the same logits and write the same text.
#include <zoomr/policy/placement/tiered.hpp>
#include <zoomr/presets/table.hpp>

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "device_scenes.cuh"
#include "input_error.hpp"
#include "ledger/task.hpp"
#include "token_classes.hpp"
#include "tokenizer.hpp"

namespace decode {
namespace {

/// A program, which is the prompt, and the first two thoughts of its trace: what comes next looks something up in them.
/// @param voters  the weight of each head in choices that heads vote for
scene trace(float voters = 0.0f) {
  const std::filesystem::path trained = std::filesystem::path(DECODE_LEDGER) / "checkpoints" / "indexed";
  model_config config = read_config(trained);
  if (voters > 0.0f) config.voters.assign(config.layers * config.heads, voters);
  scene made(std::move(config), trained);
  const tokenizer words(trained, made.config.vocab);
  made.classes = classify(words, made.config.vocab, {";"});
  const ledger::task constants = ledger::read_task(trained);
  const ledger::problem all =
      ledger::render(constants, ledger::generator(constants, 5).draw(), ledger::scenario::trace);
  int thoughts = 0;
  for (const std::string& symbol : all.tokens) {
    (made.prompt.size() < all.prompt_length ? made.prompt : made.given).push_back(words.id_of(symbol).value());
    if (symbol == "</summary>" && ++thoughts == 2) break;
  }
  return made;
}

/// With a window shorter than a thought.
template <class Policy>
Policy near_sighted(Policy policy) {
  policy.zone.recent = 24;
  return policy;
}

}  // namespace

TEST_CASE("full attention: every token reads all before it") {
  CHECK(compare<64, 2>(trace(), zoomr::presets::full, 256).attended_mean == 150.5);
}

TEST_CASE("zoomr_focus: each layer chooses for itself, in the same pass") {
  CHECK(compare<64, 2>(trace(), near_sighted(zoomr::presets::zoomr_focus), 32).attended_mean < 150);
}

TEST_CASE("zoomr_mass: one choice for all layers, and the token is passed again") {
  const device::run_cost cost = compare<64, 2>(trace(), near_sighted(zoomr::presets::zoomr_mass), 64);
  CHECK(cost.passes == cost.tokens + 3);  // each thought has one `;`
}

TEST_CASE("sentence_box: sentences, at each token, for each KV head") {
  CHECK(compare<64, 2>(trace(), zoomr::presets::sentence_box_with(96), 79).attended_mean <= 96);
}

TEST_CASE("zoomr_voters: heads that vote, weighed by the model's config; without weights there is no session") {
  CHECK(device::unsupported<std::remove_const_t<decltype(zoomr::presets::zoomr_voters)>>() == nullptr);
  auto policy = near_sighted(zoomr::presets::zoomr_voters);
  policy.select.segments = 1;
  CHECK(compare<64, 2>(trace(0.5f), policy, 64).attended_mean < 150);
  scene none = trace();
  device::device_model net(none.config, none.weights, none.most(), 64);
  CHECK_THROWS_WITH_AS((on_device<64, 2>(net, policy, none)),
                       "this policy asks heads that vote: name their weights, --voters FILE", input_error);
}

TEST_CASE("snapkv, sentence_kv: what the end of the prompt does not look at is evicted") {
  CHECK(compare<64, 2>(trace(), zoomr::presets::snapkv_with(64), 64).attended_mean < 150);
  auto sentences = zoomr::presets::sentence_kv_with(96, 1.0f);
  compare<64, 2>(trace(), sentences, 64);
}

TEST_CASE("r_kv and h2o: tokens are evicted while decoding") {
  auto distinct = zoomr::presets::r_kv_with(64);
  distinct.evict.every = 10;
  distinct.evict.attention = 0.5f;  // at 0.07 ratings tie but for the last bits of keys, which differ here
  CHECK(compare<64, 2>(trace(), distinct, 64).attended_mean < 100);
  CHECK(compare<64, 2>(trace(), zoomr::presets::h2o_with(64), 64).attended_mean < 100);
}

TEST_CASE("window: what a policy evicts is evicted on the device too") {
  auto policy = zoomr::presets::window;
  policy.zone.recent = 40;
  CHECK(compare<64, 2>(trace(), policy, 256).attended_mean <= 44);
}

namespace {

/// A checkpoint of one family and its text.
scene family(const std::string& name, index_t prompt) {
  const std::filesystem::path directory = std::filesystem::path(DECODE_FIXTURES) / name;
  scene of(read_config(directory), directory);
  const std::vector<token_id> ids = read_json(directory / "expected.json")["tokens"];
  of.classes.resize(of.config.vocab);
  of.prompt.assign(ids.begin(), ids.begin() + prompt);
  of.given.assign(ids.begin() + prompt, ids.end());
  return of;
}

void compare_families() {
  compare<8, 2>(family("llama", 17), zoomr::presets::full, 5);
  compare<8, 4>(family("qwen2", 1), zoomr::presets::full, 8);
  compare<16, 2>(family("qwen3", 16), zoomr::presets::full, 16);
  compare<24, 2>(family("gemma3", 14), zoomr::presets::full, 9);
}

}  // namespace

namespace {

/// A run with an arena as small as can be, or with `more` pages beside, and one with everything on the device.
template <index_t HeadDim, index_t Group, class Policy>
void compare_tiers(const scene& of, const Policy& policy, index_t chunk, index_t more) {
  CAPTURE(more);
  device::device_model net(of.config, of.weights, of.most(), chunk);
  device::device_session plain = on_device<HeadDim, Group>(net, policy, of);
  const text expected = write(plain, of);

  const auto moved = with_placement(policy, zoomr::tiered<>{});
  device::details_room room{.tiers = {.device = 1}};
  const auto refused = [&] {
    try {
      on_device<HeadDim, Group>(net, moved, of, room);
      return std::string();
    } catch (const zoomr::precondition_error& problem) {
      return std::string(problem.what());
    }
  };
  for (std::size_t at = 0; (at = refused().find("at least ")) != std::string::npos;)
    room.tiers.device = std::stoll(refused().substr(at + 9));
  const zoomr::shape shape = plain.cache().model();
  const zoomr::byte_count block = zoomr::byte_count{2} * shape.kv_heads * zoomr::page_tokens * HeadDim * 4;
  room.tiers.device += more * (block + zoomr::device_arena<float>::frame_bytes);
  device::device_session session = on_device<HeadDim, Group>(net, moved, of, room);
  const text got = write(session, of);
  CHECK(got.tokens == expected.tokens);
  CHECK(got.logits == expected.logits);

  const device::run_cost cost = session.cost();
  CHECK(cost.attended_mean == plain.cost().attended_mean);
  CHECK(cost.reserved.total() <= room.tiers.device);
  CHECK(cost.reserved.details == (1 + more) * block);
  CHECK(cost.pinned == plain.cost().reserved.details);
  REQUIRE(cost.arena.has_value());
  CHECK(!plain.cost().arena.has_value());
  CHECK(cost.arena->hits + cost.arena->misses > 0);
  CHECK((cost.arena->in_place > 0) == (more == 0));
  CHECK((cost.arena->prefetched > 0) == (more > 0));
  CHECK(cost.arena->prefetched_hits == cost.arena->prefetched);
  CHECK(cost.arena->bytes_in == (cost.arena->misses - cost.arena->in_place + cost.arena->prefetched) * block);
  room.tiers.host = cost.pinned - 1;
  CHECK(refused().find("tiers.host must be 0 or at least") != std::string::npos);
  room.tiers.host = 0;
  room.tiers.file = cost.pinned;
  CHECK(refused().find("config.tiers.file must be 0") != std::string::npos);
}

}  // namespace

TEST_CASE("tiers: the bits of a cache whose details are all on the device") {
  compare_tiers<64, 2>(trace(), near_sighted(zoomr::presets::zoomr_focus), 64, 30);
  compare_tiers<64, 2>(trace(), near_sighted(zoomr::presets::zoomr_mass), 79, 0);
  compare_tiers<8, 2>(family("llama", 17), zoomr::presets::full, 5, 3);
}

TEST_CASE("biases, tied heads, scaled rotations, norms of heads: each family, its prompt in one token or several") {
  compare_families();
}

#if defined(ZOOMR_SIMT)
TEST_CASE("the same in whatever order a device runs its threads and blocks") {
  for (const simt::order threads : {simt::order::reverse, simt::order::random}) {
    simt::settings how;
    how.threads = threads;
    how.blocks = simt::order::reverse;
    const simt::scoped_settings shuffled(how);
    compare_families();
  }
}
#endif

}  // namespace decode
