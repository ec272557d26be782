// SPDX-License-Identifier: Apache-2.0
// A decoding step as a CUDA graph. The host plans a step and uploads a small table. Everything else of a pass, the
// model's kernels and the cache's, is the same work for every token: it is recorded once and launched as one graph.
// What the policy chooses, and how long the text is, the kernels read from the device.
//
// A model of LEDGER solves one problem, with graphs and without them. A policy with second passes has two graphs.
#include <zoomr/device_cache.cuh>
#include <zoomr/presets/zoomr_thoughts.hpp>

#include <algorithm>  // std::copy
#include <chrono>     // std::chrono::steady_clock
#include <cstdio>     // std::fprintf, std::printf
#include <exception>  // std::exception
#include <span>       // std::span
#include <string>     // std::string
#include <vector>     // std::vector

#include "model.cuh"
#include "sampler.hpp"
#include "token_classes.hpp"

using zoomr::index_t;
using zoomr::token_id;
namespace device = decode::device;

constexpr auto zooming = zoomr::presets::zoomr_second_pass;
using cache_type = zoomr::device_cache<zoomr::policy_of<zooming>, float, 64, 2>;  // 64 dimensions, 2 heads to a KV head
constexpr index_t chunk = 128;                                                    // most tokens of a pass

/// A model and its cache, of one sequence. Whatever a graph reads or writes stays where it is.
struct engine {
  device::device_model net;
  zoomr::config limits;
  device::device_array<std::byte> memory;
  cache_type cache;
  zoomr::sequence seq = cache.open();
  device::pinned_array<token_id> ids{chunk};
  device::pinned_array<index_t> positions{chunk};
  device::pinned_array<float> logits;
  device::replayed graphs[2];  // of a first pass and a second one
  index_t launched = 0;        // graphs

  engine(const decode::model_config& c, const decode::model_weights& weights, const zoomr::shape& model,
         const zoomr::config& with)
      : net(c, weights, with.max_tokens, chunk),
        limits(with),
        memory(static_cast<std::size_t>(cache_type::bytes(model, zooming, limits))),
        cache(model, zooming, limits, memory.data(), net.on()),
        logits(c.vocab) {}
};

/// What a model's layers ask of a step, on the engine's stream.
struct layers_of_step {
  cache_type::step_type& step;
  zoomr::stream_ref on;

  void append(index_t layer, zoomr::view<const float, 3> keys, zoomr::view<const float, 3> values) {
    step.append(layer, keys, values, on);
  }
  void attend(index_t layer, zoomr::view<const float, 3> queries, zoomr::view<float, 3> out) {
    step.attend(layer, queries, out, {}, on);
  }
};

/// All that a pass enqueues. Each time it has the same launches with the same arguments, so that it may be a graph.
void enqueue(engine& by, cache_type::step_type& step, index_t tokens, bool again) {
  const zoomr::stream_ref on = by.net.on();
  zoomr::copy_to_device(by.net.tokens(), by.ids.get().data(), sizeof(token_id) * tokens, on);
  zoomr::copy_to_device(by.net.positions(), by.positions.get().data(), sizeof(index_t) * tokens, on);
  again ? step.restart(on) : step.start(on);
  layers_of_step layers{step, on};
  by.net.forward(layers, tokens);
  device::copy_from_device(by.logits.get().data(), by.net.logits(), by.logits.get().size_bytes(), on);
  step.join(on);  // what a policy of voters does beside the last of these: a graph ends with it
}

/// One step over the next tokens of the sequence. A prompt is enqueued as it is: each of its chunks is another one.
/// @return  the token that the model writes next
token_id pass(engine& by, std::span<const token_id> ids, bool prompt, bool with_graphs) {
  const auto tokens = static_cast<index_t>(ids.size());
  for (index_t t = 0; t < tokens; ++t) by.positions.get()[t] = by.cache.tokens(by.seq) + t;
  std::copy(ids.begin(), ids.end(), by.ids.get().begin());
  const bool fixed = with_graphs && !prompt;
  auto step = by.cache.begin(by.seq, ids, prompt, fixed);
  bool again = false;
  do {  // in a second pass: the last token alone
    if (!fixed) {
      if (again) by.ids.get()[0] = ids.back(), by.positions.get()[0] = by.cache.tokens(by.seq) + tokens - 1;
      enqueue(by, step, again ? 1 : tokens, again);
      continue;
    }
    step.upload(by.net.on());  // what differs from step to step; no part of the graph
    by.graphs[again ? 1 : 0]([&] { enqueue(by, step, 1, again); }, by.net.on());
    ++by.launched;
  } while (!again && (again = step.needs_second_pass(tokens)));
  step.commit(tokens, by.net.on());
  device::wait_for(by.net.on());  // the only time that the host waits
  return decode::greedy(by.logits.get());
}

/// Writes until `end`, or until there are so many tokens.
std::vector<token_id> write(engine& by, std::span<const token_id> prompt, token_id end, index_t most, bool graphs) {
  std::vector<token_id> text;
  for (token_id next = pass(by, prompt, true, graphs);; next = pass(by, std::span(&text.back(), 1), false, graphs)) {
    text.push_back(next);
    if (next == end || by.cache.tokens(by.seq) + 1 >= most) return text;
  }
}

int main() {
  try {
    const std::string checkpoint = LEDGER_CHECKPOINTS "/indexed";
    const decode::model_config c = decode::read_config(checkpoint);
    const decode::model_weights weights = decode::read_weights(checkpoint, c);
    const decode::tokenizer words(checkpoint);
    const auto classes = decode::classify(words, c.vocab, {";"});
    const auto prompt = words.encode("<bos> a = #17 ; b = #42 ; c = a [ @5 ] ; d = b [ last ] ; e = c [ @9 ] ; <go>");
    const zoomr::shape model{index_t(c.layers), index_t(c.heads), index_t(c.kv_heads), index_t(c.head_dim)};
    const zoomr::config limits{
        .max_tokens = 1024, .max_batched_tokens = chunk, .max_draft_tokens = 1, .classes = classes};

    std::vector<token_id> texts[2];
    for (const bool graphs : {false, true}) {
      engine by(c, weights, model, limits);
      const auto from = std::chrono::steady_clock::now();
      std::vector<token_id>& text = texts[graphs ? 1 : 0];
      text = write(by, prompt, words.id_of("<ans>").value(), limits.max_tokens, graphs);
      const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - from;
      std::printf("%s: %.0f microseconds for each of %zd tokens, %d graphs launched\n",
                  graphs ? "with graphs" : "without", took.count() / double(text.size()), std::ssize(text),
                  by.launched);
    }
    for (const token_id id : texts[1]) std::printf("%s ", std::string(words.text_of(id)).c_str());
    std::printf("\n%s\n", texts[0] == texts[1] ? "both texts are the same" : "the texts differ");
    return texts[0] == texts[1] ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "zoomr-cuda-graph: %s\n", error.what());
    return 2;
  }
}
