// SPDX-License-Identifier: Apache-2.0
#include "replay_page.hpp"

#include <utility>  // std::pair

#include "../decode/report/page.hpp"
#include "../decode/table.hpp"
#include "../decode/utf8.hpp"

namespace replay {
namespace {

using decode::fixed;

/// The text of each token, whole characters alone; without a text the positions.
std::vector<std::string> pieces_of(const trace& from) {
  std::vector<std::string> pieces;
  decode::utf8_stream characters;
  for (index_t t = 0; t < from.facts().tokens; ++t)
    pieces.push_back(from.text().empty() ? std::to_string(t) + " " : characters.push(from.text().token(t)));
  pieces.back() += characters.finish();
  return pieces;
}

/// A row of the page's table.
std::vector<std::pair<std::string, std::string>> figures_of(const replay_result& result) {
  const head_figures all = result.all_heads();
  const auto percent = [](double share) { return fixed(100 * share, 2) + " %"; };
  const auto mib = [](zoomr::byte_count bytes) { return fixed(static_cast<double>(bytes) / (1 << 20), 2); };
  std::vector<std::pair<std::string, std::string>> rows = {
      {"queries with something left out", percent(result.active_share())},
      {"attended tokens, mean", fixed(all.attended, 1)},
      {"error of outputs, mean", percent(all.error)},
      {"error, largest", percent(all.worst_error)},
      {"captured mass", percent(all.captured)},
      {"keys with the largest logits", percent(all.recall)},
      {"churn", percent(all.churn)},
      {"peak on a device, MiB", mib(result.device_bytes())}};
  if (result.tiers) {
    rows.emplace_back("hits in memory", percent(result.tiers->hit_rate()));
    rows.emplace_back("moved to it, MiB", mib(result.tiers->bytes_in));
  }
  if (!result.conclusive() && !result.baseline())
    rows.emplace_back("conclusion", std::string("none: ") + result.reason());
  return rows;
}

}  // namespace

void replay_page::write(std::ostream& out, const trace& from, const std::string& command,
                        const std::vector<replay_result>& results) const {
  const std::string& model = from.facts().model_name;
  report::page page("zoomr: a replay" + (model.empty() ? model : " of " + model), command, results.size());
  const std::vector<std::string> pieces = pieces_of(from);
  for (std::size_t i = 0; i < results.size(); ++i)
    page.add(recorders_[i], {results[i].policy, results[i].options, pieces, figures_of(results[i]), true});
  page.write(out);
}

}  // namespace replay
