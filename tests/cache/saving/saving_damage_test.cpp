// SPDX-License-Identifier: Apache-2.0
// Files that are cut off, damaged, or written on purpose: each is refused and nothing has changed, or it is a sequence
// like any other, and whatever is done with it stays within the cache's memory (under sanitizers too).
#include <cache/support/players.hpp>
#include <cache/support/saved_bytes.hpp>

#include <doctest/doctest.h>
#include <support/state_digest.hpp>

#include <limits>  // std::numeric_limits

namespace zoomr_test::saving_damage_test {
namespace {

constexpr shape model{1, 2, 1, 8};
constexpr index_t tokens = 64;
constexpr index_t prompt = 21;

// Everything that can be saved is in one of these, and little of it.
constexpr auto evicting = with(small::evicting, [](auto& p) {
  p.segment.longest = 6;
  p.evict.tokens = 16, p.evict.recent = 5, p.evict.every = 6;
  p.select.tokens = 12;
});
constexpr auto by_kv_head = with(small::by_kv_head, [](auto& p) { p.segment.longest = 6; });
constexpr auto observing = with(small::sentence_kv, [](auto& p) { p.evict.tokens = 25, p.evict.queries = 3; });
constexpr auto freeing = with(small::window, [](auto& p) { p.zone.sinks = 2, p.zone.recent = 5; });
constexpr auto pinned = with(small::pinned_prompt, [](auto& p) { p.evict.tokens = 12; });

tape text() { return make_tape(model, kind::uniform, markup::sentences, tokens, prompt, 3); }

zoomr::config limits() {
  zoomr::config made = limits_for(tokens, 3);
  made.rollback_tokens = 3;
  return made;
}

/// A cache with an open sequence, to which nothing may happen.
template <class Policy, class T = float>
class target : public player<Policy, T> {
 public:
  target(const Policy& policy, const tape& says) : player<Policy, T>(model, policy, limits()) {
    this->open(says);
    this->play_plainly(0, 40);
    before_ = digest_of(this->cache, this->at(0).seq);
  }

  /// Why the bytes are refused; empty if they are not.
  std::string refuses(const saved_bytes& bytes) { return refuses(memory_source(bytes)); }
  std::string refuses(memory_source&& source) {
    try {
      this->cache.close(this->cache.load(source));
    } catch (const zoomr::error& why) {
      const bool known = why.code() == zoomr::errc::format || why.code() == zoomr::errc::capacity;
      return known && std::string(why.what()).starts_with("zoomr: load: ") ? why.what() : "";
    }
    return "";
  }
  bool intact() { return digest_of(this->cache, this->at(0).seq) == before_; }

 private:
  state_digest before_;
};

/// What a cache under this policy saves after so many tokens.
template <class T, class Policy>
saved_bytes saved_after(const Policy& policy, const tape& says, index_t count) {
  player<Policy, T> plays(model, policy, limits());
  plays.open(says);
  for (index_t now = 0; now < std::min(count, prompt); now = plays.tokens()) {
    const index_t last = std::min({now + 11, prompt, count});
    plays.play({{0, says.between(now, last), last == prompt}});
  }
  if (count > prompt) plays.play_plainly(0, count);
  return saved(plays.cache, plays.at(0).seq);
}

/// Each length but the whole, and each byte with each of some bits flipped.
template <class T, class Policy>
void check_damage(const char* name, const Policy& policy, index_t count) {
  CAPTURE(std::string(name));
  const tape says = text();
  const saved_bytes whole = saved_after<T>(policy, says, count);
  target<Policy, T> into(policy, says);
  std::size_t taken = 0, changed = 0;
  for (std::size_t length = 0; length < whole.size(); ++length) {
    taken += into.refuses(memory_source(whole, length)).empty() ? 1 : 0;
    changed += into.intact() ? 0 : 1;
  }
  CHECK(taken == 0);
  CHECK(changed == 0);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    saved_bytes bytes = whole;
    bytes[at] = static_cast<unsigned char>(bytes[at] ^ (1u << at % 8));
    taken += into.refuses(bytes).empty() ? 1 : 0;
    bytes[at] = static_cast<unsigned char>(~whole[at]);
    taken += into.refuses(bytes).empty() ? 1 : 0;
    changed += into.intact() ? 0 : 1;
  }
  CHECK(taken == 0);
  CHECK(changed == 0);
  // The next pages are those that they would have been.
  target<Policy, T> control(policy, says);
  const auto loaded = into.cache.load(memory_source(whole)), expected = control.cache.load(memory_source(whole));
  CHECK(digest_of(into.cache, loaded).difference(digest_of(control.cache, expected)) == "");
}

/// What can be done with a sequence, whatever is in it.
template <class Player>
void go_on(Player& plays, zoomr::sequence seq, const tape& says) {
  plays.voices.push_back({seq, &says, {}});
  const auto v = static_cast<index_t>(plays.voices.size()) - 1;
  const auto tried = [&](auto work) {
    try {
      work();
    } catch (const zoomr::error&) {
    } catch (const zoomr::precondition_error& why) {  // of a caller's mistake, not of the library's own bounds
      CHECK(std::string(why.what()).find("out of range") == std::string::npos);
    }
  };
  for (index_t i = 0; i < 14; ++i) {
    tried([&] {
      if (plays.cache.in_prompt(seq)) {
        plays.play({{v, {9, 1, 10}, i > 2, true}});
      } else {
        plays.play({{v, {9 + i % 3, i % 4 == 0 ? 1 : 11}, false, true}});
      }
    });
    if (i % 5 == 4) tried([&] { plays.rollback(v, std::max(0, plays.tokens(v) - 3)); });
  }
  for (index_t to = plays.tokens(v); to >= 0; to -= 4) tried([&] { plays.rollback(v, to); });
  tried([&] { plays.play({{v, {9, 1}, false, true}}); });
  CHECK(saved(plays.cache, seq).size() > 16);
  plays.cache.close(seq);
  plays.voices.pop_back();
}

/// Each number of the file is another, under a checksum that says that it is right.
template <class T, class Policy>
void check_hostile(const char* name, const Policy& policy, index_t count) {
  CAPTURE(std::string(name));
  const tape says = text();
  const saved_bytes whole = saved_after<T>(policy, says, count);
  target<Policy, T> into(policy, says);
  std::size_t loaded = 0, refused = 0, changed = 0;
  const auto try_it = [&](const saved_bytes& bytes) {
    try {
      const auto seq = into.cache.load(memory_source(bytes));
      ++loaded;
      go_on(into, seq, says);
    } catch (const zoomr::error&) {
      ++refused;
    }
    changed += into.intact() ? 0 : 1;
  };
  constexpr index_t most = std::numeric_limits<index_t>::max(), least = std::numeric_limits<index_t>::min();
  for (const saved_part& part : parts_of(whole)) {
    const bool numbers = part.kind == "page" || part.kind == "sums" || part.kind == "prompted" ||
                         part.kind == "noted" || part.kind == "records";
    const std::size_t end = numbers ? std::min<std::size_t>(part.length, 48) : part.length;
    for (std::size_t at = 0; at + 4 <= end; at += 4) {
      const auto old = number_at<index_t>(whole, part.begin + at);
      for (const index_t value :
           {index_t{-1}, index_t{0}, index_t{1}, index_t{17}, most, least, most / 4, old ^ 1, old ^ 4, old ^ 16}) {
        saved_bytes bytes = whole;
        put_at(bytes, part.begin + at, value);
        reseal(bytes);
        try_it(bytes);
      }
    }
  }
  for (const saved_part& section : sections_of(whole)) {
    for (const std::uint64_t length : {std::uint64_t{0}, std::uint64_t{4}, std::uint64_t{1} << 20,
                                       std::uint64_t{1} << 59, ~std::uint64_t{0}, std::uint64_t{1} << 63}) {
      saved_bytes bytes = whole;
      put_at(bytes, section.begin - 8, length);
      try_it(bytes);
    }
  }
  CHECK(changed == 0);
  CHECK(refused > 100);
  CHECK(loaded > 20);  // other numbers are a sequence too
}

}  // namespace

TEST_CASE("a file that is cut off, or has a wrong byte anywhere, is refused, and nothing has changed") {
  check_damage<float>("evicting", evicting, 47);
  check_damage<scaled_int8>("quest", small::quest, 30);
  check_damage<bfloat16>("by_kv_head", by_kv_head, 33);
  check_damage<float>("observing", observing, 17);
  check_damage<float>("freeing", freeing, 60);
}

TEST_CASE("whatever numbers a file has, under right checksums, it is refused or is a sequence") {
  check_hostile<float>("evicting", evicting, 47);
  check_hostile<float>("evicting, at an eviction", evicting, 51);
  check_hostile<float>("pinned", pinned, 44);
  check_hostile<scaled_int8>("quest", small::quest, 30);
  check_hostile<float>("by_kv_head", by_kv_head, 33);
  check_hostile<float>("observing, in the prompt", observing, 17);
  check_hostile<float>("observing", observing, 40);
  check_hostile<float>("freeing", freeing, 60);
  check_hostile<float>("by_layer", small::by_layer, 50);
}

TEST_CASE("what is wrong is named") {
  const tape says = text();
  const saved_bytes whole = saved_after<float>(evicting, says, 47);
  target<std::remove_const_t<decltype(evicting)>> into(evicting, says);
  REQUIRE(into.refuses(whole) == "");
  const auto changed = [&](const char* kind, std::size_t number, auto value) {
    saved_bytes bytes = whole;
    put_at(bytes, part_of(whole, kind).begin + 4 * number, value);
    reseal(bytes);
    return into.refuses(bytes);
  };
  const std::string damaged = "zoomr: load: the file is damaged: ";
  const std::string contradicts = damaged + "section head: its numbers contradict each other";
  for (const index_t value : {-1, -2147483647 - 1, 2147483647}) {
    for (const std::size_t number : {0u, 2u, 3u, 4u, 5u, 6u, 7u, 8u})
      CHECK(changed("counts", number, value) == contradicts);
  }
  CHECK(changed("counts", 0, index_t{65}) == "zoomr: load: the sequence has 65 tokens, config.max_tokens is 64");
  CHECK(changed("counts", 1, index_t{48}) == contradicts);  // the prompt ends behind the tokens
  CHECK(changed("counts", 1, index_t{0}) == contradicts);
  CHECK(changed("counts", 3, index_t{47}) == contradicts);  // evicted later than anything was observed
  const std::string too_many = damaged + "section text: there are more later prompts than tokens";
  CHECK(changed("later", 0, index_t{-1}) == too_many);
  CHECK(changed("later", 0, index_t{48}) == too_many);
  const std::string too_many_spans = damaged + "section text: there are more spans of positions than tokens";
  CHECK(changed("moved", 0, index_t{-1}) == too_many_spans);
  CHECK(changed("moved", 0, index_t{48}) == too_many_spans);
  const std::string unordered = damaged + "section text: the positions of a KV lane do not ascend";
  CHECK(changed("kept", 0, index_t{-1}) == unordered);
  CHECK(changed("kept", 1, index_t{0}) == unordered);
  CHECK(changed("kept", 15, index_t{60}) == unordered);
  CHECK(changed("page", 0, index_t{1}) == damaged + "section text: another page comes");
  const std::string memory = damaged + "section memory: ";
  CHECK(changed("choices", 1, index_t{4000}) == memory + "a row of a choice cannot be");
  CHECK(changed("choices", 4, index_t{-1}) == memory + "a row of a choice cannot be");
  CHECK(changed("choices", 2, index_t{-3}) == memory + "a row of a choice cannot be");
  CHECK(changed("choices", 2, index_t{-2}) == memory + "a choice of everything cannot be");  // its policy has no gate
  CHECK(changed("choices", 5, index_t{-6}) == memory + "a level of a choice cannot be");
  CHECK(changed("choices", 5, index_t{1}) == memory + "a level of a choice cannot be");  // the usual one
  const auto segments = number_at<index_t>(whole, part_of(whole, "choices").begin + 4);
  CHECK(changed("choices", 1, segments + 1) == memory + "a choice knows segments of later tokens");
  CHECK(changed("sums", 0, index_t{-1}) == memory + "it has sums of more slots than there are");
  CHECK(changed("sums", 0, index_t{3}) == memory + "its sums are of other slots");
  CHECK(changed("prompted", 0, index_t{3}) == memory + "its voters cannot be");
  CHECK(changed("questions", 0, index_t{1}) == memory + "its questions cannot be");  // there are no voters
  CHECK(changed("questions", 1, index_t{1}) == memory + "its questions cannot be");
  CHECK(changed("noted", 0, index_t{-1}) == memory + "positions of queries cannot be");
  CHECK(changed("noted", 0, index_t{46}) == memory + "positions of queries cannot be");
  CHECK(changed("noted", 1, index_t{46}) == memory + "positions of queries cannot be");
  CHECK(changed("records", 0, index_t{3}) == memory + "positions of records cannot be");
  CHECK(changed("records", 1, index_t{3}) == memory + "it has more records than positions, or fewer");
  CHECK(changed("policy", 0, index_t{100000}) == damaged + "section head: its policy is longer than the section");

  saved_bytes bytes = whole;
  put_at(bytes, 8, std::uint64_t{2});
  CHECK(into.refuses(bytes) == "zoomr: load: the file's format has version 2, this library reads version 11");
  bytes[0] = 'Z';
  CHECK(into.refuses(bytes) == "zoomr: load: this is no saved sequence of zoomr");
  bytes = whole;
  put_at(bytes, 16, ~std::uint64_t{0});
  CHECK(into.refuses(bytes) == damaged + "section head: its length cannot be");
  for (const auto& [kind, section] : {std::pair("counts", "head"), {"page", "text"}, {"sums", "memory"}}) {
    bytes = whole;
    ++bytes[part_of(whole, kind).end() - 1];
    CHECK(into.refuses(bytes) == damaged + "section " + section + ": its checksum differs");
  }
  CHECK(into.refuses(memory_source(whole, whole.size() - 1)) == damaged + "it ends too early");
  CHECK(into.intact());
}

TEST_CASE("a choice cannot be a choice of later tokens, nor a number of int8 be -128") {
  const tape says = text();
  const saved_bytes whole = saved_after<scaled_int8>(small::by_layer, says, 50);
  target<std::remove_const_t<decltype(small::by_layer)>, scaled_int8> into(small::by_layer, says);
  REQUIRE(into.refuses(whole) == "");
  const saved_part choices = part_of(whole, "choices"), page = part_of(whole, "page");
  saved_bytes bytes = whole;
  const auto count = number_at<index_t>(whole, choices.begin + 4 + 12);
  const std::size_t position = choices.begin + 4 + 16 + 4 * static_cast<std::size_t>(count);
  REQUIRE(number_at<index_t>(whole, position) == prompt - 1);
  for (const index_t wrong : {prompt - 2, 50}) {
    put_at(bytes, position, wrong);
    reseal(bytes);
    CHECK(into.refuses(bytes) == "zoomr: load: the file is damaged: section memory: a choice's position cannot be");
  }
  bytes = whole;
  put_at(bytes, page.begin + 7, static_cast<signed char>(-128));
  reseal(bytes);
  CHECK(into.refuses(bytes) == "zoomr: load: the file is damaged: section text: -128 is no number of int8");
}

TEST_CASE("pages that can be reached cannot be freed, and queries that are not there cannot be rolled back to") {
  const tape says = text();
  {
    saved_bytes bytes = saved_after<float>(freeing, says, 50);
    target<std::remove_const_t<decltype(freeing)>> into(freeing, says);
    REQUIRE(into.refuses(bytes) == "");
    const saved_part counts = part_of(bytes, "counts");
    REQUIRE(number_at<index_t>(bytes, counts.begin + 24) == 2);
    const saved_part page = parts_of(bytes)[8];
    REQUIRE((page.kind == "page" && number_at<index_t>(bytes, page.begin) == 2));
    put_at(bytes, counts.begin + 24, index_t{3});
    const std::size_t text_length = sections_of(bytes)[1].begin - 8;
    put_at(bytes, text_length, number_at<std::uint64_t>(bytes, text_length) - page.length);
    const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(page.begin);
    bytes.erase(first, first + static_cast<std::ptrdiff_t>(page.length));
    reseal(bytes);
    CHECK(into.refuses(bytes) ==
          "zoomr: load: the file is damaged: section text: pages were freed that can be reached");
  }
  saved_bytes bytes = saved_after<float>(by_kv_head, says, 50);
  const saved_part counts = part_of(bytes, "counts");
  REQUIRE(number_at<index_t>(bytes, counts.begin + 16) == 47);
  put_at(bytes, counts.begin + 16, index_t{0});
  reseal(bytes);
  zoomr::config deep = limits();
  deep.rollback_tokens = 40;
  zoomr::kv_cache other(model, by_kv_head, deep);
  const auto seq = other.load(memory_source(bytes));
  CHECK_THROWS_AS(other.rollback(seq, 46), zoomr::error);
  other.rollback(seq, 47);
}

TEST_CASE("the format is what docs/sequence_format.md says") {
  const tape says = text();
  const saved_bytes bytes = saved_after<bfloat16>(small::full, says, 40);
  const auto text_at = [&](std::size_t at, std::size_t length) {
    return std::string(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                       bytes.begin() + static_cast<std::ptrdiff_t>(at + length));
  };
  const saved_part policy = part_of(bytes, "policy");
  const unsigned char begin[] = {'z', 'o', 'o', 'm', 'r', 's', 'e', 'q', 11, 0, 0, 0, 0, 0, 0, 0};  // version
  const unsigned char of_model[] = {
      1,    0,    0,    0,    2,   0,   0,    0,    1, 0, 0, 0, 8, 0, 0,    0,     // shape
      8,    0,    0,    0,    0,   0,   0,    0,                                   // of values
      'b',  'f',  'l',  'o',  'a', 't', '1',  '6',  0, 0, 0, 0, 0, 0, 0,    0,     // type
      1,    0,    0,    0,    0,   0,   0x80, 0x3f, 1, 0, 0, 0, 0, 0, 0x80, 0x3f,  // scales
      0xf3, 0x04, 0xb5, 0x3e, 0,   0,   0,    0,    0, 0, 0, 0, 0, 0, 0,    0,     // logits: 8^-0.5
      0,    0,    0,    0,    0,   0,   0,    0,    0, 0, 0, 0};
  REQUIRE(bytes.size() > 24 + sizeof of_model);
  CHECK(std::equal(std::begin(begin), std::end(begin), bytes.begin()));
  CHECK(number_at<std::uint64_t>(bytes, 16) == 84 + policy.length + 172);
  CHECK(std::equal(std::begin(of_model), std::end(of_model), bytes.begin() + 24));
  const std::vector<saved_part> sections = sections_of(bytes);
  REQUIRE(sections.size() == 3);
  CHECK(sections[2].end() + 8 == bytes.size());
  saved_bytes sealed = bytes;  // by the test's own sums
  for (const saved_part& section : sections) put_at(sealed, section.end(), std::uint64_t{0});
  reseal(sealed);
  CHECK(sealed == bytes);
  std::string kinds;
  for (const saved_part& part : parts_of(bytes)) kinds += part.kind + " " + std::to_string(part.length) + "\n";
  CHECK(kinds ==
        "model 84\npolicy " + std::to_string(policy.length) +
            "\ncounts 172\nclasses 80\nlater 4\nmoved 4\nkept 0\npage 516\npage 516\npage 260\nsums 4\nprompted 12\n"
            "questions 8\nnoted 8\nrecords 12\nchoices 4\n");
  CHECK(text_at(policy.begin + 8, 24) == "unsegmented\nkeep_all\nno_");
  const std::size_t counts = part_of(bytes, "counts").begin;
  const index_t expected[] = {40, prompt, 0, 0, 37, 0, 0, 0, prompt};
  for (std::size_t i = 0; i < 9; ++i) CHECK(number_at<index_t>(bytes, counts + 4 * i) == expected[i]);
  CHECK(number_at<std::int64_t>(bytes, counts + 36) == prompt);
  CHECK(number_at<std::int64_t>(bytes, counts + 44) == 40 - prompt);
  // keys of the first page, then its values
  float key[8], value[8];
  says.numbers.fill(role::key, says.ids[3], 3, 0, 0, 0, key);
  says.numbers.fill(role::value, says.ids[3], 3, 0, 0, 0, value);
  const std::size_t page = part_of(bytes, "page").begin + 4;
  for (std::size_t d = 0; d < 8; ++d) {
    CHECK(number_at<std::uint16_t>(bytes, page + (3 * 8 + d) * 2) == zoomr::from_float<bfloat16>(key[d]).bits);
    CHECK(number_at<std::uint16_t>(bytes, page + 256 + (3 * 8 + d) * 2) == zoomr::from_float<bfloat16>(value[d]).bits);
  }
}

TEST_CASE("a machine with the other order of bytes reads and writes the same") {
  const std::uint32_t numbers[] = {0x01020304u, 0xa0b0c0d0u};
  unsigned char swapped[8];
  zoomr::detail::little_endian<std::endian::big>(numbers, swapped, 4, 2);
  const unsigned char little[] = {1, 2, 3, 4, 0xa0, 0xb0, 0xc0, 0xd0};
  if (std::endian::native == std::endian::little) CHECK(std::equal(little, little + 8, swapped));
  zoomr::detail::little_endian<std::endian::big>(numbers, swapped, 1, 8);
  CHECK(std::memcmp(numbers, swapped, 8) == 0);
}

}  // namespace zoomr_test::saving_damage_test
