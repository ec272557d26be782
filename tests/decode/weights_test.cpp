// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstdint>
#include <fstream>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "config.hpp"
#include "finite.hpp"
#include "safetensors.hpp"
#include "support.hpp"
#include "weights.hpp"

namespace decode {
namespace {

// A safetensors file: the length, the header, and `data` bytes of zeros.
std::string file_of(const std::string& header, std::size_t data) {
  std::string bytes;
  for (int byte = 0; byte < 8; ++byte) bytes += static_cast<char>(header.size() >> (8 * byte) & 0xff);
  return bytes + header + std::string(data, '\0');
}

std::string opened(const std::string& bytes) {
  const scratch folder;
  write_file(folder / "model.safetensors", bytes);
  return complaint([&] { safetensors{folder.path()}; });
}

std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
}

// A header that its tensors follow at a multiple of 8 bytes, as most files have it.
std::string padded(const std::string& header) { return header + std::string(8 - header.size() % 8, ' '); }

// What the config of a fixture complains about after one member is replaced, or removed (null).
std::string config_with(const std::string& name, const std::string& member, const json& value) {
  json config = read_json(fixture(name) / "config.json");
  config[member] = value;
  return complaint([&] { parse_config(config, "config.json"); });
}

}  // namespace

TEST_CASE("checkpoints of four families load with the shapes of their config, in the types of their files") {
  struct fixture_of {
    std::string name;
    std::size_t bytes;  // of a number
  };
  for (const auto& [name, bytes] :
       {fixture_of{"llama", 2}, fixture_of{"qwen2", 2}, fixture_of{"qwen3", 4}, fixture_of{"gemma3", 2}}) {
    CAPTURE(name);
    const auto c = read_config(fixture(name));
    const auto w = read_weights(fixture(name), c);
    CHECK(w.embedding.rows == c.vocab);
    CHECK(w.embedding.columns == c.hidden);
    CHECK(w.embedding.bytes() == c.vocab * c.hidden * bytes);
    CHECK(std::holds_alternative<stored_numbers<zoomr::float16>>(w.embedding.numbers) == (name == "qwen2"));
    CHECK(w.layers.size() == c.layers);
    CHECK(w.head.empty() == c.tied_head);
    CHECK(w.layers[1].q.bias.empty() == (name != "qwen2"));
    CHECK(w.layers[1].q_norm.size() == (name == "qwen3" || name == "gemma3" ? c.head_dim : 0));
    CHECK(w.layers[1].feed_forward_out_norm.size() == (name == "gemma3" ? c.hidden : 0));
  }
}

TEST_CASE("a config that does not describe a known model says so") {
  const auto says_of = [](const std::string& name, const std::string& member, const json& value,
                          const std::string& words) {
    const std::string sentence = config_with(name, member, value);
    CAPTURE(sentence);
    CHECK(says(sentence, words));
  };
  says_of("llama", "hidden_size", nullptr, "\"hidden_size\" is missing");
  says_of("llama", "hidden_size", "32",
          "config.json: hidden_size must be a whole number that is not negative, but is of type "
          "string");
  says_of("llama", "hidden_size", -32, "must be a whole number that is not negative, but is -32");
  says_of("llama", "hidden_size", 32.0, "must be a whole number that is not negative");
  says_of("llama", "hidden_size", 0, "must lie between 1 and");
  says_of("llama", "hidden_size", 30, "hidden_size (30) must be a multiple of num_attention_heads (4)");
  says_of("llama", "vocab_size", std::uint64_t{1} << 60, "vocab_size is 1152921504606846976");
  says_of("llama", "num_hidden_layers", 1e9, "must be a whole number");
  says_of("llama", "num_key_value_heads", 3, "must be a multiple of num_key_value_heads (3)");
  says_of("llama", "head_dim", 7, "multiple of 8");
  says_of("llama", "head_dim", 12, "multiple of 8");
  says_of("llama", "head_dim", 264, "must lie between 1 and 256");
  says_of("llama", "rms_norm_eps", "small", "rms_norm_eps must be a number");
  says_of("llama", "rope_theta", -1, "rope_theta is -1");
  says_of("llama", "hidden_act", "gelu", "only silu is known");
  says_of("llama", "architectures", {"MambaForCausalLM"}, "\"MambaForCausalLM\" is unknown");
  says_of("llama", "architectures", 7, "architectures must be an array");
  says_of("llama", "rope_scaling", {{"type", "yarn"}, {"factor", 4}}, "\"yarn\"; llama3, linear");
  says_of("llama", "rope_scaling", {{"type", "llama3"}}, "rope_scaling: \"factor\" is missing");
  says_of("llama", "eos_token_id", {2, 64}, "eos_token_id[1] is 64, but must lie between 0 and 63");
  says_of("llama", "tie_word_embeddings", 1, "must be true or false");
  says_of("qwen2", "use_sliding_window", true, "only full attention");
  says_of("qwen3", "head_dim", nullptr, "\"head_dim\" is missing");
  says_of("qwen3", "quantization_config", json::object(), "quantization_config");
}

TEST_CASE("a rotary embedding that is not known, or said in two ways, is refused") {
  const json scaling = read_json(fixture("llama") / "config.json")["rope_scaling"];
  const auto with = [](json config, const json& changes) {
    config.merge_patch(changes);
    return complaint([&] { parse_config(config, "config.json"); });
  };
  const auto says_of = [&](const std::string& name, const json& changes, const std::string& words) {
    const std::string sentence = with(read_json(fixture(name) / "config.json"), changes);
    CAPTURE(sentence);
    CHECK(says(sentence, words));
  };
  const auto fits = [&](const std::string& name, const json& changes) {
    CHECK(with(read_json(fixture(name) / "config.json"), changes) == "no complaint");
  };
  fits("qwen2", {{"partial_rotary_factor", 1}});
  says_of("qwen2", {{"partial_rotary_factor", 0.5}}, "config.json: partial_rotary_factor is 0.5; only 1 is known");
  says_of("qwen2", {{"rope_parameters", {{"partial_rotary_factor", 0.5}}}},
          "rope_parameters.partial_rotary_factor is 0.5; only 1");
  says_of("qwen2", {{"rope_scaling", {{"type", "linear"}, {"factor", 2}, {"partial_rotary_factor", 0.25}}}},
          "rope_scaling.partial_rotary_factor is 0.25; only 1");
  const json by_layer = {{"rope_type", "linear"}, {"factor", 4}, {"rope_theta", 1e6}};
  says_of("qwen2", {{"rope_parameters", {{"full_attention", by_layer}}}}, "rope_parameters.full_attention is for some");
  says_of("qwen2", {{"rope_scaling", {{"sliding_attention", by_layer}}}}, "rope_scaling.sliding_attention is for some");
  says_of("qwen2", {{"rope_scaling", {{"factor", 4}}}}, "rope_scaling has a factor, but no rope_type");
  says_of("qwen2", {{"rope_parameters", {{"factor", 4}}}}, "rope_parameters has a factor, but no rope_type");
  says_of("qwen2", {{"rope_scaling", {{"type", "default"}, {"factor", 4}}}},
          "rope_scaling has the member \"factor\", which the type \"default\" does not have");
  says_of("qwen2", {{"rope_scaling", {{"type", "linear"}, {"factor", 4}, {"beta_fast", 32}}}},
          "rope_scaling has the member \"beta_fast\", which the type \"linear\"");
  says_of("qwen2", {{"rope_parameters", {{"rope_type", "dynamic"}, {"factor", 4}}}}, "\"dynamic\"; llama3, linear");
  says_of("qwen2", {{"rope_scaling", {{"type", "linear"}, {"rope_type", "llama3"}, {"factor", 4}}}},
          "rope_scaling has the rope_type \"llama3\", but the type \"linear\"");
  fits("qwen2", {{"rope_scaling", {{"type", "linear"}, {"rope_type", "linear"}, {"factor", 4}}}});
  // both at once: the same, and not
  fits("llama", {{"rope_parameters", scaling}});
  says_of("llama", {{"rope_parameters", {{"rope_type", "default"}}}},
          "rope_parameters and rope_scaling are both there, and do not say the same");
  says_of("llama", {{"rope_parameters", scaling}, {"rope_scaling", {{"factor", 32}}}}, "do not say the same");
  fits("qwen2", {{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e6}}}});
  says_of("qwen2", {{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e4}}}},
          "rope_theta is 1e+06, but 10000 elsewhere");
  says_of("qwen2", {{"rope_scaling", {{"rope_theta", 1e4}}}}, "rope_theta is 1e+06, but 10000 elsewhere");
  says_of("qwen2", {{"rope_parameters", 3}}, "rope_parameters must be an object");
}

TEST_CASE("which layers of Gemma 3 have windows, and their rotary embeddings, are read from older and newer files") {
  const json older = read_json(fixture("gemma3") / "config.json");
  const json newer = read_json(fixture("gemma3_wide") / "config.json");
  const auto c = parse_config(older, "config.json");
  CHECK(c.windows == std::vector<bool>{true, true, true, true, true, false, true});
  CHECK(c.window == 8);
  CHECK(c.rope == rotary{.theta = 1e6});
  CHECK(c.window_rope == rotary{.theta = 1e4});
  CHECK(c.tied_head);
  const auto wide = parse_config(newer, "config.json");
  CHECK(wide.windows == std::vector<bool>{true, false});
  CHECK(wide.rope == rotary{.theta = 1e6, .method = rotary::kind::linear, .factor = 8});
  CHECK(wide.window_rope == rotary{.theta = 1e4});
  const auto after = [](json config, const json& changes) {
    config.merge_patch(changes);
    return parse_config(config, "config.json");
  };
  // no pattern: five of six; a scaling of older files is for the layers without a window
  CHECK(after(older, {{"sliding_window_pattern", nullptr}}).windows == c.windows);
  const auto scaled = after(older, {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 8}}}});
  CHECK(scaled.rope.factor == 8);
  CHECK(scaled.window_rope == c.window_rope);
  const auto plain = after(newer, {{"layer_types", {"full_attention", "full_attention"}}, {"sliding_window", nullptr}});
  CHECK(plain.window == 0);
  CHECK(plain.windows.empty());

  const auto says_of = [&](const json& config, const json& changes, const std::string& words) {
    const std::string sentence = complaint([&] { after(config, changes); });
    CAPTURE(sentence);
    CHECK(says(sentence, words));
  };
  says_of(older, {{"rope_local_base_freq", nullptr}}, "\"rope_local_base_freq\" is missing");
  says_of(older, {{"rope_theta", nullptr}}, "\"rope_theta\" is missing");
  says_of(older, {{"head_dim", nullptr}}, "\"head_dim\" is missing");
  says_of(older, {{"sliding_window", nullptr}}, "\"sliding_window\" is missing");
  says_of(older, {{"sliding_window", 0}}, "sliding_window is 0");
  says_of(older, {{"sliding_window_pattern", 8}}, "every layer has a sliding window");
  says_of(older, {{"query_pre_attn_scalar", nullptr}}, "\"query_pre_attn_scalar\" is missing");
  says_of(older, {{"attn_logit_softcapping", 50}}, "attn_logit_softcapping is set");
  says_of(older, {{"final_logit_softcapping", 0}}, "final_logit_softcapping is 0");
  says_of(older, {{"use_bidirectional_attention", true}}, "only causal attention is known");
  says_of(older, {{"hidden_activation", "gelu"}}, "only gelu_pytorch_tanh is known");
  says_of(newer, {{"layer_types", {"sliding_attention"}}}, "layer_types has 1 elements, but num_hidden_layers is 2");
  says_of(newer, {{"layer_types", {"sliding_attention", "chunked_attention"}}},
          "layer_types[1] is \"chunked_attention\"");
  says_of(newer, {{"rope_parameters", {{"chunked_attention", {{"rope_theta", 1}}}}}},
          "rope_parameters has the member \"chunked_attention\"; full_attention and sliding_attention are known");
  says_of(newer, {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 4}}}},
          "rope_parameters.full_attention and rope_scaling are both there");
  says_of(newer, {{"rope_parameters", {{"sliding_attention", {{"rope_type", "yarn"}}}}}},
          "rope_parameters.sliding_attention has the type \"yarn\"");
  says_of(newer, {{"rope_local_base_freq", 1e5}}, "rope_local_base_freq is 100000, but 10000 elsewhere");
}

TEST_CASE("which layers share keys is read, and theirs are not, though a file have them") {
  const json shared = read_json(fixture("gemma3_shared") / "config.json");
  const auto c = parse_config(shared, "config.json");
  CHECK(c.donors == std::vector<std::size_t>{0, 1, 2, 3, 4, 4, 3, 4});
  CHECK(donors_among(c, false) == std::vector<zoomr::index_t>{0, 1, 1});
  CHECK(donors_among(c, true) == std::vector<zoomr::index_t>{0, 1, 2, 2, 2});
  CHECK(read_weights(fixture("gemma3_shared"), c).layers[5].k.weight.empty());
  json config = read_json(fixture("gemma3") / "config.json");
  CHECK(parse_config(config, "config.json").donors.empty());
  config["num_kv_shared_layers"] = 1;
  const auto of_gemma3 = parse_config(config, "config.json");
  CHECK(of_gemma3.donors.back() == 4);  // layer 5 has no window
  CHECK(read_weights(fixture("gemma3"), of_gemma3).layers[6].v.weight.empty());

  CHECK(says(config_with("gemma3", "num_kv_shared_layers", 2),
             "num_kv_shared_layers is 2, but layer 5 has no layer of its kind before"));
  CHECK(says(config_with("gemma3", "num_kv_shared_layers", 7), "num_kv_shared_layers is 7"));
  CHECK(says(config_with("qwen3", "num_kv_shared_layers", 1),
             "num_kv_shared_layers is set; layers share keys in models like Gemma 3 alone"));
  CHECK(config_with("qwen3", "num_kv_shared_layers", 0) == "no complaint");
  CHECK(says(complaint([&] { expect_layers_alike(c, "tiers"); }), "tiers: layers of Gemma 3 differ"));
}

TEST_CASE("generation_config.json may name more ids that end a text") {
  const scratch folder("llama");
  const auto with = [&](const json& generation) {
    write_file(folder / "generation_config.json", generation.dump());
    return read_config(folder.path()).eos;
  };
  json config = read_json(folder / "config.json");
  config["eos_token_id"] = 2;
  write_file(folder / "config.json", config.dump());
  CHECK(read_config(folder.path()).eos == std::vector<token_id>{2});
  CHECK(with({{"eos_token_id", {7, 2, 9}}}) == std::vector<token_id>{2, 7, 9});
  CHECK(with({{"eos_token_id", 5}}) == std::vector<token_id>{2, 5});
  CHECK(with({{"eos_token_id", nullptr}}) == std::vector<token_id>{2});
  CHECK(with({{"temperature", 0.7}}) == std::vector<token_id>{2});
  CHECK(says(complaint([&] {
               with({{"eos_token_id", {2, 64}}});
             }),
             "generation_config.json: eos_token_id[1] is 64, but must lie between 0 and 63"));
  CHECK(says(complaint([&] { with(json::array()); }), "generation_config.json"));
}

TEST_CASE("newer files keep the rotary parameters together, and Llama 2 leaves out what is plain") {
  json config = read_json(fixture("llama") / "config.json");
  const auto before = parse_config(config, "config.json");
  config["rope_parameters"] = config["rope_scaling"];
  config["rope_parameters"]["rope_theta"] = config["rope_theta"];
  config.erase("rope_scaling");
  config.erase("rope_theta");
  const auto after = parse_config(config, "config.json");
  CHECK(after.rope.method == rotary::kind::llama3);
  CHECK(after.rope == before.rope);
  config.erase("rope_parameters");
  config.erase("num_key_value_heads");
  const auto plain = parse_config(config, "config.json");
  CHECK(plain.kv_heads == plain.heads);
  CHECK(plain.rope.theta == 10000.0);
  CHECK(plain.rope.method == rotary::kind::none);
}

TEST_CASE("a safetensors header is believed only where it agrees with the file") {
  const auto says_of = [](const std::string& bytes, const std::string& words) {
    const std::string sentence = opened(bytes);
    CAPTURE(sentence);
    CHECK(says(sentence, words));
  };
  const std::string a = tensor("a", "F32", "[2]", "[0,8]");
  CHECK(opened(file_of("{" + a + "}  ", 8)) == "no complaint");
  CHECK(opened(file_of("{}", 0)) == "no complaint");
  CHECK(opened(file_of("{" + a + "," + tensor("e", "F16", "[0,9]", "[0,0]") + "}", 8)) == "no complaint");
  says_of("", "the file has 0 bytes and no header");
  says_of("1234567", "no header");
  says_of(std::string(8, '\xff'), "the header claims 18446744073709551615 bytes");
  says_of(file_of("{" + a + "}", 8).substr(0, 30), "the header claims");
  says_of(file_of("{" + a + "}", 7), "must lie between 0 and 7");
  says_of(file_of("{" + a + "}", 9), "the tensors end at byte");
  says_of(file_of("[1]", 0), "the header is not a JSON object");
  says_of(file_of("{\"a\":3}", 0), "must be an object");
  says_of(file_of("{\"a\":", 0), "not valid JSON");
  says_of(file_of("\xff\xfe", 0), "not valid JSON");
  says_of(file_of("{" + a + "," + a + "}", 8), "\"a\" appears twice");
  says_of(file_of("{" + a + "," + tensor("b", "F32", "[1]", "[4,8]") + "}", 8), "overlap or leave a hole");
  says_of(file_of("{" + a + "," + tensor("b", "F32", "[2]", "[0,8]") + "}", 8), "overlap or leave a hole");
  says_of(file_of("{" + a + "," + tensor("b", "F32", "[1]", "[12,16]") + "}", 16), "overlap or leave a hole");
  says_of(file_of("{" + tensor("a", "F32", "[2]", "[8,0]") + "}", 8), "must lie between 8 and 8");
  says_of(file_of("{" + tensor("a", "F32", "[2]", "[0]") + "}", 8), "data_offsets must be two numbers");
  says_of(file_of("{" + tensor("a", "F32", "[2]", "[-8,0]") + "}", 8), "not negative");
  says_of(file_of("{" + tensor("a", "F32", "[2]", "[0,18446744073709551615]") + "}", 8), "must lie between 0 and 8");
  says_of(file_of("{" + tensor("a", "F32", "[3]", "[0,8]") + "}", 8),
          "has 8 bytes, which is not what F32 and the shape [3] need");
  says_of(file_of("{" + tensor("a", "F32", "[-2]", "[0,8]") + "}", 8), "not negative");
  says_of(file_of("{" + tensor("a", "F32", "[2.0]", "[0,8]") + "}", 8), "must be a whole number");
  says_of(file_of("{" + tensor("a", "F32", "[4294967296,4294967296,2]", "[0,8]") + "}", 8), "is not what F32");
  says_of(file_of("{" + tensor("a", "F32", "[4611686018427387906]", "[0,8]") + "}", 8),
          "shape[0] is 4611686018427387906");
  says_of(file_of("{" + tensor("a", "F12", "[2]", "[0,8]") + "}", 8), "unknown type \"F12\"");
  says_of(file_of("{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8), "\"dtype\" is missing");
  says_of(file_of(std::string(100000, '['), 0), "nest more than 64 levels deep");
}

TEST_CASE("weights stay in their file, and are copied where it has them at an odd place for their type") {
  const scratch folder;
  const fs::path path = folder / "one.safetensors";
  const std::string numbers{"\0\0\xc0\x3f\0\0\0\xc0", 8};  // 1.5 and -2
  std::map<std::string, std::string> metadata;
  for (std::size_t blanks = 0; blanks < 4; ++blanks) {
    const std::string header = "{" + tensor("a", "F32", "[2]", "[0,8]") + "}" + std::string(blanks, ' ');
    write_file(path, file_of(header, 0) + numbers);
    const stored loaded = safetensors(path, metadata).load("a", {2});
    CHECK(widened(loaded, 0, 2) == std::vector<float>{1.5f, -2.0f});
    CHECK(std::get<stored_numbers<float>>(loaded).mapped() == (header.size() % 4 == 0));
  }
  // It stays what it was when another file takes its name.
  write_file(path, file_of(padded("{" + tensor("a", "F16", "[4]", "[0,8]") + "}"), 0) + numbers);
  const safetensors file(path, metadata);
  const stored kept = file.load("a", {4});
  write_file(folder / "other", "other");
  fs::rename(folder / "other", path);
  CHECK(widened(kept, 0, 4) == std::vector<float>{0.0f, 1.9375f, 0.0f, -2.0f});
  CHECK(widened(file.load("a", {4}), 0, 4) == widened(kept, 0, 4));
}

TEST_CASE("a file that became shorter since its header was read is refused before its numbers are") {
  const scratch folder;
  const fs::path path = folder / "one.safetensors";
  write_file(path, file_of("{" + tensor("a", "F32", "[4096]", "[0,16384]") + "}", 16384));
  std::map<std::string, std::string> metadata;
  const safetensors file(path, metadata);
  fs::resize_file(path, 100);
  CHECK(says(complaint([&] { file.load("a", {4096}); }), "cannot be read: the file became shorter, and has 100 bytes"));
}

#if defined(__linux__)
TEST_CASE("a large tensor takes no memory of its own") {
  const auto own_kilobytes = [] {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
      if (line.starts_with("RssAnon:")) return std::stoll(line.substr(8));
    return -1LL;
  };
  constexpr std::size_t bytes = std::size_t{1} << 26;
  const std::string count = std::to_string(bytes / 2), end = std::to_string(bytes);
  const std::string text = file_of(padded("{" + tensor("a", "BF16", "[" + count + "]", "[0," + end + "]") + "}"), 0);
  const scratch folder;
  write_file(folder / "one.safetensors", text);
  fs::resize_file(folder / "one.safetensors", text.size() + bytes);  // zeros, which take no room on most disks
  std::map<std::string, std::string> metadata;
  const long long before = own_kilobytes();
  REQUIRE(before > 0);
  const stored loaded = safetensors(folder / "one.safetensors", metadata).load("a", {bytes / 2});
  CHECK(widened(loaded, bytes / 2 - 1, 1) == std::vector<float>{0.0f});
  CHECK(own_kilobytes() - before < static_cast<long long>(bytes >> 13));  // an eighth
}
#endif

TEST_CASE("numbers that are not finite are found wherever they are, in every type") {
  const auto find_each = [](auto number, const std::vector<float>& odd) {
    using T = decltype(number);
    std::vector<T> row(5000, zoomr::from_float<T>(-1.0f));
    row[17] = zoomr::from_float<T>(std::numeric_limits<float>::denorm_min());
    CHECK(first_not_finite(row.data(), 0) == 0);
    CHECK(first_not_finite(row.data(), 5000) == 5000);
    for (const float value : odd)
      for (const std::size_t at : {std::size_t{0}, std::size_t{4095}, std::size_t{4096}, std::size_t{4999}}) {
        const T before = std::exchange(row[at], zoomr::from_float<T>(value));
        CHECK(first_not_finite(row.data(), 5000) == static_cast<std::int64_t>(at));
        row[at] = before;
      }
  };
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  find_each(0.0f, {infinity, -infinity, nan, -nan});
  find_each(zoomr::bfloat16{}, {infinity, -infinity, nan, -nan});
  find_each(zoomr::float16{}, {infinity, -infinity, nan, -nan});
}

TEST_CASE("a checkpoint without one of its tensors, or with a stranger, is named and refused") {
  const auto loaded = [](const fs::path& path) { return complaint([&] { read_weights(path, read_config(path)); }); };
  const auto replaced = [](std::string text, const std::string& from, const std::string& to) {
    for (std::size_t at; (at = text.find(from)) != text.npos;) text.replace(at, from.size(), to);
    return text;
  };
  const std::string whole = read_file(fixture("llama") / "model.safetensors");
  const scratch folder("llama");
  const auto after = [&](const std::string& from, const std::string& to) {
    write_file(folder / "model.safetensors", replaced(whole, from, to));
    return loaded(folder.path());
  };
  CHECK(loaded(folder.path()) == "no complaint");
  CHECK(says(after("model.norm.weight", "model.nurm.weight"), "\"model.norm.weight\" is missing"));
  CHECK(says(after("[48, 32]", "[32, 48]"), "has the shape [32, 48], but config.json asks for [48, 32]"));
  CHECK(says(after("BF16", "I16\" "), "not valid JSON"));
  CHECK(says(after("\"BF16\"", "\"U16\" "), "has the type U16; F32, F16 and BF16 are read"));

  std::string infinite = whole;
  infinite[infinite.size() - 1] = '\x7f';  // the last bf16 of lm_head becomes infinity
  infinite[infinite.size() - 2] = '\x80';
  write_file(folder / "model.safetensors", infinite);
  CHECK(says(loaded(folder.path()), "has a NaN or an infinity as element"));

  fs::remove(folder / "model.safetensors");
  CHECK(says(loaded(folder.path()), "there is neither model.safetensors nor"));
  fs::create_directory(folder / "model.safetensors");
  CHECK(says(loaded(folder.path()), "model.safetensors: not a regular file"));
  CHECK(says(loaded("/nowhere"), "/nowhere/config.json: no such file"));

  const scratch tied("qwen3");  // a layer that the config does not announce
  json config = read_json(tied / "config.json");
  config["tie_word_embeddings"] = true;
  config["num_hidden_layers"] = 1;
  write_file(tied / "config.json", config.dump());
  CHECK(says(loaded(tied.path()), "\"model.layers.1.input_layernorm.weight\" has no place in the model"));
}

TEST_CASE("an index of shards and the shards must agree") {
  const scratch folder("qwen3");
  const fs::path index_t = folder / "model.safetensors.index.json";
  const json whole = read_json(index_t);
  const auto after = [&](const json& changed) {
    write_file(index_t, changed.dump());
    return complaint([&] { safetensors{folder.path()}; });
  };
  const auto with = [&](const std::string& name, const json& file) {
    json changed = whole;
    changed["weight_map"][name] = file;
    return after(changed);
  };
  CHECK(after(whole) == "no complaint");
  CHECK(says(with("model.norm.weight", "model-00009-of-00002.safetensors"),
             "model-00009-of-00002.safetensors: no such file"));
  CHECK(says(with("model.norm.weight", "../model.safetensors"), "is not the name of a file beside the index"));
  CHECK(says(with("model.norm.weight", ".."), "is not the name of a file beside the index"));
  CHECK(says(with("model.norm.weight", 7), "must be a string"));
  CHECK(says(with("another", "model-00001-of-00002.safetensors"), "\"another\" is not in model-00001"));
  json fewer = whole;
  fewer["weight_map"].erase("model.norm.weight");
  CHECK(says(after(fewer), "the index does not say so"));
  CHECK(says(after(json::object()), "\"weight_map\" is missing"));
  CHECK(says(after({{"weight_map", 3}}), "must be an object"));
  write_file(index_t, whole.dump());
  fs::copy_file(folder / "model-00001-of-00002.safetensors", folder / "model-00002-of-00002.safetensors",
                fs::copy_options::overwrite_existing);
  CHECK(says(complaint([&] { safetensors{folder.path()}; }), "is also in"));
}

TEST_CASE("JSON is bounded in depth and size, and has no name twice") {
  const auto parsed = [](const std::string& text) { return complaint([&] { parse_json(text, "x.json"); }); };
  CHECK(parsed(std::string(64, '[') + std::string(64, ']')) == "no complaint");
  CHECK(says(parsed(std::string(65, '[') + std::string(65, ']')), "x.json: brackets nest more than 64"));
  CHECK(says(parsed(std::string(1 << 22, '{')), "nest more than 64"));
  CHECK(parsed("[\"" + std::string(1000, '[') + "\\\"" + std::string(1000, '{') + "\"]") == "no complaint");
  CHECK(says(parsed("{\"a\":{\"b\":1,\"b\":2}}"), "x.json: \"b\" appears twice in one object"));
  CHECK(parsed("{\"a\":{\"b\":1},\"c\":{\"b\":2}}") == "no complaint");
  CHECK(says(parsed("{\"a\": 1e999}"), "not valid JSON"));
  CHECK(says(parsed("{\"a\": \"\xff\"}"), "not valid JSON"));
  CHECK(says(parsed("{}}"), "not valid JSON"));
  CHECK(says(parsed(""), "not valid JSON"));
  CHECK(says(parsed("]]]]"), "not valid JSON"));

  const scratch folder;
  write_file(folder / "long.txt", "12345");
  CHECK(read_text(folder / "long.txt", 5) == "12345");
  CHECK(says(complaint([&] { read_text(folder / "long.txt", 4); }), "has 5 bytes, and at most 4 are read"));
  CHECK(says(complaint([&] { read_text(folder.path(), 4); }), "not a regular file"));
  CHECK(says(complaint([&] { read_text("/dev/zero", 4); }), "not a regular file"));
}

}  // namespace decode
