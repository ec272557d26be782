// SPDX-License-Identifier: Apache-2.0
// The kernels that ask voters, alone: against sums in double precision, and against the host's functions bit by bit,
// over pages in any order, with NaN in every slot that no segment may show them.
#include <zoomr/cache/device/voting/voter_kernels.cuh>

#include <doctest/doctest.h>

#include <cmath>    // std::exp, std::log, std::tanh
#include <cstring>  // std::memcmp
#include <vector>   // std::vector

#include "support/device_memory.hpp"
#include "support/inputs.hpp"
#include "support/mutations.hpp"

namespace voter_kernels {
namespace {

using namespace zoomr;
using zoomr_test::device_array;
using zoomr_test::dice;

constexpr index_t records = 53, sequence = 1, sequences = 2, tokens = 700;

/// One token that chooses, and everything it reads.
template <class T, index_t HeadDim>
struct scene {
  shape model{2, 8, 2, HeadDim};
  index_t heard;
  std::vector<detail::voter_kv_lane> kv_lanes{{0, 1, 0, 2}, {1, 0, 2, 1}, {1, 1, 3, 4}};
  std::vector<index_t> heads{4, 6, 3, 4, 5, 6, 7}, layer_begin{0, 1, 3}, pages;
  std::vector<segment> segments;
  std::vector<index_t> left;
  std::vector<T> pool;
  std::vector<float> queries, masses, slopes;
  std::vector<detail::known_masses> known;
  detail::device_token token;
  detail::key_logits logits{0.3f, 0.0f, nullptr};
  detail::common_arrays<T> a;

  index_t count() const { return static_cast<index_t>(segments.size()); }
  index_t voters() const { return static_cast<index_t>(heads.size()); }
  std::vector<index_t> scoring() const {
    std::vector<index_t> positions;
    token.scoring.each([&](zoomr::detail::scoring_query query) { positions.push_back(query.position); });
    return positions;
  }
  token_range details(index_t id) const {
    return between_zones(segments[static_cast<std::size_t>(id)].begin, segments[static_cast<std::size_t>(id)].split,
                         token.zone, const_slots);
  }
  std::size_t mass_at(index_t position, index_t voter, index_t id) const {
    return static_cast<std::size_t>((std::int64_t{sequence} * heard + position % heard) * voters() + voter) *
               segments.size() +
           static_cast<std::size_t>(id);
  }
  bool seen(index_t position, index_t id) const {
    return details(id).size() > 0 && segments[static_cast<std::size_t>(id)].split <= position + 1;
  }
  bool whole(index_t id) const {
    const segment& one = segments[static_cast<std::size_t>(id)];
    return details(id).size() == one.split - one.begin;
  }
  const float* query(index_t position, index_t voter) const {
    return queries.data() + ((std::int64_t{sequence} * records + position % records) * voters() + voter) * HeadDim;
  }

  /// @param lengths  of the first segments; empty: by chance
  /// @param peak     what one key of each of these is multiplied by
  scene(index_t most_heard, dice& random, bool plain, const std::vector<index_t>& lengths = {}, float peak = 1.0f)
      : heard(most_heard) {
    token.sequence = sequence, token.position = tokens - 1, token.chooses = 0;
    const index_t named = most_heard / 4;  // tokens of a question; behind it, of most_heard, as many do not score
    token.scoring = {{tokens - most_heard, tokens - most_heard + named}, {tokens - most_heard + 2 * named, tokens}};
    token.zone = {0, 9, tokens - 21, tokens};
    for (index_t at = 0; at < tokens;) {  // some of a token, one of many; gaps as those of markers
      const index_t by_chance = segments.size() == 3 ? 290 : random.chance(20) ? 1 : random.between(2, 40);
      const index_t length = segments.size() < lengths.size() ? lengths[segments.size()] : by_chance;
      const index_t split = std::min(at + length, tokens), end = std::min(split + random.between(0, 3), tokens);
      segments.push_back({at, split, end, at, split, end - 1});
      at = end;
    }
    for (index_t id = 0; id < count(); ++id) left.push_back(details(id).size());
    token.segments = count();
    if (!plain) {
      logits.soft_cap = 1.5f;
      for (index_t head = 0; head < model.heads; ++head) slopes.push_back(0.01f * static_cast<float>(head));
    }
    fill(random, lengths.empty() ? 1.0f : peak);
  }

  // Keys, queries, and masses of which some are known.
  void fill(dice& random, float peak) {
    a.sizes.model = model, a.sizes.segments = count(), a.sizes.layer_rows = 1, a.sizes.sequences = sequences;
    a.sizes.sequence_pages = pages_for(tokens), a.sizes.pages = a.sizes.sequence_pages + 5;
    a.sizes.strides = {a.sizes.page_numbers(), std::int64_t{page_tokens} * HeadDim, HeadDim};
    for (index_t p = 0; p < a.sizes.sequence_pages; ++p) pages.push_back(a.sizes.pages - 1 - p * 7 % a.sizes.pages);
    pool.assign(static_cast<std::size_t>(a.sizes.pool_numbers()), from_float<T>(not_a_number));
    const auto stored = a.in_block(pool.data());
    for (index_t layer = 0; layer < model.layers; ++layer) {
      for (index_t id = 0; id < count(); ++id) {
        for (index_t slot = details(id).first; slot < details(id).last; ++slot) {
          const index_t at = pool_slot(view<const index_t>(pages), slot, 4);
          for (index_t kv_head = 0; kv_head < model.kv_heads; ++kv_head) {
            T* const key = stored.keys + layer * a.sizes.pages * a.sizes.page_numbers() + stored.offset(at, kv_head);
            for (index_t d = 0; d < HeadDim; ++d) {
              const float number = static_cast<float>(random.between(-127, 127)) / (sizeof(T) == 1 ? 1.0f : 64.0f);
              key[d] = from_float<T>(slot == details(id).last - 1 ? peak * number : number);
            }
          }
        }
      }
    }
    queries.assign(static_cast<std::size_t>(sequences * records * voters() * HeadDim), not_a_number);
    for (const index_t position : scoring()) {
      for (index_t i = 0; i < voters() * HeadDim; ++i) {
        const float number = static_cast<float>(random.between(-100, 100)) / (sizeof(T) == 1 ? 6400.0f : 100.0f);
        const_cast<float*>(query(position, 0))[i] = number;
      }
    }
    masses.assign(static_cast<std::size_t>(sequences * heard * voters() * count()), 55.0f);  // old, of others
    known.resize(static_cast<std::size_t>(sequences * heard));
    for (const index_t position : scoring()) {
      detail::known_masses& record = known[static_cast<std::size_t>(sequence * heard + position % heard)];
      record = {position + 1, random.between(0, count())};
      if (position % 3 == 0) record = {position + 1 - heard, count()};  // of an older position
      for (index_t voter = 0; voter < voters(); ++voter) {
        for (index_t id = 0; position % 3 != 0 && id < record.segments; ++id) {
          masses[mass_at(position, voter, id)] = seen(position, id) && id % 2 == 0 ? kept_mass : not_a_number;
        }
      }
    }
  }
  static constexpr float kept_mass = 2.25f;  // whoever measures it again finds another
  static constexpr slot_map const_slots{};

  bool was_known(index_t position, index_t id) const {
    const detail::known_masses& record = known[static_cast<std::size_t>(sequence * heard + position % heard)];
    return record.after == position + 1 && id < record.segments && id % 2 == 0 && whole(id);
  }
  /// The key of a voter's KV lane in a slot.
  const T* key_of(index_t voter, index_t slot) const {
    index_t lane = 0;
    while (voter >= kv_lanes[static_cast<std::size_t>(lane)].first + kv_lanes[static_cast<std::size_t>(lane)].count)
      ++lane;
    const detail::voter_kv_lane& asks = kv_lanes[static_cast<std::size_t>(lane)];
    const auto stored = a.in_block(const_cast<T*>(pool.data()));
    const index_t at = pool_slot(view<const index_t>(pages), slot, 4);
    return stored.keys + asks.layer * a.sizes.pages * a.sizes.page_numbers() + stored.offset(at, asks.kv_head);
  }
  /// As the host computes it.
  float mass_of_host(index_t position, index_t voter, index_t id) const {
    if (was_known(position, id)) return kept_mass;
    std::vector<float> row;
    const lane_logits rule =
        detail::key_logits{logits.scale, logits.soft_cap, slopes.empty() ? nullptr : slopes.data()}.rule(
            heads[static_cast<std::size_t>(voter)]);
    for (index_t slot = details(id).first; slot < details(id).last; ++slot) {
      const float product = dot(query(position, voter), key_of(voter, slot), HeadDim);
      row.push_back(rule(fused(logits.scale, product, -0.0f), 0, slot, position));
    }
    return key_mass{}.score(view<float>(row.data(), {static_cast<index_t>(row.size())}));
  }

  /// ln of the sum of exp(logit), or what was known.
  double expected_mass(index_t position, index_t voter, index_t id) const {
    if (was_known(position, id)) return double{kept_mass};
    double sum = 0.0;
    for (index_t slot = details(id).first; slot < details(id).last; ++slot) {
      const T* const key = key_of(voter, slot);
      double logit = 0.0;
      for (index_t d = 0; d < HeadDim; ++d) logit += double{query(position, voter)[d]} * double{to_float(key[d])};
      logit *= double{logits.scale};
      if (logits.soft_cap > 0.0f) logit = double{logits.soft_cap} * std::tanh(logit / double{logits.soft_cap});
      if (!slopes.empty()) {
        logit += double{slopes[static_cast<std::size_t>(heads[static_cast<std::size_t>(voter)])]} * (slot - position);
      }
      sum += std::exp(logit);
    }
    return std::log(sum);
  }
};

/// What the kernels leave.
struct found {
  std::vector<float> measured, masses, shares;  // masses behind the first and the second kernel
};

template <class T, index_t HeadDim>
found ask(const scene<T, HeadDim>& from, unsigned blocks = 3) {
  scene<T, HeadDim> all = from;
  std::vector<segment> segments(all.segments);  // of the second sequence
  segments.insert(segments.begin(), all.segments.begin(), all.segments.end());
  std::vector<index_t> pages(all.pages.size(), 0);
  pages.insert(pages.end(), all.pages.begin(), all.pages.end());
  device_array<segment> segments_there(segments);
  device_array<index_t> pages_there(pages), left(all.left), heads(all.heads), layer_begin(all.layer_begin);
  device_array<T> pool(all.pool);
  device_array<float> queries(all.queries), masses(all.masses), slopes(all.slopes);
  device_array<float> shares(std::int64_t{sequences} * all.voters() * all.count(), 99.0f);
  device_array<detail::known_masses> known(all.known);
  device_array<detail::voter_kv_lane> kv_lanes(all.kv_lanes);
  device_array<detail::device_counts> counts(std::vector<detail::device_counts>{{1, 0, 0, 0, 0}});
  device_array<detail::device_token> tokens_there(std::vector<detail::device_token>{all.token});
  all.a.pool = pool.data(), all.a.page_table = pages_there.data(), all.a.segments = segments_there.data();
  all.a.left = left.data(), all.a.table = {counts.data(), tokens_there.data()};
  detail::voter_arrays voting;
  voting.sizes.voters = all.voters(), voting.sizes.kv_lanes = 3;
  voting.sizes.heard = all.heard, voting.sizes.records = records;
  voting.model = all.model, voting.segments = all.count();
  voting.kv_lanes = kv_lanes.data(), voting.layer_begin = layer_begin.data(), voting.heads = heads.data();
  voting.queries = queries.data(), voting.masses = masses.data(), voting.known = known.data();
  voting.shares = shares.data();
  if (!all.slopes.empty()) all.logits.slopes = slopes.data();
  const stream_ref stream{};
  launch({dim3(2 * 3, blocks), dim3(detail::scoring_threads)}, stream,
         detail::score_by_keys_kernel<HeadDim, key_mass, T>, key_mass{}, all.a, voting, all.logits);
  found what;
  what.measured = masses.values();
  launch({dim3(2, static_cast<unsigned>(all.voters())), dim3(detail::voter_threads)}, stream, detail::share_kernel<T>,
         all.a, voting);
  what.masses = masses.values();
  const std::vector<float> both = shares.values();
  what.shares.assign(both.begin() + all.voters() * all.count() * sequence, both.end());
  return what;
}

template <class T, index_t HeadDim>
void check(index_t heard, bool plain, std::uint64_t seed) {
  CAPTURE(seed);
  dice random(seed);
  const scene<T, HeadDim> all(heard, random, plain);
  const found what = ask(all);
  constexpr double near = 3e-5;  // of logits below 100
  for (index_t voter = 0; voter < all.voters(); ++voter) {
    std::vector<double> largest(all.segments.size(), -1e300);
    for (const index_t position : all.scoring()) {
      double sum = 0.0;
      for (index_t id = 0; id < all.count(); ++id) {
        CAPTURE(voter);
        CAPTURE(position);
        CAPTURE(id);
        const float measured = what.measured[all.mass_at(position, voter, id)];
        const float later = what.masses[all.mass_at(position, voter, id)];
        if (!all.seen(position, id)) {
          REQUIRE((is_nan(measured) && is_nan(later)));
          continue;
        }
        const double expected = all.expected_mass(position, voter, id);
        REQUIRE(std::abs(double{measured} - expected) <= near);
        REQUIRE((all.whole(id) ? later == measured : is_nan(later)));
        sum += std::exp(expected);
      }
      for (index_t id = 0; id < all.count(); ++id) {
        if (!all.seen(position, id)) continue;
        double& most = largest[static_cast<std::size_t>(id)];
        most = std::max(most, all.expected_mass(position, voter, id) - std::log(sum));
      }
    }
    for (index_t id = 0; id < all.count(); ++id) {
      const float share = what.shares[static_cast<std::size_t>(voter * all.count() + id)];
      const double expected = largest[static_cast<std::size_t>(id)];
      CAPTURE(voter);
      CAPTURE(id);
      REQUIRE((expected < -1e299 ? is_nan(share) : std::abs(double{share} - expected) <= 2 * near));
    }
  }
  for (std::size_t i = 0; i < all.masses.size() / 2; ++i) REQUIRE(what.masses[i] == 55.0f);  // of the other sequence
}

/// Segments of 32 keys and around, that of a sentence, and more than a warp keeps logits of.
template <class T, index_t HeadDim>
void check_bits() {
  for (const float peak : {1.0f, 8.0f}) {
    CAPTURE(HeadDim);
    CAPTURE(storage_traits<T>::name);
    CAPTURE(peak);
    dice random(7 * HeadDim);
    const scene<T, HeadDim> all(4, random, peak == 1.0f, {24, 1, 31, 32, 33, 257, 8, 24}, peak);
    const found what = ask(all);
    for (const index_t position : all.scoring()) {
      for (index_t voter = 0; voter < all.voters(); ++voter) {
        for (index_t id = 0; id < all.count(); ++id) {
          if (!all.seen(position, id)) continue;
          CAPTURE(id);
          CAPTURE(all.details(id).size());
          const float measured = what.measured[all.mass_at(position, voter, id)];
          const float expected = all.mass_of_host(position, voter, id);
          REQUIRE(!is_nan(expected));
          REQUIRE(bits_as<std::uint32_t>(measured) == bits_as<std::uint32_t>(expected));
        }
      }
    }
  }
}
template <class T>
void check_bits_of_dims() {
  check_bits<T, 64>();
  check_bits<T, 80>();
  check_bits<T, 96>();
  check_bits<T, 128>();
  check_bits<T, 192>();
  check_bits<T, 256>();
}

}  // namespace

TEST_CASE("masses and shares of voters are those of sums in double precision; what is known is not measured again") {
  check<float, 64>(5, true, 1);
  check<float, 24>(1, false, 2);
  check<bfloat16, 128>(5, false, 3);
  check<float16, 64>(52, true, 4);  // more queries than a warp has lanes
  check<int8, 96>(7, false, 5);
}

TEST_CASE("masses are the host's bit by bit, for each storage type and head_dim") {
  check_bits_of_dims<float>();
  check_bits_of_dims<float16>();
  check_bits_of_dims<bfloat16>();
  check_bits_of_dims<float8>();
  check_bits_of_dims<int8>();
}

TEST_CASE("however many blocks share the segments, in any order") {
  dice random(6);
  const scene<float, 32> all(6, random, false);
  const found one = ask(all, 1);
  const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  };
  zoomr_test::in_all_orders([&](const std::string& order) {
    INFO(order);
    const found other = ask(all, 7);
    CHECK((same(one.measured, other.measured) && same(one.shares, other.shares)));
  });
}

}  // namespace voter_kernels
