// SPDX-License-Identifier: Apache-2.0
// The host's attention and steps by plain C calls, so that host_compare.py can time them and a peer in one process, in
// turn. One layer of 32 heads, 8 KV heads of 128 dimensions; `type` 0: float32, 1: float16, 2: bfloat16.
#include <zoomr/attention/gather.hpp>
#include <zoomr/core/threads/thread_pool.hpp>

#include <map>      // std::map
#include <numeric>  // std::iota

#include "../support/host.hpp"
#include "../support/host_policies.hpp"
#include "../support/host_prompt.hpp"
#include "../support/host_scene.hpp"

namespace zoomr_bench {

namespace {

using namespace zoomr;

constexpr index_t heads = 32, kv_heads = 8, group = heads / kv_heads, head_dim = 128;

/// The calling thread alone, or with others that wait for work from now on.
executor threads_of(int count) {
  static std::map<int, thread_pool> pools;
  return count == 1 ? executor{} : executor(pools.try_emplace(count, count).first->second);
}

/// What the calls see of a dense cache, or of a cache under a policy.
struct any_scene {
  virtual ~any_scene() = default;
  virtual void attend(const float*, float*) {}
  virtual double advance() { return 0; }
};

/// Keys and values in shuffled pages of a cache's layout, as a cache has them that several sequences share.
template <class T>
class dense_scene : public any_scene {
 public:
  /// keys, values: [kv_heads, tokens, head_dim]
  dense_scene(index_t tokens, const T* keys, const T* values, const executor& on)
      : on_(on),
        tokens_(tokens),
        pages_(shuffled_pages(pages_for(tokens))),
        pool_({1, heads, kv_heads, head_dim}, pages_for(tokens)) {
    for (index_t head = 0; head < kv_heads; ++head) {
      const auto lane = pool_.kv_lane(0, head, view<const index_t>(pages_));
      for (index_t t = 0; t < tokens; ++t) {
        const std::int64_t row = (std::int64_t{head} * tokens + t) * head_dim;
        std::copy_n(keys + row, head_dim, lane.writable_key(t));
        std::copy_n(values + row, head_dim, lane.value(t));
      }
    }
  }

  /// queries, out: [heads, head_dim]
  void attend(const float* queries, float* out) override {
    const token_range all{0, tokens_};
    std::fill_n(out, heads * head_dim, 0.0f);
    detail::for_each_piece(on_, kv_heads, [&](index_t kv_head, index_t) {
      const index_t head = kv_head * group;
      attention_state states[group];
      for (index_t g = 0; g < group; ++g) states[g].out = out + (head + g) * head_dim;
      gather_attend(view<const token_range>(&all, {1}), pool_.kv_lane(0, kv_head, view<const index_t>(pages_)),
                    view<const float, 2>(queries + head * head_dim, {group, head_dim}),
                    1.0f / std::sqrt(static_cast<float>(head_dim)), view<attention_state>(states, {group}));
      for (attention_state& state : states) state.finish(head_dim);
    });
  }

 private:
  executor on_;
  index_t tokens_;
  std::vector<index_t> pages_;
  page_pool<T> pool_;
};

/// A cache under a policy, with a context.
template <class Policy, class T>
class step_scene : public any_scene {
 public:
  step_scene(const Policy& policy, index_t context, bool thoughts, const executor& on)
      : scene_(policy, context, thoughts, on) {}
  double advance() override { return scene_.advance(1); }

 private:
  host_scene<Policy, T> scene_;
};

template <class Make>
any_scene* of_type(int type, Make make) {
  return type == 0 ? make(float{}) : type == 1 ? make(float16{}) : make(bfloat16{});
}

}  // namespace

extern "C" {

/// @param keys, values  [8, tokens, 128]
any_scene* zoomr_dense(int type, int tokens, const void* keys, const void* values, int threads) {
  return of_type(type, [&](auto number) -> any_scene* {
    using stored = decltype(number);
    return new dense_scene<stored>(tokens, static_cast<const stored*>(keys), static_cast<const stored*>(values),
                                   threads_of(threads));
  });
}
/// @param policy  0: full, 1: sentence_kv, 2: zoomr_focus
any_scene* zoomr_steps(int type, int policy, int context, int threads) {
  return of_type(type, [&](auto number) -> any_scene* {
    using stored = decltype(number);
    const executor on = threads_of(threads);
    if (policy == 0) return new step_scene<decltype(host_full), stored>(host_full, context, false, on);
    if (policy == 1) return new step_scene<decltype(host_sentence_kv), stored>(host_sentence_kv, context, false, on);
    return new step_scene<decltype(host_zoomr_focus), stored>(host_zoomr_focus, context, true, on);
  });
}
void zoomr_attend_dense(any_scene* scene, const float* queries, float* out) { scene->attend(queries, out); }
/// @return  seconds of the step
double zoomr_advance(any_scene* scene) { return scene->advance(); }
void zoomr_close(any_scene* scene) { delete scene; }
/// @param tokens  a multiple of `chunk`
double zoomr_prompt(int type, int tokens, int chunk, int threads) {
  const executor on = threads_of(threads);
  return type == 0   ? host_prompt<float>(tokens, chunk, on).run()
         : type == 1 ? host_prompt<float16>(tokens, chunk, on).run()
                     : host_prompt<bfloat16>(tokens, chunk, on).run();
}
/// From now on seconds are those of the processor, of all threads.
void zoomr_processor_time() { processor_time = true; }
/// Ceilings of one thread, in the same run: multiplications and additions a second, bytes read in order a second.
double zoomr_peak_flops() { return peak_flops(); }
double zoomr_peak_read(long long bytes) { return read_bandwidth(bytes); }
const char* zoomr_path() { return statistics::cpu_path(); }

}  // extern "C"

}  // namespace zoomr_bench
