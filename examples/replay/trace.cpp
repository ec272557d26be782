// SPDX-License-Identifier: Apache-2.0
#include "trace.hpp"

#include <zoomr/core/storage.hpp>
#include <zoomr/vocabulary.hpp>

#include <algorithm>  // std::max, std::min
#include <bit>        // std::bit_cast
#include <cerrno>     // errno
#include <cstring>    // std::strerror

#include <fcntl.h>   // open
#include <unistd.h>  // pread, close

#include "../decode/input_error.hpp"

namespace replay {
namespace {

using decode::fail;

class descriptor {
 public:
  explicit descriptor(const std::filesystem::path& path)
      : path_(decode::named(path)), file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (file_ < 0) fail(path_, ": the file cannot be read: ", std::strerror(errno));
  }
  descriptor(const descriptor&) = delete;
  descriptor& operator=(const descriptor&) = delete;
  ~descriptor() { ::close(file_); }

  void read(std::byte* out, std::uint64_t first, std::uint64_t bytes) const {
    while (bytes > 0) {
      const ::ssize_t got = ::pread(file_, out, bytes, static_cast<off_t>(first));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail(path_, ": the file cannot be read: ", std::strerror(errno));
      if (got == 0) fail(path_, ": the file has become shorter");
      out += got, first += static_cast<std::uint64_t>(got), bytes -= static_cast<std::uint64_t>(got);
    }
  }

 private:
  std::string path_;
  int file_;
};

bool finite(float number) { return (std::bit_cast<std::uint32_t>(number) & 0x7f800000u) != 0x7f800000u; }

/// @return  all numbers are finite
template <class T>
bool widen(const std::vector<std::byte>& raw, std::size_t count, float* out) {
  const T* const in = reinterpret_cast<const T*>(raw.data());
  unsigned wrong = 0;
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = zoomr::to_float(in[i]);
    wrong |= finite(out[i]) ? 0u : 1u;
  }
  return wrong == 0;
}

bool widen(const std::string& dtype, const std::vector<std::byte>& raw, std::size_t count, float* out) {
  if (dtype == "F32") return widen<float>(raw, count, out);
  if (dtype == "F16") return widen<zoomr::float16>(raw, count, out);
  return widen<zoomr::bfloat16>(raw, count, out);
}

const char* letter(part rows) { return rows == part::queries ? "q" : rows == part::keys ? "k" : "v"; }

}  // namespace

trace::trace(const std::vector<std::string>& files) {
  if (files.empty()) fail("there is no trace: name its files");
  for (const std::string& path : files) add(path);
  if (facts_.prompt > facts_.tokens) {
    fail(files.front(), ": the prompt has ", facts_.prompt, " tokens, but the trace ", facts_.tokens);
  }
  if (!classes_.empty() || text_.empty()) return;
  from_text_ = true;
  classes_ = zoomr::classify_sentences(facts_.tokens, [&](index_t position) { return text_.token(position); });
}

index_t trace::width(part rows) const {
  const zoomr::shape& model = facts_.model;
  if (rows == part::queries) return model.heads * model.head_dim;
  return model.kv_heads * (rows == part::keys ? model.head_dim : model.value_width());
}

void trace::read(index_t layer, part rows, token_range tokens, std::vector<float>& out) {
  const auto numbers = static_cast<std::size_t>(width(rows));
  const std::size_t size = facts_.dtype == "F32" ? 4 : 2;
  out.resize(static_cast<std::size_t>(tokens.size()) * numbers);
  for (const file& one : files_) {
    const token_range some{std::max(tokens.first, one.tokens.first), std::min(tokens.last, one.tokens.last)};
    if (some.size() <= 0) continue;
    const auto place = static_cast<std::size_t>(layer) * 3 + static_cast<std::size_t>(rows);
    const std::size_t count = static_cast<std::size_t>(some.size()) * numbers;
    raw_.resize(std::max(raw_.size(), count * size));
    const auto before = static_cast<std::uint64_t>(some.first - one.tokens.first) * numbers * size;
    descriptor(one.path).read(raw_.data(), one.places[place].begin + before, count * size);
    float* const to = out.data() + static_cast<std::size_t>(some.first - tokens.first) * numbers;
    if (widen(facts_.dtype, raw_, count, to)) continue;
    std::size_t wrong = 0;
    while (finite(to[wrong])) ++wrong;
    fail(decode::named(one.path), ": layers.", layer, ".", letter(rows), " has a NaN or an infinity at token ",
         some.first + static_cast<index_t>(wrong / numbers));
  }
}

void trace::mark(const std::filesystem::path& path) {
  constexpr std::uint64_t some = 1 << 16;  // bytes at both ends
  const std::uint64_t size = decode::file_bytes(path);
  const auto mix = [&](std::uint64_t value) { fingerprint_ = (fingerprint_ ^ value) * 0x100000001b3; };
  mix(size);
  const descriptor open(path);
  std::vector<std::byte> bytes(std::min(some, size));
  for (const std::uint64_t first : {std::uint64_t{0}, size - bytes.size()}) {
    open.read(bytes.data(), first, bytes.size());
    for (const std::byte byte : bytes) mix(std::to_integer<std::uint64_t>(byte));
  }
}

void trace::add_classes(const decode::safetensors& tensors, const file& added) {
  const auto found = tensors.tensors().find("token_classes");
  const bool known = found != tensors.tensors().end();
  if (known == classes_.empty() && added.tokens.first > 0)
    fail(decode::named(added.path), ": token_classes must be in all files of a trace, or in none");
  if (!known) return;
  const std::string where = decode::named(added.path) + ": token_classes";
  const auto count = static_cast<std::size_t>(added.tokens.size());
  if (found->second.dtype != "U8") fail(where, " has the type ", found->second.dtype, ", but must be U8");
  if (found->second.shape != std::vector{count})
    fail(where, " has the shape ", decode::shown(found->second.shape), ", but there are ", count, " tokens");
  std::vector<std::uint8_t> flags(count);
  descriptor(added.path).read(reinterpret_cast<std::byte*>(flags.data()), found->second.begin, count);
  for (const std::uint8_t of_token : flags) classes_.push_back(static_cast<zoomr::token_class>(of_token));
}

void trace::add_text(const decode::safetensors& tensors, const file& added) {
  const auto text = tensors.tensors().find("text"), ends = tensors.tensors().find("text_ends");
  const auto last = tensors.tensors().end();
  const std::string where = decode::named(added.path);
  if ((text == last) != (ends == last)) fail(where, ": text and text_ends need each other");
  if ((text != last) == text_.empty() && added.tokens.first > 0)
    fail(where, ": text must be in all files of a trace, or in none");
  if (text == last) return;
  const auto count = static_cast<std::size_t>(added.tokens.size());
  if (text->second.dtype != "U8" || text->second.shape.size() != 1) fail(where, ": text must be U8 [bytes]");
  if (ends->second.dtype != "I32" || ends->second.shape != std::vector{count})
    fail(where, ": text_ends must be I32 [", count, "], a number for each token");
  const descriptor open(added.path);
  const std::uint64_t begin = text_.bytes.size(), bytes = text->second.bytes;
  text_.bytes.resize(begin + bytes);
  open.read(reinterpret_cast<std::byte*>(text_.bytes.data()) + begin, text->second.begin, bytes);
  std::vector<std::int32_t> read(count);
  open.read(reinterpret_cast<std::byte*>(read.data()), ends->second.begin, count * sizeof(std::int32_t));
  std::int32_t before = 0;
  for (const std::int32_t end : read) {
    if (end < before) fail(where, ": text_ends go backwards, from ", before, " to ", end);
    before = end;
    text_.ends.push_back(begin + static_cast<std::uint64_t>(end));
  }
  if (static_cast<std::uint64_t>(before) != bytes)
    fail(where, ": text_ends end at byte ", before, ", but the text has ", bytes);
}

void read_rows(trace& from, token_range tokens, token_rows& rows) {
  rows.tokens = tokens;
  rows.layers.resize(static_cast<std::size_t>(from.facts().model.layers));
  for (index_t layer = 0; layer < from.facts().model.layers; ++layer) {
    token_rows::layer& in = rows.layers[static_cast<std::size_t>(layer)];
    from.read(layer, part::queries, tokens, in.queries);
    from.read(layer, part::keys, tokens, in.keys);
    from.read(layer, part::values, tokens, in.values);
  }
}

}  // namespace replay
