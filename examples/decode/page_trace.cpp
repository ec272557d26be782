// SPDX-License-Identifier: Apache-2.0
#include "page_trace.hpp"

#include <zoomr/cache/host/choosing/chooser.hpp>

#include <algorithm>  // std::min

namespace decode {
namespace {

constexpr index_t most_runners_up = 16;

}  // namespace

page_trace::page_trace(std::ostream& out, const zoomr::block_shape& block, zoomr::scope per)
    : out_(out), block_(block), per_(per) {
  out_ << "pages " << block.model.layers << " layers " << block.bytes<float>() << " bytes\n";
}

void page_trace::flush(zoomr::view<const zoomr::segment> segments) {
  for (; segments_ < segments.size(); ++segments_) {
    const zoomr::segment& s = segments[segments_];
    if (s.begin == s.split) continue;
    out_ << "segment " << segments_ << ' ' << s.begin / zoomr::page_tokens << '-' << (s.split - 1) / zoomr::page_tokens
         << '\n';
  }
  for (zoomr::choice_record& made : choices) latest_[made.row] = std::move(made);
  choices.clear();
  std::set<index_t> pages;
  for (std::size_t i = 0; i < records.size(); ++i) {
    for (const index_t position : records[i].positions) pages.insert(position / zoomr::page_tokens);
    if (i + 1 < records.size() && same_line(records[i], records[i + 1])) continue;
    write_choices(records[i]);
    write(records[i], pages);
    pages.clear();
  }
  records.clear();
}

bool page_trace::same_line(const zoomr::attended_record& a, const zoomr::attended_record& b) const {
  const bool same_pass = a.position == b.position && a.layer == b.layer && a.second_pass == b.second_pass;
  return same_pass && (!by_head() || kv_head(a) == kv_head(b));
}

std::ostream& page_trace::piece(const zoomr::attended_record& of) {
  out_ << of.layer;
  if (by_head()) out_ << ':' << kv_head(of);
  return out_;
}

// Of the rows that the line's heads read: where they are shared, the first head's.
void page_trace::write_choices(const zoomr::attended_record& of) {
  const index_t first = by_head() ? kv_head(of) * block_.model.group() : 0;
  const index_t last = first + (per_ == zoomr::scope::head ? block_.model.group() : 1);
  for (index_t head = first; head < last; ++head) {
    const auto made = latest_.find(zoomr::detail::row_for(block_.model, per_, of.layer, head).row);
    if (made == latest_.end()) continue;
    const zoomr::choice_record& one = made->second;
    const bool serves = per_ != zoomr::scope::sequence || of.second_pass || one.position < of.position;
    index_t& shown = shown_.try_emplace({of.layer, head}, -1).first->second;
    if (!serves || shown == one.position) continue;
    shown = one.position;
    if (one.chosen.empty() && one.runners_up.empty()) continue;
    out_ << "choice ";
    piece(of);
    for (const index_t id : one.chosen) out_ << ' ' << id;
    out_ << " |";
    const std::size_t others = std::min<std::size_t>(one.runners_up.size(), most_runners_up);
    for (std::size_t i = 0; i < others; ++i) out_ << ' ' << one.runners_up[i];
    out_ << '\n';
  }
}

void page_trace::write(const zoomr::attended_record& of, const std::set<index_t>& pages) {
  piece(of);
  for (auto at = pages.begin(); at != pages.end();) {
    const index_t first = *at;
    index_t last = first;
    while (++at != pages.end() && *at == last + 1) ++last;
    out_ << ' ' << first;
    if (last > first) out_ << '-' << last;
  }
  out_ << '\n';
}

}  // namespace decode
