// SPDX-License-Identifier: Apache-2.0
// What tests of retrieval ask for: a byte-level model, with four tokens that mark notes, and prose.
#pragma once

#include <fstream>  // std::ofstream
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "retrieval/scene.hpp"
#include "support.hpp"

namespace decode::retrieval {

/// Files that go when the tests end.
inline const scratch& files() {
  static const scratch folder;
  return folder;
}

/// Six letters, other ones for each number.
inline std::string coined(int number) {
  std::string text = "zz";
  for (int place = 0; place < 4; ++place, number /= 16) text += static_cast<char>('a' + number % 16);
  return text;
}

/// Five hundred plain sentences, and some that are not plain.
inline fs::path prose() {
  static const fs::path path = [] {
    std::ofstream out(files() / "prose.txt");
    for (int i = 0; i < 500; ++i) {
      out << "The prince of the " << coined(i) << " number " << i << " looked at the\ngarden and went to bed. ";
      out << "\"Why?\" said she. Short one. ";
    }
    return files() / "prose.txt";
  }();
  return path;
}

inline const fs::path bytes_checkpoint = fs::path(DECODE_BYTES) / "checkpoint";

/// The byte-level checkpoint, with marks in place of four bytes that no text here has.
inline fs::path marked_checkpoint() {
  static const fs::path path = [] {
    const fs::path copy = files() / "marked";
    fs::copy(bytes_checkpoint, copy);
    json tokens = read_json(copy / "tokenizer.json");
    json& vocab = tokens["model"]["vocab"];
    for (int id = 1; id <= 4; ++id) {
      for (auto at = vocab.begin(); at != vocab.end();) at = at.value() == id ? vocab.erase(at) : std::next(at);
      json mark = {{"id", id}, {"content", "<m" + std::to_string(id) + ">"}, {"special", true}};
      for (const char* const flag : {"single_word", "lstrip", "rstrip", "normalized"}) mark[flag] = false;
      tokens["added_tokens"].push_back(mark);
    }
    write_file(copy / "tokenizer.json", tokens.dump());
    return copy;
  }();
  return path;
}

inline scene_options asked_for() {
  scene_options options;
  options.directory = bytes_checkpoint.string(), options.texts = {prose().string()};
  options.tasks = {"needle", "keys"}, options.tokens = {2000}, options.problems = 3;
  return options;
}

/// Of a task that may need marks.
inline scene_options notes_asked_for(const std::string& task) {
  scene_options options = asked_for();
  options.directory = marked_checkpoint().string(), options.marks = {"<m1>", "<m2>", "<m3>", "<m4>"};
  options.tasks = {task};
  return options;
}

}  // namespace decode::retrieval
