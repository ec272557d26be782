// SPDX-License-Identifier: Apache-2.0
#include "safetensors.hpp"

#include <algorithm>  // std::min, std::ranges::sort
#include <bit>        // std::endian
#include <fstream>    // std::ifstream
#include <set>        // std::set
#include <utility>    // std::pair

#include <nlohmann/json.hpp>

#include "finite.hpp"
#include "input_error.hpp"

namespace decode {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are read as they lie");

// Memory is asked for once, for a size that the file has.
template <class T>
zoomr::buffer<T> copied(const tensor_place& place, const std::string& where) {
  std::ifstream file(place.file, std::ios::binary);
  expect_open(file, place.file);
  file.seekg(static_cast<std::streamoff>(place.begin));
  zoomr::buffer<T> values(static_cast<std::int64_t>(place.bytes / sizeof(T)));
  if (!file.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(place.bytes)))
    fail(where, " cannot be read");
  return values;
}

std::size_t dtype_bytes(const std::string& dtype, const std::string& where) {
  static const std::map<std::string, std::size_t> known = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"U16", 2}, {"I16", 2}, {"F16", 2},
      {"BF16", 2}, {"U32", 4}, {"I32", 4}, {"F32", 4},     {"U64", 8},     {"I64", 8}, {"F64", 8}};
  const auto found = known.find(dtype);
  if (found == known.end()) fail(where, " has the unknown type ", shown(dtype));
  return found->second;
}

}  // namespace

std::string shown(const std::vector<std::size_t>& shape) {
  std::string out = "[";
  for (const std::size_t extent : shape) out += (out.size() > 1 ? ", " : "") + std::to_string(extent);
  return out + "]";
}

safetensors::safetensors(const std::filesystem::path& directory) {
  const auto single = directory / "model.safetensors";
  const auto index_file = directory / "model.safetensors.index.json";
  if (is_there(single))
    add_file(single);
  else if (is_there(index_file))
    add_shards(index_file);
  else
    fail(named(directory), ": there is neither model.safetensors nor ", "model.safetensors.index.json");
}

safetensors::safetensors(const std::filesystem::path& file, std::map<std::string, std::string>& metadata) {
  add_file(file, &metadata);
}

template <class T>
stored_numbers<T> safetensors::read(const tensor_place& place, const std::string& where) const {
  auto& file = mapped_[place.file];
  if (!file) file = std::make_shared<const mapped_file>(place.file);
  if (file->size() < place.begin + place.bytes)
    fail(where, " cannot be read: the file became shorter, and has ", file->size(), " bytes");
  const std::byte* const begin = file->data() == nullptr ? nullptr : file->data() + place.begin;
  const bool in_place = begin != nullptr && reinterpret_cast<std::uintptr_t>(begin) % alignof(T) == 0;
  const auto count = static_cast<std::int64_t>(place.bytes / sizeof(T));
  stored_numbers<T> values =
      in_place ? stored_numbers<T>(file, reinterpret_cast<const T*>(begin), count) : copied<T>(place, where);
  if (const std::int64_t wrong = first_not_finite(values.data(), count); wrong < count)
    fail(where, " has a NaN or an infinity as element ", wrong);
  return values;
}

stored safetensors::load(const std::string& name, const std::vector<std::size_t>& shape) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) fail(source_, ": the tensor ", shown(name), " is missing");
  const tensor_place& place = found->second;
  const std::string where = named(place.file) + ": the tensor " + shown(name);
  if (place.shape != shape)
    fail(where, " has the shape ", shown(place.shape), ", but config.json asks for ", shown(shape));
  if (place.dtype == "F32") return read<float>(place, where);
  if (place.dtype == "F16") return read<zoomr::float16>(place, where);
  if (place.dtype == "BF16") return read<zoomr::bfloat16>(place, where);
  fail(where, " has the type ", place.dtype, "; F32, F16 and BF16 are read");
}

void safetensors::add_file(const std::filesystem::path& path, std::map<std::string, std::string>* metadata) {
  source_ = named(path);
  const std::uint64_t size = file_bytes(path);
  if (size < 8) fail(source_, ": the file has ", size, " bytes and no header");
  std::ifstream file(path, std::ios::binary);
  expect_open(file, path);
  unsigned char prefix[8] = {};
  file.read(reinterpret_cast<char*>(prefix), 8);
  std::uint64_t length = 0;
  for (int byte = 7; byte >= 0; --byte) length = length << 8 | prefix[byte];
  constexpr std::uint64_t most = 100'000'000;  // the limit of the published reader
  if (length > size - 8 || length > most)
    fail(source_, ": the header claims ", length, " bytes, but the file has ", size - 8,
         " after its length, and at most ", most, " are read");
  std::string header(static_cast<std::size_t>(length), '\0');
  if (!file.read(header.data(), static_cast<std::streamsize>(length))) fail(source_, ": the header cannot be read");
  const json parsed = parse_json(header, source_ + ", header");
  add_tensors(parsed, path, 8 + length, size);
  if (metadata == nullptr) return;
  const auto beside = field(parsed, source_ + ", header: ").find("__metadata__");
  if (!beside) return;
  if (!beside->value().is_object()) fail(beside->where(), " must be an object");
  for (const auto& [name, value] : beside->value().items())
    (*metadata)[name] = field(value, beside->where() + "." + shown(name)).text();
}

// data, size: where the tensors begin and end, bytes from the beginning of the file
void safetensors::add_tensors(const json& header, const std::filesystem::path& path, std::uint64_t data,
                              std::uint64_t size) {
  if (!header.is_object()) fail(named(path), ": the header is not a JSON object");
  std::vector<const tensor_place*> order;
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") continue;
    const field entry(value, named(path) + ": " + shown(name));
    const auto [place, fresh] = tensors_.emplace(name, read_place(entry, data, size));
    if (!fresh) fail(named(path), ": the tensor ", shown(name), " is also in ", named(place->second.file));
    place->second.file = path;
    order.push_back(&place->second);
  }
  std::ranges::sort(order,
                    [](auto* a, auto* b) { return std::pair(a->begin, a->bytes) < std::pair(b->begin, b->bytes); });
  std::uint64_t end = data;
  for (const tensor_place* place : order) {
    if (place->begin != end)
      fail(named(path), ": tensors overlap or leave a hole at byte ", std::min(end, place->begin));
    end = place->begin + place->bytes;
  }
  if (end != size) fail(named(path), ": the tensors end at byte ", end, ", the file at byte ", size);
}

tensor_place safetensors::read_place(const field& entry, std::uint64_t data, std::uint64_t size) {
  tensor_place place;
  place.dtype = entry.at("dtype").text();
  const std::uint64_t available = size - data;
  std::uint64_t bytes = dtype_bytes(place.dtype, entry.where());
  bool empty = false;
  for (const field& extent : entry.at("shape").elements()) {
    place.shape.push_back(extent.count(0, std::size_t{1} << 48));
    if (place.shape.back() == 0)
      empty = true;
    else if (bytes > available / place.shape.back())
      bytes = available + 1;  // too large
    else
      bytes *= place.shape.back();
  }
  place.bytes = empty ? 0 : bytes;
  const auto offsets = entry.at("data_offsets").elements();
  if (offsets.size() != 2) fail(entry.where(), ": data_offsets must be two numbers");
  const std::uint64_t first = offsets[0].count(0, available);
  const std::uint64_t last = offsets[1].count(first, available);
  if (last - first != place.bytes)
    fail(entry.where(), " has ", last - first, " bytes, which is not what ", place.dtype, " and the shape ",
         shown(place.shape), " need");
  place.begin = data + first;
  return place;
}

void safetensors::add_shards(const std::filesystem::path& index_file) {
  const json text = read_json(index_file);
  const field map = field(text, named(index_file) + ": ").at("weight_map");
  if (!map.value().is_object()) fail(map.where(), " must be an object");
  std::set<std::string> files;
  for (const auto& [name, value] : map.value().items()) {
    const std::string& file = field(value, map.where() + "." + shown(name)).text();
    if (std::filesystem::path(file).filename() != file || file.empty() || file == "..")
      fail(named(index_file), ": ", shown(file), " is not the name of a file beside the index");
    files.insert(file);
  }
  for (const std::string& file : files) add_file(index_file.parent_path() / file);
  for (const auto& [name, place] : tensors_) {
    const auto listed = map.value().find(name);
    if (listed == map.value().end() || listed->get<std::string>() != place.file.filename())
      fail(named(index_file), ": the tensor ", shown(name), " is in ", named(place.file),
           ", but the index does not say so");
  }
  for (const auto& [name, file] : map.value().items())
    if (!tensors_.contains(name))
      fail(named(index_file), ": the tensor ", shown(name), " is not in ", file.get<std::string>());
  source_ = named(index_file);
}

}  // namespace decode
