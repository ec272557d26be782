// SPDX-License-Identifier: Apache-2.0
// The adaptor for engines on ggml, in graphs of ggml: outputs are those of ggml_flash_attn_ext, through all that
// llama.cpp does with sequences.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "engine.hpp"

namespace ggml_test {
namespace {

constexpr ggml_type types[] = {GGML_TYPE_F32, GGML_TYPE_F16};
constexpr ggml_type types_and_blocks[] = {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0};

bool says(const zoomr_ggml* z, const char* part) {
  const std::string sentence = zoomr_ggml_error(z);
  CAPTURE(sentence);
  const bool found = sentence.find(part) != std::string::npos;
  CHECK(found);
  return found;
}

std::vector<float> outputs(const engine& of) {
  std::vector<float> all;
  for (const ggml_tensor* node : of.nodes()) {
    const auto* const first = static_cast<const float*>(node->data);
    all.insert(all.end(), first, first + ggml_nelements(node));
  }
  return all;
}

/// Bytes that stand for `numbers` in blocks of ours.
template <class T>
std::vector<T> blocks_of(const std::vector<float>& from) {
  std::vector<T> blocks(static_cast<std::size_t>(zoomr::stored_size<T>(static_cast<std::int64_t>(from.size()))));
  for (std::size_t at = 0; at < from.size(); at += 32) {
    zoomr::store_block(from.data() + at, 1.0f, blocks.data() + zoomr::stored_size<T>(static_cast<std::int64_t>(at)));
  }
  return blocks;
}

template <class T>
void check_blocks(ggml_type type) {
  CAPTURE(type);
  const ggml_type_traits& traits = *ggml_get_type_traits(type);
  REQUIRE(ggml_row_size(type, 32) == static_cast<std::size_t>(zoomr::block_size<T>) * sizeof(T));
  numbers random(3);
  std::vector<float> rows(32 * 500), read(rows.size());
  for (float& number : rows) number = random.next() * (random.next() > 0 ? 1.0f : 100.0f);
  std::vector<T> blocks(blocks_of<T>(rows).size());
  traits.from_float_ref(rows.data(), blocks.data(), static_cast<std::int64_t>(rows.size()));
  const auto same = [&] {
    traits.to_float(blocks.data(), read.data(), static_cast<std::int64_t>(read.size()));
    for (std::size_t i = 0; i < read.size(); ++i) {
      if (zoomr::number_at(blocks.data(), static_cast<zoomr::index_t>(i)) != read[i]) return false;
    }
    return true;
  };
  CHECK(same());
  const std::vector<T> theirs = blocks;
  blocks = blocks_of<T>(rows);
  CHECK(same());
  for (std::size_t at = 0; at < blocks.size(); at += static_cast<std::size_t>(zoomr::block_size<T>)) {
    CHECK(blocks[at].bits == theirs[at].bits);  // scales
  }
}

TEST_CASE("blocks are read as ggml reads them, ours and its own, and have its scales") {
  check_blocks<zoomr::q8_0>(GGML_TYPE_Q8_0);
  check_blocks<zoomr::q4_0>(GGML_TYPE_Q4_0);
}

void add(engine& e, std::int32_t p0, std::int32_t p1, std::int32_t delta) {
  CAPTURE(p0);
  CAPTURE(delta);
  REQUIRE(zoomr_ggml_seq_add(e.z(), 0, p0, p1, delta) == ZOOMR_GGML_SUCCESS);
  for (std::int32_t& position : e.text(0).positions) {
    if (position >= p0 && (p1 < 0 || position < p1)) position += delta;
  }
}

TEST_CASE("a prompt in chunks and tokens after it, by any number of threads") {
  for (const ggml_type type : types_and_blocks) {
    for (const int threads : {1, 2, 3}) {
      if (ggml_is_quantized(type) && threads != 2) continue;
      CAPTURE(type);
      CAPTURE(threads);
      engine e({.type = type, .threads = threads});
      e.pass({{0, 70}}), e.pass({{0, 31}}), e.pass({{0, 9, true}});
      CHECK_FALSE(zoomr_ggml_in_prompt(e.z(), 0));
      e.decode(0, 12);
      e.pass({{0, 5}});  // a draft
      CHECK(zoomr_ggml_seq_pos_min(e.z(), 0) == 0);
      CHECK(zoomr_ggml_seq_pos_max(e.z(), 0) == 70 + 31 + 9 + 12 + 5 - 1);
      zoomr_ggml_stats stats;
      REQUIRE(zoomr_ggml_seq_stats(e.z(), 0, &stats) == ZOOMR_GGML_SUCCESS);
      CHECK(stats.prompt_tokens == 110);
      CHECK(stats.tokens == 17);
      CHECK(stats.attended_tokens == doctest::Approx(110 + (1 + 17) / 2.0));
      CHECK(stats.bytes > 0);
    }
  }
}

TEST_CASE("rows of a fused projection, which have strides") {
  engine e({.type = GGML_TYPE_F32, .threads = 2, .fused = true});
  e.pass({{0, 40}}), e.pass({{0, 3, true}});
  e.decode(0, 4);
}

TEST_CASE("the model's scale and soft cap, and layers with a window") {
  for (const ggml_type type : types) {
    const engine_options options{
        .type = type, .kq_scale = 0.3f, .loops = type == GGML_TYPE_F16 ? close_to_turned : close_to_loops};
    zoomr_ggml_params p = engine::params(options);
    const std::int32_t windows[engine::layers] = {24, 0};
    p.window = windows;
    p.logit_softcap = 2;
    engine e(options, p);
    e.pass({{0, 50}}), e.pass({{0, 20, true}});
    e.decode(0, 8);
    REQUIRE(zoomr_ggml_seq_rm(e.z(), 0, 65, 70) == ZOOMR_GGML_SUCCESS);  // a window goes by positions
    e.text(0).erase_positions(65, 70);
    e.decode(0, 4);
    add(e, 70, 75, -3);
    e.decode(0, 30);
  }
}

TEST_CASE("several sequences in a graph, whose tokens may take turns") {
  for (const bool mixed : {false, true}) {
    CAPTURE(mixed);
    engine e({.type = GGML_TYPE_F16, .threads = 2, .mixed = mixed});
    e.pass({{0, 30}, {3, 17}}), e.pass({{3, 11, true}, {0, 2}}), e.pass({{0, 9, true}, {3, 1}});
    for (int t = 0; t < 6; ++t) e.pass({{3, 1}, {0, 1}});
    e.pass({{7, 20}, {0, 1}, {3, 4}});
    CHECK(zoomr_ggml_seq_pos_max(e.z(), 0) == 30 + 2 + 9 + 6);
    CHECK(zoomr_ggml_in_prompt(e.z(), 7));

    CHECK(zoomr_ggml_seq_keep(e.z(), 3) == ZOOMR_GGML_SUCCESS);
    CHECK(zoomr_ggml_seq_pos_max(e.z(), 0) == -1);
    CHECK(zoomr_ggml_seq_pos_min(e.z(), 7) == -1);
    e.decode(3, 3);
    CHECK(zoomr_ggml_clear(e.z()) == ZOOMR_GGML_SUCCESS);
    CHECK(zoomr_ggml_seq_pos_max(e.z(), 3) == -1);
    e.text(3) = {};
    e.pass({{3, 12, true}});
  }
}

TEST_CASE("seq_cp: a copy goes its own way, of all or of a part") {
  engine e({.threads = 2});
  e.pass({{0, 45, true}}), e.decode(0, 3);
  REQUIRE(zoomr_ggml_seq_cp(e.z(), 0, 1, -1, -1) == ZOOMR_GGML_SUCCESS);
  REQUIRE(zoomr_ggml_seq_cp(e.z(), 0, 2, 0, 46) == ZOOMR_GGML_SUCCESS);
  e.text(1) = e.text(0), e.text(2) = e.text(0);
  e.text(2).keep(0, 46);
  CHECK(zoomr_ggml_seq_pos_max(e.z(), 2) == 45);
  for (int t = 0; t < 4; ++t) e.pass({{0, 1}, {1, 2}, {2, 1}});
  // What the copy's place held goes.
  REQUIRE(zoomr_ggml_seq_cp(e.z(), 1, 0, -1, -1) == ZOOMR_GGML_SUCCESS);
  e.text(0) = e.text(1);
  e.pass({{0, 1}, {1, 1}});
  REQUIRE(zoomr_ggml_seq_cp(e.z(), 0, 3, 5, 47) == ZOOMR_GGML_SUCCESS);
  e.text(3) = e.text(0);
  e.text(3).keep(5, 47);
  CHECK(zoomr_ggml_seq_pos_min(e.z(), 3) == 5);
  e.pass({{3, 2}, {1, 1}});
  CHECK(zoomr_ggml_seq_cp(e.z(), 0, 3, 46, -1) == ZOOMR_GGML_REFUSED);
  says(e.z(), "at least one token");
  CHECK(zoomr_ggml_seq_pos_max(e.z(), 3) == 48);                        // it is what it was
  CHECK(zoomr_ggml_seq_cp(e.z(), 9, 3, -1, -1) == ZOOMR_GGML_SUCCESS);  // nothing is copied
}

TEST_CASE("seq_rm of the tail takes tokens back, into the prompt too") {
  for (const ggml_type type : types) {
    engine e({.type = type});
    e.pass({{0, 33}}), e.pass({{0, 4, true}}), e.decode(0, 9);
    REQUIRE(zoomr_ggml_seq_rm(e.z(), 0, 41, -1) == ZOOMR_GGML_SUCCESS);
    e.text(0).keep(0, 41);
    CHECK(zoomr_ggml_seq_pos_max(e.z(), 0) == 40);
    e.decode(0, 5);
    REQUIRE(zoomr_ggml_seq_rm(e.z(), 0, 30, -1) == ZOOMR_GGML_SUCCESS);
    e.text(0).keep(0, 30);
    CHECK(zoomr_ggml_in_prompt(e.z(), 0));
    e.pass({{0, 60, true}}), e.decode(0, 2);
    REQUIRE(zoomr_ggml_seq_rm(e.z(), -1, -1, -1) == ZOOMR_GGML_SUCCESS);
    CHECK(zoomr_ggml_seq_pos_max(e.z(), 0) == -1);
    CHECK(zoomr_ggml_seq_rm(e.z(), 0, 2, 9) == ZOOMR_GGML_SUCCESS);  // nothing is there
  }
}

void shift(engine& e) {
  e.pass({{0, 60, true}}), e.decode(0, 10);
  REQUIRE(zoomr_ggml_can_shift(e.z()));
  for (int round = 0; round < 2; ++round) {
    CAPTURE(round);
    const auto size = static_cast<std::int32_t>(e.text(0).positions.size());
    REQUIRE(zoomr_ggml_seq_rm(e.z(), 0, 4, 24) == ZOOMR_GGML_SUCCESS);
    CHECK(zoomr_ggml_seq_pos_max(e.z(), 0) == size - 1);
    REQUIRE(zoomr_ggml_seq_add(e.z(), 0, 24, size, -20) == ZOOMR_GGML_SUCCESS);
    CHECK(zoomr_ggml_seq_pos_max(e.z(), 0) == size - 21);
    e.text(0).erase(4, 24);
    for (std::size_t t = 4; t < e.text(0).positions.size(); ++t) e.text(0).positions[t] -= 20;
    e.decode(0, 6);
    e.pass({{0, 3}});
  }
  // Without seq_add the tokens after the gap keep their positions, until they move later, or only some of them do.
  REQUIRE(zoomr_ggml_seq_rm(e.z(), 0, 8, 13) == ZOOMR_GGML_SUCCESS);
  e.text(0).erase(8, 13);
  e.decode(0, 4);
  add(e, 10, 15, -2);
  e.decode(0, 2);
  add(e, 15, -1, -2);
  e.decode(0, 2);
  add(e, 5, -1, 7);  // on
  e.decode(0, 2);
  CHECK(zoomr_ggml_seq_add(e.z(), 0, 14, -1, -10) == ZOOMR_GGML_REFUSED);
  says(e.z(), "positions of others");
  REQUIRE(zoomr_ggml_seq_rm(e.z(), 0, 14, 16) == ZOOMR_GGML_SUCCESS);
  e.text(0).erase_positions(14, 16);
  add(e, 16, 20, -1);
  add(e, 19, -1, -1);
  e.decode(0, 2);
  CHECK(zoomr_ggml_seq_div(e.z(), 0, 0, -1, 2) == ZOOMR_GGML_REFUSED);
  says(e.z(), "seq_div");
  CHECK(zoomr_ggml_seq_div(e.z(), 5, 0, -1, 2) == ZOOMR_GGML_SUCCESS);
}

TEST_CASE("a context shift: seq_rm in between, then seq_add") {
  for (const bool neox : {false, true}) {
    CAPTURE(neox);
    engine_options options{.type = GGML_TYPE_F32, .threads = 2, .neox = neox};
    engine exact(options, engine::params(options));
    shift(exact);
    options.type = GGML_TYPE_F16, options.loops = close_to_turned;
    engine rounded(options, engine::params(options));
    shift(rounded);
  }
}

TEST_CASE("layers have rotary bases of their own, or none") {
  for (const float second : {1000.0f, 0.0f}) {
    CAPTURE(second);
    const engine_options options{.type = GGML_TYPE_F32, .bases = {10000, second}};
    zoomr_ggml_params p = engine::params(options);
    zoomr_ggml_rope ropes[engine::layers] = {p.rope, p.rope};
    ropes[1].freq_base = second, ropes[1].n_rot = second > 0 ? engine::width : 0;
    p.rope = {}, p.layer_rope = ropes;
    engine e(options, p);
    shift(e);
  }
}

TEST_CASE("a copy has positions of its own: a context shift of one does not move the other") {
  engine e({.type = GGML_TYPE_F32});
  e.pass({{0, 60, true}}), e.decode(0, 10);
  REQUIRE(zoomr_ggml_seq_cp(e.z(), 0, 1, -1, -1) == ZOOMR_GGML_SUCCESS);
  e.text(1) = e.text(0);
  REQUIRE(zoomr_ggml_seq_rm(e.z(), 0, 4, 24) == ZOOMR_GGML_SUCCESS);
  REQUIRE(zoomr_ggml_seq_add(e.z(), 0, 24, -1, -20) == ZOOMR_GGML_SUCCESS);
  CHECK(zoomr_ggml_seq_pos_max(e.z(), 0) == 49);
  CHECK(zoomr_ggml_seq_pos_max(e.z(), 1) == 69);
  e.decode(1, 3);
}

// What is held of all sequences, without their handles.
std::vector<std::vector<char>> states(engine& e) {
  std::int32_t ids[4];
  const std::int32_t count = zoomr_ggml_seq_ids(e.z(), ids, 4);
  std::vector<std::vector<char>> bytes;
  for (std::int32_t i = 0; i < count; ++i) {
    bytes.emplace_back(zoomr_ggml_state_size(e.z(), ids[i]));
    REQUIRE(zoomr_ggml_state_get(e.z(), ids[i], bytes.back().data(), bytes.back().size()) == bytes.back().size());
  }
  return bytes;
}

TEST_CASE("what cannot be erased is refused at once, and what is taken out is gone for good") {
  std::vector<std::uint8_t> classes(64, ZOOMR_GGML_PLAIN);
  classes[9] = ZOOMR_GGML_DELIMITER;
  const char* const holding[] = {"full", "quest", "sentence_box"};
  const char* const losing[] = {"snapkv", "h2o", "r_kv", "sentence_kv", "window"};
  for (const bool holds : {true, false}) {
    for (int which = 0; which < (holds ? 3 : 5); ++which) {
      const char* const policy = holds ? holding[which] : losing[which];
      CAPTURE(std::string(policy));
      zoomr_ggml_params p = engine::params({});
      p.policy = policy, p.classes = classes.data(), p.n_vocab = 64;
      p.budget = which > 2 ? 24 : policy[0] == 'f' ? 0 : 48;
      engine e({}, p);
      CHECK(zoomr_ggml_can_shift(e.z()) == holds);
      CHECK(zoomr_ggml_needs_split(e.z()) == (!holds && (which == 1 || which == 2)));
      e.use_ids({1, 2, 3, 4, 5, 6, 7, 8, 9});
      for (const std::int32_t seq : {1, 0}) {
        e.pass({{seq, 128}}), e.pass({{seq, 42, true}}, false);
        e.decode(seq, 8, false);
      }
      e.pass({{2, 20}});  // a prompt of which nothing is lost yet
      const auto before = states(e);
      CHECK(before.size() == 3);
      const int expected = holds ? ZOOMR_GGML_SUCCESS : ZOOMR_GGML_NOT_KEPT;
      CHECK(zoomr_ggml_seq_rm(e.z(), -1, 4, 15) == expected);
      if (!holds) {
        CHECK(states(e) == before);
        CHECK(zoomr_ggml_seq_pos_max(e.z(), 0) == 177);
      }
      CHECK(zoomr_ggml_seq_rm(e.z(), 0, 20, 30) == expected);
      CHECK(zoomr_ggml_seq_rm(e.z(), 2, 16, 18) == ZOOMR_GGML_SUCCESS);
      CHECK(zoomr_ggml_seq_rm(e.z(), 0, 0, 172) == ZOOMR_GGML_REFUSED);  // all of the prompt
      if (!holds) CHECK(states(e)[0] == before[0]);
      e.pass({{2, 3, true}}, false), e.decode(0, 3, false), e.decode(1, 2, false);
      CHECK(zoomr_ggml_seq_rm(e.z(), 0, 179, -1) == ZOOMR_GGML_SUCCESS);
      CHECK(zoomr_ggml_seq_pos_max(e.z(), 0) == 178);
    }
  }
}

TEST_CASE("what was removed is erased before other sequences take the room") {
  zoomr_ggml_params p = engine::params({});
  p.n_ctx_seq = 80, p.n_ctx = 144, p.n_seq_max = 3;
  engine e({}, p);
  e.pass({{0, 60, true}});
  REQUIRE(zoomr_ggml_seq_cp(e.z(), 0, 1, -1, -1) == ZOOMR_GGML_SUCCESS);
  e.text(1) = e.text(0);
  REQUIRE(zoomr_ggml_seq_rm(e.z(), 0, 4, 20) == ZOOMR_GGML_SUCCESS);  // pages are shared: it needs others
  e.text(0).erase_positions(4, 20);
  e.plan({{2, 64}});
  CHECK(zoomr_ggml_begin(e.z(), &e.batch()) == ZOOMR_GGML_NO_ROOM);
  e.decode(0, 2), e.decode(1, 2);
}

TEST_CASE("without rotary dimensions nothing is turned") {
  zoomr_ggml_params p = engine::params({});
  p.rope.n_rot = 0;
  engine e({}, p);
  e.pass({{0, 30, true}});
  CHECK_FALSE(zoomr_ggml_can_shift(e.z()));
  REQUIRE(zoomr_ggml_seq_rm(e.z(), 0, 3, 9) == ZOOMR_GGML_SUCCESS);
  e.text(0).erase(3, 9);
  CHECK(zoomr_ggml_seq_add(e.z(), 0, 9, -1, -6) == ZOOMR_GGML_REFUSED);
  says(e.z(), "n_rot");
  e.decode(0, 2);
}

TEST_CASE("a state goes on as if it had never been saved, also elsewhere") {
  for (const ggml_type type : types_and_blocks) {
    CAPTURE(type);
    engine e({.type = type, .threads = 2}), other({.type = type});
    e.pass({{2, 50}}), e.pass({{2, 8, true}}), e.decode(2, 7);
    REQUIRE(zoomr_ggml_seq_rm(e.z(), 2, 3, 9) == ZOOMR_GGML_SUCCESS);  // positions with a gap
    e.text(2).erase(3, 9);
    const std::size_t size = zoomr_ggml_state_size(e.z(), 2);
    REQUIRE(size > 0);
    std::vector<char> bytes(size + 1, 'x');
    CHECK(zoomr_ggml_state_get(e.z(), 2, bytes.data(), size - 1) == 0);
    says(e.z(), "fewer bytes");
    REQUIRE(zoomr_ggml_state_get(e.z(), 2, bytes.data(), bytes.size()) == size);
    CHECK(bytes[size] == 'x');

    other.pass({{5, 10}});
    REQUIRE(zoomr_ggml_state_set(other.z(), 5, bytes.data(), bytes.size()) == size);
    CHECK(zoomr_ggml_seq_pos_max(other.z(), 5) == zoomr_ggml_seq_pos_max(e.z(), 2));
    CHECK(zoomr_ggml_in_prompt(other.z(), 5) == zoomr_ggml_in_prompt(e.z(), 2));
    other.text(5) = e.text(2);
    other.decode(5, 5);
    CHECK(zoomr_ggml_seq_rm(other.z(), 5, 9, 12) == ZOOMR_GGML_SUCCESS);

    bytes[size / 2] = static_cast<char>(bytes[size / 2] + 1);
    CHECK(zoomr_ggml_state_set(other.z(), 6, bytes.data(), size) == 0);
    says(other.z(), "damaged");
    CHECK(zoomr_ggml_seq_pos_max(other.z(), 6) == -1);
    for (const std::size_t cut : {std::size_t{0}, std::size_t{7}, std::size_t{30}, size - 1}) {
      CHECK(zoomr_ggml_state_set(other.z(), 6, bytes.data(), cut) == 0);
    }
    CHECK(zoomr_ggml_state_size(e.z(), 1) == 0);
    says(e.z(), "holds nothing");
    e.decode(2, 3);  // saving has changed nothing
  }
}

TEST_CASE("a state with a changed byte anywhere is refused") {
  engine e({});
  e.pass({{0, 5}}), e.pass({{0, 3, true}});
  REQUIRE(zoomr_ggml_seq_rm(e.z(), 0, 2, 4) == ZOOMR_GGML_SUCCESS);
  e.text(0).erase(2, 4);
  e.decode(0, 1);
  std::vector<char> bytes(zoomr_ggml_state_size(e.z(), 0));
  REQUIRE(zoomr_ggml_state_get(e.z(), 0, bytes.data(), bytes.size()) == bytes.size());
  std::size_t taken = 0;
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    for (const char bit : {char{1}, char{64}}) {
      bytes[at] = static_cast<char>(bytes[at] ^ bit);
      if (zoomr_ggml_state_set(e.z(), 1, bytes.data(), bytes.size()) != 0) ++taken;
      bytes[at] = static_cast<char>(bytes[at] ^ bit);
    }
  }
  CHECK(taken == 0);
  CHECK(zoomr_ggml_state_set(e.z(), 1, bytes.data(), bytes.size()) == bytes.size());
}

TEST_CASE("a list of sequences, and how many bytes there are") {
  engine e({});
  std::int32_t ids[3] = {-7, -7, -7};
  CHECK(zoomr_ggml_seq_ids(e.z(), ids, 3) == 0);
  e.pass({{3, 5}, {0, 5}}), e.pass({{2, 1}});
  CHECK(zoomr_ggml_seq_ids(e.z(), ids, 2) == 3);
  CHECK((ids[0] == 0 && ids[1] == 2 && ids[2] == -7));
  REQUIRE(zoomr_ggml_seq_rm(e.z(), 2, -1, -1) == ZOOMR_GGML_SUCCESS);
  CHECK(zoomr_ggml_seq_ids(e.z(), ids, 3) == 2);
  CHECK(ids[1] == 3);
  const std::size_t numbers = 2u * 4 * 1024 * engine::layers * engine::kv_heads * engine::width;
  CHECK(zoomr_ggml_bytes(e.z()) >= 2 * numbers);
  CHECK(zoomr_ggml_bytes(e.z()) < 3 * numbers);
}

TEST_CASE("the same bits after a state was set") {
  engine one({.type = GGML_TYPE_F16}), other({.type = GGML_TYPE_F16});
  // Both have the same random numbers, so that they pass the same tokens.
  one.pass({{0, 40, true}}), other.pass({{0, 40, true}});
  std::vector<char> bytes(zoomr_ggml_state_size(one.z(), 0));
  REQUIRE(zoomr_ggml_state_get(one.z(), 0, bytes.data(), bytes.size()) == bytes.size());
  REQUIRE(zoomr_ggml_clear(other.z()) == ZOOMR_GGML_SUCCESS);
  REQUIRE(zoomr_ggml_state_set(other.z(), 0, bytes.data(), bytes.size()) == bytes.size());
  for (int t = 0; t < 3; ++t) {
    one.decode(0, 1), other.decode(0, 1);
    CHECK(outputs(one) == outputs(other));
  }
}

// A token of four letters for each id; every ninth ends a sentence.
int piece(void*, std::int32_t token, char* buf, std::int32_t size) {
  const std::string text = token == 0 ? "" : token % 9 == 0 ? "." : " word" + std::string(token == 5 ? 80 : 0, 's');
  if (static_cast<std::int32_t>(text.size()) > size) return -static_cast<std::int32_t>(text.size());
  std::memcpy(buf, text.data(), text.size());
  return static_cast<std::int32_t>(text.size());
}

TEST_CASE("sparse policies read fewer tokens, and their options count") {
  std::vector<std::uint8_t> classes(64);
  REQUIRE(zoomr_ggml_classify(64, piece, nullptr, classes.data()) == ZOOMR_GGML_SUCCESS);
  for (std::size_t id = 0; id < classes.size(); ++id) {
    CHECK(classes[id] == (id > 0 && id % 9 == 0 ? ZOOMR_GGML_DELIMITER : ZOOMR_GGML_PLAIN));
  }
  std::vector<std::int32_t> ids;
  for (std::int32_t id = 1; id < 64; ++id) ids.push_back(id);
  const char* const of_quest[] = {"zones.dense_layers=0"};
  const char* const of_window[] = {"zones.sinks=8", "zones.recent=60"};
  double attended[4] = {};
  const char* const policies[] = {"full", "quest", "sentence_kv", "window"};
  for (int which = 0; which < 4; ++which) {
    CAPTURE(policies[which]);
    zoomr_ggml_params p = engine::params({});
    p.policy = policies[which];
    p.budget = which == 0 || which == 3 ? 0 : 96;
    if (which == 1) p.settings = of_quest, p.n_settings = 1;
    if (which == 3) p.settings = of_window, p.n_settings = 2;
    p.classes = classes.data(), p.n_vocab = 64;
    engine e({.threads = 2}, p);
    e.use_ids(ids);
    // In the prompt all tokens are read.
    for (int chunk = 0; chunk < 3; ++chunk) e.pass({{0, 128}});
    e.pass({{0, 16, true}});
    e.decode(0, 20, which == 0);
    for (const float x : outputs(e)) REQUIRE(std::isfinite(x));
    zoomr_ggml_stats stats;
    REQUIRE(zoomr_ggml_seq_stats(e.z(), 0, &stats) == ZOOMR_GGML_SUCCESS);
    attended[which] = stats.attended_tokens;
    CHECK((stats.choices > 0) == (which == 1 || which == 2));
  }
  CHECK(attended[0] == doctest::Approx(400 + 10.5));
  for (const int which : {1, 2}) {
    CHECK(attended[which] > 60);
    CHECK(attended[which] < 160);
  }
  CHECK(attended[3] == 68);
}

TEST_CASE("embeddings are plain, under every policy that reads classes") {
  std::vector<std::uint8_t> classes(64, ZOOMR_GGML_PLAIN);
  classes[9] = ZOOMR_GGML_DELIMITER;
  float weights[engine::layers * engine::heads] = {};
  weights[1] = 1;
  for (const char* const policy :
       {"full", "sentence_kv", "sentence_kv_published", "sentence_box", "sentence_voters", "summary_only",
        "zoomr_one_pass", "zoomr_second_pass", "zoomr_mass", "zoomr_focus", "zoomr_voters"}) {
    CAPTURE(std::string(policy));
    zoomr_ggml_params p = engine::params({});
    p.policy = policy, p.classes = classes.data(), p.n_vocab = 64;
    if (std::string(policy).find("voters") != std::string::npos) p.voters = weights;
    engine given({}, p), plain({}, p);
    for (engine* const e : {&given, &plain}) {
      e->use_ids({1, 2, 3, 9});
      e->pass({{0, 40}});
      for (const part image : {part{0, 30}, part{0, 20, true}, part{0, 1}, part{0, 3}}) {
        e->plan({image}), e->build();
        std::vector<std::int32_t> ids(static_cast<std::size_t>(image.tokens), 1);
        e->batch().token = e == &given ? nullptr : ids.data();
        REQUIRE_MESSAGE(zoomr_ggml_begin(e->z(), &e->batch()) == ZOOMR_GGML_SUCCESS, zoomr_ggml_error(e->z()));
        e->compute();
        REQUIRE(zoomr_ggml_commit(e->z()) == ZOOMR_GGML_SUCCESS);
        e->accept({image}, false);
      }
      e->decode(0, 6, false);
    }
    CHECK(outputs(given) == outputs(plain));
  }
}

TEST_CASE("heads that vote have the weights that were handed over, in layers with a window too") {
  std::vector<std::uint8_t> classes(64, ZOOMR_GGML_PLAIN);
  classes[9] = ZOOMR_GGML_DELIMITER;
  for (const int voter : {0, engine::heads}) {  // in the layer with a window, and in the other
    CAPTURE(voter);
    float weights[engine::layers * engine::heads] = {};
    weights[voter] = 1;
    const std::int32_t windows[engine::layers] = {64, 0};
    zoomr_ggml_params p = engine::params({});
    p.policy = "sentence_voters", p.voters = weights, p.window = windows;
    p.classes = classes.data(), p.n_vocab = 64;
    if (voter == 0) {
      CHECK(zoomr_ggml_init(&p) == nullptr);
      says(nullptr, "voters");
      continue;
    }
    engine e({}, p);
    e.use_ids({1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 9});
    e.pass({{0, 128}}), e.pass({{0, 128}}), e.pass({{0, 64, true}});
    e.decode(0, 5, false);
    zoomr_ggml_stats stats;
    REQUIRE(zoomr_ggml_seq_stats(e.z(), 0, &stats) == ZOOMR_GGML_SUCCESS);
    CHECK(stats.attended_tokens < (64 + 323) / 2.0);
    CHECK(stats.choices > 0);
  }
}

TEST_CASE("where heads that vote are unsure, tokens read everything, and are counted") {
  std::vector<std::uint8_t> classes(64, ZOOMR_GGML_PLAIN);
  classes[9] = ZOOMR_GGML_DELIMITER;
  float weights[engine::layers * engine::heads] = {};
  weights[1] = 1;
  const zoomr_ggml_params defaults = zoomr_ggml_default_params();
  const auto passed = [&](float unsure, float none, bool reads_all, float slope = 0) {
    zoomr_ggml_params p = engine::params({});
    p.policy = "sentence_voters", p.voters = weights, p.voters_unsure = unsure, p.voters_none = none;
    p.voters_none_slope = slope;
    p.classes = classes.data(), p.n_vocab = 64;
    engine e({}, p);
    e.use_ids({1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 9});
    e.pass({{0, 128}}), e.pass({{0, 128}}), e.pass({{0, 64, true}});
    e.decode(0, 5, reads_all);  // the outputs of full attention then
    zoomr_ggml_stats stats;
    REQUIRE(zoomr_ggml_seq_stats(e.z(), 0, &stats) == ZOOMR_GGML_SUCCESS);
    CHECK((stats.attended_tokens == 320 + (1 + 5) / 2.0) == reads_all);
    CHECK(stats.unsure_share == (reads_all ? 1 : 0));
  };
  passed(0, defaults.voters_none, true);
  passed(defaults.voters_unsure, 1000, true);
  passed(20, -1000, false);
  passed(20, 1000, false, 1000);
  passed(defaults.voters_unsure, defaults.voters_none, false);
}

/// Sentences that end at the id 9, and a voter in each layer.
struct two_voters {
  std::vector<std::uint8_t> classes = std::vector<std::uint8_t>(64, ZOOMR_GGML_PLAIN);
  float weights[engine::layers * engine::heads] = {};

  two_voters() {
    classes[9] = ZOOMR_GGML_DELIMITER;
    weights[1] = 1, weights[engine::heads + 4] = 0.5f;
  }
  /// @pre  this outlives the engine's making
  zoomr_ggml_params params() const {
    zoomr_ggml_params p = engine::params({});
    p.policy = "sentence_voters", p.voters = weights;
    p.classes = classes.data(), p.n_vocab = 64;
    return p;
  }
};

TEST_CASE("heads that vote hear a prompt that was opened again as if it had come once") {
  const two_voters voters;
  const zoomr_ggml_params p = voters.params();
  engine once({}, p), again({}, p);
  // Both have the same random numbers; where one passes nothing it draws them.
  for (engine* const e : {&once, &again}) {
    e->use_ids({1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 9});
    e->pass({{0, 128}}), e->pass({{0, 22}});
  }
  again.pass({{0, 42, true}}, false), again.decode(0, 3, false);
  once.plan({{0, 42, true}});
  for (int t = 0; t < 3; ++t) once.plan({{0, 1}});
  REQUIRE(zoomr_ggml_seq_rm(again.z(), 0, 150, -1) == ZOOMR_GGML_SUCCESS);
  again.text(0).keep(0, 150);
  CHECK(zoomr_ggml_in_prompt(again.z(), 0));
  for (engine* const e : {&once, &again}) e->pass({{0, 60, true}}, false);
  for (int t = 0; t < 9; ++t) {
    once.decode(0, 1, false), again.decode(0, 1, false);
    CHECK(outputs(once) == outputs(again));
  }
  zoomr_ggml_stats stats;
  REQUIRE(zoomr_ggml_seq_stats(again.z(), 0, &stats) == ZOOMR_GGML_SUCCESS);
  CHECK(stats.choices > 0);
  CHECK(stats.attended_tokens < 200);
}

TEST_CASE("where a prompt ends: as it is said, or with the first single token") {
  engine e({});
  const auto pass = [&](int tokens, const std::int8_t* ends) {
    e.plan({{0, tokens}}), e.build();
    e.batch().prompt_end = ends;
    REQUIRE_MESSAGE(zoomr_ggml_begin(e.z(), &e.batch()) == ZOOMR_GGML_SUCCESS, zoomr_ggml_error(e.z()));
    e.compute();
    REQUIRE(zoomr_ggml_commit(e.z()) == ZOOMR_GGML_SUCCESS);
    e.accept({{0, tokens}}, true);
  };
  pass(20, nullptr), pass(5, nullptr);
  CHECK(zoomr_ggml_in_prompt(e.z(), 0));
  pass(1, nullptr);
  CHECK_FALSE(zoomr_ggml_in_prompt(e.z(), 0));
  pass(1, nullptr);
  REQUIRE(zoomr_ggml_clear(e.z()) == ZOOMR_GGML_SUCCESS);
  e.text(0) = {};
  const std::int8_t not_last[] = {0, 1, 0}, last[] = {0, 0, 1}, none[] = {0};
  pass(3, not_last), pass(1, none);
  CHECK(zoomr_ggml_in_prompt(e.z(), 0));
  pass(3, last);
  CHECK_FALSE(zoomr_ggml_in_prompt(e.z(), 0));
}

TEST_CASE("a draft is passed whole, unless tokens are evicted in it; more tokens are a later prompt") {
  std::vector<std::uint8_t> classes(64, ZOOMR_GGML_PLAIN);
  classes[9] = ZOOMR_GGML_DELIMITER;
  zoomr_ggml_params p = engine::params({});
  p.policy = "sentence_kv", p.classes = classes.data(), p.n_vocab = 64;
  engine e({}, p);
  e.use_ids({1, 2, 3, 9});
  e.plan({{0, 12, true}});
  CHECK(zoomr_ggml_split(e.z(), &e.batch()) == 128);  // all prompt
  e.pass({{0, 12, true}});
  e.plan({{0, 14}, {1, 30}});
  CHECK(zoomr_ggml_split(e.z(), &e.batch()) == 128);
  e.pass({{0, 14}});  // behind the ends of sentences
  CHECK(zoomr_ggml_seq_pos_max(e.z(), 0) == 25);
  CHECK_FALSE(zoomr_ggml_in_prompt(e.z(), 0));
  CHECK(zoomr_ggml_seq_rm(e.z(), 0, 15, -1) == ZOOMR_GGML_SUCCESS);
  e.text(0).keep(0, 15);
  e.decode(0, 6);
  e.plan({{0, 300}});
  CHECK(zoomr_ggml_split(e.z(), &e.batch()) == 128);
  e.pass({{0, 40}}), e.pass({{0, 3}});
  CHECK(zoomr_ggml_in_prompt(e.z(), 0));
  e.pass({{0, 30, true}});
  CHECK_FALSE(zoomr_ggml_in_prompt(e.z(), 0));
  e.decode(0, 3);

  p.policy = "window";
  engine window({}, p);
  window.pass({{0, 12, true}});
  window.plan({{0, 100}});
  CHECK(zoomr_ggml_split(window.z(), &window.batch()) == 128);
  window.pass({{0, 100}});
  CHECK_FALSE(zoomr_ggml_in_prompt(window.z(), 0));

  const char* const often[] = {"accumulated_attention.every=4"};
  p.policy = "h2o", p.budget = 64, p.settings = often, p.n_settings = 1;
  engine evicting({}, p);
  evicting.pass({{0, 12, true}});
  evicting.plan({{0, 6}});
  CHECK(zoomr_ggml_split(evicting.z(), &evicting.batch()) == 1);
  evicting.build();
  CHECK(zoomr_ggml_begin(evicting.z(), &evicting.batch()) == ZOOMR_GGML_REFUSED);
  says(evicting.z(), "it would have to end after 4 tokens");
  CHECK(zoomr_ggml_seq_pos_max(evicting.z(), 0) == 11);
  evicting.plan({{0, 4}});
  CHECK(zoomr_ggml_split(evicting.z(), &evicting.batch()) == 128);
  evicting.pass({{0, 4}}), evicting.pass({{0, 3}}), evicting.pass({{0, 1}});
  CHECK(zoomr_ggml_seq_pos_max(evicting.z(), 0) == 19);

  engine full({});
  full.pass({{0, 12, true}});
  full.plan({{0, 16}});
  CHECK(zoomr_ggml_split(full.z(), &full.batch()) == 128);
  full.pass({{0, 16}});
  CHECK_FALSE(zoomr_ggml_in_prompt(full.z(), 0));
}

// Tokens that each one after the prompt has read, on the average.
double attended(const engine& e) {
  zoomr_ggml_stats stats;
  REQUIRE(zoomr_ggml_seq_stats(e.z(), 0, &stats) == ZOOMR_GGML_SUCCESS);
  return stats.attended_tokens;
}

TEST_CASE("spans that an engine names by position are read by every token, however graphs are cut") {
  const char* const settings[] = {"zones.question=40", "top_k.segments=1", "zones.dense_layers=0"};
  zoomr_ggml_params p = engine::params({});
  p.policy = "quest", p.settings = settings, p.n_settings = 3;
  const auto prompt = [](engine& e) {
    e.pass({{0, 50}}, false), e.pass({{0, 30}}, false), e.pass({{0, 40, true}}, false);
    e.decode(0, 1, false);
  };
  engine plain({}, p), named({}, p);
  prompt(plain);
  const auto span = [&](std::int32_t p0, std::int32_t p1, int role) {
    return zoomr_ggml_seq_span(named.z(), 0, p0, p1, role);
  };
  CHECK(span(16, 64, ZOOMR_GGML_PINNED) == ZOOMR_GGML_SUCCESS);  // across two graphs
  CHECK(span(96, 112, ZOOMR_GGML_QUESTION) == ZOOMR_GGML_SUCCESS);
  CHECK(span(63, 65, ZOOMR_GGML_PINNED) == ZOOMR_GGML_REFUSED);
  says(named.z(), "would be in two spans");
  CHECK(span(64, 64, ZOOMR_GGML_PINNED) == ZOOMR_GGML_REFUSED);
  says(named.z(), "no positions");
  CHECK(span(64, 65, 3) == ZOOMR_GGML_REFUSED);
  says(named.z(), "no such role");
  CHECK(zoomr_ggml_seq_span(named.z(), -1, 0, 4, ZOOMR_GGML_PINNED) == ZOOMR_GGML_REFUSED);
  says(named.z(), "negative id");
  prompt(named);
  CHECK(attended(plain) == 16 + 9);  // a page, and the open one
  CHECK(attended(named) == 48 + 16 + 16 + 9);
  CHECK(span(120, 130, ZOOMR_GGML_PINNED) == ZOOMR_GGML_REFUSED);
  says(named.z(), "holds tokens up to position 120");

  // Three tokens that ask are a later prompt; their question takes the place of the one before.
  CHECK(span(-1, -1, ZOOMR_GGML_QUESTION) == ZOOMR_GGML_SUCCESS);
  named.pass({{0, 2}}, false);
  CHECK(zoomr_ggml_in_prompt(named.z(), 0));
  named.pass({{0, 1, true}}, false);
  CHECK_FALSE(zoomr_ggml_in_prompt(named.z(), 0));
  const double before = attended(named);
  named.decode(0, 1, false);  // no question any more
  CHECK_FALSE(zoomr_ggml_in_prompt(named.z(), 0));
  const double last = 2 * attended(named) - before;  // what is pinned, the question, itself, a page or nine tokens
  CHECK(last >= 48 + 3 + 1 + 9);
  CHECK(last <= 48 + 3 + 1 + 16);

  // What is removed is named no more.
  CHECK(span(130, 140, ZOOMR_GGML_PINNED) == ZOOMR_GGML_SUCCESS);
  CHECK(zoomr_ggml_seq_rm(named.z(), 0, 135, -1) == ZOOMR_GGML_SUCCESS);
  CHECK(span(134, 136, ZOOMR_GGML_PINNED) == ZOOMR_GGML_REFUSED);
  CHECK(span(135, 136, ZOOMR_GGML_PINNED) == ZOOMR_GGML_SUCCESS);
  CHECK(zoomr_ggml_clear(named.z()) == ZOOMR_GGML_SUCCESS);
  named.text(0) = {};
  prompt(named);
  CHECK(attended(named) == attended(plain));
}

TEST_CASE("a question before a long text scores from its end, where the layers turn keys alike") {
  const two_voters voters;
  const zoomr_ggml_params p = voters.params();
  const auto passed = [&](int tokens, const zoomr_ggml_params& with) {
    const int tokens_passed = tokens;
    engine e({}, with);
    e.use_ids({1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 9});
    CHECK(zoomr_ggml_seq_span(e.z(), 0, 12, 24, ZOOMR_GGML_QUESTION) == ZOOMR_GGML_SUCCESS);
    for (; tokens > 100; tokens -= 100) e.pass({{0, 100}});
    e.pass({{0, tokens, true}});
    std::vector<float> all;
    for (int t = 0; t < 6; ++t) {
      e.decode(0, 1, false);
      for (const float number : outputs(e)) all.push_back(number);
    }
    CHECK(attended(e) < tokens_passed);
    return all;
  };
  zoomr_ggml_params unknown = p, alike = p, differ = p;
  unknown.rope.n_rot = 0;
  const zoomr_ggml_rope other{engine::width, true, 500, 1, nullptr};
  const zoomr_ggml_rope same[engine::layers] = {p.rope, p.rope}, two[engine::layers] = {p.rope, other};
  alike.layer_rope = same, differ.layer_rope = two;
  CHECK(passed(390, p) != passed(390, unknown));
  CHECK(passed(390, p) == passed(390, alike));
  CHECK(passed(390, differ) == passed(390, unknown));
  CHECK(passed(180, p) == passed(180, unknown));  // near enough to score where it stands
}

TEST_CASE("a span that leaves no room is refused where its tokens come; layers with a window refuse no question") {
  zoomr_ggml_params p = engine::params({});
  p.policy = "snapkv", p.budget = 64;
  engine e({}, p);
  REQUIRE(zoomr_ggml_seq_span(e.z(), 0, 0, 33, ZOOMR_GGML_PINNED) == ZOOMR_GGML_SUCCESS);
  e.plan({{0, 40}});
  CHECK(zoomr_ggml_begin(e.z(), &e.batch()) == ZOOMR_GGML_REFUSED);
  says(e.z(), "65 tokens could never be evicted, but each KV lane keeps 64");
  REQUIRE(zoomr_ggml_seq_rm(e.z(), 0, 32, -1) == ZOOMR_GGML_SUCCESS);
  e.pass({{0, 40}});

  const std::int32_t windows[engine::layers] = {0, 30};
  const char* const settings[] = {"zones.question=40"};
  p.policy = "quest", p.budget = 0, p.window = windows, p.settings = settings, p.n_settings = 1;
  engine windowed({}, p);
  REQUIRE(zoomr_ggml_seq_span(windowed.z(), 0, 10, 20, ZOOMR_GGML_QUESTION) == ZOOMR_GGML_SUCCESS);
  windowed.pass({{0, 40, true}});
}

TEST_CASE("a failure in a node loses nothing: zeros, and a commit that says why") {
  engine e({.threads = 2});
  e.pass({{0, 25, true}});
  const auto expect_zeros = [&] {
    for (const float x : outputs(e)) REQUIRE(x == 0.0f);
  };
  e.plan({{0, 1}}), e.build(), e.compute();  // no begin
  expect_zeros();
  CHECK(zoomr_ggml_commit(e.z()) == ZOOMR_GGML_REFUSED);
  says(e.z(), "without zoomr_ggml_begin");

  e.plan({{0, 2}}), e.build();
  e.plan({{0, 1}});
  REQUIRE(zoomr_ggml_begin(e.z(), &e.batch()) == ZOOMR_GGML_SUCCESS);  // of another batch than the graph
  e.compute();
  expect_zeros();
  CHECK(zoomr_ggml_commit(e.z()) == ZOOMR_GGML_REFUSED);
  says(e.z(), "tokens");
  CHECK(zoomr_ggml_seq_pos_max(e.z(), 0) == 24);

  e.plan({{0, 1}}), e.build();
  REQUIRE(zoomr_ggml_begin(e.z(), &e.batch()) == ZOOMR_GGML_SUCCESS);
  e.compute(), e.compute();  // a layer twice
  CHECK(zoomr_ggml_commit(e.z()) == ZOOMR_GGML_REFUSED);

  e.plan({{0, 1}, {1, 4}}), e.build();
  REQUIRE(zoomr_ggml_begin(e.z(), &e.batch()) == ZOOMR_GGML_SUCCESS);
  e.compute();
  zoomr_ggml_drop(e.z());  // an aborted graph
  CHECK(zoomr_ggml_seq_pos_max(e.z(), 0) == 24);
  CHECK(zoomr_ggml_commit(e.z()) == ZOOMR_GGML_REFUSED);
  e.plan({{0, 1}}), e.build();
  REQUIRE(zoomr_ggml_begin(e.z(), &e.batch()) == ZOOMR_GGML_SUCCESS);
  e.compute();
  CHECK(zoomr_ggml_seq_rm(e.z(), 0, 24, -1) == ZOOMR_GGML_SUCCESS);  // drops the step
  e.text(0).keep(0, 24);
  e.pass({{0, 1, true}}), e.decode(0, 3);  // the graph that is committed is right
}

TEST_CASE("what cannot be is refused with a sentence") {
  const auto refused = [](const zoomr_ggml_params& p, const char* part) {
    CHECK(zoomr_ggml_init(&p) == nullptr);
    says(nullptr, part);
  };
  const zoomr_ggml_params good = engine::params({});
  zoomr_ggml_params p = good;
  p.policy = "quest2", refused(p, "no policy \"quest2\"");
  p = good, p.policy = "zoomr_focus", refused(p, "classes");
  p = good, p.policy = "zoomr_voters", refused(p, "voters");
  p = good, p.voters_unsure = -1, refused(p, "voters_unsure must be at least 0 bits");
  p = good, p.voters_none = p.voters_unsure, refused(p, "voters_none must be a finite logit");
  p = good, p.voters_none_slope = -1, refused(p, "voters_none_slope must be finite and at least 0");
  p = good, p.n_head = 0, refused(p, "heads");
  p = good, p.type_kv = GGML_TYPE_Q5_0, refused(p, "type_kv");
  p = good, p.type_kv = GGML_TYPE_Q8_0, p.n_embd_head_k = 48, refused(p, "multiples of 32");
  p = good, p.n_rollback = -1, refused(p, "negative");
  p = good, p.rope.n_rot = engine::width - 1, refused(p, "rope.n_rot is 31: it must be even");
  p = good, p.rope.n_rot = engine::width + 2, refused(p, "rope.n_rot is 34: it must be even, and at most");
  p = good, p.rope.n_rot = -2, refused(p, "rope.n_rot is -2");
  p = good, p.rope.freq_base = 0, refused(p, "positive");
  zoomr_ggml_rope ropes[engine::layers] = {good.rope, good.rope};
  ropes[1].n_rot = 33;
  p = good, p.layer_rope = ropes, refused(p, "layer_rope[1].n_rot is 33");
  p = good, p.policy = "quest", p.budget = -4, refused(p, "budget");
  const char* const settings[] = {"zones.sinks"};
  p = good, p.settings = settings, p.n_settings = 1, refused(p, "component.field=value");

  p = good, p.n_ctx_seq = 40, p.n_seq_max = 2;
  engine e({}, p);
  e.pass({{0, 30}, {1, 10}});
  e.plan({{0, 11}});
  CHECK(zoomr_ggml_begin(e.z(), &e.batch()) == ZOOMR_GGML_NO_ROOM);
  says(e.z(), "tokens");
  e.plan({{0, 1}, {2, 1}});
  CHECK(zoomr_ggml_begin(e.z(), &e.batch()) == ZOOMR_GGML_NO_ROOM);
  says(e.z(), "open");
  REQUIRE(zoomr_ggml_seq_rm(e.z(), 1, -1, -1) == ZOOMR_GGML_SUCCESS);
  e.text(1) = {};
  for (const std::int32_t seq : {5, 6}) {  // one that was begun alone is not held
    e.plan({{seq, 1}});
    REQUIRE(zoomr_ggml_begin(e.z(), &e.batch()) == ZOOMR_GGML_SUCCESS);
    zoomr_ggml_drop(e.z());
    CHECK(zoomr_ggml_seq_pos_max(e.z(), seq) == -1);
  }
  const std::int32_t two = 2, again = 29, one = 1;
  e.plan({{0, 1}});
  zoomr_ggml_batch batch = e.batch();
  batch.n_seq_id = &two;
  CHECK(zoomr_ggml_begin(e.z(), &batch) == ZOOMR_GGML_REFUSED);
  says(e.z(), "several sequences");
  batch = e.batch(), batch.pos = &again;
  CHECK(zoomr_ggml_begin(e.z(), &batch) == ZOOMR_GGML_REFUSED);
  says(e.z(), "position 29");
  batch = e.batch(), batch.n_seq_id = &one, batch.token = nullptr;  // an embedding
  e.build();
  REQUIRE(zoomr_ggml_begin(e.z(), &batch) == ZOOMR_GGML_SUCCESS);
  e.compute();
  REQUIRE(zoomr_ggml_commit(e.z()) == ZOOMR_GGML_SUCCESS);
  e.accept({{0, 1}}, true);

  const context in;
  ggml_tensor* const q = in.filled(engine::width, engine::heads, std::vector<float>(engine::width * engine::heads));
  ggml_tensor* const k = in.filled(engine::width, engine::kv_heads, std::vector<float>(engine::width * 2));
  const auto no_node = [&](ggml_tensor* a, ggml_tensor* b, ggml_tensor* c, int layer, const char* part) {
    CHECK(zoomr_ggml_attn(e.z(), in, a, b, c, 0, layer) == nullptr);
    says(e.z(), part);
  };
  no_node(q, k, k, 2, "layer");
  no_node(q, q, k, 0, "k is");
  no_node(k, k, k, 0, "q is");
  no_node(q, k, ggml_cast(in, k, GGML_TYPE_F16), 0, "one type");
  no_node(q, ggml_cast(in, k, GGML_TYPE_Q8_0), k, 0, "k must be");
  no_node(ggml_permute(in, q, 1, 0, 2, 3), k, k, 0, "contiguous");
  CHECK(zoomr_ggml_attn(e.z(), in, q, k, k, 0, 0) != nullptr);
  for (const float scale : {-1.0f, INFINITY, NAN}) {
    CHECK(zoomr_ggml_attn(e.z(), in, q, k, k, scale, 0) == nullptr);
    says(e.z(), "positive");
  }
  CHECK(zoomr_ggml_attn(e.z(), in, q, k, k, 0.5f, 0) == nullptr);
  says(e.z(), "kq_scale of layer 0 was another one before");
}

}  // namespace
}  // namespace ggml_test
