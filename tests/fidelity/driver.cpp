// SPDX-License-Identifier: Apache-2.0
// zoomr_fidelity fields: all fields of all presets.
// zoomr_fidelity PRESET [component.field=number ...] < problem > results
#include "driver.hpp"

#include <cstdio>   // std::fread, std::fwrite
#include <cstdlib>  // std::exit
#include <cstring>  // std::strcmp

namespace fidelity {

void fail(const std::string& sentence) {
  std::fprintf(stderr, "zoomr_fidelity: %s\n", sentence.c_str());
  std::exit(2);
}

namespace {

template <class T>
void write(const T* from, std::size_t count) {
  if (std::fwrite(from, sizeof(T), count, stdout) != count) fail("the results cannot be written");
}

template <class T>
std::vector<T> read(std::size_t count) {
  std::vector<T> into(count);
  if (std::fread(into.data(), sizeof(T), count, stdin) != count) fail("the problem is too short");
  return into;
}

problem read_problem() {
  const auto header = read<std::int32_t>(10);
  problem given;
  given.layers = header[0];
  given.heads = header[1];
  given.kv_heads = header[2];
  given.head_dim = header[3];
  given.key_dims = header[4];
  given.units = header[5];
  given.tokens = header[6];
  given.prompt = header[7];
  given.chunk = header[8];
  for (const std::int32_t classes : read<std::int32_t>(static_cast<std::size_t>(header[9])))
    given.classes.push_back(static_cast<zoomr::token_class>(classes));
  given.ids = read<std::int32_t>(static_cast<std::size_t>(given.tokens));
  const auto kv_lanes = static_cast<std::size_t>(2 * given.tokens * given.layers * given.key_dims);
  given.queries = read<float>(kv_lanes * static_cast<std::size_t>(given.heads));
  given.keys = read<float>(kv_lanes * static_cast<std::size_t>(given.kv_heads));
  return given;
}

std::vector<preset> presets() {
  std::vector<preset> all = zooming_presets();
  for (const auto& more : {choosing_presets(), keeping_presets()}) all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace

void results_file::passes(int count) {
  const std::int32_t number = count;
  write(&number, 1);
}

void results_file::weights(const float* of_layer, std::size_t count) { write(of_layer, count); }

void results_file::traced(const std::vector<unsigned char>& of_layer) { write(of_layer.data(), of_layer.size()); }

std::vector<float> padded(const std::vector<float>& all, const problem& given, index_t rows, int pass, index_t first,
                          index_t count, index_t layer) {
  std::vector<float> made(static_cast<std::size_t>(count * rows * given.head_dim));
  for (index_t t = 0; t < count; ++t) {
    for (index_t row = 0; row < rows; ++row) {
      const index_t token = pass * given.tokens + first + t;
      const index_t from = ((token * given.layers + layer) * rows + row) * given.key_dims;
      for (index_t d = 0; d < given.key_dims; ++d)
        made[static_cast<std::size_t>((t * rows + row) * given.head_dim + d)] = all[static_cast<std::size_t>(from + d)];
    }
  }
  return made;
}

std::vector<unsigned char> marked(const zoomr::attention_trace& trace, std::size_t first, const problem& given,
                                  index_t position, index_t layer, bool second_pass) {
  std::vector<unsigned char> marks(static_cast<std::size_t>(given.heads * given.tokens));
  for (index_t head = 0; head < given.heads; ++head) {
    const std::size_t at = first + static_cast<std::size_t>(head);
    if (at >= trace.size() || trace[at].position != position || trace[at].layer != layer || trace[at].head != head ||
        trace[at].second_pass != second_pass)
      fail("the trace does not have the record of position " + std::to_string(position) + ", layer " +
           std::to_string(layer) + ", head " + std::to_string(head));
    for (const index_t p : trace[at].positions) marks[static_cast<std::size_t>(head * given.tokens + p)] = 1;
  }
  return marks;
}

}  // namespace fidelity

int main(int argc, char** argv) {
  using namespace fidelity;
  if (argc < 2) fail("say which preset, or `fields`");
  const bool list = std::strcmp(argv[1], "fields") == 0;
  bool found = list;
  for (const preset& known : presets()) {
    if (list) {
      std::printf("[%s]\n%s", known.name, known.fields().c_str());
    } else if (std::strcmp(argv[1], known.name) == 0) {
      found = true;
      results_file file;
      known.run(std::vector<std::string>(argv + 2, argv + argc), read_problem(), file);
    }
  }
  if (!found) fail(std::string("there is no preset ") + argv[1]);
  if (std::fflush(stdout) != 0) fail("the results cannot be written");
}
