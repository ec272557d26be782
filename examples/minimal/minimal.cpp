// SPDX-License-Identifier: Apache-2.0
// A whole decoder in one file. A small language model solves the same problem twice, greedily: with a KV cache that
// attends to everything, and under a policy of zoomr's. It prints what each wrote, and what each has read for it.
//
// From the top: the policy, main, decode (all that an engine does for a cache), forward (the model), the problem, what
// is printed, and the files. Arrays are row-major; shapes stand in brackets. From the root of the repository:
//   cmake --preset demo && cmake --build --preset demo --target zoomr-minimal && build/demo/bin/zoomr-minimal
#include <zoomr/zoomr.hpp>

#include <algorithm>   // std::min, std::ranges::find, std::ranges::max_element, std::ranges::mismatch
#include <cmath>       // std::cos, std::exp, std::pow, std::sin, std::sqrt
#include <cstdio>      // std::printf
#include <cstring>     // std::memcpy
#include <filesystem>  // std::filesystem::file_size
#include <fstream>     // std::ifstream
#include <random>      // std::mt19937_64
#include <span>        // std::span
#include <stdexcept>   // std::runtime_error
#include <string>      // std::string
#include <vector>      // std::vector

#include <nlohmann/json.hpp>

#ifndef LEDGER_CHECKPOINTS  // CMake says where they are
#define LEDGER_CHECKPOINTS "examples/studies/ledger/checkpoints"
#endif

using floats = std::vector<float>;
using nlohmann::json;
using zoomr::index_t;
using zoomr::token_id;

// ---- change the policy here
// zoomr_focus attends to the prompt, the summaries of all thoughts, the last 64 tokens and the thought being written.
// At the end of a sentence each layer chooses one earlier thought, which it reads in full until the next choice. Try
// presets::zoomr_second_pass, or presets::sentence_kv_with(256) for 256 tokens; docs/policies.md has all others.
constexpr auto my_policy = zoomr::presets::zoomr_focus;

constexpr const char* sentence_end = ";";
constexpr const char* end_of_text = "<ans>";  // all thoughts are written; questions would follow
constexpr std::size_t most_tokens = 1024;     // of the prompt and what is written
constexpr std::size_t registers = 12;         // of the problem
constexpr std::uint64_t seed = 1;             // of the problem

void require(bool condition, const std::string& complaint) {
  if (!condition) throw std::runtime_error(complaint);
}

/// [rows, columns]. A linear map has a row for each output; the weight of a norm is one row.
struct matrix {
  index_t columns = 0;
  floats values;
};

/// Of one layer. Shapes: see read_model.
struct layer_weights {
  matrix attention_norm, q, k, v, q_norm, k_norm, o;
  matrix mlp_norm, gate, up, down;
};

/// A decoder of the Qwen3 family.
struct model {
  zoomr::shape shape;  // layers, heads, kv_heads, head_dim: all that a cache must know of it
  double rope_theta = 0, norm_epsilon = 0;
  std::vector<layer_weights> layers;
  matrix embedding, head;  // [vocabulary, hidden]
  matrix norm;             // [hidden]
};

/// A token is a word; words are separated by blanks.
struct vocabulary {
  std::vector<std::string> words;           // of each id
  std::vector<zoomr::token_class> classes;  // of each id: all that a policy must know of the words

  const std::string& word(token_id id) const { return words[std::size_t(id)]; }
  token_id id(const std::string& word) const {
    const auto found = std::ranges::find(words, word);
    require(found != words.end(), "the model does not know the word " + word + ": it is not one for LEDGER");
    return static_cast<token_id>(found - words.begin());
  }
};

/// What a policy made of the problem.
struct outcome {
  std::vector<token_id> text;            // the prompt, then all that was written
  std::vector<zoomr::segment> segments;  // pieces of the text: thoughts with their summaries
  zoomr::choice_trace choices;           // of segments, in the order of the text
  double attended = 0;                   // tokens that a query reads: mean over steps, layers and heads
  double device_kib = 0;                 // the most that a step needs on a device: accounted, nothing moves here
};

vocabulary read_vocabulary(const std::string& path);
model read_model(const std::string& directory, index_t words);
std::vector<token_id> make_prompt(const vocabulary& words);
template <class Policy>
outcome decode(const model& net, const vocabulary& words, const Policy& tried, const std::vector<token_id>& prompt);
void print(const vocabulary& words, std::size_t given, const outcome& full, const outcome& mine);

int main(int count, char** arguments) {
  try {
    require(count <= 2, "usage: zoomr-minimal [DIRECTORY OF A CHECKPOINT]");
    const std::string directory = count == 2 ? arguments[1] : LEDGER_CHECKPOINTS "/indexed";
    const vocabulary words = read_vocabulary(directory + "/tokenizer.json");
    const model net = read_model(directory, static_cast<index_t>(words.words.size()));
    const std::vector<token_id> prompt = make_prompt(words);
    const outcome full = decode(net, words, zoomr::presets::full, prompt);
    const outcome mine = decode(net, words, my_policy, prompt);
    print(words, prompt.size(), full, mine);
    require(std::fflush(stdout) == 0 && std::ferror(stdout) == 0, "standard output cannot be written");
    return 0;
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "zoomr-minimal: %s\n", problem.what());
    return 2;
  }
}

// ---- the cache at work

template <class Step>
floats forward(const model& net, Step& step, std::span<const token_id> ids);

/// Continues the prompt until the model ends the text. This is all that an engine does for a cache.
template <class Policy>
outcome decode(const model& net, const vocabulary& words, const Policy& tried, const std::vector<token_id>& prompt) {
  const zoomr::config limits{.max_tokens = most_tokens, .max_batched_tokens = most_tokens, .classes = words.classes};
  zoomr::kv_cache cache(net.shape, tried, limits);  // allocates all of its memory
  const zoomr::sequence seq = cache.open();
  outcome made;
  cache.trace_choices(&made.choices);

  made.text = prompt;
  do {
    // What the cache does not hold yet: at first the prompt, then the token just written.
    const auto ids = std::span<const token_id>(made.text).subspan(std::size_t(cache.tokens(seq)));
    // True: the prompt ends with these ids. Here it is one chunk; of several, say it of the last one alone.
    auto step = cache.begin(seq, ids, cache.in_prompt(seq));
    floats logits;  // [vocabulary], of the last token
    do {
      // Some policies choose when a pass is over, and ask for another one of the last token alone, under that choice.
      logits = forward(net, step, ids.last(std::size_t(step.tokens())));
    } while (step.needs_second_pass(step.taken(0)));  // all tokens that the step took are accepted
    step.commit();                                    // until here its keys and values were pending
    made.text.push_back(static_cast<token_id>(std::ranges::max_element(logits) - logits.begin()));
  } while (words.word(made.text.back()) != end_of_text && made.text.size() < most_tokens);

  made.segments.assign(cache.segments(seq).begin(), cache.segments(seq).end());
  made.attended = cache.stats(seq).attended_mean(net.shape);
  made.device_kib = double(cache.stats(seq).device_peak) / 1024;
  return made;
}

// ---- the model

/// RMSNorm of each row of x, as long as `weight`: x / sqrt(mean(x * x) + epsilon) * weight.
floats normalized(floats x, const matrix& weight, double epsilon) {
  const std::size_t width = weight.values.size();
  for (std::size_t row = 0; row < x.size(); row += width) {
    double squares = 0;
    for (std::size_t i = 0; i < width; ++i) squares += double(x[row + i]) * x[row + i];
    const double scale = 1 / std::sqrt(squares / double(width) + epsilon);
    for (std::size_t i = 0; i < width; ++i) x[row + i] = float(x[row + i] * scale) * weight.values[i];
  }
  return x;
}

/// x [tokens, in] times the transpose of w [out, in]: [tokens, out].
floats product(const floats& x, const matrix& w) {
  floats y;
  for (const float* row = x.data(); row != x.data() + x.size(); row += w.columns) {
    for (const float* weights = w.values.data(); weights != w.values.data() + w.values.size(); weights += w.columns)
      y.push_back(zoomr::dot(row, weights, w.columns));  // one order of summation everywhere
  }
  return y;
}

void add(floats& x, const floats& y) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
}

/// Rotary embedding of x [tokens, heads, head_dim]: dimensions d and d + head_dim / 2 of a head turn by the angle
/// position * theta^(-2 d / head_dim). The first token is at position `first`.
void rotate(zoomr::view<float, 3> x, index_t first, double theta) {
  const index_t half = x.extent(2) / 2;
  for (index_t t = 0; t < x.extent(0); ++t) {
    for (index_t d = 0; d < half; ++d) {
      const double angle = (first + t) * std::pow(theta, -double(d) / half);
      const float cos = float(std::cos(angle)), sin = float(std::sin(angle));
      for (index_t head = 0; head < x.extent(1); ++head) {
        const float a = x(t, head, d), b = x(t, head, d + half);
        x(t, head, d) = a * cos - b * sin;
        x(t, head, d + half) = b * cos + a * sin;
      }
    }
  }
}

/// One pass over tokens of one sequence: all that a model does, but for its attention.
/// @return  [vocabulary]  logits of the last token
template <class Step>
floats forward(const model& net, Step& step, std::span<const token_id> ids) {
  const index_t heads = net.shape.heads, kv_heads = net.shape.kv_heads, head_dim = net.shape.head_dim;
  const index_t tokens = step.tokens(), first = step.position(0), hidden = net.embedding.columns;
  floats x;  // [tokens, hidden]
  for (const token_id id : ids) {
    const auto row = net.embedding.values.begin() + id * hidden;
    x.insert(x.end(), row, row + hidden);
  }

  for (index_t layer = 0; layer < net.shape.layers; ++layer) {
    const layer_weights& w = net.layers[std::size_t(layer)];
    const floats h = normalized(x, w.attention_norm, net.norm_epsilon);  // [tokens, hidden]
    floats q = normalized(product(h, w.q), w.q_norm, net.norm_epsilon);  // each head by itself
    floats k = normalized(product(h, w.k), w.k_norm, net.norm_epsilon);
    floats v = product(h, w.v);
    floats attended(q.size());
    const zoomr::view<float, 3> queries(q.data(), {tokens, heads, head_dim});
    const zoomr::view<float, 3> keys(k.data(), {tokens, kv_heads, head_dim});
    const zoomr::view<float, 3> values(v.data(), {tokens, kv_heads, head_dim});
    const zoomr::view<float, 3> out(attended.data(), {tokens, heads, head_dim});

    // Positions are the engine's business: queries and keys are rotated before the cache sees them, once and for all.
    // The factor 1 / sqrt(head_dim) is the cache's.
    rotate(queries, first, net.rope_theta);
    rotate(keys, first, net.rope_theta);
    step.append(layer, keys, values);
    step.attend(layer, queries, out);
    add(x, product(attended, w.o));

    const floats m = normalized(x, w.mlp_norm, net.norm_epsilon);
    const floats up = product(m, w.up);
    floats gate = product(m, w.gate);  // [tokens, intermediate]
    for (std::size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));  // silu(gate) * up
    add(x, product(gate, w.down));
  }
  x.erase(x.begin(), x.end() - hidden);  // all but the last token
  return product(normalized(x, net.norm, net.norm_epsilon), net.head);
}

// ---- the problem

/// A LEDGER program, "<bos> a = #17 ; b = #42 ; c = a [ @5 ] ; d = b [ last ] ; ... <go>". Two registers are given;
/// each other begins with a line of an earlier one, never of the one just before. For each the model writes a thought,
/// which has 24 lines of values, and a summary, which repeats the last of them: any other must be read in the thought.
std::vector<token_id> make_prompt(const vocabulary& words) {
  std::vector<token_id> ids;
  const auto put = [&](const std::vector<std::string>& sentence) {
    for (const std::string& word : sentence) ids.push_back(words.id(word));
  };
  const auto name = [](std::size_t r) { return std::string(1, char('a' + r)); };
  std::mt19937_64 random(seed);
  put({"<bos>", "a", "=", "#17", ";", "b", "=", "#42", ";"});
  for (std::size_t r = 2; r < registers; ++r) {
    const std::string line = random() % 4 == 0 ? "last" : "@" + std::to_string(3 + random() % 20);
    put({name(r), "=", name(random() % (r - 1)), "[", line, "]", ";"});
  }
  put({"<go>"});
  return ids;
}

// ---- what is printed

/// A line for each thought, which all begin with the same token.
void print_text(const vocabulary& words, const char* title, std::span<const token_id> ids) {
  std::printf("%s", title);
  for (const token_id id : ids) std::printf(id == ids[0] ? "\n  %s" : " %s", words.word(id).c_str());
  std::printf("\n\n");
}

/// What the policy chose: a line for each sentence; for each row of its selection the best three, and how many more.
void print_choices(const vocabulary& words, const outcome& made) {
  const auto word = [&](index_t position) { return words.word(made.text[std::size_t(position)]); };
  std::printf("Chosen at the end of each sentence; a column is a row of the selection (zoomr_focus: a layer):");
  for (index_t line = -1; const zoomr::choice_record& choice : made.choices) {
    if (word(choice.position) != sentence_end) continue;  // some policies choose at every token
    if (choice.position != line) {
      line = choice.position;
      std::string sentence = sentence_end;
      for (index_t p = choice.position - 1; word(p) != sentence_end && word(p) != "<thought>"; --p)
        sentence.insert(0, word(p) + " ");
      std::printf("\n  %-17s->", sentence.c_str());
    }
    std::string chosen;  // what has a summary is called by its register, anything else by its positions
    for (const index_t id : std::span(choice.chosen).first(std::min<std::size_t>(3, choice.chosen.size()))) {
      const zoomr::segment& of = made.segments[std::size_t(id)];
      const std::string positions = std::to_string(of.begin) + "-" + std::to_string(of.end - 1);
      chosen += " " + (of.split < of.end ? word(of.begin + 1) : positions);
    }
    if (choice.chosen.size() > 3) chosen += " +" + std::to_string(choice.chosen.size() - 3);
    std::printf(" %s", chosen.empty() ? " -" : chosen.c_str());
  }
  std::printf("\n");
}

void print(const vocabulary& words, std::size_t given, const outcome& full, const outcome& mine) {
  print_text(words, "The prompt:", std::span(full.text).first(given));
  print_text(words, "Full attention wrote:", std::span(full.text).subspan(given));
  print_text(words, "The policy wrote:", std::span(mine.text).subspan(given));
  const auto agree = std::ranges::mismatch(full.text, mine.text).in1 - full.text.begin() - std::ptrdiff_t(given);
  std::printf("They agree in %s %td tokens.\n\n", full.text == mine.text ? "all" : "only the first", agree);
  std::printf("                           full  policy\n");
  std::printf("attended tokens a step  %7.1f %7.1f\n", full.attended, mine.attended);
  std::printf("device KiB, accounted   %7.1f %7.1f\n\n", full.device_kib, mine.device_kib);
  if (!mine.choices.empty()) print_choices(words, mine);
}

// ---- the files: no size that they name is believed before it is checked

std::string read_file(const std::string& path) {
  std::error_code reason;
  const auto size = std::filesystem::file_size(path, reason);
  require(!reason, path + ": " + reason.message());
  require(size < (1u << 30), path + ": larger than 1 GiB");
  std::string bytes(size, '\0');
  std::ifstream file(path, std::ios::binary);
  require(bool(file.read(bytes.data(), std::streamsize(size))), path + ": cannot be read");
  return bytes;
}

json parse(const std::string& path, std::string_view text) {
  json parsed = json::parse(text, nullptr, false);
  require(parsed.is_object(), path + ": not a JSON object");
  return parsed;
}

/// tokenizer.json: {"model": {"vocab": {"<bos>": 1, ...}}}
vocabulary read_vocabulary(const std::string& path) {
  const json ids = parse(path, read_file(path)).value(json::json_pointer("/model/vocab"), json());
  require(ids.is_object(), path + ": there is no vocabulary");
  vocabulary made{std::vector<std::string>(ids.size()), std::vector<zoomr::token_class>(ids.size())};
  for (const auto& [word, id] : ids.items()) {
    require(id.is_number_unsigned() && id < ids.size(), path + ": the id of " + word + " is not below their number");
    made.words[id.get<std::size_t>()] = word;
  }
  const auto class_of = [&](const char* word) -> auto& { return made.classes[std::size_t(made.id(word))]; };
  class_of("<thought>") = zoomr::token_class::thought_begin, class_of("</thought>") = zoomr::token_class::thought_end;
  class_of("<summary>") = zoomr::token_class::summary_begin, class_of("</summary>") = zoomr::token_class::summary_end;
  class_of(sentence_end) = zoomr::token_class::delimiter;
  return made;
}

/// One tensor: [rows, columns], or [columns] where rows is 0.
/// @param header  {"name": {"dtype": "BF16", "shape": [rows, columns], "data_offsets": [begin, end]}, ...}
matrix read_tensor(const json& header, std::string_view data, const std::string& name, index_t rows, index_t columns) {
  const json entry = header.value(name, json::object());
  const json shape = rows > 0 ? json{rows, columns} : json{columns};
  require(entry.is_object() && entry.value("dtype", json()) == "BF16" && entry.value("shape", json()) == shape,
          "model.safetensors: there is no " + name + " of BF16 " + shape.dump());
  const std::size_t size = std::size_t(std::max(rows, 1)) * std::size_t(columns);
  const json offset = entry.value(json::json_pointer("/data_offsets/0"), json());
  const std::size_t begin = offset.is_number_unsigned() ? offset.get<std::size_t>() : data.size();
  require(begin <= data.size() && 2 * size <= data.size() - begin, "model.safetensors: it ends before " + name);
  matrix made{columns, floats(size)};
  for (std::size_t i = 0; i < size; ++i) {
    zoomr::bfloat16 stored;
    std::memcpy(&stored.bits, &data[begin + 2 * i], 2);
    made.values[i] = zoomr::to_float(stored);
  }
  return made;
}

model read_model(const std::string& directory, index_t words) {
  const std::string path = directory + "/config.json";
  const json config = parse(path, read_file(path));
  const auto number = [&](const char* key, double least, double most) {
    const json found = config.value(key, json());
    require(found.is_number() && found >= least && found <= most, path + ": " + key + " is missing or out of bounds");
    return found.get<double>();
  };
  const auto size = [&](const char* key) { return static_cast<index_t>(number(key, 1, 16384)); };
  model net;
  net.shape = {size("num_hidden_layers"), size("num_attention_heads"), size("num_key_value_heads"), size("head_dim")};
  net.rope_theta = number("rope_theta", 1, 1e12);
  net.norm_epsilon = number("rms_norm_eps", 0, 1);
  const index_t hidden = size("hidden_size"), intermediate = size("intermediate_size");
  const index_t q_size = net.shape.heads * net.shape.head_dim, kv_size = net.shape.kv_heads * net.shape.head_dim;

  const std::string bytes = read_file(directory + "/model.safetensors");
  std::uint64_t length = bytes.size();  // of the header; 8 bytes at the beginning say it
  if (bytes.size() >= 8) std::memcpy(&length, bytes.data(), 8);
  require(bytes.size() >= 8 && length <= bytes.size() - 8, "model.safetensors: it ends before its header");
  const json header = parse("model.safetensors", std::string_view(bytes).substr(8, length));
  const auto read = [&](const std::string& name, index_t rows, index_t columns) {
    return read_tensor(header, std::string_view(bytes).substr(8 + length), name + ".weight", rows, columns);
  };
  for (index_t layer = 0; layer < net.shape.layers; ++layer) {
    const std::string of = "model.layers." + std::to_string(layer) + ".";
    layer_weights w;
    w.attention_norm = read(of + "input_layernorm", 0, hidden);
    w.q = read(of + "self_attn.q_proj", q_size, hidden);
    w.k = read(of + "self_attn.k_proj", kv_size, hidden);
    w.v = read(of + "self_attn.v_proj", kv_size, hidden);
    w.q_norm = read(of + "self_attn.q_norm", 0, net.shape.head_dim);
    w.k_norm = read(of + "self_attn.k_norm", 0, net.shape.head_dim);
    w.o = read(of + "self_attn.o_proj", hidden, q_size);
    w.mlp_norm = read(of + "post_attention_layernorm", 0, hidden);
    w.gate = read(of + "mlp.gate_proj", intermediate, hidden);
    w.up = read(of + "mlp.up_proj", intermediate, hidden);
    w.down = read(of + "mlp.down_proj", hidden, intermediate);
    net.layers.push_back(std::move(w));
  }
  net.embedding = read("model.embed_tokens", words, hidden);
  net.norm = read("model.norm", 0, hidden);
  net.head = read("lm_head", words, hidden);
  return net;
}
