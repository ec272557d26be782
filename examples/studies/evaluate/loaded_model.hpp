// SPDX-License-Identifier: Apache-2.0
// What every measurement with a pretrained model holds: the model, its tokenizer, and what its tokens are to policies.
#pragma once

#include <zoomr/core/threads/thread_pool.hpp>

#include <filesystem>  // std::filesystem::path
#include <string>      // std::string
#include <vector>      // std::vector

#include "../../decode/code_policies.hpp"
#include "../../decode/model.hpp"
#include "../../decode/voters.hpp"
#include "../../decode/weights.hpp"

namespace decode {

struct loaded_model {
  zoomr::thread_pool pool;
  model_config config;
  model net;
  tokenizer words;
  class_tables classes;
  std::vector<zoomr::index_t> layers;  // of the model, that a policy is for: those without a sliding window

  /// @param directory  of a checkpoint
  /// @throws input_error
  explicit loaded_model(const std::string& directory)
      : pool(usual_threads()),
        config(read_config_with_voters(directory, {})),
        net(config, read_weights(directory, config), pool),
        words(directory, config.vocab),
        classes(words, config.vocab, {}) {
    for (std::size_t layer = 0; layer < config.layers; ++layer) {
      if (!config.has_window(layer)) layers.push_back(static_cast<zoomr::index_t>(layer));
    }
  }
};

/// The last name of a path: of a folder, too, whose path ends with a slash.
inline std::string last_name(const std::filesystem::path& path) {
  const std::filesystem::path whole = std::filesystem::absolute(path);
  return (whole.filename().empty() ? whole.parent_path() : whole).filename().string();
}

}  // namespace decode
