// SPDX-License-Identifier: Apache-2.0
// L6. The logit rule of a saved sequence's model: under another rule the layers would have computed other keys and
// values from the same tokens.
#pragma once

#include <zoomr/cache/logit_rule.hpp>
#include <zoomr/cache/saving/sections.hpp>
#include <zoomr/core/shape.hpp>

namespace zoomr::inline v0::detail {

/// A `logit_rule` in few numbers, as a section of the file has them. Of a table there is a checksum of its numbers; 0
/// where it does nothing, as where there is none.
struct saved_rule {
  float scale = 0.0f;  // of q . k, never 0: that of the rule, or the default for the model's head_dim
  float soft_cap = 0.0f;
  index_t window = 0;
  std::uint64_t sinks = 0;
  std::uint64_t alibi_slopes = 0;

  saved_rule() = default;
  // A soft cap of -0 is none, as one of 0 is: 0 is added so that both have the same bytes.
  saved_rule(const logit_rule& rule, const shape& model)
      : scale(rule.scale_of(model.head_dim)), soft_cap(rule.soft_cap + 0.0f), window(rule.window) {
    table_sum of_sinks(-infinity);
    table_sum of_slopes(0.0f);
    for (index_t layer = 0; layer < rule.sinks.extent(0); ++layer) {
      for (const float sink : rule.sinks[layer]) of_sinks.add(sink);
    }
    for (const float slope : rule.alibi_slopes) of_slopes.add(slope);
    sinks = of_sinks.value();
    alibi_slopes = of_slopes.value();
  }

  /// visit(number) for each, in the order of the file: one list for the writer and the reader.
  template <class Self, class Visit>
  static void each(Self& self, Visit visit) {
    visit(self.scale);
    visit(self.soft_cap);
    visit(self.window);
    visit(self.sinks);
    visit(self.alibi_slopes);
  }
  /// The field of config.logits in which a cache has another rule; nullptr: there is none.
  const char* difference(const saved_rule& other) const {
    return scale != other.scale                 ? "scale"
           : soft_cap != other.soft_cap         ? "soft_cap"
           : window != other.window             ? "window"
           : sinks != other.sinks               ? "sinks"
           : alibi_slopes != other.alibi_slopes ? "alibi_slopes"
                                                : nullptr;
  }

 private:
  // Adds up a table, number by number, in the order of its rows.
  class table_sum {
   public:
    // @param absent  the number that changes no logit: a table of such numbers alone is as none
    explicit table_sum(float absent) : absent_(absent) {}
    void add(float number) {
      number += 0.0f;  // -0 becomes 0
      unsigned char bytes[sizeof number];
      little_endian(&number, bytes, sizeof number, 1);
      sum_.add(bytes, sizeof bytes);
      used_ = used_ || number != absent_;
    }
    std::uint64_t value() const { return used_ ? sum_.value() : 0; }

   private:
    running_sum sum_;
    float absent_;
    bool used_ = false;
  };
};

}  // namespace zoomr::inline v0::detail
