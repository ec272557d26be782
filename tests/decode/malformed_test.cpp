// SPDX-License-Identifier: Apache-2.0
// A small checkpoint, broken in thousands of ways: each must load or be refused with one sentence.
// Best run with -fsanitize=address,undefined.
#include <doctest/doctest.h>

#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "config.hpp"
#include "dense_step.hpp"
#include "model.hpp"
#include "support.hpp"
#include "tokenizer.hpp"
#include "weights.hpp"

namespace decode {
namespace {

// Loads everything and passes a few tokens. True if nothing was wrong.
bool survives(const fs::path& folder, std::string& sentence) {
  try {
    const auto config = read_config(folder);
    const tokenizer words(folder, config.vocab);
    model net(config, read_weights(folder, config));
    auto tokens = words.encode("<bos> a = 17 ; b = a [ 5 ] ; <go>", {.allow_unknown = false});
    tokens.resize(4);
    const std::vector<zoomr::index_t> positions = {0, 1, 2, 3};
    std::vector<float> logits(config.vocab);
    dense_step step;
    const zoomr::index_t row = 3;
    net.forward(step, tokens, positions, {&row, {1}}, {logits.data(), {1, static_cast<zoomr::index_t>(config.vocab)}});
    words.decode(tokens, false);
    return true;
  } catch (const input_error& error) {
    sentence = error.what();
    return false;
  }
}

std::string mutated(std::string bytes, std::mt19937_64& random) {
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  static const std::string pieces[] = {"{",    "}",     "[",   "]", "\"", "-", "0", "9999999999999999999",
                                       "null", "1e400", "\xff"};
  for (std::size_t n = 1 + below(3); n > 0 && !bytes.empty(); --n) {
    const std::size_t at = below(2) ? below(bytes.size()) : below(std::min<std::size_t>(bytes.size(), 3000));
    switch (below(5)) {
      case 0:
        bytes.resize(at);
        break;
      case 1:
        bytes[at] = static_cast<char>(bytes[at] ^ 1 << below(8));
        break;
      case 2:
        bytes[at] = static_cast<char>(random());
        break;
      case 3:
        bytes.insert(at, pieces[below(std::size(pieces))]);
        break;
      case 4:
        bytes.erase(at, 1 + below(20));
        break;
    }
  }
  return bytes;
}

}  // namespace

TEST_CASE("a broken checkpoint loads or is refused with one sentence, and nothing else happens") {
  for (const std::string name : {"config.json", "model.safetensors", "tokenizer.json"}) {
    const scratch folder("llama");
    const std::string whole = read_file(folder / name);
    std::string sentence;
    REQUIRE(survives(folder.path(), sentence));
    std::mt19937_64 random(7);
    int refused = 0;
    for (int n = 0; n < 1500; ++n) {
      write_file(folder / name, mutated(whole, random));
      if (survives(folder.path(), sentence)) continue;
      ++refused;
      CAPTURE(sentence);
      CHECK(sentence.find('\n') == sentence.npos);
      CHECK(sentence.size() < 600);
    }
    CAPTURE(name);
    CHECK(refused > 500);
  }
}

TEST_CASE("a broken config of a model with sliding windows is read or refused") {
  for (const std::string name : {"gemma3", "gemma3_wide"}) {
    const std::string whole = read_file(fixture(name) / "config.json");
    std::mt19937_64 random(13);
    int refused = 0;
    for (int n = 0; n < 1500; ++n) {
      const std::string text = mutated(whole, random);
      const std::string sentence = complaint([&] { parse_config(parse_json(text, "config.json"), "config.json"); });
      refused += sentence == "no complaint" ? 0 : 1;
      CAPTURE(sentence);
      CHECK(sentence.find('\n') == sentence.npos);
    }
    CHECK(refused > 500);
  }
}

TEST_CASE("a checkpoint cut anywhere is refused") {
  const scratch folder("llama");
  const std::string whole = read_file(folder / "model.safetensors");
  std::string sentence;
  for (std::size_t size = 0; size < whole.size(); size += size < 16 ? 1 : 97) {
    write_file(folder / "model.safetensors", whole.substr(0, size));
    CAPTURE(size);
    CHECK_FALSE(survives(folder.path(), sentence));
  }
}

TEST_CASE("tokenizers of each family, broken, load or are refused") {
  for (const std::string name : {"gpt2", "llama3", "llama2", "gemma"}) {
    const scratch folder("tokenizers/" + name);
    const std::string whole = read_file(folder / "tokenizer.json");
    std::mt19937_64 random(11);
    for (int n = 0; n < 300; ++n) {
      write_file(folder / "tokenizer.json", mutated(whole, random));
      complaint([&] { tokenizer(folder.path()).encode("the lamp\n 6:45 Zürich 大海"); });
    }
  }
}

}  // namespace decode
