// SPDX-License-Identifier: Apache-2.0
#include "tables.hpp"

#include <nlohmann/json.hpp>

#include "../decode/table.hpp"
#include "replay.hpp"

namespace replay {
namespace {

using decode::fixed;

std::string percent(double share) { return fixed(100 * share, 1) + " %"; }

std::string mib(zoomr::byte_count bytes) { return fixed(static_cast<double>(bytes) / (1 << 20), 1); }

/// The number of a layer in the model.
index_t layer_number(const trace_facts& facts, std::size_t layer) {
  return facts.layers.empty() ? static_cast<index_t>(layer) : facts.layers[layer];
}

std::vector<std::string> line(const replay_result& result) {
  const head_figures all = result.all_heads();
  const bool shown = result.conclusive() || result.baseline();
  const auto figure = [&](const std::string& text) { return shown ? text : std::string("-"); };
  const zoomr::tier_statistics moved = result.tiers.value_or(zoomr::tier_statistics{});
  const auto of_tiers = [&](const std::string& text) { return result.tiers ? text : std::string("-"); };
  return {result.policy,
          percent(result.active_share()),
          figure(fixed(all.attended, 1)),
          figure(percent(all.error)),
          figure(percent(all.worst_error)),
          figure(percent(all.captured)),
          figure(percent(all.recall)),
          figure(percent(all.churn)),
          mib(result.device_bytes()),
          of_tiers(mib(result.capacity.file)),
          of_tiers(mib(moved.bytes_in)),
          of_tiers(percent(moved.hit_rate())),
          fixed(result.seconds, 1)};
}

}  // namespace

void print_table(std::ostream& out, const trace_facts& facts, const std::vector<replay_result>& results) {
  if (!facts.model_name.empty()) out << facts.model_name << ": ";
  out << facts.prompt << " tokens of prompt and " << facts.tokens - facts.prompt << " after it, in "
      << facts.model.layers << " layers of " << facts.model.heads << " query heads and " << facts.model.kv_heads
      << " KV heads\n";
  decode::table shown({"policy", "active", "attended", "error", "worst", "captured", "top keys", "churn", "device MiB",
                       "file MiB", "moved in MiB", "hits", "seconds"});
  for (const replay_result& result : results) shown.add(line(result));
  shown.print(out);
  for (const replay_result& result : results) {
    if (result.conclusive() || result.baseline()) continue;
    out << result.policy << ": no conclusion, since it left out nothing in any of " << result.queries
        << " queries: " << result.reason() << '\n';
  }
}

void print_json(std::ostream& out, const trace_facts& facts, const std::vector<std::string>& files,
                const std::vector<replay_result>& results) {
  const zoomr::shape& model = facts.model;
  nlohmann::ordered_json document = {{"zoomr_replay", 1},
                                     {"trace",
                                      {{"files", files},
                                       {"model", facts.model_name},
                                       {"command", facts.command},
                                       {"prompt", facts.prompt},
                                       {"tokens", facts.tokens},
                                       {"layers", model.layers},
                                       {"heads", model.heads},
                                       {"kv_heads", model.kv_heads},
                                       {"head_dim", model.head_dim},
                                       {"value_dim", model.value_width()},
                                       {"layer_ids", facts.layers},
                                       {"dtype", facts.dtype}}},
                                     {"top_keys", top_keys},
                                     {"runs", nlohmann::ordered_json::array()}};
  for (const replay_result& result : results) document["runs"].push_back(to_json(result, model.heads));
  out << document.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
}

void print_csv(std::ostream& out, const trace_facts& facts, const std::vector<replay_result>& results) {
  out << "policy,layer,head,attended,error,worst_error,captured,recall,churn\n";
  const auto add = [&](const replay_result& result, const std::string& layer, const std::string& head,
                       const head_figures& figures) {
    out << result.policy << ',' << layer << ',' << head;
    for (const double value :
         {figures.attended, figures.error, figures.worst_error, figures.captured, figures.recall, figures.churn})
      out << ',' << nlohmann::json(value).dump();
    out << '\n';
  };
  const auto heads = static_cast<std::size_t>(facts.model.heads);
  for (const replay_result& result : results) {
    add(result, "", "", result.all_heads());
    for (std::size_t i = 0; i < result.heads.size(); ++i)
      add(result, std::to_string(layer_number(facts, i / heads)), std::to_string(i % heads), result.heads[i]);
  }
}

}  // namespace replay
