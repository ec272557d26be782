// SPDX-License-Identifier: Apache-2.0
// mpirun -n N ranks_bench [--deal SLOTS] [PRESET ...]: what ranks tell each other for a token, and how long its step
// takes beside that of one rank, for N = 2, 3 or 4, for each preset or for those that are named. They divide heads;
// with --deal tokens, so many slots to one after the other.
//
// The shape is SmolLM2-135M's: 30 layers, 9 heads, 3 KV heads, head_dim 64, bfloat16; its voters are the model's. At 4
// ranks two share a KV head. A prompt of 512 tokens, then a later one up to 4,096: sentences of 24, and behind the
// first prompt thoughts of 400 with summaries of 30. Then 96 tokens, one by one. A step is begin, append, attend and
// commit; the model itself is left out, and so is what its layers tell each other. Presets that free pages pass later
// prompts token by token; they choose nothing, and are left out.
//
// Columns: messages that the first rank sends for a token, and bytes, means of the 96 tokens; the bytes of the token
// that sends most; µs of a step, median, of the first rank and of one rank with all heads, in turn; their ratio; bytes
// of keys and values that the first rank keeps, as a share of those of one rank. Each output of the first rank's heads
// is compared with that of one rank, bit for bit; of dealt tokens within 2e-3, since where the processor multiplies
// pairs of bfloat16 each rank rounds weights to it by its own largest logit; with ZOOMR_BFLOAT16_PRODUCTS=0 within
// 1e-5.
#include <zoomr/core/ranks/mpi_ranks.hpp>
#include <zoomr/presets/table.hpp>
#include <zoomr/zoomr.hpp>

#include <algorithm>  // std::find, std::max
#include <cmath>      // std::abs
#include <cstdio>     // std::printf
#include <cstring>    // std::memcmp
#include <optional>   // std::optional
#include <string>     // std::stoi, std::string
#include <vector>     // std::vector

#include <unistd.h>  // usleep

#include "../support/noise.hpp"
#include "../support/rows.hpp"
#include "../support/texts.hpp"

namespace zoomr_bench {
namespace {

using namespace zoomr;

constexpr shape model{30, 9, 3, 64};
constexpr float tolerance = ZOOMR_BFLOAT16_PRODUCTS ? 2e-3f : 1e-5f;  // of outputs in -1 ... 1
constexpr index_t context = 4096, counted = 96, group = model.group();
constexpr text says{.prompt = 512, .thought = 400, .summary = 30};

/// [layers, heads]  Those of examples/studies/pretrained/smollm2/voters.json; what each weighs sends nothing.
std::vector<float> voters() {
  std::vector<float> weights(std::size_t{30} * 9);
  for (const auto& [layer, head] :
       {std::pair{2, 4}, {7, 7}, {8, 0}, {12, 3}, {15, 6}, {17, 3}, {17, 4}, {18, 6}, {18, 7}, {21, 7}, {24, 4}})
    weights[static_cast<std::size_t>(layer * 9 + head)] = 1;
  return weights;
}

/// A cache with the query heads from `first` to `last`, and its sequence.
template <class Policy>
class part {
 public:
  part(const Policy& policy, index_t first, index_t last, const rank_heads& ranks, const rank_tokens& dealt = {})
      : own_{model.layers, last - first, (last - first + group - 1) / group, model.head_dim},
        first_(first),
        cache_(own_, policy, limits(policy, ranks, dealt)),
        seq_(cache_.open()) {
    while (position_ < context) {
      const index_t end = position_ < says.prompt ? says.prompt : context;
      advance(std::min<index_t>(256, end - position_), position_ == 0 || position_ == says.prompt, end);
    }
  }

  /// @return  seconds of a step for the next token
  double advance() { return advance(1, false, 0); }
  /// [layers, heads, head_dim]  of the last token
  const std::vector<float>& out() const { return out_; }
  index_t heads() const { return own_.heads; }
  rank_statistics sent() const { return cache_.ranks(); }
  byte_count kept() const { return cache_.bytes(seq_).details; }

 private:
  static config limits(const Policy&, const rank_heads& ranks, const rank_tokens& dealt) {
    static const std::vector<float> weights = voters();
    config made;
    made.max_tokens = context + counted, made.max_batched_tokens = 256, made.classes = text::classes;
    made.ranks = ranks, made.token_ranks = dealt;
    if constexpr (share_aggregator<decltype(Policy::aggregate)>)
      made.voters = {weights.data(), {model.layers, model.heads}};
    return made;
  }
  // The same numbers for the same head, whoever has it.
  view<const float, 3> filled(std::vector<float>& into, index_t tokens, index_t first, index_t heads, index_t all,
                              std::uint32_t stream, float scale) {
    into.clear();
    for (index_t t = 0; t < tokens; ++t) {
      const std::int64_t row = (std::int64_t{position_ + t} * all + first) * model.head_dim;
      for (index_t i = 0; i < heads * model.head_dim; ++i) into.push_back(scale * noise_at(row + i, stream));
    }
    return {into.data(), {tokens, heads, model.head_dim}};
  }
  double advance(index_t tokens, bool begins, index_t end) {
    const bool prompt = position_ < context;
    std::vector<token_id> ids;
    for (index_t t = 0; t < tokens; ++t) {
      token_id id = says.at(position_ + t);
      if ((position_ + t + 1) % says.sentence == 0 && id % 2 == 0) ++id;
      ids.push_back(id);
    }
    const std::size_t width = static_cast<std::size_t>(own_.heads * model.head_dim);
    out_.resize(static_cast<std::size_t>(model.layers) * width);
    std::vector<float> ignored;
    double seconds = 0, from = now();
    step_item item{seq_, ids, prompt && position_ + tokens == end};
    item.prompt_begins = begins;
    auto step = cache_.begin(view<const step_item>(&item, {1}));
    do {
      for (index_t layer = 0; layer < model.layers; ++layer) {
        seconds += now() - from;
        const auto stream = static_cast<std::uint32_t>(3 * layer);
        const auto k = filled(keys_, step.tokens(), first_ / group, own_.kv_heads, model.kv_heads, stream + 1, 1.0f);
        const auto v = filled(values_, step.tokens(), first_ / group, own_.kv_heads, model.kv_heads, stream + 2, 1.0f);
        const auto q = filled(queries_, step.tokens(), first_, own_.heads, model.heads, stream + 3, query_scale);
        from = now();
        step.append(layer, k, v);
        if (prompt) {
          step.observe(layer, q);
        } else {
          step.attend(layer, q, {&out_[static_cast<std::size_t>(layer) * width], {1, own_.heads, model.head_dim}});
        }
      }
    } while (step.needs_second_pass(tokens));
    step.commit(tokens);
    position_ += tokens;
    return seconds + now() - from;
  }

  shape own_;
  index_t first_, position_ = 0;
  kv_cache<Policy, bfloat16> cache_;
  sequence seq_;
  std::vector<float> keys_, values_, queries_, out_;
};

/// Others have the processor meanwhile.
void meet() {
  MPI_Request all;
  MPI_Ibarrier(MPI_COMM_WORLD, &all);
  for (int done = 0; done == 0;) {
    MPI_Test(&all, &done, MPI_STATUS_IGNORE);
    if (done == 0) usleep(100);
  }
}

/// @param deal  0: heads are divided
/// @return  outputs are not those of one rank
template <class Policy>
bool measure(const char* name, const Policy& policy, mpi_ranks& ranks, const std::vector<index_t>& first,
             index_t deal) {
  const auto head = [&](index_t rank) { return first[static_cast<std::size_t>(rank)]; };
  std::optional<part<Policy>> own, one;
  try {
    if (deal > 0) {
      own.emplace(policy, 0, model.heads, rank_heads{}, rank_tokens{ranks, deal});
    } else {
      own.emplace(policy, head(ranks.rank()), head(ranks.rank() + 1),
                  rank_heads{.group = ranks, .first = view<const index_t>(first), .kv_heads = model.kv_heads});
    }
  } catch (const precondition_error& refused) {
    if (ranks.rank() == 0) std::printf("| `%s` | refused: %s |\n", name, refused.what());
    return false;
  }
  if (ranks.rank() == 0) one.emplace(policy, 0, model.heads, rank_heads{});
  const rank_statistics before = own->sent();
  byte_count most = 0;
  std::vector<double> seconds, alone;
  bool wrong = false;
  for (index_t t = 0; t < counted; ++t) {
    meet();
    const byte_count sent = own->sent().bytes;
    seconds.push_back(own->advance());
    most = std::max(most, own->sent().bytes - sent);
    meet();
    if (!one) continue;
    alone.push_back(one->advance());
    const std::size_t layer = one->out().size() / model.layers, here = own->out().size() / model.layers;
    for (std::size_t l = 0; l < model.layers && deal == 0; ++l)
      wrong = wrong || std::memcmp(&one->out()[l * layer], &own->out()[l * here], here * sizeof(float)) != 0;
    for (std::size_t i = 0; i < own->out().size() && deal > 0; ++i)
      wrong = wrong || !(std::abs(one->out()[i] - own->out()[i]) <= tolerance);
  }
  if (!one) return false;
  if (wrong) std::printf("| `%s` | its outputs are not those of one rank |\n", name);
  const rank_statistics after = own->sent();
  const double us = 1e6 * quantile(seconds, 0.5), us_alone = 1e6 * quantile(alone, 0.5);
  std::printf("| `%s` | %.2f | %.1f | %lld | %.0f | %.0f | %.2f | %.2f |\n", name,
              static_cast<double>(after.messages - before.messages) / counted,
              static_cast<double>(after.bytes - before.bytes) / counted, static_cast<long long>(most), us, us_alone,
              us / us_alone, static_cast<double>(own->kept()) / static_cast<double>(one->kept()));
  std::fflush(stdout);
  return wrong;
}

int run(std::vector<std::string> wanted) {
  index_t deal = 0;
  if (wanted.size() > 1 && wanted[0] == "--deal") {
    deal = std::stoi(wanted[1]);
    wanted.erase(wanted.begin(), wanted.begin() + 2);
  }
  mpi_ranks ranks(MPI_COMM_WORLD);
  const std::vector<std::vector<index_t>> tables = {{0, 6, 9}, {0, 3, 6, 9}, {0, 2, 3, 6, 9}};
  if (ranks.ranks() < 2 || ranks.ranks() > 4) {
    if (ranks.rank() == 0) std::fputs("ranks_bench: mpirun -n 2, 3 or 4\n", stderr);
    return 1;
  }
  if (ranks.rank() == 0)
    std::printf(
        "| policy, %d ranks | messages | bytes | most bytes | µs | µs of one rank | ratio | kept |\n"
        "|---|---|---|---|---|---|---|---|\n",
        ranks.ranks());
  bool wrong = false;
  presets::each([&](const auto& preset) {
    if (preset.policy.placement.frees_unreachable) return;
    if (wanted.empty() || std::find(wanted.begin(), wanted.end(), preset.name) != wanted.end())
      wrong = measure(preset.name, preset.policy, ranks, tables[static_cast<std::size_t>(ranks.ranks() - 2)], deal) ||
              wrong;
  });
  return wrong ? 1 : 0;
}

}  // namespace
}  // namespace zoomr_bench

int main(int count, char** arguments) {
  MPI_Init(&count, &arguments);
  const int status = zoomr_bench::run({arguments + 1, arguments + count});
  MPI_Finalize();
  return status;
}
