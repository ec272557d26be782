// SPDX-License-Identifier: Apache-2.0
// Runs a preset over a problem that reference.py has drawn, and writes what every step attended.
//
// Values are unit vectors, so that an output is the row of attention weights itself: what is attended is seen in the
// numbers that an engine would get, whatever the library says about it. `units` dimensions take that many positions
// apart (position p is unit p mod units), head_dim of them in each run; with as many units as tokens nothing is hidden.
#pragma once

#include <zoomr/kv_cache.hpp>
#include <zoomr/presets/table.hpp>

#include <cstdint>      // std::int32_t
#include <functional>   // std::function
#include <string>       // std::string
#include <type_traits>  // std::is_enum_v
#include <vector>       // std::vector

namespace fidelity {

using zoomr::index_t;

/// What both sides are given.
struct problem {
  index_t layers = 0;
  index_t heads = 0;
  index_t kv_heads = 0;
  index_t head_dim = 0;
  index_t key_dims = 0;  // the other dimensions of keys and queries are 0
  index_t units = 0;     // a multiple of head_dim
  index_t tokens = 0;
  index_t prompt = 0;                       // the first so many tokens
  index_t chunk = 0;                        // of the prompt, the last so many tokens come in a step of their own
  std::vector<zoomr::token_class> classes;  // [vocabulary]
  std::vector<std::int32_t> ids;            // [tokens]
  std::vector<float> queries;               // [pass][tokens, layers, heads, key_dims]
  std::vector<float> keys;                  // [pass][tokens, layers, kv_heads, key_dims]
};

/// For each run, for each token after the prompt: the number of its passes, and of each pass and layer [heads,
/// head_dim] weights and [heads, tokens] bytes, which are 1 where the trace says that a position was attended.
class results_file {
 public:
  void passes(int count);
  void weights(const float* of_layer, std::size_t count);
  void traced(const std::vector<unsigned char>& of_layer);
};

/// Ends the program with a sentence and exit code 2.
[[noreturn]] void fail(const std::string& sentence);

/// "component.field=number" for each of `settings`; names of enumerators are their numbers.
template <class Policy>
void set_fields(Policy& policy, const std::vector<std::string>& settings) {
  for (const std::string& setting : settings) {
    const auto equals = setting.find('=');
    bool found = false;
    zoomr::each_option(policy, [&](const std::string& name, auto& field) {
      using type = std::remove_cvref_t<decltype(field)>;
      if (name != setting.substr(0, equals)) return;
      found = true;
      const double number = std::stod(setting.substr(equals + 1));
      if constexpr (std::is_enum_v<type>) {
        field = static_cast<type>(static_cast<int>(number));
      } else if constexpr (std::is_same_v<type, bool>) {
        field = number != 0;
      } else {
        field = static_cast<type>(number);
      }
    });
    if (!found) fail("there is no field for " + setting);
  }
}

/// One line "component.field=number" for each field.
template <class Policy>
std::string fields_of(const Policy& policy) {
  std::string lines;
  zoomr::each_option(policy, [&](const std::string& name, const auto& field) {
    lines += name + "=" + std::to_string(static_cast<double>(field)) + "\n";
  });
  return lines;
}

/// Keys or queries of some tokens in one layer, padded to head_dim numbers.
std::vector<float> padded(const std::vector<float>& all, const problem& given, index_t rows, int pass, index_t first,
                          index_t count, index_t layer);

/// [heads, tokens] of the records from `first` on, which must be those of this pass of this token in this layer.
std::vector<unsigned char> marked(const zoomr::attention_trace& trace, std::size_t first, const problem& given,
                                  index_t position, index_t layer, bool second_pass);

/// Passes all tokens of the problem through a cache under `policy`; the values show head_dim units from `shown` on.
template <class Policy>
void run(const Policy& policy, const problem& given, index_t shown, results_file& file) {
  const index_t dims = given.head_dim;
  zoomr::kv_cache<Policy, float> cache(
      zoomr::shape{given.layers, given.heads, given.kv_heads, dims}, policy,
      zoomr::config{.max_tokens = given.tokens,
                    .max_segments = given.tokens,
                    .max_batched_tokens = given.prompt,
                    .classes = zoomr::view<const zoomr::token_class>(given.classes.data(),
                                                                     {static_cast<index_t>(given.classes.size())})});
  const zoomr::sequence seq = cache.open();
  zoomr::attention_trace trace;
  cache.trace(&trace);
  index_t first = 0;
  while (first < given.tokens) {
    const bool in_prompt = first < given.prompt;
    const index_t before = given.prompt - given.chunk;
    const index_t count = !in_prompt ? 1 : first < before ? before - first : given.prompt - first;
    trace.clear();
    std::size_t records = 0;
    auto step = cache.begin(seq, zoomr::view<const zoomr::token_id>(given.ids.data() + first, {count}),
                            first + count == given.prompt);
    if (!in_prompt) file.passes(static_cast<int>(step.passes()));
    int pass = 0;
    do {
      std::vector<float> values(static_cast<std::size_t>(count * given.kv_heads * dims));
      for (index_t t = 0; t < count; ++t) {
        const index_t unit = (first + t) % given.units - shown;
        for (index_t head = 0; unit >= 0 && unit < dims && head < given.kv_heads; ++head)
          values[static_cast<std::size_t>((t * given.kv_heads + head) * dims + unit)] = 1.0f;
      }
      for (index_t layer = 0; layer < given.layers; ++layer) {
        const auto keys = padded(given.keys, given, given.kv_heads, pass, first, count, layer);
        const auto queries = padded(given.queries, given, given.heads, pass, first, count, layer);
        std::vector<float> out(queries.size());
        const zoomr::view<const float, 3> asking(queries.data(), {count, given.heads, dims});
        step.append(layer, zoomr::view<const float, 3>(keys.data(), {count, given.kv_heads, dims}),
                    zoomr::view<const float, 3>(values.data(), {count, given.kv_heads, dims}));
        if (in_prompt) {
          step.observe(layer, asking);
          continue;
        }
        step.attend(layer, asking, zoomr::view<float, 3>(out.data(), {count, given.heads, dims}));
        file.weights(out.data(), out.size());
        file.traced(marked(trace, records, given, first, layer, pass == 1));
        records += static_cast<std::size_t>(given.heads);
      }
      ++pass;
    } while (step.needs_second_pass(count));
    step.commit();
    first += count;
  }
}

/// A preset by its name: its fields as lines, or a run over a problem.
struct preset {
  const char* name;
  std::function<std::string()> fields;
  std::function<void(const std::vector<std::string>& settings, const problem& given, results_file& file)> run;
};

template <class Policy>
preset preset_of(const char* name, const Policy& own) {
  return {name, [own] { return fields_of(own); },
          [own](const std::vector<std::string>& settings, const problem& given, results_file& file) {
            auto policy = own;
            set_fields(policy, settings);
            if (policy.problem() != nullptr) fail(policy.problem());
            for (index_t shown = 0; shown < given.units; shown += given.head_dim) run(policy, given, shown, file);
          }};
}

/// The sources that share the presets: thoughts, or no segments; sentences and pages; those that evict tokens.
enum class share { zooming, choosing, keeping };
template <class Policy>
constexpr share share_of() {
  if (decltype(Policy::evict)::observes) return share::keeping;
  constexpr bool thoughts = requires(const Policy& of) { of.segment.prompt_piece; };
  return thoughts || !Policy::selects ? share::zooming : share::choosing;
}

/// The presets of the table that are a source's share; of those that voters serve none, since they have no reference.
template <share Own>
std::vector<preset> presets_of() {
  std::vector<preset> all;
  zoomr::presets::each([&](const auto& one) {
    using policy_type = std::remove_cvref_t<decltype(one.policy)>;
    constexpr bool votes = zoomr::share_aggregator<decltype(policy_type::aggregate)>;
    if constexpr (share_of<policy_type>() == Own && !votes) all.push_back(preset_of(one.name, one.policy));
  });
  return all;
}

std::vector<preset> zooming_presets();
std::vector<preset> choosing_presets();
std::vector<preset> keeping_presets();

}  // namespace fidelity
