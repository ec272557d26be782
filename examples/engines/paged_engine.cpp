// SPDX-License-Identifier: Apache-2.0
// An engine with a paged pool, an allocator and block tables of its own. The cache has no pages: it keeps the index and
// the selections, and attends through the engine's tables. The engine writes keys and values to where they belong, and
// nobody copies them.
//
// A model of LEDGER solves one problem. A second text has the same prompt, in the same pages, and begins with the word
// that was second best. What one of them writes into a shared page, the engine copies that page for before.
#include <algorithm>  // std::copy_n, std::max, std::min, std::ranges::sort
#include <cstdio>     // std::fprintf, std::printf
#include <exception>  // std::exception
#include <numeric>    // std::iota
#include <stdexcept>  // std::runtime_error
#include <string>     // std::string
#include <utility>    // std::exchange
#include <vector>     // std::vector

#include <zoomr/policy/placement/engine_pages.hpp>

#include "open_cache.hpp"
#include "session.hpp"
#include "token_classes.hpp"

using zoomr::index_t;
using zoomr::token_id;
using cache_type = zoomr::any_kv_cache<float, zoomr::engine_pages>;

constexpr index_t page_tokens = 32;
constexpr index_t most_tokens = 1024;

/// Keys of each layer lie as [pages, page_tokens, kv_heads, head_dim], values too.
struct paged_pool {
  using arrays = std::vector<std::vector<float>>;  // [layers]

  paged_pool(const zoomr::shape& model, index_t pages)
      : row(std::size_t(model.kv_heads) * model.head_dim), holders(pages), free(pages) {
    for (index_t layer = 0; layer < model.layers; ++layer) {
      keys.emplace_back(pages * page_tokens * row), values.emplace_back(pages * page_tokens * row);
      key_pages.push_back(keys.back().data()), value_pages.push_back(values.back().data());
    }
    std::iota(free.rbegin(), free.rend(), 0);
    memory = zoomr::engine_memory::nhd(key_pages, value_pages, pages, page_tokens, model);
  }
  paged_pool(const paged_pool&) = delete;

  /// [kv_heads, head_dim] of one token.
  float* at(arrays& of, index_t layer, index_t page, index_t place) {
    return &of[layer][(std::size_t(page) * page_tokens + place) * row];
  }
  index_t take() {
    if (free.empty()) throw std::runtime_error("the pool has no page left");
    const index_t page = free.back();
    free.pop_back(), holders[page] = 1;
    return page;
  }
  void give_back(index_t page) {
    if (--holders[page] == 0) free.push_back(page);
  }
  index_t copy_of(index_t page) {
    const index_t made = take();
    for (arrays* of : {&keys, &values})
      for (index_t layer = 0; layer < index_t(of->size()); ++layer)
        std::copy_n(at(*of, layer, page, 0), page_tokens * row, at(*of, layer, made, 0));
    return made;
  }

  std::size_t row;  // numbers of a token
  arrays keys, values;
  std::vector<void*> key_pages, value_pages;  // [layers]
  std::vector<index_t> holders;               // [pages]  tables that name it
  std::vector<index_t> free;
  zoomr::engine_memory memory;
};

/// One text, and its block table.
struct request {
  zoomr::sequence seq;
  std::vector<index_t> pages = {};
};

/// What the model asks of a step: keys and values are written by the engine.
struct writing_step {
  paged_pool& pool;
  const request& to;
  cache_type::step_type& step;

  void append(index_t layer, zoomr::view<const float, 3> k, zoomr::view<const float, 3> v) {
    for (index_t t = 0; t < k.extent(0); ++t) {
      const index_t slot = step.slot(0) + t, page = to.pages[slot / page_tokens];
      std::copy_n(k[t].data(), pool.row, pool.at(pool.keys, layer, page, slot % page_tokens));
      std::copy_n(v[t].data(), pool.row, pool.at(pool.values, layer, page, slot % page_tokens));
    }
    step.append(layer);
  }
  void attend(index_t layer, zoomr::view<const float, 3> q, zoomr::view<float, 3> out) { step.attend(layer, q, out); }
};

/// The request has pages of its own for these slots, with what they held.
void own(paged_pool& pool, request& of, zoomr::token_range slots) {
  for (index_t at = slots.first / page_tokens; at * page_tokens < slots.last; ++at) {
    if (at == index_t(of.pages.size())) of.pages.push_back(pool.take());
    if (pool.holders[of.pages[at]] == 1) continue;
    const index_t copy = pool.copy_of(of.pages[at]);
    pool.give_back(std::exchange(of.pages[at], copy));
  }
}

/// Passes tokens, all at once.
/// @return  [vocab]  the ids of tokens that may come next, likeliest first
std::vector<token_id> pass(decode::model& net, paged_pool& pool, cache_type& cache, request& of,
                           const std::vector<token_id>& ids, bool prompt_ends = false) {
  const auto count = index_t(ids.size());
  const index_t slots = cache.slots(of.seq);
  own(pool, of, {slots, slots + count});
  const auto begin = [&] {
    const zoomr::step_item item{of.seq, ids, prompt_ends, of.pages};
    return cache.begin(zoomr::view<const zoomr::step_item>(&item, {1}));
  };
  own(pool, of, begin().moved_slots(0));  // where an eviction will write: that step is dropped
  auto step = begin();
  std::vector<float> logits(net.config().vocab);
  do {  // a second pass is for the last token alone
    const index_t tokens = step.tokens(), last = tokens - 1;
    std::vector<index_t> positions(tokens);
    std::iota(positions.begin(), positions.end(), step.position(0));
    writing_step writes{pool, of, step};
    net.forward(writes, std::vector(ids.end() - tokens, ids.end()), positions, {&last, {1}},
                {logits.data(), {1, index_t(logits.size())}});
  } while (step.needs_second_pass(count));
  step.commit();
  while (index_t(of.pages.size()) > pool.memory.pages_for(cache.slots(of.seq))) {  // an eviction has emptied it
    pool.give_back(of.pages.back());
    of.pages.pop_back();
  }
  std::vector<token_id> best(logits.size());
  std::iota(best.begin(), best.end(), 0);
  std::ranges::sort(best, [&](token_id a, token_id b) { return logits[a] > logits[b]; });
  return best;
}

/// A few policies: open_cache.hpp knows all, for caches with pages of their own.
cache_type open_paged(const std::string& policy, const zoomr::shape& model, const zoomr::config& limits) {
  namespace presets = zoomr::presets;
  const auto open = [&](const auto& of) {
    return cache_type(zoomr::kv_cache(model, zoomr::with_placement(of, zoomr::engine_pages{}), limits));
  };
  if (policy == "full") return open(presets::full);
  if (policy == "zoomr_focus") return open(presets::zoomr_focus);
  if (policy == "zoomr_second_pass") return open(presets::zoomr_second_pass);
  if (policy == "h2o") return open(presets::h2o_with(128));
  throw std::runtime_error("paged_engine knows full, zoomr_focus, zoomr_second_pass and h2o, not " + policy);
}

int main(int count, char** arguments) {
  try {
    const std::string checkpoint = LEDGER_CHECKPOINTS "/indexed";
    decode::model net = decode::load_model(checkpoint);
    const decode::tokenizer words(checkpoint);
    const auto classes = decode::classify(words, words.size(), {";"});
    const auto prompt = words.encode("<bos> a = #17 ; b = #42 ; c = a [ @5 ] ; d = b [ last ] ; e = c [ @9 ] ; <go>");
    const token_id end = words.id_of("<ans>").value();

    paged_pool pool(decode::shape_of(net), 2 * most_tokens / page_tokens);
    const zoomr::config limits{
        .max_sequences = 2, .max_tokens = most_tokens, .engine = pool.memory, .classes = classes};
    cache_type cache = open_paged(count > 1 ? arguments[1] : "zoomr_focus", decode::shape_of(net), limits);

    request first{cache.open()};
    std::vector<token_id> next = pass(net, pool, cache, first, prompt, true);
    request second{cache.fork(first.seq), first.pages};
    for (const index_t page : second.pages) ++pool.holders[page];

    std::string texts[2];
    for (request* of : {&first, &second}) {
      const bool whole = of == &first;
      token_id id = next[whole ? 0 : 1];
      const index_t last = whole ? most_tokens : cache.tokens(of->seq) + 16;
      for (std::string& text = texts[whole ? 0 : 1];; id = pass(net, pool, cache, *of, {id})[0]) {
        text += std::string(words.text_of(id)) + " ";
        if (id == end || cache.tokens(of->seq) == last) break;
      }
    }
    std::printf("%s\nor %s...\n", texts[0].c_str(), texts[1].c_str());
    std::printf("%zd of %zd pages are in use, the cache has %lld bytes of keys and values\n",
                std::ssize(pool.holders) - std::ssize(pool.free), std::ssize(pool.holders),
                static_cast<long long>(cache.capacity().details));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "zoomr-paged-engine: %s\n", error.what());
    return 2;
  }
}
