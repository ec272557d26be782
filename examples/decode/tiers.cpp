// SPDX-License-Identifier: Apache-2.0
#include "tiers.hpp"

#include <algorithm>  // std::min, std::ranges::none_of
#include <cstring>    // std::strlen

#include <nlohmann/json.hpp>

#include "input_error.hpp"
#include "numbers.hpp"
#include "table.hpp"

namespace decode {
namespace {

constexpr const char* parts_of_tiers[] = {"device=", "host=", "file=", "segments="};

}  // namespace

tier_options parse_tiers(const std::string& text) {
  const auto size_of = [&](const std::string& value) -> zoomr::byte_count {
    if (const auto bytes = size_in_bytes(value)) return *bytes;
    fail("--tiers ", text, ": ", shown(value), " is not a size like 64MiB, of at least 1 byte and less than 2^63");
  };
  const auto segments_of = [&](const std::string& value) {
    if (const auto count = whole_number<index_t>(value, 1, zoomr::unlimited)) return *count;
    fail("--tiers ", text, ": segments ", wrong_number(value, index_t{1}, zoomr::unlimited));
  };
  // A path may have commas: it ends where another tier is named.
  const auto end_of = [&](std::size_t first) {
    const bool has_path = text.compare(first, 5, "file=") == 0;
    std::size_t last = std::min(text.find(',', first), text.size());
    const auto goes_on = [&](const char* next) { return text.compare(last + 1, std::strlen(next), next) == 0; };
    while (has_path && last < text.size() && std::ranges::none_of(parts_of_tiers, goes_on))
      last = std::min(text.find(',', last + 1), text.size());
    return last;
  };
  tier_options made;
  for (std::size_t first = 0; first < text.size();) {
    const std::size_t last = end_of(first);
    const std::string part = text.substr(first, last - first);
    const std::size_t equals = std::min(part.find('='), part.size());
    const std::string tier = part.substr(0, equals);
    const std::string value = part.substr(std::min(equals + 1, part.size()));
    if (tier == "device") {
      made.bytes.device = size_of(value);
    } else if (tier == "host") {
      made.bytes.host = size_of(value);
    } else if (tier == "segments") {
      made.segments = segments_of(value);
    } else if (tier == "file" && value.rfind(':') != std::string::npos && value.rfind(':') > 0) {
      made.path = value.substr(0, value.rfind(':'));
      made.bytes.file = size_of(value.substr(value.rfind(':') + 1));
    } else {
      fail("--tiers ", text, ": it must be host=SIZE,file=PATH:SIZE, of a device device=SIZE, and may have segments=N");
    }
    first = last + 1;
  }
  const bool over_file = made.bytes.host > 0 && made.bytes.file > 0;
  if (made.bytes.device <= 0 && !over_file) fail("--tiers ", text, ": host and file need a size, or the device does");
  return made;
}

nlohmann::ordered_json to_json(const zoomr::tier_statistics& of, const zoomr::memory_use& capacity) {
  return {{"memory_bytes", capacity.total()},
          {"file_bytes", capacity.file},
          {"hit_rate", of.hit_rate()},
          {"hits", of.hits},
          {"misses", of.misses},
          {"stalls", of.stalls},
          {"prefetched", of.prefetched},
          {"moving_seconds", static_cast<double>(of.times.moving_ns) * 1e-9},
          {"waited_seconds", static_cast<double>(of.times.waited_ns) * 1e-9},
          {"bytes_in", of.bytes_in},
          {"bytes_out", of.bytes_out}};
}

std::string in_words(const zoomr::tier_statistics& of, const zoomr::memory_use& capacity) {
  return "tiers: memory " + kib(capacity.total()) + " KiB, file " + kib(capacity.file) + "; hits " +
         fixed(100 * of.hit_rate(), 1) + " %, " + std::to_string(of.stalls) + " stalls, " +
         fixed(100 * of.hidden(), 0) + " % of transfer time hidden, from the file " + kib(of.bytes_in) +
         " KiB, to it " + kib(of.bytes_out);
}

nlohmann::ordered_json to_json(const zoomr::arena_statistics& of, zoomr::byte_count device, zoomr::byte_count host) {
  return {{"device_bytes", device},      {"host_bytes", host},
          {"hit_rate", of.hit_rate()},   {"hits", of.hits},
          {"misses", of.misses},         {"far", of.in_place},
          {"prefetched", of.prefetched}, {"prefetched_hits", of.prefetched_hits},
          {"bytes_in", of.bytes_in}};
}

std::string in_words(const zoomr::arena_statistics& of, zoomr::byte_count device, zoomr::byte_count host) {
  return "tiers: device " + kib(device) + " KiB, host " + kib(host) + "; hits " + fixed(100 * of.hit_rate(), 1) +
         " %, " + std::to_string(of.in_place) + " pages read where they lie, " + std::to_string(of.prefetched) +
         " prefetched, " + std::to_string(of.prefetched_hits) + " of them found, to the device " + kib(of.bytes_in) +
         " KiB";
}

}  // namespace decode
