// SPDX-License-Identifier: Apache-2.0
// Cuts text into pieces with a regular expression, as tokenizer.json writes them down: PCRE2 with
// Unicode classes, \s as Unicode's property White_Space; a character that PCRE2 is too old to know has the category
// that utf8proc says. What a pattern may cost is bounded, since it is a stranger's: 256 steps wherever a match may
// begin, and where that is not enough, 10 million steps together and 64 for each byte of the text; 64 MiB of memory; 64
// KiB of pattern.
#pragma once

#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint32_t, std::uint64_t
#include <memory>       // std::unique_ptr
#include <optional>     // std::optional
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::exchange

#include "stand_ins.hpp"

// Of pcre2.h, which splitter.cpp includes.
struct pcre2_real_code_8;
struct pcre2_real_match_context_8;
struct pcre2_real_match_data_8;

namespace decode {

/// Which parts of a text become pieces: those that match, those between, or both, each match with the part before it or
/// apart.
struct split_keeps {
  bool matches = true;
  bool gaps = true;
  bool joined = false;
};

class splitter {
 public:
  splitter(const std::string& pattern, split_keeps keeps, const std::string& where);

  /// Whether parts of a text become no piece.
  bool drops() const { return !keeps_.matches || !keeps_.gaps; }

  class matching;

  /// visit(piece) for the pieces of `text`, which must be valid UTF-8 (a check here, at each match, would
  /// make the whole quadratic), until it is false. No piece is empty.
  /// @param with  of this splitter, and nobody else's now
  /// @return      false if visit() was
  /// @throws      input_error where the pattern takes too many steps
  template <class Visit>
  bool operator()(std::string_view text, matching& with, Visit visit) const;

  struct place {
    std::size_t begin, end;
  };
  /// visit(place) for each match in `text`, valid UTF-8, from the first to the last. Empty ones are none.
  /// @throws input_error where the pattern takes too many steps
  template <class Visit>
  void each_match(std::string_view text, Visit visit) const;

  /// Whether the pattern may match no character at all.
  bool may_match_nothing() const;

 private:
  // The first match in known[done, ...), not empty.
  // @param known  a text with stand-ins
  std::optional<place> next(std::string_view known, std::size_t done, matching& with) const;

  struct release {
    void operator()(pcre2_real_code_8* code) const;
    void operator()(pcre2_real_match_data_8* data) const;
    void operator()(pcre2_real_match_context_8* context) const;
  };

  std::unique_ptr<pcre2_real_code_8, release> code_;
  stand_ins stand_ins_;
  split_keeps keeps_;
};

/// What matching one pattern needs and may still cost. Each text has its own.
class splitter::matching {
 public:
  explicit matching(const splitter& of);

 private:
  friend class splitter;
  int match(const pcre2_real_code_8* code, std::string_view text, std::size_t from);
  int match(const pcre2_real_code_8* code, std::string_view text, std::size_t from, std::uint32_t how,
            std::uint32_t limit);

  std::unique_ptr<pcre2_real_match_data_8, release> found_;
  std::unique_ptr<pcre2_real_match_context_8, release> limits_;
  std::uint64_t left_ = 10'000'000;  // steps
};

template <class Visit>
bool splitter::operator()(std::string_view text, matching& with, Visit visit) const {
  const auto keep = [&](bool wanted, std::size_t first, std::size_t last) {
    return !wanted || first >= last || visit(text.substr(first, last - first));
  };
  with.left_ += 64 * text.size();
  const auto replaced = stand_ins_.in(text);
  const std::string_view known = replaced ? *replaced : text;
  std::size_t done = 0;
  while (done < text.size()) {
    const auto found = next(known, done, with);
    if (!found) break;
    const std::size_t before = std::exchange(done, found->end);
    if (keeps_.joined && !visit(text.substr(before, done - before))) return false;
    if (keeps_.joined) continue;
    if (!keep(keeps_.gaps, before, found->begin) || !keep(keeps_.matches, found->begin, done)) return false;
  }
  return keep(keeps_.gaps, done, text.size());
}

template <class Visit>
void splitter::each_match(std::string_view text, Visit visit) const {
  matching with(*this);
  with.left_ += 64 * text.size();
  const auto replaced = stand_ins_.in(text);
  const std::string_view known = replaced ? *replaced : text;
  for (std::size_t done = 0; done < text.size();) {
    const auto found = next(known, done, with);
    if (!found) return;
    visit(*found);
    done = found->end;
  }
}

}  // namespace decode
