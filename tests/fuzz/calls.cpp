// SPDX-License-Identifier: Apache-2.0
// The calls of a cache, or of layers in groups, by bytes: open, fork, close, begin, append, attend, observe,
// needs_second_pass, commit, drop, rollback, erase, shift, save and load, with any numbers and in any order. Each is
// done, or refused with an exception of the library.
//
// The first byte says which policy, the second the sizes of the cache and of its rows; then each byte is a call, and
// those behind it are its arguments. What results must be is the soak's business (tests/soak); here nothing may go
// wrong.
#include <cache/support/driving.hpp>
#include <cache/support/saved_bytes.hpp>
#include <cache/support/small_policies.hpp>
#include <zoomr/cache/key_rotation.hpp>
#include <zoomr/grouped_kv_cache.hpp>

#include <optional>     // std::optional
#include <type_traits>  // std::is_same_v

namespace {

using namespace zoomr;

/// What is left of the input.
class input {
 public:
  input(const unsigned char* data, std::size_t size) : data_(data), left_(size) {}

  std::size_t left() const { return left_; }
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

 private:
  const unsigned char* data_;
  std::size_t left_;
};

/// @tparam Cache  any_kv_cache, or grouped_kv_cache, whose layers have one shape here
template <class Cache>
class caller {
  static constexpr bool grouped = std::is_same_v<Cache, grouped_kv_cache<>>;

 public:
  caller(input& in, const shape& model, index_t layers) : in_(in), model_(model), layers_(layers) {}

  void run(Cache& cache) {
    while (in_.left() > 0) {
      try {
        call(cache);
      } catch (const precondition_error&) {
      } catch (const error&) {
      }
    }
    step_.reset();
  }

 private:
  index_t byte() { return in_.byte(); }
  index_t number() { return in_.number(); }

  sequence pick() {
    const index_t which = byte();
    if (which >= 250 || open_.empty()) return {which - 252, static_cast<std::uint32_t>(which % 3)};
    return open_[static_cast<std::size_t>(which) % open_.size()];
  }

  void call(Cache& cache) {
    switch (byte() % 16) {
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
        if (step_) step_->observe(number(), rows(queries_, model_.heads, model_.head_dim));
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
        zoomr_test::memory_sink saved;
        cache.save(seq, saved);
        cache.close(seq);
        zoomr_test::memory_source source(saved.bytes);
        open_.push_back(cache.load(source));
        break;
      }
      case 14:
        erase(cache);
        break;
      case 13:
        whole_step(cache);
        break;
      default:
        static_cast<void>(cache.bytes(pick()));
        if constexpr (!grouped) {
          static_cast<void>(cache.slots_of(pick(), number(), number()));
          cache.selected(pick(), number());
        }
    }
  }

  std::vector<token_id> ids() {
    std::vector<token_id> made;
    for (index_t count = byte() % 30; count > 0; --count) made.push_back(byte() % 31);
    if (byte() == 255) made.push_back(number() - 2);
    return made;
  }
  void erase(Cache& cache) {
    const sequence seq = pick();
    const token_range span{number(), number()};
    const index_t edit = byte() % 6;
    if (edit == 0) return cache.erase(seq, span);
    if (edit == 1) return cache.erase(seq, span, position_gap{});
    if (edit == 2) return cache.shift(seq, span, number());
    const float frequencies[] = {1.0f, 0.5f, 0.25f, 0.125f};
    const view<const float> some(frequencies, {byte() % 5});
    const key_rotation turn(some, number(), rotary_pairs::halves, number());
    if (edit == 3) return cache.shift(seq, span, turn.distance(), turn);
    cache.erase(seq, span, turn);
  }
  void begin(Cache& cache) {
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
  void whole_step(Cache& cache) {
    begin(cache);
    std::vector<index_t> taken;
    do {
      for (index_t layer = 0; layer < layers_; ++layer) {
        append(layer, model_.kv_heads);
        step_->attend(layer, queries(), out());
      }
      taken.clear();
      for (index_t i = 0; i < step_->items(); ++i) taken.push_back(step_->taken(i));
    } while (step_->needs_second_pass(view<const index_t>(taken)));
    step_->commit(view<const index_t>(taken));
    step_.reset();
  }
  void append() {
    const index_t heads = byte() == 0 ? model_.heads : model_.kv_heads;
    append(number(), heads);
  }
  void append(index_t layer, index_t heads) {
    const view<const float, 3> keys = rows(keys_, heads, model_.head_dim);
    if (model_.values_in_keys) return step_->append(layer, keys);
    step_->append(layer, keys, view<const float, 3>(rows(values_, model_.kv_heads, model_.value_width())));
  }
  void attend() {
    const index_t layer = number();
    if (byte() % 4 == 0) {
      step_->list_slots(layer, queries(), [](const slots_read& reads) {
        for (const token_range& r : reads.slots) {
          if (r.first < 0 || r.last <= r.first) std::abort();
        }
      });
    } else {
      step_->attend(layer, queries(), out());
    }
  }
  std::vector<index_t> counts() {
    std::vector<index_t> made;
    const index_t wrong = byte();
    for (index_t i = 0; i < step_->items(); ++i) made.push_back(wrong == 0 ? number() : step_->taken(i));
    return made;
  }
  view<float, 3> queries() { return rows(queries_, model_.heads, model_.head_dim); }
  view<float, 3> out() { return rows(out_, model_.heads, model_.value_width()); }
  view<float, 3> rows(std::vector<float>& of, index_t heads, index_t width) {
    const index_t tokens = step_->tokens();
    of.resize(static_cast<std::size_t>(tokens * heads * width));
    for (std::size_t i = 0; i < of.size(); ++i) of[i] = static_cast<float>((i * 37 + in_.left()) % 17) * 0.1f - 0.8f;
    return {of.data(), {tokens, heads, width}};
  }

  input& in_;
  shape model_;
  index_t layers_;
  std::vector<sequence> open_;
  std::optional<typename Cache::step_type> step_;
  std::vector<float> keys_, values_, queries_, out_;
};

/// Sizes of a cache and of its rows, from one byte.
struct sizes {
  config limits;
  shape model;

  template <class Policy>
  sizes(const Policy& policy, index_t from) : limits(zoomr_test::limits_for(48 + 16 * (from % 4), 3)) {
    limits.rollback_tokens = from / 4 % 2 * 9;
    limits.max_batched_tokens = 24;
    if (from / 8 % 2 == 1) limits.pool_tokens = limits.max_tokens;
    if (from / 16 % 2 == 1 && !policy.placement.frees_unreachable) limits.min_sparse_context = 20;
    constexpr shape models[] = {{2, 4, 2, 8}, {2, 4, 2, 16, 8}, {2, 4, 2, 8, 16}, {2, 4, 1, 16, 8, true}};
    model = models[from / 32 % 4];
  }
};

template <class Policy>
void run(const Policy& policy, input& in) {
  const sizes of(policy, in.byte());
  any_kv_cache<> cache = kv_cache<Policy>(of.model, policy, of.limits);
  caller<any_kv_cache<>>(in, of.model, of.model.layers).run(cache);
}

template <class First, class Second>
void run_grouped(const First& first, const Second& second, input& in) {
  const sizes of(first, in.byte());
  std::vector<any_kv_cache<>> groups;
  groups.push_back(kv_cache<First>(of.model, first, of.limits));
  groups.push_back(kv_cache<Second>(of.model, second, of.limits));
  constexpr index_t table[] = {0, 1, 1, 0};
  grouped_kv_cache<> cache(std::move(groups), view<const index_t>(table, {4}));
  caller<grouped_kv_cache<>>(in, of.model, 4).run(cache);
}

void run(input& in) {
  namespace small = zoomr_test::small;
  switch (in.byte() % 9) {
    case 0:
      return run(small::full, in);
    case 1:
      return run(small::zoomr_second_pass, in);
    case 2:
      return run(small::sentence_kv, in);
    case 3:
      return run(small::quest, in);
    case 4:
      return run(small::h2o, in);
    case 5:
      return run(small::window, in);
    case 6:
      return run(small::evicting, in);
    case 7:
      return run_grouped(small::zoomr_second_pass, small::quest, in);
    default:
      return run_grouped(small::window, small::h2o, in);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  input in(data, size);
  run(in);
  return 0;
}
