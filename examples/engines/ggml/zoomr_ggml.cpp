// SPDX-License-Identifier: Apache-2.0
// The calls of zoomr_ggml.h. Each is a few lines around one of the classes beside it; nothing is thrown out of it.
#include "zoomr_ggml.h"

#include <zoomr/core/threads/crew.hpp>
#include <zoomr/vocabulary.hpp>

#include <algorithm>  // std::any_of, std::max
#include <cmath>      // std::abs, std::isfinite, std::sqrt
#include <cstring>    // std::memset

#include "graph.hpp"
#include "outcome.hpp"
#include "settings.hpp"
#include "spans.hpp"
#include "state.hpp"

namespace {

using namespace adaptor;

static_assert(ZOOMR_GGML_DELIMITER == static_cast<int>(zoomr::token_class::delimiter) &&
              ZOOMR_GGML_THOUGHT_BEGIN == static_cast<int>(zoomr::token_class::thought_begin) &&
              ZOOMR_GGML_THOUGHT_END == static_cast<int>(zoomr::token_class::thought_end) &&
              ZOOMR_GGML_SUMMARY_BEGIN == static_cast<int>(zoomr::token_class::summary_begin) &&
              ZOOMR_GGML_SUMMARY_END == static_cast<int>(zoomr::token_class::summary_end) &&
              ZOOMR_GGML_MESSAGE == static_cast<int>(zoomr::token_class::message));

thread_local outcome last_init;

/// What a node of a graph is given.
struct layer_node {
  zoomr_ggml* owner;
  index_t layer;
  float kq_scale;      // 0: no graph has had one yet
  float query_factor;  // to it from the cache's scale
};

}  // namespace

struct zoomr_ggml {
  explicit zoomr_ggml(const zoomr_ggml_params& p)
      : crew(p.n_threads), settings(settings_of(p, crew)), in(opened(settings, p.type_kv)), held(*in, settings.ropes) {
    for (index_t layer = 0; layer < p.n_layer; ++layer) nodes.push_back({this, layer, 0.0f, 1.0f});
  }

  /// Does a call; its failure is kept.
  template <class Work>
  int call(Work work) {
    outcome how = done(work);
    if (how.status != ZOOMR_GGML_SUCCESS) last = std::move(how);
    return how.status;
  }
  /// The same of one that needs that no step is in progress.
  template <class Work>
  int edit(Work work) {
    drop();
    return call(work);
  }

  void begin(const zoomr_ggml_batch& batch) {
    drop();
    held.settle();
    tokens = graph_tokens(batch);
    try {
      const std::vector<zoomr::step_item> items = planned(batch.token == nullptr);
      in->begin(view<const zoomr::step_item>(items));
      stepping = true;
    } catch (...) {
      drop();
      throw;
    }
  }
  /// Whether graphs of up to `most` tokens can hold this batch, whatever part of it each of them has.
  bool fits(const zoomr_ggml_batch& batch, index_t most) {
    held.settle();
    tokens = graph_tokens(batch);
    bool all = true;
    try {
      for (zoomr::step_item item : planned(batch.token == nullptr)) {
        if (in->in_prompt(item.seq)) continue;
        const index_t first = (std::min)(item.ids.size(), most);
        item.prompt_ends = item.prompt_ends && first == item.ids.size();
        item.ids = item.ids.slice(0, first), item.positions = item.positions.slice(0, first);
        all = all && is_passable(item);
      }
    } catch (...) {
      drop();
      throw;
    }
    drop();
    return all;
  }

  void attend(index_t layer, ggml_tensor& dst) {
    if (failed.status == ZOOMR_GGML_SUCCESS) {
      failed = done([&] {
        if (!stepping) throw refusal("attn: a graph is computed without zoomr_ggml_begin before it");
        attend_node(*in, tokens, layer, nodes[static_cast<std::size_t>(layer)].query_factor, dst);
      });
    }
    if (failed.status != ZOOMR_GGML_SUCCESS) std::memset(dst.data, 0, ggml_nbytes(&dst));
  }

  void commit() {
    std::vector<index_t> accepted;
    for (const graph_item& item : tokens.items) {
      accepted.push_back(static_cast<index_t>(item.ids.size()));
      std::vector<std::int32_t>& positions = held.find(item.id)->positions;
      const std::size_t needed = positions.size() + item.positions.size();
      if (positions.capacity() < needed) positions.reserve(2 * needed);  // nothing fails after the commit
    }
    in->commit(view<const index_t>(accepted));
    for (const graph_item& item : tokens.items) {
      std::vector<std::int32_t>& positions = held.find(item.id)->positions;
      positions.insert(positions.end(), item.positions.begin(), item.positions.end());
      spans.pass(item.id, item.positions.back(), item.prompt_ends);
    }
  }

  void name(std::int32_t seq, std::int32_t p0, std::int32_t p1, int role) {
    if (seq < 0) throw refusal("seq_span: a sequence has a negative id");
    if (role != ZOOMR_GGML_PINNED && role != ZOOMR_GGML_QUESTION) throw refusal("seq_span: there is no such role");
    const held_sequence* const s = held.find(seq);
    const std::int32_t next = s == nullptr || s->positions.empty() ? 0 : s->positions.back() + 1;
    if (p0 < 0) p0 = next;
    if (p1 < 0) p1 = named_span::prompt_end;
    if (p0 < next) {
      throw refusal("seq_span: sequence " + std::to_string(seq) + " holds tokens up to position " +
                    std::to_string(next - 1) + ", and a span is named before its tokens come");
    }
    if (p0 >= p1) throw refusal("seq_span: the span has no positions");
    spans.add(seq, {p0, p1, role == ZOOMR_GGML_PINNED ? zoomr::span_role::pinned : zoomr::span_role::question});
  }

  void drop() {
    in->drop();
    held.close_empty();
    stepping = false, failed = {};
  }

  zoomr::crew crew;  // threads of the engine that attend together
  cache_settings settings;
  std::unique_ptr<cache> in;
  sequences held;
  named_spans spans;              // of tokens that are still to come
  std::vector<layer_node> nodes;  // [layers]
  graph_tokens tokens;            // of the step in progress
  bool stepping = false;
  outcome failed;  // of a node of the step in progress
  outcome last;

 private:
  bool is_passable(const zoomr::step_item& item) const {
    try {
      in->plan(item);
    } catch (const zoomr::precondition_error&) {
      return false;
    }
    return true;
  }
  // Opens what is not there.
  std::vector<zoomr::step_item> planned(bool embeddings) {
    std::vector<zoomr::step_item> items;
    for (graph_item& item : tokens.items) {
      const held_sequence& s = held.ready(item.id);
      expect_ascending(item, s.positions.empty() ? -1 : s.positions.back(), embeddings);
      zoomr::step_item next{s.handle, view<const zoomr::token_id>(item.ids)};
      next.positions = view<const index_t>(item.positions);
      item.spans = spans.in(item.id, item.positions);
      next.spans = view<const zoomr::token_span>(item.spans);
      const bool ended = !in->in_prompt(s.handle);
      next.prompt_begins = ended && (next.ids.size() > in->longest_whole() || has_question(item));
      next.whole = ended && !next.prompt_begins;  // a graph cannot be cut any more
      next.prompt_ends = item.prompt_ends && (!ended || next.prompt_begins);
      items.push_back(next);
    }
    return items;
  }
  static bool has_question(const graph_item& item) {
    const auto is = [](const zoomr::token_span& span) { return span.role == zoomr::span_role::question; };
    return std::any_of(item.spans.begin(), item.spans.end(), is);
  }
  // Embeddings of an image may have one position.
  static void expect_ascending(const graph_item& item, std::int32_t held_to, bool embeddings) {
    std::int32_t least = embeddings ? held_to : held_to + 1;
    for (const std::int32_t position : item.positions) {
      if (position < least) {
        throw refusal("begin: sequence " + std::to_string(item.id) + " holds tokens up to position " +
                      std::to_string(held_to) + ", and a token of the batch has position " + std::to_string(position));
      }
      least = position;
    }
  }
};

namespace {

// All threads of a graph come here, and as many as the cache knows work together.
void attend_in_node(ggml_tensor* dst, int ith, int nth, void* userdata) {
  const auto& node = *static_cast<layer_node*>(userdata);
  zoomr::crew& crew = node.owner->crew;
  const int together = (std::min)(nth, static_cast<int>(crew.threads()));
  if (ith < together) crew.run(ith, together, [&] { node.owner->attend(node.layer, *dst); });
}

/// A call whose result is a number of bytes; 0 where it fails.
template <class Work>
std::size_t counted(zoomr_ggml* z, Work work) {
  std::size_t bytes = 0;
  return z->edit([&] { bytes = work(); }) == ZOOMR_GGML_SUCCESS ? bytes : 0;
}

zoomr::sequence settled(zoomr_ggml& z, std::int32_t seq) {
  z.held.settle();
  const held_sequence* const s = z.held.find(seq);
  if (s == nullptr) throw refusal("sequence " + std::to_string(seq) + " holds nothing");
  return s->handle;
}

/// A model has one scale in each layer: what is remembered of queries is under it.
void take_scale(layer_node& node, float kq_scale, index_t width) {
  const float own = 1.0f / std::sqrt(static_cast<float>(width)), scale = kq_scale == 0.0f ? own : kq_scale;
  if (!(scale > 0.0f && std::isfinite(scale))) throw refusal("attn: kq_scale must be positive, or 0 for 1 / sqrt(d)");
  if (node.kq_scale != 0.0f && node.kq_scale != scale) {
    throw refusal("attn: kq_scale of layer " + std::to_string(node.layer) + " was another one before");
  }
  node.kq_scale = scale;
  node.query_factor = std::abs(scale - own) <= 1e-6f * own ? 1.0f : scale / own;
}

std::string text_of(std::int32_t (*piece)(void*, std::int32_t, char*, std::int32_t), void* user, std::int32_t token) {
  std::string text(64, '\0');
  std::int32_t size = piece(user, token, text.data(), static_cast<std::int32_t>(text.size()));
  if (size < 0) {
    text.resize(static_cast<std::size_t>(-size));
    size = piece(user, token, text.data(), -size);
  }
  text.resize(static_cast<std::size_t>(std::max(size, 0)));
  return text;
}

}  // namespace

extern "C" {

zoomr_ggml_params zoomr_ggml_default_params(void) {
  zoomr_ggml_params p{};
  p.n_seq_max = 1, p.n_ubatch = 512, p.n_draft = 16, p.n_rollback = 16;
  p.type_kv = GGML_TYPE_F16;
  p.n_threads = 1;
  p.policy = "full";
  p.rope.freq_base = 10000, p.rope.freq_scale = 1;
  const zoomr::config limits;
  p.voters_unsure = limits.voters_unsure, p.voters_none = limits.voters_none;
  p.voters_none_slope = limits.voters_none_slope;
  return p;
}

zoomr_ggml* zoomr_ggml_init(const zoomr_ggml_params* params) {
  zoomr_ggml* made = nullptr;
  last_init = done([&] { made = new zoomr_ggml(*params); });
  return made;
}
void zoomr_ggml_free(zoomr_ggml* z) { delete z; }
const char* zoomr_ggml_error(const zoomr_ggml* z) {
  return z == nullptr ? last_init.sentence.c_str() : z->last.sentence.c_str();
}
size_t zoomr_ggml_bytes(const zoomr_ggml* z) { return static_cast<std::size_t>(z->in->capacity()); }

int zoomr_ggml_classify(int32_t n_vocab, int32_t (*piece)(void* user, int32_t token, char* buf, int32_t size),
                        void* user, uint8_t* classes) {
  last_init = done([&] {
    const auto found = zoomr::classify_sentences(n_vocab, [&](index_t id) { return text_of(piece, user, id); });
    for (std::size_t id = 0; id < found.size(); ++id) classes[id] = static_cast<std::uint8_t>(found[id]);
  });
  return last_init.status;
}

struct ggml_tensor* zoomr_ggml_attn(zoomr_ggml* z, struct ggml_context* ctx, struct ggml_tensor* q,
                                    struct ggml_tensor* k, struct ggml_tensor* v, float kq_scale, int32_t layer) {
  ggml_tensor* node = nullptr;
  z->call([&] {
    const zoomr::shape& model = z->settings.model;
    if (layer < 0 || layer >= model.layers) throw refusal("attn: there is no such layer");
    const rows q_rows = rows_of(*q, "q"), k_rows = rows_of(*k, "k"), v_rows = rows_of(*v, "v");
    const auto expect = [&](const rows& r, const char* name, index_t heads, index_t width) {
      const zoomr::extents<3> wanted{{q_rows.extents.at[0], heads, width}};
      const std::string found = zoomr::shape_text(r.extents), right = zoomr::shape_text(wanted);
      if (found != right) throw refusal(std::string("attn: ") + name + " is " + found + ", wanted " + right);
    };
    expect(q_rows, "q", model.heads, model.head_dim);
    expect(k_rows, "k", model.kv_heads, model.head_dim);
    expect(v_rows, "v", model.kv_heads, model.value_width());
    if (q_rows.type != number::f32) throw refusal("attn: q must be f32");
    if (k_rows.type != v_rows.type) throw refusal("attn: k and v must have one type");
    take_scale(z->nodes[static_cast<std::size_t>(layer)], kq_scale, model.head_dim);
    ggml_tensor* sources[] = {q, k, v};
    node = ggml_custom_4d(ctx, GGML_TYPE_F32, model.value_width(), model.heads, q->ne[2], 1, sources, 3, attend_in_node,
                          GGML_N_TASKS_MAX, &z->nodes[static_cast<std::size_t>(layer)]);
  });
  return node;
}

int zoomr_ggml_begin(zoomr_ggml* z, const zoomr_ggml_batch* batch) {
  return z->call([&] { z->begin(*batch); });
}
int zoomr_ggml_commit(zoomr_ggml* z) {
  outcome how = std::move(z->failed);
  if (how.status == ZOOMR_GGML_SUCCESS) {
    how = done([&] {
      if (!z->stepping) throw refusal("commit: no step is in progress");
      z->commit();
    });
  }
  z->drop();
  if (how.status != ZOOMR_GGML_SUCCESS) z->last = how;
  return how.status;
}
void zoomr_ggml_drop(zoomr_ggml* z) { z->drop(); }

bool zoomr_ggml_needs_split(const zoomr_ggml* z) { return z->in->evicts_while_decoding(); }
int32_t zoomr_ggml_split(zoomr_ggml* z, const zoomr_ggml_batch* batch) {
  std::int32_t most = z->settings.limits.max_batched_tokens;
  const int status = z->edit([&] {
    if (!z->fits(*batch, most)) most = 1;
  });
  return status == ZOOMR_GGML_SUCCESS ? most : status < 0 ? status : -status;
}

int zoomr_ggml_clear(zoomr_ggml* z) {
  return z->edit([&] {
    z->held.clear();
    z->spans.clear();
  });
}
int zoomr_ggml_seq_rm(zoomr_ggml* z, int32_t seq, int32_t p0, int32_t p1) {
  return z->edit([&] {
    z->held.remove(seq, p0, p1);
    const std::int32_t first = (std::max)(p0, 0), last = p1 < 0 ? named_span::prompt_end : p1;
    seq < 0 ? z->spans.remove_everywhere(first, last) : z->spans.remove(seq, first, last);
  });
}
int zoomr_ggml_seq_cp(zoomr_ggml* z, int32_t src, int32_t dst, int32_t p0, int32_t p1) {
  return z->edit([&] {
    z->held.copy(src, dst, p0, p1);
    if (src != dst) z->spans.forget(dst);
  });
}
int zoomr_ggml_seq_keep(zoomr_ggml* z, int32_t seq) {
  return z->edit([&] {
    z->held.keep(seq);
    z->spans.keep(seq);
  });
}
int zoomr_ggml_seq_add(zoomr_ggml* z, int32_t seq, int32_t p0, int32_t p1, int32_t delta) {
  return z->edit([&] { z->held.add(seq, p0, p1, delta); });
}
int zoomr_ggml_seq_div(zoomr_ggml* z, int32_t seq, int32_t p0, int32_t p1, int32_t d) {
  return z->edit([&] {
    const held_sequence* const s = z->held.find(seq);
    if (d == 1 || s == nullptr || s->tokens_in(p0, p1).size() == 0) return;
    throw refusal("seq_div: each key would have to be turned by an angle of its own");
  });
}
int zoomr_ggml_seq_span(zoomr_ggml* z, int32_t seq, int32_t p0, int32_t p1, int role) {
  return z->edit([&] { z->name(seq, p0, p1, role); });
}
bool zoomr_ggml_can_shift(const zoomr_ggml* z) { return z->held.can_shift(); }
int32_t zoomr_ggml_seq_pos_min(const zoomr_ggml* z, int32_t seq) {
  const held_sequence* const s = z->held.find(seq);
  return s == nullptr || s->positions.empty() ? -1 : s->positions.front();
}
int32_t zoomr_ggml_seq_pos_max(const zoomr_ggml* z, int32_t seq) {
  const held_sequence* const s = z->held.find(seq);
  return s == nullptr || s->positions.empty() ? -1 : s->positions.back();
}
int32_t zoomr_ggml_seq_ids(const zoomr_ggml* z, int32_t* ids, int32_t size) {
  std::int32_t count = 0;
  z->held.each([&](std::int32_t id, const held_sequence& s) {
    if (s.positions.empty()) return;
    if (count < size) ids[count] = id;
    ++count;
  });
  return count;
}
bool zoomr_ggml_in_prompt(const zoomr_ggml* z, int32_t seq) {
  const held_sequence* const s = z->held.find(seq);
  return s == nullptr || z->in->in_prompt(s->handle);
}

size_t zoomr_ggml_state_size(zoomr_ggml* z, int32_t seq) {
  return counted(z, [&] { return static_cast<std::size_t>(z->in->save_bytes(settled(*z, seq))); });
}
size_t zoomr_ggml_state_get(zoomr_ggml* z, int32_t seq, void* dst, size_t size) {
  return counted(z, [&] {
    memory_sink to(dst, size);
    z->in->save(settled(*z, seq), to);
    return size - to.left();
  });
}
size_t zoomr_ggml_state_set(zoomr_ggml* z, int32_t seq, const void* src, size_t size) {
  return counted(z, [&] {
    memory_source from(src, size);
    z->held.settle();
    z->held.close(seq);
    held_sequence& loaded = z->held.adopt(seq, [&] { return z->in->load(from); });
    loaded.positions = positions_of(*z->in, loaded.handle);
    z->spans.forget(seq);
    return size - from.left();
  });
}

int zoomr_ggml_seq_stats(const zoomr_ggml* z, int32_t seq, zoomr_ggml_stats* stats) {
  const held_sequence* const s = z->held.find(seq);
  *stats = {};
  if (s == nullptr) return ZOOMR_GGML_REFUSED;
  const zoomr::statistics found = z->in->stats(s->handle);
  *stats = {found.prompt_tokens, found.tokens,         found.attended_mean(z->settings.model),
            found.refreshes,     found.unsure_share(), static_cast<std::size_t>(z->in->bytes(s->handle))};
  return ZOOMR_GGML_SUCCESS;
}

}  // extern "C"
