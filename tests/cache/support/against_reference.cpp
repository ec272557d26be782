// SPDX-License-Identifier: Apache-2.0
#include <cache/support/against_reference.hpp>

namespace zoomr_test {

void check_output(const token_result& got, const reference::history& past, std::size_t row, index_t position,
                  index_t pass, const std::function<index_t(index_t)>& final_pass, allowance off, comparison& all) {
  const shape& m = past.model;
  const auto layer = static_cast<index_t>(row) / m.heads;
  const auto head = static_cast<index_t>(row) % m.heads;
  const index_t kv_head = head / (m.heads / m.kv_heads);
  const auto pass_of = [&](index_t t) { return t == position ? pass : final_pass(t); };
  const std::vector<index_t>& positions = got.attended[row];
  const reference::attention wanted = reference::attend(
      positions, past.query(position, layer, head, pass), m.head_dim,
      [&](index_t t) { return past.key(t, layer, kv_head, pass_of(t)); },
      [&](index_t t) { return past.value(t, layer, kv_head, pass_of(t)); }, past.logits, static_cast<index_t>(row),
      m.heads, position);
  const double allowed = tolerance::end_to_end(m.head_dim, wanted.largest_logit, static_cast<double>(positions.size()));
  const double allowed_of_out = allowed + off(m.head_dim);
  CAPTURE(position);
  CAPTURE(wanted.lse);
  CAPTURE(got.lse.numbers[row]);
  CAPTURE(allowed);
  CHECK(tolerance::within(got.lse.numbers[row], wanted.lse, allowed * (1 + std::abs(wanted.lse))));
  const float* out = got.out.numbers.data() + row * static_cast<std::size_t>(m.head_dim);
  index_t wrong = -1;  // dimension
  for (index_t d = 0; d < m.head_dim; ++d) {
    const double right = wanted.out[static_cast<std::size_t>(d)];
    if (!tolerance::within(out[d], right, allowed_of_out * wanted.largest_value)) wrong = d;
    if (!std::isnan(right) && wanted.largest_value > 0) {
      all.worst = std::max(all.worst, std::abs(out[d] - right) / (allowed_of_out * wanted.largest_value));
    }
  }
  CHECK(wrong == -1);
}

void check_played(const played& got, const reference::replayed& right, const reference::history& past, allowance off,
                  comparison& all) {
  const tape& says = got.says;
  ++all.ranges;
  REQUIRE(got.segments == right.segments());

  const auto pass_of = [&](index_t t) { return right.final_pass(t); };
  for (const auto& [at, result] : got.log) {
    const index_t position = at.first;
    const index_t pass = at.second;
    if (position < says.prompt) continue;
    CAPTURE(position);
    CAPTURE(pass);
    const auto wanted = right.attended().find(at);
    const bool in_prompt = says.in_prompt(position);  // nothing is traced there
    const bool doubtful = right.first_doubt() <= position;
    if (in_prompt && doubtful && !got.keeps_all) continue;
    if ((wanted == right.attended().end() || (wanted->second != result.attended && !in_prompt)) && doubtful) {
      ++all.stopped;
      return;
    }
    REQUIRE(wanted != right.attended().end());
    if (in_prompt) {
      token_result everything = result;
      everything.attended = wanted->second;
      for (std::size_t row = position % 3; row < everything.attended.size(); row += 3)
        check_output(everything, past, row, position, pass, pass_of, off, all);
      continue;
    }
    REQUIRE(wanted->second.size() == result.attended.size());
    for (std::size_t row = 0; row < result.attended.size(); ++row) {
      CAPTURE(row);
      REQUIRE(result.attended[row] == wanted->second[row]);
      if ((row + static_cast<std::size_t>(position)) % 3 == 0)
        check_output(result, past, row, position, pass, pass_of, off, all);
      ++all.queries;
    }
  }
  const zoomr::statistics& counted = got.counted;
  index_t of_prompts = says.prompt;
  for (const zoomr::token_range& later : says.later_prompts) of_prompts += later.size();
  CHECK(counted.prompt_tokens == of_prompts);
  CHECK(counted.tokens == says.size() - of_prompts);
  for (const reference::whole_item& item : says.whole_items) {
    if (!item.complete) return;  // what is not accepted was attended too
  }
  CHECK(counted.passes == right.counted().passes);
  CHECK(counted.attended == right.counted().attended);
  CHECK(counted.refreshes == right.counted().refreshes);
  CHECK(counted.zooms == right.counted().zooms);
  CHECK(counted.chosen == right.counted().chosen);
  CHECK(counted.unsure == right.counted().unsure);
  CHECK(counted.unsure_tokens == right.counted().unsure_tokens);
  if (right.first_doubt() < says.size()) return;  // votes may differ where no position does
  CHECK(counted.agreeability_count == right.counted().agreeability_count);
  const double choices = static_cast<double>(counted.refreshes);
  CHECK(tolerance::within(counted.agreeability_sum, right.counted().agreeability_sum, 1e-4 * (1 + choices)));
  CHECK(counted.entropy_count == right.counted().entropy_count);
  CHECK(tolerance::within(counted.entropy_sum, right.counted().entropy_sum, 1e-4 * (1 + choices)));
}

}  // namespace zoomr_test
