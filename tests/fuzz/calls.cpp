// SPDX-License-Identifier: Apache-2.0
// The calls of a cache by bytes: open, fork, close, begin, append, attend, observe, needs_second_pass, commit, drop,
// rollback, save and load, with any numbers and in any order. Each is done, or refused with an exception of the
// library.
//
// The first byte says which policy, the second the sizes of the cache; then each byte is a call, and those behind it
// are its arguments. What results must be is the soak's business (tests/soak); here nothing may go wrong.
#include <cache/driving.hpp>
#include <cache/saved_bytes.hpp>
#include <cache/small_policies.hpp>

#include <optional>  // std::optional

namespace {

using namespace zoomr;

constexpr shape model{2, 4, 2, 8};

class caller {
 public:
  caller(const unsigned char* data, std::size_t size) : data_(data), left_(size) {}

  void run() {
    namespace small = zoomr_test::small;
    switch (byte() % 7) {
      case 0:
        return run(small::full);
      case 1:
        return run(small::zoomr_second_pass);
      case 2:
        return run(small::sentence_kv);
      case 3:
        return run(small::quest);
      case 4:
        return run(small::h2o);
      case 5:
        return run(small::window);
      default:
        return run(small::evicting);
    }
  }

 private:
  index_t byte() {
    if (left_ == 0) return 0;
    --left_;
    return *data_++;
  }
  // A number that is often one that means something, sometimes none that does.
  index_t number() {
    const index_t b = byte();
    return b == 255 ? unlimited : b == 254 ? -1 : b == 253 ? 1 << 20 : b % 24;
  }

  template <class Policy>
  void run(const Policy& policy) {
    const index_t sizes = byte();
    config limits = zoomr_test::limits_for(48 + 16 * (sizes % 4), 3);
    limits.rollback_tokens = sizes / 4 % 2 * 9;
    limits.max_batched_tokens = 24;
    if (sizes / 8 % 2 == 1) limits.pool_tokens = limits.max_tokens;
    if (sizes / 16 % 2 == 1 && !policy.placement.frees_unreachable) limits.min_sparse_context = 20;
    any_kv_cache<> cache = kv_cache<Policy>(model, policy, limits);
    while (left_ > 0) {
      try {
        call(cache);
      } catch (const precondition_error&) {
      } catch (const error&) {
      }
    }
    step_.reset();
  }

  sequence pick() {
    const index_t which = byte();
    if (which >= 250 || open_.empty()) return {which - 252, static_cast<std::uint32_t>(which % 3)};
    return open_[static_cast<std::size_t>(which) % open_.size()];
  }

  void call(any_kv_cache<>& cache) {
    switch (byte() % 15) {
      case 0:
        open_.push_back(cache.open());
        break;
      case 1:
        open_.push_back(cache.fork(pick()));
        break;
      case 2:
        cache.close(pick());
        break;
      case 3:
      case 4:
        begin(cache);
        break;
      case 5:
        if (step_) append();
        break;
      case 6:
        if (step_) attend();
        break;
      case 7:
        if (step_) step_->observe(number(), rows(queries_, model.heads));
        break;
      case 8:
        if (step_) step_->needs_second_pass(view<const index_t>(counts()));
        break;
      case 9:
        if (step_) step_->commit(view<const index_t>(counts()));
        break;
      case 10:
        step_.reset();
        break;
      case 11:
        cache.rollback(pick(), number());
        break;
      case 12: {
        const sequence seq = pick();
        const zoomr_test::saved_bytes bytes = zoomr_test::saved(cache, seq);
        cache.close(seq);
        zoomr_test::memory_source source(bytes);
        open_.push_back(cache.load(source));
        break;
      }
      case 13:
        whole_step(cache);
        break;
      default:
        static_cast<void>(cache.bytes(pick())), static_cast<void>(cache.slots_of(pick(), number(), number()));
        cache.selected(pick(), number());
    }
  }

  std::vector<token_id> ids() {
    std::vector<token_id> made;
    for (index_t count = byte() % 30; count > 0; --count) made.push_back(byte() % 31);
    if (byte() == 255) made.push_back(number() - 2);
    return made;
  }
  void begin(any_kv_cache<>& cache) {
    std::vector<std::vector<token_id>> texts;
    std::vector<step_item> items;
    const index_t count = byte() % 3 + 1;
    texts.reserve(static_cast<std::size_t>(count));
    for (index_t i = 0; i < count; ++i) {
      texts.push_back(ids());
      items.push_back({pick(), view<const token_id>(texts.back()), byte() % 3 == 0});
    }
    auto made = cache.begin(view<const step_item>(items));
    step_.reset();
    step_.emplace(std::move(made));
  }
  // All that a step needs, so that bytes get far.
  void whole_step(any_kv_cache<>& cache) {
    begin(cache);
    std::vector<index_t> taken;
    do {
      for (index_t layer = 0; layer < model.layers; ++layer) {
        step_->append(layer, rows(keys_, model.kv_heads), rows(values_, model.kv_heads));
        step_->attend(layer, rows(queries_, model.heads), rows(out_, model.heads));
      }
      taken.clear();
      for (index_t i = 0; i < step_->items(); ++i) taken.push_back(step_->taken(i));
    } while (step_->needs_second_pass(view<const index_t>(taken)));
    step_->commit(view<const index_t>(taken));
    step_.reset();
  }
  void append() {
    const index_t heads = byte() == 0 ? model.heads : model.kv_heads;
    step_->append(number(), rows(keys_, heads), rows(values_, model.kv_heads));
  }
  void attend() {
    const index_t layer = number();
    if (byte() % 4 == 0) {
      step_->list_slots(layer, rows(queries_, model.heads), [](const slots_read& reads) {
        for (const token_range& r : reads.slots) {
          if (r.first < 0 || r.last <= r.first) std::abort();
        }
      });
    } else {
      step_->attend(layer, rows(queries_, model.heads), rows(out_, model.heads));
    }
  }
  std::vector<index_t> counts() {
    std::vector<index_t> made;
    const index_t wrong = byte();
    for (index_t i = 0; i < step_->items(); ++i) made.push_back(wrong == 0 ? number() : step_->taken(i));
    return made;
  }
  view<float, 3> rows(std::vector<float>& of, index_t heads) {
    const index_t tokens = step_->tokens();
    of.resize(static_cast<std::size_t>(tokens * heads * model.head_dim));
    for (std::size_t i = 0; i < of.size(); ++i) of[i] = static_cast<float>((i * 37 + left_) % 17) * 0.1f - 0.8f;
    return {of.data(), {tokens, heads, model.head_dim}};
  }

  const unsigned char* data_;
  std::size_t left_;
  std::vector<sequence> open_;
  std::optional<any_kv_cache<>::step_type> step_;
  std::vector<float> keys_, values_, queries_, out_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  caller(data, size).run();
  return 0;
}
