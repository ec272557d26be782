// SPDX-License-Identifier: Apache-2.0
// Bytes as one of the files of a checkpoint, the others being right: it is read, or refused with an input_error.
// The first byte says which: config.json, tokenizer.json, model.safetensors.
#include <decode/support.hpp>

#include "config.hpp"
#include "tokenizer.hpp"
#include "weights.hpp"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace decode;
  static const scratch folder("llama");
  static const char* const names[] = {"config.json", "tokenizer.json", "model.safetensors"};
  static const std::string whole[] = {read_file(fixture("llama") / names[0]), read_file(fixture("llama") / names[1]),
                                      read_file(fixture("llama") / names[2])};
  if (size == 0) return 0;
  const std::size_t which = data[0] % 3;
  write_file(folder / names[which], {reinterpret_cast<const char*>(data) + 1, size - 1});
  try {
    const model_config config = read_config(folder.path());
    const tokenizer words(folder.path(), config.vocab);
    words.decode(words.encode("a = 17 ; b = a [ 5 ] ;"), false);
    read_weights(folder.path(), config);
  } catch (const input_error&) {
  }
  write_file(folder / names[which], whole[which]);
  return 0;
}
