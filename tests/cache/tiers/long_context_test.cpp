// SPDX-License-Identifier: Apache-2.0
// 200,000 tokens, 410 MB of keys and values, in 128 MiB of memory and a file: the right tokens are found and attended,
// and the memory that the process takes is the memory that was granted.
#include <support/inputs.hpp>
#include <support/temporary_folder.hpp>
#include <support/tolerance.hpp>
#include <zoomr/policy/placement/tiered.hpp>
#include <zoomr/zoomr.hpp>

#include <doctest/doctest.h>
#include <sys/prctl.h>  // prctl

#include <algorithm>  // std::binary_search, std::max
#include <chrono>     // std::chrono::steady_clock
#include <cmath>      // std::abs, std::exp, std::log
#include <fstream>    // std::ifstream
#include <string>     // std::string
#include <vector>     // std::vector

namespace zoomr_test {
namespace {

using zoomr::bfloat16;
using zoomr::byte_count;
using zoomr::view;

constexpr shape model{4, 4, 2, 64};
constexpr index_t prompt = 200000;
constexpr index_t answer = 32;
constexpr index_t chunk = 512;
constexpr byte_count granted = byte_count{128} << 20;

constexpr auto policy = zoomr::compose(
    zoomr::fixed_pages{.longest = zoomr::page_tokens}, zoomr::stored_as<bfloat16>(zoomr::key_box{}), zoomr::box_bound{},
    zoomr::pooled_score{.over_group = zoomr::pool::max}, zoomr::top_k{.segments = 64}, zoomr::every_token{},
    zoomr::zones{.open = zoomr::unlimited}, zoomr::tiered<>{});
using cache_type = zoomr::kv_cache<std::remove_const_t<decltype(policy)>, bfloat16>;

/// Keys and values are noise in [-1, 1), from (token, layer, KV head, dimension) alone, but for the keys of one token
/// in `apart` of each KV lane: those have the signs of a topic, times `size`. A topic has eight tokens, or nine, as far
/// from each other as they can be. Queries have the signs of the topic that they ask for.
namespace world {

constexpr index_t apart = 97;
constexpr index_t topics = 256;
constexpr float size = 4.0f;

inline index_t topic_of(index_t token, index_t layer, index_t kv_head) {
  const index_t since = token - 11 * (layer * model.kv_heads + kv_head);
  return token < prompt && since >= 0 && since % apart == 0 ? since / apart % topics : -1;
}

inline float sign_of(index_t topic, index_t layer, index_t kv_head, index_t d) {
  const auto kv_lane = static_cast<std::uint64_t>(layer * model.kv_heads + kv_head);
  const std::uint64_t signs = mixed(mixed(kv_lane) + static_cast<std::uint64_t>(topic));
  return (signs >> d & 1) != 0 ? 1.0f : -1.0f;
}

/// @param out  [head_dim]
inline void row_of(role of, index_t token, index_t layer, index_t kv_head, float* out) {
  const index_t topic = of == role::key ? topic_of(token, layer, kv_head) : -1;
  const auto kv_lane = static_cast<std::uint64_t>((layer * model.kv_heads + kv_head) * 2 + (of == role::key ? 0 : 1));
  const auto seed = static_cast<std::uint32_t>(mixed(static_cast<std::uint64_t>(token) * 64 + kv_lane));
  for (index_t d = 0; d < model.head_dim; ++d) {
    std::uint32_t number = seed + static_cast<std::uint32_t>(d) * 0x9e3779b9u;
    number = (number ^ number >> 16) * 0x7feb352du;
    number = (number ^ number >> 15) * 0x846ca68bu;
    out[d] = static_cast<float>(static_cast<std::int32_t>(number) >> 8) / float{1 << 23};
  }
  for (index_t d = 0; topic >= 0 && d < model.head_dim; ++d) out[d] = size * sign_of(topic, layer, kv_head, d);
}

/// The topic that a query head asks for.
inline index_t asked(index_t position, index_t layer, index_t head) {
  return static_cast<index_t>(
      mixed(static_cast<std::uint64_t>((position * model.layers + layer) * model.heads + head)) % topics);
}

/// Every other token asks so loudly that nothing else has a weight in full attention; the others attend to everything.
inline bool is_loud(index_t position) { return position % 2 == 0; }
inline float loudness(index_t position) { return is_loud(position) ? 3.0f : 0.25f; }
/// The sum of the magnitudes of a logit's products, for a token that is asked for.
inline double loudest(index_t position) { return 64 * size * loudness(position) / 8.0; }

/// @param out  [head_dim]
inline void query_of(index_t position, index_t layer, index_t head, float* out) {
  const index_t topic = asked(position, layer, head);
  for (index_t d = 0; d < model.head_dim; ++d) {
    out[d] = loudness(position) * sign_of(topic, layer, head / model.group(), d);
  }
}

}  // namespace world

/// Exact attention in double over keys and values that are made anew, rounded as the cache stores them.
class naive_attention {
 public:
  naive_attention(index_t position, index_t layer, index_t head)
      : layer_(layer), kv_head_(head / model.group()), out_(static_cast<std::size_t>(model.head_dim)) {
    world::query_of(position, layer, head, query_);
  }
  void add(index_t token) {
    float row[model.head_dim];
    world::row_of(role::key, token, layer_, kv_head_, row);
    double logit = 0.0;
    for (index_t d = 0; d < model.head_dim; ++d) logit += double{query_[d]} * stored(row[d]);
    const double weight = std::exp(logit / 8.0 - bias);  // sqrt(head_dim) = 8
    world::row_of(role::value, token, layer_, kv_head_, row);
    for (index_t d = 0; d < model.head_dim; ++d) out_[static_cast<std::size_t>(d)] += weight * stored(row[d]);
    mass_ += weight;
  }
  double out(index_t d) const { return out_[static_cast<std::size_t>(d)] / mass_; }
  double lse() const { return std::log(mass_) + bias; }

 private:
  static constexpr double bias = 50.0;  // keeps all weights far from the ends of a double
  static double stored(float number) { return zoomr::to_float(zoomr::from_float<bfloat16>(number)); }

  index_t layer_;
  index_t kv_head_;
  float query_[model.head_dim];
  std::vector<double> out_;
  double mass_ = 0.0;
};

/// What the kernel says of this process.
struct memory_seen {
  byte_count anonymous = 0;
  byte_count pinned = 0;
  byte_count of_files = 0;  // mapped and resident, in shared memory too

  static memory_seen now() {
    memory_seen seen;
    std::ifstream lines("/proc/self/status");
    std::string name;
    for (byte_count kib = 0; lines >> name; lines.ignore(1000, '\n')) {
      const bool wanted = name == "RssAnon:" || name == "VmPin:" || name == "RssFile:" || name == "RssShmem:";
      if (!wanted || !(lines >> kib)) continue;
      (name == "RssAnon:" ? seen.anonymous : name == "VmPin:" ? seen.pinned : seen.of_files) += kib * 1024;
    }
    return seen;
  }
  byte_count own() const { return anonymous + pinned; }
};

bool is_mapped(const std::string& path) {
  std::ifstream lines("/proc/self/maps");
  for (std::string line; std::getline(lines, line);) {
    if (line.find(path) != std::string::npos) return true;
  }
  return false;
}

double mib(byte_count bytes) { return static_cast<double>(bytes) / (1 << 20); }

class stopwatch {
 public:
  void start() { since_ = clock::now(); }
  void stop() { seconds_ += std::chrono::duration<double>(clock::now() - since_).count(); }
  double seconds() const { return seconds_; }

 private:
  using clock = std::chrono::steady_clock;
  clock::time_point since_{};
  double seconds_ = 0.0;
};

zoomr::config limits_with(const std::string& path) {
  zoomr::config limits;
  limits.max_tokens = prompt + answer;
  limits.max_segments = (prompt + answer) / zoomr::page_tokens;
  limits.max_batched_tokens = chunk;
  limits.tiers = {.host = granted, .file = byte_count{1} << 29, .path = path.c_str()};
  return limits;
}

/// The memory of one process over time.
struct watched {
  memory_seen before = memory_seen::now();
  byte_count most = 0;
  byte_count most_of_files = 0;

  void look() {
    const memory_seen now = memory_seen::now();
    most = std::max(most, now.own() - before.own());
    most_of_files = std::max(most_of_files, now.of_files - before.of_files);
  }
};

/// Numbers [chunk, heads, head_dim] that come and go, all touched.
struct numbers {
  explicit numbers(index_t of)
      : heads(of), all(std::size_t{chunk} * static_cast<std::size_t>(of * model.head_dim), 1.0f) {}
  float* row(index_t token, index_t head) { return all.data() + (token * heads + head) * model.head_dim; }
  view<float, 3> of(index_t tokens) { return {all.data(), {tokens, heads, model.head_dim}}; }

  index_t heads;
  std::vector<float> all;
};

/// One text, read and answered by a cache that is watched.
class reader {
 public:
  // Nothing but the cache is made after the first look at the memory.
  explicit reader(const zoomr::config& limits) : cache(model, policy, limits), seq_(cache.open()) {}

  void ingest() {
    for (index_t first = 0; first < prompt; first += chunk) {
      const index_t count = std::min(chunk, prompt - first);
      const bool ends = first + count == prompt;
      auto step = cache.begin(seq_, view<const token_id>(ids_).slice(0, count), ends);
      for (index_t layer = 0; layer < model.layers; ++layer) {
        append(step, layer, ingesting);
        if (ends) step.observe(layer, queries_.of(count));
      }
      commit(step, ingesting);
    }
    REQUIRE(cache.tokens(seq_) == prompt);
  }

  void answer_all() {
    cache.trace(&trace_);
    for (index_t position = prompt; position < prompt + answer; ++position) {
      auto step = cache.begin(seq_, view<const token_id>(ids_).slice(0, 1));
      for (index_t layer = 0; layer < model.layers; ++layer) {
        append(step, layer, decoding);
        for (index_t head = 0; head < model.heads; ++head)
          world::query_of(position, layer, head, queries_.row(0, head));
        trace_.clear();
        decoding.start();
        step.attend(layer, queries_.of(1), out_.of(1), view<float, 2>(lse_, {1, model.heads}));
        decoding.stop();
        memory.look();
        REQUIRE((step.failure(0) == nullptr));
        REQUIRE(trace_.size() == static_cast<std::size_t>(model.heads));
        for (index_t head = 0; head < model.heads; ++head) check(position, layer, head);
      }
      commit(step, decoding);
    }
  }

  stopwatch ingesting, decoding;
  std::int64_t attended = 0;   // by all queries
  index_t missing = 0;         // tokens that a query asked for and did not attend
  double worst = 0.0;          // error, as a share of what is allowed
  double worst_in_full = 0.0;  // the same, against full attention

 private:
  numbers keys_{model.kv_heads}, values_{model.kv_heads}, queries_{model.heads}, out_{model.heads};
  float lse_[model.heads] = {};
  std::vector<token_id> ids_ = std::vector<token_id>(chunk, plain_id);
  zoomr::attention_trace trace_;

 public:
  watched memory;
  cache_type cache;

 private:
  template <class Step>
  void append(Step& step, index_t layer, stopwatch& watch) {
    for (index_t t = 0; t < step.tokens(); ++t) {
      for (index_t head = 0; head < model.kv_heads; ++head) {
        world::row_of(role::key, step.position(0) + t, layer, head, keys_.row(t, head));
        world::row_of(role::value, step.position(0) + t, layer, head, values_.row(t, head));
      }
    }
    watch.start();
    step.append(layer, keys_.of(step.tokens()), values_.of(step.tokens()));
    watch.stop();
  }
  template <class Step>
  void commit(Step& step, stopwatch& watch) {
    watch.start();
    step.commit();
    watch.stop();
    memory.look();
  }

  void check(index_t position, index_t layer, index_t head) {
    const std::vector<index_t>& positions = trace_[static_cast<std::size_t>(head)].positions;
    attended += static_cast<std::int64_t>(positions.size());
    for (index_t token = 0; token < prompt; ++token) {
      if (world::topic_of(token, layer, head / model.group()) != world::asked(position, layer, head)) continue;
      missing += std::binary_search(positions.begin(), positions.end(), token) ? 0 : 1;
    }
    naive_attention expected(position, layer, head);
    for (const index_t token : positions) expected.add(token);
    const double logit = world::loudest(position);
    worst = std::max(worst, error(expected, head, logit, positions.size()));
    // What a loud query does not attend has less than e^-40 of the mass, so that this is full attention; and the logits
    // of what it asks for are sums of integers, exact in any order. Each layer and head is loud once.
    const bool in_full = world::is_loud(position) && (position - prompt) / 2 == layer * model.heads + head;
    if (!in_full) return;
    naive_attention full(position, layer, head);
    for (index_t token = 0; token <= position; ++token) full.add(token);
    worst_in_full = std::max(worst_in_full, error(full, head, 0.0, positions.size()));
  }

  double error(const naive_attention& expected, index_t head, double logit, std::size_t tokens) {
    const double allowed = tolerance::end_to_end(model.head_dim, logit, static_cast<double>(tokens));
    const double log_sum = expected.lse();
    const double allowed_of_log = allowed + tolerance::elementwise * std::abs(log_sum);
    double most = std::abs(lse_[head] - log_sum) / allowed_of_log;
    for (index_t d = 0; d < model.head_dim; ++d) {
      most = std::max(most, std::abs(out_.row(0, head)[d] - expected.out(d)) / allowed);
    }
    return most;
  }

  zoomr::sequence seq_;
};

}  // namespace

TEST_CASE("200,000 tokens are decoded in 128 MiB of memory and a file") {
  ::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);  // pages of 2 MiB would count what nobody has touched
  temporary_folder folder;
  const std::string path = folder.path();
  const zoomr::config limits = limits_with(path);
  const zoomr::memory_use promised = cache_type::bytes(model, policy, limits);
  const byte_count counted = promised.total();
  const byte_count all_details = byte_count{2} * model.kv_lanes() * prompt * model.head_dim * 2;
  REQUIRE(promised.total() <= granted);
  REQUIRE(promised.details < all_details / 3);

  reader reads(limits);
  reads.ingest();
  const zoomr::tier_statistics before = reads.cache.tiers();
  CHECK(before.bytes_out >= all_details - promised.details);  // nowhere else is room for it
  CHECK(before.bytes_out <= all_details);                     // each block once
  reads.answer_all();
  const zoomr::tier_statistics& after = reads.cache.tiers();
  CHECK(reads.missing == 0);
  CHECK(reads.worst <= 1.0);
  CHECK(reads.worst_in_full <= 1.0);
  const std::int64_t each = reads.attended / (answer * model.layers * model.heads);
  CHECK((each >= 64 * zoomr::page_tokens && each <= 65 * zoomr::page_tokens));
  const double file_in = mib(after.bytes_in - before.bytes_in) / answer;
  CHECK(file_in > 0.5);  // what is asked for lies far away

  // Not counted are the engine, a thread's stack and what the heap adds.
  constexpr byte_count allowance = byte_count{1} << 20;
  CHECK(reads.memory.most <= granted + allowance);
  // Room for later prompts and model positions, of which this text has none, is counted, but not touched.
  const byte_count untouched = byte_count{limits.max_sequences} * limits.max_tokens *
                               static_cast<byte_count>(sizeof(zoomr::token_range) + sizeof(zoomr::position_span));
  CHECK(std::abs(static_cast<double>(reads.memory.most + untouched - counted)) <= 0.02 * static_cast<double>(counted));
  CHECK(reads.memory.most_of_files <= allowance);  // the program itself, as it is needed
  CHECK_FALSE(is_mapped(path));
  const auto hits = static_cast<double>(after.hits - before.hits);
  const auto visits = hits + static_cast<double>(after.misses - before.misses);
  MESSAGE("ingested in ", reads.ingesting.seconds(), " s, to the file ", mib(before.bytes_out), " MiB");
  MESSAGE("decoded ", answer / reads.decoding.seconds(), " tokens/s, each query of ", each, " tokens; ",
          100 * hits / visits, " % of visits hit; ", file_in, " MiB from the file for each token");
  MESSAGE("memory: at most ", mib(reads.memory.most), " MiB, promised ", mib(counted), " MiB; mapped files ",
          mib(reads.memory.most_of_files), " MiB");
  MESSAGE("worst error, as a share of what is allowed: ", reads.worst, ", against full attention ",
          reads.worst_in_full);
}

}  // namespace zoomr_test
