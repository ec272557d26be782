// SPDX-License-Identifier: Apache-2.0
// Bytes as a saved sequence: caches of several policies load it, or refuse it with an error. What was loaded goes on,
// and is saved and loaded again with the same bytes.
//
// Checksums are made right before, as far as the bytes have sections: a fuzzer does not find them by itself. A cache
// makes the first corpus, where the folder that is given has none.
#include <cache/support/driving.hpp>
#include <cache/support/saved_bytes.hpp>
#include <cache/support/small_policies.hpp>

#include <cstdlib>   // std::abort
#include <optional>  // std::optional
#include <utility>   // std::exchange

namespace {

using namespace zoomr;
using zoomr_test::saved_bytes;

constexpr shape model{1, 2, 1, 8};
namespace small = zoomr_test::small;

config limits() {
  config made = zoomr_test::limits_for(96);
  made.rollback_tokens = 8;
  return made;
}

/// One token more, whatever the policy.
template <class Cache>
void go_on(Cache& cache, sequence seq) {
  const std::vector<token_id> ids{9};
  auto step = cache.begin(seq, view<const token_id>(ids), cache.in_prompt(seq));
  std::vector<float> row(16, 0.25f), out(16);
  do {
    step.append(0, {row.data(), {1, 1, 8}}, {row.data(), {1, 1, 8}});
    step.attend(0, {row.data(), {1, 2, 8}}, {out.data(), {1, 2, 8}});
  } while (step.needs_second_pass(1));
  step.commit();
}

// One cache for all inputs, which is ten times faster than a new one for each, and sees what a refusal leaves behind.
template <auto Policy>
void load(const saved_bytes& bytes) {
  static kv_cache cache(model, Policy, limits());
  const index_t before = zoomr_test::limits_for(96).max_tokens;
  std::optional<sequence> open;
  try {
    zoomr_test::memory_source source(bytes);
    open = cache.load(source);
    const saved_bytes again = zoomr_test::saved(cache, *open);
    zoomr_test::memory_source second(again);
    cache.close(*std::exchange(open, std::nullopt));
    open = cache.load(second);
    if (zoomr_test::saved(cache, *open) != again) std::abort();
    if (cache.tokens(*open) < before) go_on(cache, *open);
    if (cache.tokens(*open) > 0) cache.rollback(*open, cache.tokens(*open));
  } catch (const error&) {
  }
  if (open) cache.close(*open);
  cache.close(cache.open());  // nothing that was refused keeps the place of a sequence
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  saved_bytes bytes(data, data + size);
  zoomr_test::reseal(bytes);
  load<small::full>(bytes), load<small::zoomr_second_pass>(bytes), load<small::quest>(bytes);
  load<small::h2o>(bytes), load<small::by_kv_head>(bytes), load<small::evicting>(bytes);
  return 0;
}

// A sequence of each policy, in the prompt, at its end, and behind it.
extern "C" std::size_t LLVMFuzzerCustomMutator(unsigned char*, std::size_t, std::size_t, unsigned);
extern "C" std::size_t LLVMFuzzerMutate(unsigned char*, std::size_t, std::size_t);

extern "C" std::size_t LLVMFuzzerCustomMutator(unsigned char* data, std::size_t size, std::size_t most, unsigned seed) {
  static const std::vector<saved_bytes> corpus = [] {
    std::vector<saved_bytes> made;
    const auto save = [&](const auto& policy) {
      for (const index_t until : {7, 20, 47}) {
        kv_cache cache(model, policy, limits());
        const sequence seq = cache.open();
        const auto text = zoomr_test::text_of(zoomr_test::markup::pairs, 96, 20, 3);
        while (cache.tokens(seq) < until) {
          const index_t now = cache.tokens(seq);
          const std::vector<token_id> ids(text.begin() + now, text.begin() + now + 1);
          auto step = cache.begin(seq, view<const token_id>(ids), now == 19);
          std::vector<float> row(16, 0.125f * static_cast<float>(now % 5)), out(16);
          do {
            step.append(0, {row.data(), {1, 1, 8}}, {row.data(), {1, 1, 8}});
            step.attend(0, {row.data(), {1, 2, 8}}, {out.data(), {1, 2, 8}});
          } while (step.needs_second_pass(1));
          step.commit();
        }
        made.push_back(zoomr_test::saved(cache, seq));
      }
    };
    save(small::full), save(small::zoomr_second_pass), save(small::quest);
    save(small::h2o), save(small::by_kv_head), save(small::evicting);
    return made;
  }();
  if (size < 64 || seed % 64 == 0) {
    const saved_bytes& one = corpus[seed / 64 % corpus.size()];
    size = std::min(one.size(), most);
    std::copy_n(one.begin(), size, data);
  }
  return LLVMFuzzerMutate(data, size, most);
}
