// SPDX-License-Identifier: Apache-2.0
#include "contender.hpp"

#include <map>          // std::map
#include <type_traits>  // std::remove_cvref_t

#include "../../decode/anchors.hpp"
#include "../../decode/input_error.hpp"
#include "../../decode/streaming.hpp"
#include "../../decode/table.hpp"
#include "../../decode/voters.hpp"
#include "controls.hpp"

namespace decode::retrieval {
namespace {

using weight_tables = std::map<std::string, learnt_voters>;  // "": those that no policy names

weight_tables read_tables(const std::vector<std::string>& files, const model_config& c) {
  std::map<std::string, std::string> paths;
  for (const std::string& file : files) {
    const std::size_t equals = file.find('=');
    const bool named = equals != std::string::npos && file.find('/') > equals;
    const auto [at, added] =
        paths.try_emplace(named ? file.substr(0, equals) : "", named ? file.substr(equals + 1) : file);
    if (!added) fail("--voters ", file, ": ", at->second, " has this name, or none, already");
  }
  weight_tables tables = {{"", {c.voters, c.bounds}}};
  for (const auto& [name, path] : paths) tables[name] = read_voters(path, c);
  return tables;
}

void describe(contender& one) {
  const std::vector<index_t> none;  // nothing is chosen here
  with_named(one.choice, task::needle, none, [&](const auto& policy) {
    one.has_votes = zoomr::share_aggregator<std::remove_cvref_t<decltype(policy.aggregate)>>;
    if constexpr (requires { decltype(policy.evict)::accumulates; }) one.adds_up = decltype(policy.evict)::accumulates;
  });
}

}  // namespace

std::string contender::voters_in_words() const {
  if (!has_votes) return "";
  index_t count = 0;
  double sum = 0;
  for (const float weight : voters) count += weight != 0 ? 1 : 0, sum += double{weight};
  std::string words = std::to_string(count);
  words += " voters of weight " + fixed(sum, 3);
  if (bounds.unsure < zoomr::infinity) words += ", unsure above " + fixed(double{bounds.unsure}, 3) + " bits";
  if (bounds.none > -zoomr::infinity) words += ", none of logit " + fixed(double{bounds.none}, 3);
  if (bounds.none_slope > 0) words += " less " + fixed(double{bounds.none_slope}, 3) + " for each e-fold of segments";
  if (voter_keys == zoomr::voter_storage::q8_0) words += ", their keys in q8_0";
  return words;
}

void name_voters(named_files& files, const std::string& directory, const std::vector<std::string>& voters) {
  files.reads("--voters", voters_file(directory, {}));
  for (const std::string& file : voters) files.reads("--voters", file.substr(file.find('=') + 1));
}

std::vector<contender> read_contenders(const std::vector<std::string>& specs, const std::vector<std::string>& files,
                                       const model_config& c) {
  const weight_tables tables = read_tables(files, c);
  std::vector<contender> all;
  for (const std::string& spec : specs) {
    contender one{
        .spec = spec, .choice = read_policy(spec), .voters = {}, .bounds = {}, .anchors = {}, .streaming = {}};
    const std::string name = take_setting(one.choice, "voters"), keys = take_setting(one.choice, "voter_keys");
    const std::string anchors = take_setting(one.choice, "anchors");
    const std::string streaming = take_setting(one.choice, "streaming");
    expect_named(one.choice, spec);
    describe(one);
    if (!one.has_votes && !(name.empty() && keys.empty())) fail(spec, ": no heads vote under ", one.choice.name);
    const auto table = tables.find(name);
    if (table == tables.end()) fail(spec, ": no weights have the name ", shown(name), "; --voters ", name, "=FILE has");
    if (!keys.empty() && keys != "q8_0") fail(spec, ": voter_keys is q8_0, or not said");
    one.voters = table->second.weights, one.bounds = table->second.bounds;
    if (keys == "q8_0") one.voter_keys = zoomr::voter_storage::q8_0;
    if (!anchors.empty()) one.anchors = read_anchors(anchors, c);
    if (!streaming.empty()) one.streaming = read_streaming(streaming, c);
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace decode::retrieval
