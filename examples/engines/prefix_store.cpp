// SPDX-License-Identifier: Apache-2.0
// An engine whose prompts begin with what another process may have computed: it asks the prefix store first, computes
// what is not there, and puts that. If the store fails it says so, and computes the prompt as if nothing were stored.
//
//   zoomr-prefix-store ADDRESS [POLICY [CHECKPOINT FILE]]
//
// Without a checkpoint a model of LEDGER goes on with a problem; else the model with the text of the file.
#include <algorithm>    // std::min
#include <chrono>       // std::chrono::duration, std::chrono::steady_clock
#include <cstdio>       // std::fprintf, std::printf, std::snprintf
#include <exception>    // std::exception
#include <fstream>      // std::ifstream
#include <iterator>     // std::istreambuf_iterator
#include <numeric>      // std::iota
#include <optional>     // std::optional
#include <span>         // std::span
#include <stdexcept>    // std::runtime_error
#include <string>       // std::string
#include <type_traits>  // std::remove_cvref_t
#include <vector>       // std::vector

#include <zoomr/presets/table.hpp>

#include "ledger/task.hpp"
#include "prefix_store.hpp"
#include "sampler.hpp"
#include "session.hpp"
#include "token_classes.hpp"

using zoomr::index_t;
using zoomr::token_id;
using cache_type = zoomr::any_kv_cache<zoomr::float16>;

/// Passes tokens, in one step.
/// @return  [vocab]  logits of the token after them
std::vector<float> pass(decode::model& net, cache_type& cache, zoomr::sequence seq, std::span<const token_id> ids,
                        bool prompt_ends) {
  auto step = cache.begin(seq, ids, prompt_ends);
  std::vector<float> logits(net.config().vocab);
  do {  // a second pass is for the last token alone
    const index_t tokens = step.tokens(), last = tokens - 1;
    std::vector<index_t> positions(tokens);
    std::iota(positions.begin(), positions.end(), step.position(0));
    net.forward(step, ids.last(tokens), positions, {&last, {1}}, {logits.data(), {1, index_t(logits.size())}});
  } while (step.needs_second_pass(index_t(ids.size())));
  step.commit();
  return logits;
}

/// A prompt that was passed.
struct started {
  zoomr::sequence seq;
  index_t stored;             // tokens that came from the store
  std::vector<float> logits;  // [vocab]  of the token after the prompt
};

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

/// Opens a sequence and passes a prompt: what is stored of it is loaded, what is not is computed, and put.
/// @param report  report(text)  gets a line about what the store gave, took, or failed at
template <class Report>
started start(decode::model& net, cache_type& cache, const prefixes::store& store, std::span<const token_id> prompt,
              Report report) {
  using clock = std::chrono::steady_clock;
  const auto line = [](const char* what, std::size_t tokens, std::size_t bytes, clock::time_point since) {
    char text[128];
    std::snprintf(text, sizeof text, "%s %zu tokens, %.2f MiB, %.1f ms", what, tokens, double(bytes) / (1 << 20),
                  milliseconds_since(since));
    return std::string(text);
  };
  std::optional<zoomr::sequence> seq;
  try {
    const auto since = clock::now();
    if (const auto found = store.get(prompt)) {
      seq = prefixes::load(cache, *found);
      report(line("got", std::size_t(found->tokens), found->bytes.size(), since));
    }
  } catch (const std::exception& why) {
    report(std::string(why.what()));
  }
  if (!seq) seq = cache.open();
  const index_t stored = cache.tokens(*seq);
  const std::size_t shared = store.shared(prompt.size());
  const auto pass_up_to = [&](std::size_t end) {
    std::vector<float> logits;
    while (std::size_t(cache.tokens(*seq)) < end) {
      const std::size_t held = cache.tokens(*seq), count = std::min<std::size_t>(end - held, 256);
      logits = pass(net, cache, *seq, prompt.subspan(held, count), held + count == prompt.size());
    }
    return logits;
  };
  pass_up_to(shared);
  if (std::size_t(stored) < shared) {
    try {
      const auto since = clock::now();
      const std::string bytes = prefixes::save(cache, *seq);
      store.put(prompt.first(shared), bytes);
      report(line("put", shared, bytes.size(), since));
    } catch (const std::exception& why) {
      report(std::string(why.what()));
    }
  }
  return {*seq, stored, pass_up_to(prompt.size())};
}

/// A few policies, with keys and values as they are often stored.
cache_type open_half(const std::string& policy, const zoomr::shape& model, const zoomr::config& limits) {
  namespace presets = zoomr::presets;
  const auto open = [&](const auto& of) -> cache_type {
    return zoomr::kv_cache<std::remove_cvref_t<decltype(of)>, zoomr::float16>(model, of, limits);
  };
  if (policy == "full") return open(presets::full);
  if (policy == "zoomr_focus") return open(presets::zoomr_focus);
  if (policy == "sentence_kv") return open(presets::sentence_kv);
  if (policy == "h2o") return open(presets::h2o_with(128));
  throw std::runtime_error("prefix_store knows full, zoomr_focus, sentence_kv and h2o, not " + policy);
}

int main(int count, char** arguments) {
  try {
    if (count < 2) throw std::runtime_error("which store? give the path of its socket, or HOST:PORT");
    const std::string policy = count > 2 ? arguments[2] : "zoomr_focus";
    const std::string checkpoint = count > 3 ? arguments[3] : LEDGER_CHECKPOINTS "/indexed";
    decode::model net = decode::load_model(checkpoint);
    const decode::tokenizer words(checkpoint);
    const auto classes = decode::classify(words, net.config().vocab, {";"});
    std::vector<token_id> prompt;
    if (count > 4) {
      std::ifstream file(arguments[4]);
      prompt = words.encode(std::string(std::istreambuf_iterator<char>(file), {}));
    } else {
      const auto task = decode::ledger::read_task(checkpoint);
      const auto problem =
          decode::ledger::render(task, decode::ledger::generator(task, 1).draw(), decode::ledger::scenario::continued);
      for (std::size_t t = 0; t < problem.prompt_length; ++t) prompt.push_back(words.id_of(problem.tokens[t]).value());
    }

    cache_type cache =
        open_half(policy, decode::shape_of(net), {.max_tokens = index_t(prompt.size()) + 64, .classes = classes});
    const prefixes::store store({.address = arguments[1], .identity = prefixes::identity_of(cache, checkpoint)});
    const auto since = std::chrono::steady_clock::now();
    started text =
        start(net, cache, store, prompt, [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); });
    std::printf("%zu tokens, %d of them from the store, in %.1f ms:\n", prompt.size(), text.stored,
                milliseconds_since(since));
    for (int written = 0; written < 24; ++written) {
      const token_id id = decode::greedy(text.logits);
      std::printf("%s ", words.decode({&id, 1}, false).c_str());
      text.logits = pass(net, cache, text.seq, {&id, 1}, false);
    }
    std::printf("\n");
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "zoomr-prefix-store: %s\n", error.what());
    return 2;
  }
}
