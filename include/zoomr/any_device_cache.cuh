// SPDX-License-Identifier: Apache-2.0
// L6. A device cache of any policy and any shape of heads, as any_kv_cache is one of the host's; and the list of those
// that a program is compiled for, from which one is chosen at run time.
#pragma once

#include <zoomr/core/function_ref.hpp>
#include <zoomr/device_cache.cuh>

#include <optional>     // std::optional
#include <string>       // std::string, std::to_string
#include <tuple>        // std::tuple, std::tuple_element_t
#include <type_traits>  // std::is_same_v, std::remove_cvref_t, std::type_identity
#include <utility>      // std::move

namespace zoomr::inline v0 {
namespace detail {

/// What a step enqueues in a pass, of any kind of cache: as `device_launches`, whose calls these are.
template <class T, class Number>
class any_launches {
 public:
  using numbers = view<const Number, 3>;

  virtual bool stores() const = 0;
  virtual void upload(stream_ref stream) const = 0;
  virtual void update_index(stream_ref stream) const = 0;
  virtual void begin_choices(stream_ref stream) const = 0;
  virtual void see(index_t layer, numbers queries, stream_ref stream) const = 0;
  virtual layer_inputs<Number> to_store(index_t layer, numbers queries, numbers keys, numbers values,
                                        stream_ref stream) const = 0;
  virtual void append(index_t layer, numbers keys, numbers values, stream_ref stream) const = 0;
  virtual void append_slots(view<index_t> slots, stream_ref stream) const = 0;
  virtual void list_slots(index_t layer, numbers queries, view<index_t, 3> slots, view<index_t, 2> counts,
                          stream_ref stream) const = 0;
  virtual void attend(const layer_inputs<Number>& in, view<Number, 3> out, view<float, 2> lse,
                      stream_ref stream) const = 0;
  virtual void commit_queries(const device_item& item, stream_ref stream) const = 0;
  virtual bool evict_tokens(stream_ref stream) const = 0;
  virtual void after_commit(stream_ref stream) const = 0;

 protected:
  ~any_launches() = default;
};

/// Those of one kind.
template <class T, class Number, class Launches>
class any_launches_of final : public any_launches<T, Number> {
 public:
  using typename any_launches<T, Number>::numbers;

  explicit any_launches_of(const Launches& launches) : launches_(launches) {}
  bool stores() const override { return launches_.stores(); }
  void upload(stream_ref stream) const override { launches_.upload(stream); }
  void update_index(stream_ref stream) const override { launches_.update_index(stream); }
  void begin_choices(stream_ref stream) const override { launches_.begin_choices(stream); }
  void see(index_t layer, numbers queries, stream_ref stream) const override { launches_.see(layer, queries, stream); }
  layer_inputs<Number> to_store(index_t layer, numbers queries, numbers keys, numbers values,
                                stream_ref stream) const override {
    return launches_.to_store(layer, queries, keys, values, stream);
  }
  void append(index_t layer, numbers keys, numbers values, stream_ref stream) const override {
    launches_.append(layer, keys, values, stream);
  }
  void append_slots(view<index_t> slots, stream_ref stream) const override { launches_.append_slots(slots, stream); }
  void list_slots(index_t layer, numbers queries, view<index_t, 3> slots, view<index_t, 2> counts,
                  stream_ref stream) const override {
    launches_.list_slots(layer, queries, slots, counts, stream);
  }
  void attend(const layer_inputs<Number>& in, view<Number, 3> out, view<float, 2> lse,
              stream_ref stream) const override {
    launches_.attend(in, out, lse, stream);
  }
  void commit_queries(const device_item& item, stream_ref stream) const override {
    launches_.commit_queries(item, stream);
  }
  bool evict_tokens(stream_ref stream) const override { return launches_.evict_tokens(stream); }
  void after_commit(stream_ref stream) const override { launches_.after_commit(stream); }

 private:
  const Launches& launches_;
};

/// A launcher of one kind, behind an interface: it has no state, so that there is one of each.
template <class T, class Number>
class launcher_kind {
 public:
  virtual void enqueue(any_device_core<T>& core, step_table table, index_t deciding, index_t in_prompt, bool fixed,
                       function_ref<void(const any_launches<T, Number>&)> work) const = 0;
  virtual void copy_sequence(any_device_core<T>& core, index_t from, index_t to, stream_ref stream) const = 0;

 protected:
  ~launcher_kind() = default;
};
template <class Number, class Launcher, class T = typename Launcher::storage>
class launcher_kind_of final : public launcher_kind<T, Number> {
 public:
  void enqueue(any_device_core<T>& core, step_table table, index_t deciding, index_t in_prompt, bool fixed,
               function_ref<void(const any_launches<T, Number>&)> work) const override {
    Launcher{}.enqueue(core, table, deciding, in_prompt, fixed, [&](const auto& launches) {
      work(any_launches_of<T, Number, std::remove_cvref_t<decltype(launches)>>(launches));
    });
  }
  void copy_sequence(any_device_core<T>& core, index_t from, index_t to, stream_ref stream) const override {
    Launcher{}.copy_sequence(core, from, to, stream);
  }
  static const launcher_kind<T, Number>& one() {
    static const launcher_kind_of kind;
    return kind;
  }
};

/// Its address tells types from each other at run time.
template <class Type>
inline constexpr char type_mark = 0;

/// The launcher of a cache of any kind.
template <class T, class Number>
struct any_launcher {
  using storage = T;
  // What a placement may be is known at run time.
  static constexpr bool tiered = false, may_be_tiered = true, in_engine = true;
  const launcher_kind<T, Number>* kind;
  const char* policy;  // the mark of its type

  template <class Work>
  void enqueue(any_device_core<T>& core, step_table table, index_t deciding, index_t in_prompt, bool fixed,
               Work work) const {
    kind->enqueue(core, table, deciding, in_prompt, fixed, work);
  }
  void copy_sequence(any_device_core<T>& core, index_t from, index_t to, stream_ref stream) const {
    kind->copy_sequence(core, from, to, stream);
  }
};

}  // namespace detail

/// A `device_cache` under any policy, for heads of any shape: what code which drives one is compiled for once. The
/// calls are those of `device_cache`. What a placement does not have is refused when it is called: `list_slots` over
/// tiers, `block_table` without engine_pages.
///
/// It is made of a device_cache, which may be moved into one, or by `device_caches::make`.
/// @tparam T       storage type of keys and values
/// @tparam Number  what an engine's queries, keys, values and outputs are
/// @cost   a few virtual calls for each call of a step
template <class T, class Number = T>
class any_device_cache : public basic_device_cache<detail::any_launcher<T, Number>> {
  using base = basic_device_cache<detail::any_launcher<T, Number>>;

 public:
  /// Loads the kernels of steps and forks on the device, so that no step does.
  /// @pre   no step is in progress
  /// @cost  as device_cache::load_kernels
  template <class Policy, index_t HeadDim, index_t Group, class Values, class Ranks>
  any_device_cache(device_cache<Policy, T, HeadDim, Group, Values, Ranks>&& cache)  // NOLINT: as any_kv_cache is made
      : base((cache.template load_kernels<Number>(), std::move(cache).release()),
             {&detail::launcher_kind_of<Number,
                                        detail::device_launcher<Policy, T, HeadDim, Group, Values, Ranks>>::one(),
              &detail::type_mark<Policy>}) {}

  /// True if the cache's policy is of this type.
  template <class Policy>
  bool has_policy() const {
    return this->launcher_.policy == &detail::type_mark<Policy>;
  }

  /// For tests and tools: where everything is on the device, whatever the policy.
  const detail::common_arrays<T>& arrays() const { return this->core_->common(); }
};

/// A step of any_device_cache.
template <class T, class Number = T>
using any_device_step = typename any_device_cache<T, Number>::step_type;

namespace detail {

/// Heads for a sentence: "of 128 dimensions, group 8".
inline std::string words_of(const shape& model) {
  std::string text = "of " + std::to_string(model.head_dim) + " dimensions";
  if (model.values_in_keys || model.value_width() != model.head_dim)
    text += " with values of " + std::to_string(model.value_width()) + (model.values_in_keys ? " in keys" : "");
  return text + ", group " + std::to_string(model.group());
}
/// A policy's type for a sentence: the names of its components.
template <class Policy>
std::string words_of_policy() {
  std::string names;
  const Policy policy{};
  Policy::each_component(policy, [&](const auto& part) {
    names += (names.empty() ? "" : " ") + std::string(name_of<std::remove_cvref_t<decltype(part)>>());
  });
  return names;
}

/// The parameters of a device_cache.
template <class Cache>
struct kind_of;
template <class Policy, class Storage, index_t HeadDim, index_t Group, class Values, class Ranks>
struct kind_of<device_cache<Policy, Storage, HeadDim, Group, Values, Ranks>> {
  using policy = Policy;
  using storage = Storage;
  static bool fits(const shape& model) {
    return model.head_dim == HeadDim && model.heads == Group * model.kv_heads && model.value_width() == Values::width &&
           model.values_in_keys == Values::in_keys;
  }
  static std::string heads() { return words_of({1, Group, 1, HeadDim, Values::width, Values::in_keys}); }
};

}  // namespace detail

/// One kind of device cache, as a program compiles it once. Each of its sources that names the kind in a list compiles
/// its kernels, unless it declares it; one source defines it:
/// @code
///   extern template struct zoomr::compiled_device_cache<bfloat16, focus_64>;  // in the header beside the list
///   template struct zoomr::compiled_device_cache<bfloat16, focus_64>;         // in one source
/// @endcode
/// @tparam Number  as of any_device_cache
/// @tparam Cache   device_cache<...>
template <class Number, class Cache>
struct compiled_device_cache {
  using policy = typename detail::kind_of<Cache>::policy;
  using cache = any_device_cache<typename detail::kind_of<Cache>::storage, Number>;

  static byte_count bytes(const shape& model, const policy& value, const config& limits, index_t splits);
  static byte_count host_bytes(const shape& model, const policy& value, const config& limits);
  static cache make(const shape& model, const policy& value, const config& limits, void* memory, stream_ref stream,
                    index_t splits, void* details, transfer_plan plan);
};

// Not inline: what is declared is not compiled.
template <class Number, class Cache>
byte_count compiled_device_cache<Number, Cache>::bytes(const shape& model, const policy& value, const config& limits,
                                                       index_t splits) {
  return Cache::bytes(model, value, limits, splits);
}
template <class Number, class Cache>
byte_count compiled_device_cache<Number, Cache>::host_bytes(const shape& model, const policy& value,
                                                            const config& limits) {
  return Cache::host_bytes(model, value, limits);
}
template <class Number, class Cache>
auto compiled_device_cache<Number, Cache>::make(const shape& model, const policy& value, const config& limits,
                                                void* memory, stream_ref stream, index_t splits, void* details,
                                                transfer_plan plan) -> cache {
  return Cache(model, value, limits, memory, stream, splits, details, plan);
}

/// The kinds of device caches that a program is compiled for. Which of them serves a policy and a model is looked up at
/// run time; what is not among them is refused, with a sentence that says what is.
/// @code
///   using focus_64 = device_cache<policy_of<presets::zoomr_focus>, bfloat16, 64, 4>;
///   using quest_128 = device_cache<policy_of<presets::quest>, bfloat16, 128, 8>;
///   using served = device_caches<bfloat16, focus_64, quest_128>;
/// @endcode
/// @tparam Number  as of any_device_cache
/// @tparam Caches  device_cache<...>, all of one storage type
template <class Number, class... Caches>
class device_caches {
  static_assert(sizeof...(Caches) > 0, "device_caches: it needs at least one device_cache");
  template <class Cache>
  using kind = detail::kind_of<Cache>;
  using storage = typename kind<std::tuple_element_t<0, std::tuple<Caches...>>>::storage;
  static_assert((std::is_same_v<typename kind<Caches>::storage, storage> && ...),
                "device_caches: all are of one storage type; make a list for each");

 public:
  using cache = any_device_cache<storage, Number>;

  /// True if some kind is for this policy, and heads as the model has them.
  template <class Policy>
  static bool has(const shape& model) {
    return (serves<Caches, Policy>(model) || ...);
  }

  /// Device memory, pinned memory, and a cache in them; arguments are those of `device_cache`.
  /// @throws precondition_error if no kind is for this policy and model; as `device_cache` does
  template <class Policy>
  static byte_count bytes(const shape& model, const Policy& policy, const config& limits, index_t splits = 0) {
    byte_count needed = 0;
    with_kind<Policy>(model, [&](auto compiled) { needed = compiled.bytes(model, policy, limits, splits); });
    return needed;
  }
  template <class Policy>
  static byte_count host_bytes(const shape& model, const Policy& policy, const config& limits) {
    byte_count needed = 0;
    with_kind<Policy>(model, [&](auto compiled) { needed = compiled.host_bytes(model, policy, limits); });
    return needed;
  }
  template <class Policy>
  static cache make(const shape& model, const Policy& policy, const config& limits, void* memory, stream_ref stream,
                    index_t splits = 0, void* details = nullptr, transfer_plan plan = {}) {
    std::optional<cache> chosen;
    with_kind<Policy>(model, [&](auto compiled) {
      chosen.emplace(compiled.make(model, policy, limits, memory, stream, splits, details, plan));
    });
    return std::move(*chosen);
  }

 private:
  template <class Cache, class Policy>
  static bool serves(const shape& model) {
    return std::is_same_v<typename kind<Cache>::policy, Policy> && kind<Cache>::fits(model);
  }
  // work(compiled_device_cache) of the first that serves them.
  template <class Policy, class Work>
  static void with_kind(const shape& model, Work work) {
    if (const char* problem = model.problem()) detail::raise_precondition(problem);
    bool found = false;
    const auto try_kind = [&]<class Cache>(std::type_identity<Cache>) {
      if constexpr (std::is_same_v<typename kind<Cache>::policy, Policy>) {
        if (found || !kind<Cache>::fits(model)) return;
        found = true;
        work(compiled_device_cache<Number, Cache>{});
      }
    };
    (try_kind(std::type_identity<Caches>{}), ...);
    if (!found) refuse<Policy>(model);
  }
  template <class Policy>
  [[noreturn]] static void refuse(const shape& model) {
    std::string same, others;
    const auto add = [](std::string& list, const std::string& entry) { list += (list.empty() ? "" : "; ") + entry; };
    const auto list = [&]<class Cache>(std::type_identity<Cache>) {
      using listed = typename kind<Cache>::policy;
      if (std::is_same_v<listed, Policy>) add(same, kind<Cache>::heads());
      add(others, detail::words_of_policy<listed>() + " for heads " + kind<Cache>::heads());
    };
    (list(std::type_identity<Caches>{}), ...);
    const std::string wanted = detail::words_of(model);
    detail::raise_precondition(same.empty()
                                   ? "device_caches: no device_cache of this policy (" +
                                         detail::words_of_policy<Policy>() + ") is compiled in, but there are " +
                                         others + ": add one for heads " + wanted + " to the list"
                                   : "device_caches: this policy is compiled in for heads " + same + ", not " + wanted +
                                         ": add that device_cache to the list");
  }
};

}  // namespace zoomr::inline v0
