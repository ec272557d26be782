// SPDX-License-Identifier: Apache-2.0
// A checkpoint and a text, on the host and on a device: what tests of the device's decoder compare.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>
#include <vector>

#include "sampler.hpp"
#include "session.cuh"
#include "session.hpp"
#include "support/tolerance.hpp"

namespace decode {

inline constexpr std::size_t written = 20;  // tokens

/// A checkpoint and a text for it: a prompt, tokens that are given after it, and some that the model writes.
struct scene {
  model_config config;
  model_weights weights;
  model host;
  std::vector<zoomr::token_class> classes;
  std::vector<token_id> prompt, given;

  scene(model_config c, const std::filesystem::path& directory)
      : config(std::move(c)), weights(read_weights(directory, config)), host(config, read_weights(directory, config)) {}
  index_t most() const { return static_cast<index_t>(prompt.size() + given.size() + written); }
};

/// What a session was given and has written, and the logits [tokens][V] after the token before.
struct text {
  std::vector<token_id> tokens;
  std::vector<std::vector<float>> logits;
};

template <class Session>
text write(Session& session, const scene& of) {
  text made;
  session.prompt(of.prompt, [](std::size_t) {});
  while (made.tokens.size() < of.given.size() + written) {
    const bool known = made.tokens.size() < of.given.size();
    made.logits.emplace_back(session.logits().begin(), session.logits().end());
    made.tokens.push_back(known ? of.given[made.tokens.size()] : greedy(session.logits()));
    session.advance({&made.tokens.back(), 1});
  }
  return made;
}

/// The largest difference of a row, relative to the row's largest logit.
inline double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0, difference = 0;
  for (std::size_t id = 0; id < a.size(); ++id) {
    largest = std::max<double>(largest, std::abs(a[id]));
    difference = std::max<double>(difference, std::abs(double{a[id]} - b[id]));
  }
  return difference / largest;
}

// Selections are the same, and both add up floats in an order of their own: the family of full attention.
inline void expect_same(const text& device, const text& host) {
  CHECK(device.tokens == host.tokens);
  double worst = 0;
  for (std::size_t t = 0; t < host.logits.size(); ++t)
    worst = std::max(worst, distance(host.logits[t], device.logits[t]));
  CAPTURE(worst);
  CHECK(worst <= zoomr_test::tolerance::full_attention);
}

/// A session of the device's.
template <index_t HeadDim, index_t Group, class Policy>
device::device_session on_device(device::device_model& net, const Policy& policy, const scene& of,
                                 const device::details_room& room = {}) {
  using full = zoomr::policy_of<zoomr::presets::full>;
  return {zoomr::device_caches<float, zoomr::device_cache<Policy, float, HeadDim, Group>>{},
          zoomr::device_caches<float, zoomr::device_cache<full, float, HeadDim, Group>>{},
          net,
          policy,
          of.most(),
          of.classes,
          room};
}

/// @param chunk  of the device's prompts
/// @return the device's cost
template <index_t HeadDim, index_t Group, class Policy>
device::run_cost compare(scene&& of, const Policy& policy, index_t chunk) {
  session host(of.host, policy, 1, of.most(), of.classes);
  device::device_model net(of.config, of.weights, of.most(), chunk);
  device::device_session device = on_device<HeadDim, Group>(net, policy, of);
  expect_same(write(device, of), write(host, of));

  const device::run_cost cost = device.cost();
  const zoomr::statistics stats = host.stats();
  CHECK(cost.prompt_tokens == stats.prompt_tokens);
  CHECK(cost.tokens == stats.tokens);
  CHECK(cost.passes == stats.passes);
  CHECK(cost.attended_mean == host.attended_mean());
  return cost;
}

}  // namespace decode
