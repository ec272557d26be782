// SPDX-License-Identifier: Apache-2.0
// Problems of retrieval, and weights that are learnt of them.
#include <doctest/doctest.h>

#include <algorithm>  // std::count
#include <fstream>    // std::ofstream
#include <random>     // std::mt19937
#include <string>
#include <vector>

#include <unistd.h>  // getpid

#include "input_error.hpp"
#include "retrieval/learn.hpp"
#include "retrieval/scene.hpp"
#include "support.hpp"

namespace decode::retrieval {
namespace {

/// Five hundred plain sentences, and some that are not plain.
fs::path prose() {
  static const fs::path made = [] {
    const fs::path path = fs::temp_directory_path() / ("zoomr_prose_" + std::to_string(::getpid()) + ".txt");
    std::ofstream out(path);
    for (int i = 0; i < 500; ++i) {
      out << "The prince of the house number " << i << " looked at the garden\nand went to bed. ";
      out << "\"Why?\" said she. Short one. ";
    }
    return path;
  }();
  return made;
}

const fs::path directory = fs::path(DECODE_BYTES) / "checkpoint";

scene_options asked_for() {
  scene_options made;
  made.directory = directory.string(), made.texts = {prose().string()};
  made.tasks = {"needle", "keys"}, made.tokens = {2000}, made.problems = 3;
  return made;
}

bool refused(const scene_options& given, const std::string& part) {
  try {
    scene made(given);
    made.make(made.groups.front(), 0);
  } catch (const input_error& why) {
    INFO(why.what());
    return std::string(why.what()).find(part) != std::string::npos;
  }
  return false;
}

}  // namespace

TEST_CASE("a problem says its answer once, in the segment that is needed, and is as long as it was asked to be") {
  const scene_options given = asked_for();
  scene on(given);
  for (const group& of : on.groups) {
    for (index_t number = 0; number < given.problems; ++number) {
      const problem made = on.make(of, number);
      CAPTURE(of.name());
      const std::string text = on.words.decode(made.prompt);
      CHECK(text.find(made.answer) != std::string::npos);
      CHECK(text.find(made.answer) == text.rfind(made.answer));
      CHECK(made.prompt.size() > 1500);
      CHECK(made.prompt.size() < 2400);  // of bytes the words around it are more
      std::size_t needles = 0;
      for (std::size_t at = text.find("One of the special"); at != std::string::npos;
           at = text.find("One of the special", at + 1)) {
        ++needles;
      }
      CHECK(needles == (of.of == task::keys ? 4 : 1));
      CHECK(text.find("Why?") == std::string::npos);  // not plain
      const std::string before = on.words.decode(std::span(made.prompt).first(static_cast<std::size_t>(made.evidence)));
      CHECK(before.size() > text.find(made.answer) - 40);
      CHECK(before.size() < text.find(made.answer) + 8);
      CHECK(on.needed_segment(made) >= 0);
      CHECK(on.make(of, number).prompt == made.prompt);
      CHECK(on.make(of, number + 1).prompt != made.prompt);
    }
  }
}

TEST_CASE("what cannot be asked for is refused with a sentence") {
  scene_options given = asked_for();
  given.tasks = {"riddles"};
  CHECK(refused(given, "no task"));
  given = asked_for(), given.tasks = {"notes"};
  CHECK(refused(given, "four tokens that mark them"));
  given = asked_for(), given.marks = {"<a>", "<b>"};
  CHECK(refused(given, "four tokens are needed"));
  given = asked_for(), given.marks = {"<a>", "<b>", "<c>", "<d>"};
  CHECK(refused(given, "is no token of this model"));
  given = asked_for(), given.tokens = {100};
  CHECK(refused(given, "leaves no room"));
  given = asked_for(), given.tokens = {20000};
  CHECK(refused(given, "longer than this model's context"));
  given = asked_for(), given.texts = {(directory / "config.json").string()};
  CHECK(refused(given, "plain sentences"));
}

TEST_CASE("of many heads those that look at what is needed get the weight, and are judged by it") {
  constexpr std::size_t heads = 40, good = 7, fair = 23;
  std::mt19937 random(5);
  std::vector<example> all;
  for (int i = 0; i < 60; ++i) {
    example one{i % 2 == 0 ? "a" : "b", random() % 9, 9 + random() % 5, {}};
    for (std::size_t head = 0; head < heads; ++head) {
      for (std::size_t id = 0; id < one.segments; ++id) {
        float share = -1.5f - 0.001f * static_cast<float>(random() % 2000);
        if (id == one.target && head == good) share = -0.2f;
        if (id == one.target && head == fair && i % 3 == 0) share = -0.2f;
        one.log_share.push_back(share);
      }
    }
    all.push_back(one);
  }
  std::vector<const example*> learnt, others;
  for (std::size_t i = 0; i < all.size(); ++i) (i < 40 ? learnt : others).push_back(&all[i]);
  const std::vector<float> weights = learn(learnt, heads);
  REQUIRE(weights.size() == heads);
  for (std::size_t head = 0; head < heads; ++head) {
    CHECK(weights[head] >= 0.0f);
    if (head != good) CHECK(weights[head] < 0.5f * weights[good]);
  }
  CHECK(std::count(weights.begin(), weights.end(), 0.0f) > 25);
  const found made = judge(others, weights);
  CHECK(made.problems == 20);
  CHECK(made.first == 20);
  CHECK(made.in_set == 20);
  CHECK(made.taken < 2.5);
  std::vector<float> wrong(heads, 0.0f);
  wrong[good + 1] = 1.0f;
  CHECK(judge(others, wrong).first < 10);
}

}  // namespace decode::retrieval
