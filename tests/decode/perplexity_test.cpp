// SPDX-License-Identifier: Apache-2.0
// The measurement `perplexity`: what it scores is what the model says, and what is on file is not measured again.
#include <doctest/doctest.h>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "dense_step.hpp"
#include "perplexity/passages.hpp"
#include "perplexity/summary.hpp"
#include "policies.hpp"
#include "support.hpp"
#include "token_classes.hpp"

namespace decode::perplexity {
namespace {

constexpr auto ignore = [](std::size_t) {};

/// A trained model, and text of its own kind.
struct trained {
  fs::path directory = fs::path(DECODE_BYTES) / "checkpoint";
  model net = load_model(directory);
  tokenizer words{directory, net.config().vocab};
  std::vector<zoomr::token_class> classes = classify(words, net.config().vocab, {});
  std::vector<token_id> ids;

  explicit trained(std::size_t tokens) {
    const std::string sentence = "The prince looked at Mary. \"What is it?\" said she; and he had no answer for her. ";
    std::string text;
    while (text.size() < tokens) text += sentence + std::to_string(text.size() * text.size()) + " days went by. ";
    ids = words.encode(text);
    ids.resize(tokens);
  }
};

/// Bits of the tokens from `first` on, by one dense pass in double precision.
double dense_bits(model& net, const std::vector<token_id>& ids, std::size_t first) {
  const std::size_t vocab = net.config().vocab;
  std::vector<index_t> rows(ids.size());
  std::iota(rows.begin(), rows.end(), 0);
  std::vector<float> logits(ids.size() * vocab);
  dense_step step(net.config());
  net.forward(step, ids, rows, rows, {logits.data(), {static_cast<index_t>(ids.size()), static_cast<index_t>(vocab)}});
  double bits = 0;
  for (std::size_t t = first; t < ids.size(); ++t)
    bits += bits_of(std::span(logits).subspan((t - 1) * vocab, vocab), ids[t]);
  return bits;
}

/// The same through a session that passes the prompt itself.
template <class Policy>
double session_bits(trained& lab, const Policy& policy, std::size_t first) {
  session run(lab.net, policy, 1, static_cast<index_t>(lab.ids.size()), lab.classes);
  run.prompt(0, std::span(lab.ids).first(first));
  double bits = 0;
  for (std::size_t t = first; t < lab.ids.size(); ++t) {
    bits += bits_of(run.logits(0), lab.ids[t]);
    run.advance({&lab.ids[t], 1});
  }
  return bits;
}

row task(const std::string& policy, index_t budget, std::size_t end) {
  return {.policy = policy,
          .settings = "",
          .budget = budget,
          .context = 64,
          .text = "a \"book\".txt",
          .end = end,
          .tokens = 32,
          .bytes = 32,
          .words = 6,
          .found = {}};
}

row measured(const std::string& policy, index_t budget, std::size_t end, double bits) {
  row r = task(policy, budget, end);
  r.found = {.bits = bits,
             .block_bits = {bits / 4, 3 * bits / 4},
             .seconds = 0.5,
             .attended_mean = 48.25,
             .bytes = {100, 20, 3, 0},
             .device_peak = 123};
  return r;
}

}  // namespace

TEST_CASE("bits are those of the softmax") {
  const std::vector<float> even(8, 3.5f);
  CHECK(bits_of(even, 5) == doctest::Approx(3.0));
  const std::vector<float> sure = {0.0f, 200.0f, 0.0f};
  CHECK(bits_of(sure, 1) == doctest::Approx(0.0));
  CHECK(bits_of(sure, 0) == doctest::Approx(200.0 / std::numbers::ln2));
}

TEST_CASE("full scores what a plain dense forward pass scores") {
  trained lab(700);
  for (const std::size_t first : {1u, 300u, 650u}) {
    CAPTURE(first);
    const prefill prompt(lab.net, std::span(lab.ids).first(first), ignore);
    const auto scored = std::span(lab.ids).subspan(first);
    const score found = score_tokens(lab.net, zoomr::presets::full, prompt, scored, lab.classes, ignore);
    // float against double: each logit is off by some 1e-6, and errors of tokens cancel rather than add
    CHECK(found.bits == doctest::Approx(dense_bits(lab.net, lab.ids, first)).epsilon(1e-5));
    CHECK(found.block_bits.size() == (scored.size() + block_tokens - 1) / block_tokens);
    CHECK(std::accumulate(found.block_bits.begin(), found.block_bits.end(), 0.0) == doctest::Approx(found.bits));
    const std::vector<token_id> begun(lab.ids.begin(), lab.ids.begin() + static_cast<std::ptrdiff_t>(first + 32));
    CHECK(found.block_bits.front() == doctest::Approx(dense_bits(lab.net, begun, first)).epsilon(1e-5));
    // of the scored tokens all but the last are passed
    CHECK(found.attended_mean == doctest::Approx((double(first + 1) + double(lab.ids.size() - 1)) / 2));
  }
}

TEST_CASE("a prompt given from memory is the prompt passed in the cache") {
  trained lab(900);
  const std::size_t first = 800;
  const prefill prompt(lab.net, std::span(lab.ids).first(first), ignore);
  for (const char* name : {"window", "sentence_kv", "sentence_kv_published", "quest", "sentence_box"}) {
    CAPTURE(name);
    with_policy({name, 128, {}}, [&](const auto& policy) {
      const auto scored = std::span(lab.ids).subspan(first);
      const score found = score_tokens(lab.net, policy, prompt, scored, lab.classes, ignore);
      CHECK(found.bits == doctest::Approx(session_bits(lab, policy, first)).epsilon(1e-4));  // a near tie may turn
      CHECK(found.device_peak > 0);
    });
  }
}

TEST_CASE("attention that adds up sees the queries of the whole prompt") {
  trained lab(900);
  const std::size_t first = 800;
  const prefill prompt(lab.net, std::span(lab.ids).first(first), ignore, prefill::kept_queries::all);
  for (const char* name : {"h2o", "snapkv", "r_kv", "quest"}) {
    CAPTURE(name);
    with_policy({name, 128, {}}, [&](const auto& policy) {
      const auto scored = std::span(lab.ids).subspan(first);
      const score found = score_tokens(lab.net, policy, prompt, scored, lab.classes, ignore);
      CHECK(found.bits == doctest::Approx(session_bits(lab, policy, first)).epsilon(1e-4));  // a near tie may turn
    });
  }
}

TEST_CASE("budgets are attended tokens") {
  trained lab(1000);
  const prefill prompt(lab.net, std::span(lab.ids).first(800), ignore);
  const auto scored = std::span(lab.ids).subspan(800);
  for (const char* name : {"window", "sentence_kv", "quest", "sentence_box"}) {
    CAPTURE(name);
    with_policy({name, 256, {"zones.dense_layers=0"}}, [&](const auto& policy) {
      const score found = score_tokens(lab.net, policy, prompt, scored, lab.classes, ignore);
      CHECK(found.attended_mean <= 256 + 16);  // quest: its open page comes on top
      CHECK(found.attended_mean >= 256 - 16);
    });
  }
}

TEST_CASE("every byte is a token, and every text comes back") {
  trained lab(10);
  const std::string text = "Natásha said: “Où?”\n\tYes — 100 %.\x01";
  const auto ids = lab.words.encode(text);
  REQUIRE(ids.size() == text.size() + 1);
  CHECK(ids.front() == 256);
  for (std::size_t i = 0; i < text.size(); ++i) CHECK(ids[i + 1] == static_cast<unsigned char>(text[i]));
  CHECK(lab.words.decode(ids) == text);
  const text_size size = size_of(lab.words.encode("ab cd\n e.", {.add_special = false}), lab.words);
  CHECK(size.bytes == 9);
  CHECK(size.words == 2);  // the first may be the rest of one
  for (int id = 0; id < 256; ++id) {
    const bool ends = id == '.' || id == '!' || id == '?';
    CHECK((lab.classes[static_cast<std::size_t>(id)] == zoomr::token_class::delimiter) == ends);
  }
}

TEST_CASE("passages are the same for the same seed, share no scored token, and are the same for each context") {
  std::vector<long_text> texts(2);
  texts[0] = {"one", std::vector<token_id>(1000)}, texts[1] = {"two", std::vector<token_id>(400)};
  std::iota(texts[0].ids.begin(), texts[0].ids.end(), 0);
  const layout wanted{.contexts = {50, 200}, .scored = 40, .passages = 4, .seed = 3};
  const auto all = cut(texts, wanted), again = cut(texts, wanted);
  REQUIRE(all.size() == 8);
  for (std::size_t p = 0; p < all.size(); ++p) {
    CHECK((all[p].text == again[p].text && all[p].end == again[p].end));
    CHECK(all[p].text == p / 4);
    CHECK(all[p].end >= 200);
    CHECK(all[p].end <= texts[all[p].text].ids.size());
    if (p % 4 > 0) CHECK(all[p].end - 40 >= all[p - 1].end);
  }
  const auto shorter = tokens_of(all[1], texts, 50, 7), longer = tokens_of(all[1], texts, 200, {});
  CHECK(shorter.size() == 50);
  CHECK(shorter.front() == 7);
  CHECK(longer.size() == 200);
  CHECK(std::equal(shorter.begin() + 1, shorter.end(), longer.end() - 49));
  texts[1].ids.resize(319);
  CHECK(says(complaint([&] { cut(texts, wanted); }), "two has 319 tokens, but 4 passages"));
  texts[1].ids.resize(320);
  CHECK(cut(texts, wanted).size() == 8);
}

TEST_CASE("text that cannot be used is refused with its file") {
  trained lab(10);
  const scratch folder;
  const auto refused = [&](std::string_view text) {
    write_file(folder / "text.txt", text);
    return complaint([&] { read_long_text(folder / "text.txt", lab.words); });
  };
  CHECK(refused("good") == "no complaint");
  CHECK(says(refused("bad \xff"), "text.txt: the text is not UTF-8 at byte 4"));
  CHECK(says(complaint([&] { read_long_text(folder / "none.txt", lab.words); }), "none.txt: no such file"));
  const tokenizer few(fixture("llama"));  // knows some words only
  write_file(folder / "text.txt", "elephants");
  CHECK(says(complaint([&] { read_long_text(folder / "text.txt", few); }), "text.txt: no token stands for"));
}

TEST_CASE("rows come back from their file as they were, without a last line that was cut off") {
  const scratch folder;
  const std::string path = (folder / "rows").string();
  const subject about{123.456789, {"a 100", "b 200"}};
  const row first = measured("full", 0, 77, 70.123456789012345), second = measured("quest", 16, 77, 1.0 / 3.0);
  {
    journal done(path, about);
    done.add(first);
    done.add(second);
  }
  const std::string whole = read_file(path);
  {
    const journal done(path, about);
    REQUIRE(done.rows().size() == 2);
    for (const row& r : {first, second}) {
      const row* found = done.find(r);
      REQUIRE(found != nullptr);
      CHECK(to_json(*found) == to_json(r));
    }
    CHECK(done.find(task("quest", 32, 77)) == nullptr);
    CHECK(done.find(task("full", 0, 78)) == nullptr);
  }
  json before = to_json(second);  // they were not always kept
  before.erase("block_bits");
  write_file(path, whole.substr(0, whole.find('\n') + 1) + before.dump() + '\n');
  CHECK(journal(path, about).rows().front().found.block_bits.empty());
  write_file(path, whole.substr(0, whole.size() - 30));
  {
    journal done(path, about);
    REQUIRE(done.rows().size() == 1);
    done.add(second);
  }
  CHECK(journal(path, about).rows().size() == 2);
  CHECK(says(complaint([&] { journal(path, {124.0, about.texts}); }), "another model"));
  CHECK(says(complaint([&] { journal(path, {about.probe_bits, {"a 100"}}); }), "other texts"));
  write_file(path, whole + "{\"policy\": 3}\n");
  CHECK(says(complaint([&] { journal(path, about); }), "line 4: policy must be a string"));
  write_file(path, "a diary\n");
  CHECK(says(complaint([&] { journal(path, about); }), "line 1: not valid JSON"));
  CHECK(says(complaint([&] { journal(folder.path().string(), about); }), "not a regular file"));
  CHECK(journal("", about).rows().empty());
}

TEST_CASE("means, intervals and the gap are those worked out by hand") {
  CHECK(student_t(1) == doctest::Approx(12.706));
  CHECK(student_t(31) == doctest::Approx(2.0395).epsilon(1e-3));
  CHECK(student_t(1000000) == doctest::Approx(1.96));
  const estimate of_three = estimate_of({1, 2, 3});
  CHECK(of_three.mean == doctest::Approx(2));
  CHECK(of_three.half_width == doctest::Approx(4.303 / std::sqrt(3.0)));
  CHECK(estimate_of({5}).half_width == 0);
  std::vector<row> rows;
  for (const std::size_t end : {100, 200}) {
    const double bits = end == 100 ? 64 : 96;
    rows.push_back(measured("full", 0, end, bits));
    rows.push_back(measured("window", 16, end, bits + 3.2));
    rows.push_back(measured("quest", 16, end, bits + 0.8));
    rows.push_back(measured("quest", 32, end, bits));
  }
  rows.push_back(measured("quest", 16, 300, 1000));  // full has not come so far
  const auto groups = summarize(rows);
  REQUIRE(groups.size() == 4);
  CHECK(groups[0].bits_per_byte.mean == doctest::Approx(2.5));
  CHECK(groups[0].perplexity_per_word == doctest::Approx(std::exp2(160.0 / 12)));
  CHECK(groups[1].bits_beyond_full.mean == doctest::Approx(0.1));
  CHECK(groups[1].bits_beyond_full.half_width == doctest::Approx(0.0));
  CHECK(groups[1].beyond_full() == doctest::Approx(std::exp2(0.1) - 1));
  CHECK(groups[2].passages == 3);
  CHECK(groups[2].paired == 2);
  CHECK(groups[2].gap_closed == doctest::Approx(0.75));
  CHECK(std::isnan(groups[3].gap_closed));  // no window of 32 to compare with
  CHECK(groups[3].attended_mean == doctest::Approx(48.25));
  CHECK(groups[3].bytes.details == 100);
}

}  // namespace decode::perplexity
