// SPDX-License-Identifier: Apache-2.0
// Bytes as a recorded trace of zoomr-replay: its numbers and its text are read, or it is refused with an input_error.
//
// The first byte says whether it is the whole trace or what follows a sound first file. A line of JSON, the header,
// comes next; its length is made right, since a fuzzer does not find it by itself. The rest is what tensors hold. A
// small trace makes the first corpus, where the folder that is given has none.
#include <decode/support.hpp>

#include <algorithm>  // std::copy_n, std::min
#include <cstdlib>    // std::abort

#include <nlohmann/json.hpp>

#include "../../examples/replay/trace.hpp"

namespace {

using namespace replay;

constexpr index_t tokens = 5;

std::string little_endian(std::size_t number) {
  std::string bytes;
  for (int byte = 0; byte < 8; ++byte) bytes += static_cast<char>(number >> (8 * byte) & 0xff);
  return bytes;
}

/// A line of header, and what tensors hold.
std::string sound(index_t first, const char* dtype) {
  nlohmann::ordered_json header;
  header["__metadata__"] = {{"zoomr_trace", "1"},
                            {"layers", "2"},
                            {"heads", "4"},
                            {"kv_heads", "2"},
                            {"head_dim", "2"},
                            {"value_dim", "1"},
                            {"scale", "0.3"},
                            {"softcap", "20"},
                            {"prompt", "4"},
                            {"layer_ids", "0,2"},
                            {"first", std::to_string(first)}};
  std::string bytes;
  const auto add = [&](const std::string& name, const char* type, std::vector<index_t> shape, const std::string& held) {
    header[name] = {{"dtype", type}, {"shape", shape}, {"data_offsets", {bytes.size(), bytes.size() + held.size()}}};
    bytes += held;
  };
  const std::size_t size = dtype == std::string("F32") ? 4 : 2;
  for (const char* const layer : {"layers.0.", "layers.1."}) {
    add(std::string(layer) + "q", dtype, {tokens, 4, 2}, std::string(size * tokens * 8, '\x11'));
    add(std::string(layer) + "k", dtype, {tokens, 2, 2}, std::string(size * tokens * 4, '\x12'));
    add(std::string(layer) + "v", dtype, {tokens, 2, 1}, std::string(size * tokens * 2, '\x13'));
  }
  add("token_ids", "I32", {tokens}, std::string(4 * tokens, '\1'));
  if (size == 4) add("token_classes", "U8", {tokens}, std::string("\0\1\0\2\0", tokens));
  add("text", "U8", {10}, "ab. c! d\xc3\xa9");
  std::string ends;
  for (const int end : {1, 3, 4, 6, 10}) ends.append({static_cast<char>(end), 0, 0, 0});
  add("text_ends", "I32", {tokens}, ends);
  return header.dump() + '\n' + bytes;
}

void write(const decode::fs::path& path, std::string_view line_and_rest) {
  const std::size_t length = std::min(line_and_rest.find('\n'), line_and_rest.size());
  const std::string_view rest = line_and_rest.substr(std::min(length + 1, line_and_rest.size()));
  decode::write_file(path, little_endian(length).append(line_and_rest.substr(0, length)).append(rest));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  static const decode::scratch folder;
  static const std::string before = (folder / "before").string(), bytes = (folder / "bytes").string();
  static const bool written = (write(before, sound(0, "F32")), true);
  if (size == 0 || !written) return 0;
  write(bytes, {reinterpret_cast<const char*>(data) + 1, size - 1});
  try {
    trace one(data[0] % 2 == 0 ? std::vector{bytes} : std::vector{before, bytes});
    const trace_facts& facts = one.facts();
    token_rows rows;
    read_rows(one, {0, facts.tokens}, rows);
    std::size_t letters = 0;
    for (index_t t = 0; t < facts.tokens && !one.text().empty(); ++t) letters += one.text().token(t).size();
    if (letters != one.text().bytes.size()) std::abort();
    if (!one.classes().empty() && one.classes().size() != static_cast<std::size_t>(facts.tokens)) std::abort();
  } catch (const decode::input_error&) {
  }
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(unsigned char*, std::size_t, std::size_t, unsigned);
extern "C" std::size_t LLVMFuzzerMutate(unsigned char*, std::size_t, std::size_t);

extern "C" std::size_t LLVMFuzzerCustomMutator(unsigned char* data, std::size_t size, std::size_t most, unsigned seed) {
  static const std::string corpus[] = {'\0' + sound(0, "F32"), '\0' + sound(0, "BF16"), '\1' + sound(tokens, "F32")};
  if (size < 64 || seed % 64 == 0) {
    const std::string& one = corpus[seed / 64 % std::size(corpus)];
    size = std::min(one.size(), most);
    std::copy_n(one.begin(), size, data);
  }
  return LLVMFuzzerMutate(data, size, most);
}
