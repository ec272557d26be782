// SPDX-License-Identifier: Apache-2.0
// What grouped_kv_cache does, in the order of its class: outside of it as kv_cache.inl is.
namespace zoomr::inline v0 {

template <class T, class Placement>
grouped_kv_cache<T, Placement>::grouped_kv_cache(std::vector<cache_type> groups, view<const index_t> group_of)
    : grouped_kv_cache(std::move(groups), detail::layer_groups(static_cast<index_t>(groups.size()), group_of)) {}

template <class T, class Placement>
grouped_kv_cache<T, Placement>::grouped_kv_cache(std::vector<cache_type> groups, view<const index_t, 2> group_of)
    : grouped_kv_cache(std::move(groups), detail::layer_groups(static_cast<index_t>(groups.size()), group_of)) {
  expect_alike_in_layers();
}

template <class T, class Placement>
grouped_kv_cache<T, Placement>::grouped_kv_cache(std::vector<cache_type>&& groups, detail::layer_groups table_of)
    : core_(std::make_unique<core>(core{std::move(groups), {std::move(table_of), {}, {}}})) {
  index_t sequences = unlimited;
  for (index_t g = 0; g < count(); ++g) {
    const auto& group = *at(g).core_;
    const index_t layers = table().layers_in(g);
    ZOOMR_EXPECTS(layers == group.sizes.model.layers, "groups: the shape of group " + std::to_string(g) + " has " +
                                                          std::to_string(group.sizes.model.layers) +
                                                          " layers, the table of layers " + std::to_string(layers));
    ZOOMR_EXPECTS(!detail::in_use(group), "groups: sequences of group " + std::to_string(g) + " are open");
    sequences = (std::min)(sequences, group.limits.max_sequences);
  }
  table().make_room(sequences);
  core_->steps.takes_part.resize(static_cast<std::size_t>(sequences));
  core_->steps.group_steps.reserve(static_cast<std::size_t>(count()));
}

template <class T, class Placement>
void grouped_kv_cache<T, Placement>::expect_alike_in_layers() const {
  table().each_place([&](index_t layer, grouped_layer place) {
    const auto& in = *at(place.group).core_;
    const auto& first = *at(table().place(layer, 0).group).core_;
    shape expected = first.sizes.model;
    expected.layers = in.sizes.model.layers;
    ZOOMR_EXPECTS(
        in.sizes.model.kv_heads == 1,
        "groups: the table is one of KV heads, each of which is a layer of its group: but the shape of group " +
            std::to_string(place.group) + " has " + std::to_string(in.sizes.model.kv_heads) + " KV heads");
    ZOOMR_EXPECTS(in.sizes.model == expected && in.limits.half_queries == first.limits.half_queries,
                  "groups: the KV heads of layer " + std::to_string(layer) +
                      " are in groups that differ in the shape of a KV head, or in config.half_queries");
  });
}

template <class T, class Placement>
grouped_kv_cache<T, Placement>::grouped_kv_cache(grouped_kv_cache&& other) noexcept = default;
template <class T, class Placement>
grouped_kv_cache<T, Placement>& grouped_kv_cache<T, Placement>::operator=(grouped_kv_cache&& other) noexcept = default;
template <class T, class Placement>
grouped_kv_cache<T, Placement>::~grouped_kv_cache() = default;

template <class T, class Placement>
auto grouped_kv_cache<T, Placement>::group(index_t g) const -> const cache_type& {
  table().expect_group(g);
  return at(g);
}

template <class T, class Placement>
sequence grouped_kv_cache<T, Placement>::in_group(sequence seq, index_t g) const {
  group(g);
  return handle(expect_open(seq), g);
}

template <class T, class Placement>
sequence grouped_kv_cache<T, Placement>::open() {
  return open_as([](cache_type& in, index_t, sequence) { return in.open(); }, {});
}

template <class T, class Placement>
void grouped_kv_cache<T, Placement>::close(sequence seq) {
  const index_t id = expect_open(seq);
  for (index_t g = 0; g < count(); ++g) at(g).close(handle(id, g));
  table().close(id);
}

template <class T, class Placement>
void grouped_kv_cache<T, Placement>::rollback(sequence seq, index_t tokens) {
  const index_t id = expect_open(seq);
  each([&](cache_type& in, index_t g) { in.core_->expect_known(in.expect_held(handle(id, g), tokens), tokens); });
  for (index_t g = 0; g < count(); ++g) at(g).rollback(handle(id, g), tokens);
}

template <class T, class Placement>
sequence grouped_kv_cache<T, Placement>::fork(sequence from) {
  expect_open(from);
  return open_as([](cache_type& in, index_t, sequence original) { return in.fork(original); }, from);
}

template <class T, class Placement>
void grouped_kv_cache<T, Placement>::fork(sequence from, sequence into) {
  const index_t id = expect_open(from), other = expect_open(into);
  expect_unused(from);
  for (index_t g = 0; g < count(); ++g) at(g).fork(handle(id, g), handle(other, g));
}

template <class T, class Placement>
template <class Turn>
void grouped_kv_cache<T, Placement>::plan_erase(sequence seq, token_range positions, const Turn& turn) const {
  const index_t id = expect_open(seq);
  expect_unused(seq);
  if (!detail::needs_erasing(at(0).expect_unused(handle(id, 0)), positions)) {
    each([&](cache_type& in, index_t g) { in.plan_erase(handle(id, g), positions); });
  } else if constexpr (std::is_same_v<Turn, position_gap>) {
    plan_edit(id, positions, detail::unturned{}, true);
  } else {
    plan_edit(id, positions, turn, false);
  }
}

template <class T, class Placement>
template <class Turn>
void grouped_kv_cache<T, Placement>::plan_edit(index_t id, token_range positions, const Turn& turn, bool gap) const {
  detail::group_edit<detail::span_erasure, pool_type, Turn> edited(turn, table());
  each([&](cache_type& in, index_t g) { edited.prepare(*in.core_, handle(id, g).id, positions, gap); });
}

template <class T, class Placement>
bool grouped_kv_cache<T, Placement>::holds_all() const {
  return std::ranges::all_of(core_->groups, [](const cache_type& in) { return in.holds_all(); });
}

template <class T, class Placement>
bool grouped_kv_cache<T, Placement>::evicts_while_decoding() const {
  return std::ranges::any_of(core_->groups, [](const cache_type& in) { return in.evicts_while_decoding(); });
}

template <class T, class Placement>
template <class Turn>
void grouped_kv_cache<T, Placement>::shift(sequence seq, token_range positions, index_t distance, const Turn& turn) {
  expect_unused(seq);
  edit<detail::span_shift>(expect_open(seq), positions, turn, distance);
}

template <class T, class Placement>
auto grouped_kv_cache<T, Placement>::begin(view<const step_item> items, view<const view<const index_t>, 2> tables)
    -> step_type {
  expect_idle();
  if (tables.data() != nullptr) expect_extents("begin: tables are", tables, {{items.size(), count()}});
  table().plan(items, no_pages, tables, [this](auto work) { this->each(work); });
  ZOOMR_TRY {
    each([&](cache_type& in, index_t g) {
      core_->steps.group_steps.push_back(in.begin(table().listed(items, g, tables)));
    });
  }
  ZOOMR_CATCH_ALL {
    core_->steps.group_steps.clear();
    detail::rethrow();
  }
  return step_type(core_->steps);
}

template <class T, class Placement>
auto grouped_kv_cache<T, Placement>::begin(sequence seq, view<const token_id> ids, bool prompt_ends) -> step_type {
  const step_item item{seq, ids, prompt_ends};
  return begin(view<const step_item>(&item, {1}));
}

template <class T, class Placement>
void grouped_kv_cache<T, Placement>::plan(view<const step_item> items, view<index_t> taken) const {
  expect_extents("plan: taken is", taken, {{items.size()}});
  expect_idle();
  table().plan(items, no_pages, {}, [this](auto work) { this->each(work); });
  for (index_t i = 0; i < items.size(); ++i) taken[i] = table().least()[i];
}

template <class T, class Placement>
void grouped_kv_cache<T, Placement>::save(sequence seq, byte_sink& to) {
  const index_t id = expect_open(seq);
  for (index_t g = 0; g < count(); ++g) at(g).expect_unused(handle(id, g));
  detail::sink_of_part part(to);
  detail::section_writer out(&part, magic());
  group_table(out);
  out.finish();
  each([&](cache_type& in, index_t g) { in.save(handle(id, g), part); });
  to.finish();
}

template <class T, class Placement>
template <class Archive>
void grouped_kv_cache<T, Placement>::group_table(Archive& archive) const {
  archive.section("groups", [&] {
    const view<const grouped_layer> places = table().places();
    bool same = !Archive::reads || archive.left() == places.size() * static_cast<byte_count>(sizeof(index_t));
    for (index_t i = 0; same && i < places.size(); ++i) {
      index_t group = places[i].group;
      archive.number(group);
      same = group == places[i].group;
    }
    if (!same) {
      detail::refuse_file(std::string("the file's ") + (table().by_kv_head() ? "KV heads" : "layers") +
                          " are in other groups than those of this cache");
    }
  });
}

template <class T, class Placement>
byte_count grouped_kv_cache<T, Placement>::save_bytes(sequence seq) {
  const index_t id = expect_open(seq);
  detail::section_writer counted(nullptr, magic());
  group_table(counted);
  byte_count bytes = counted.bytes();
  each([&](cache_type& in, index_t g) { bytes += in.save_bytes(handle(id, g)); });
  return bytes;
}

template <class T, class Placement>
sequence grouped_kv_cache<T, Placement>::load(byte_source& from, view<const view<const index_t>> tables) {
  expect_idle();
  if (tables.size() > 0) expect_extents("load: tables are", tables, {{count()}});
  detail::section_reader in(
      from, magic(),
      table().by_kv_head() ? "saved sequence of groups of KV heads" : "saved sequence of groups of layers");
  group_table(in);
  const auto load_group = [&](cache_type& to, index_t g, sequence) {
    return to.load(from, tables.size() > 0 ? tables[g] : view<const index_t>{});
  };
  return open_as(load_group, {}, [&](index_t id) { expect_same_text(id); });
}

template <class T, class Placement>
memory_use grouped_kv_cache<T, Placement>::bytes(sequence seq) const {
  const index_t id = expect_open(seq);
  return sum_of([&](index_t g) { return at(g).bytes(handle(id, g)); });
}

template <class T, class Placement>
memory_use grouped_kv_cache<T, Placement>::capacity() const {
  return sum_of([&](index_t g) { return at(g).capacity(); });
}

template <class T, class Placement>
statistics grouped_kv_cache<T, Placement>::stats(sequence seq) const {
  const index_t id = expect_open(seq);
  statistics sum = at(0).stats(handle(id, 0));
  for (index_t g = 1; g < count(); ++g) sum.add_layers(at(g).stats(handle(id, g)));
  return sum;
}

template <class T, class Placement>
void grouped_kv_cache<T, Placement>::expect_unused(sequence seq) const {
  const index_t id = expect_open(seq);
  each([&](cache_type& in, index_t g) { in.expect_unused(handle(id, g)); });
}

template <class T, class Placement>
template <class Turn>
std::vector<token_range> grouped_kv_cache<T, Placement>::erase_span(sequence seq, token_range positions,
                                                                    const Turn& turn) {
  const index_t id = expect_open(seq);
  expect_unused(seq);
  if (!detail::needs_erasing(at(0).expect_unused(handle(id, 0)), positions)) {
    std::vector<token_range> entries;
    for (index_t g = 0; g < count(); ++g) entries.push_back({0, entries_of(id, g)});
    if (positions.size() > 0) rollback(seq, positions.first);
    for (index_t g = 0; g < count(); ++g) entries[static_cast<std::size_t>(g)].first = entries_of(id, g);
    return entries;
  }
  if constexpr (std::is_same_v<Turn, position_gap>) {
    return edit<detail::span_erasure>(id, positions, detail::unturned{}, true);
  } else {
    return edit<detail::span_erasure>(id, positions, turn, false);
  }
}

template <class T, class Placement>
index_t grouped_kv_cache<T, Placement>::entries_of(index_t id, index_t g) const {
  return static_cast<index_t>(at(g).expect_open(handle(id, g)).pages.size());
}

template <class T, class Placement>
template <template <class, class> class Edit, class Turn, class How>
std::vector<token_range> grouped_kv_cache<T, Placement>::edit(index_t id, token_range positions, const Turn& turn,
                                                              How how) {
  detail::group_edit<Edit, pool_type, Turn> edited(turn, table());
  each([&](cache_type& in, index_t g) { edited.prepare(*in.core_, handle(id, g).id, positions, how); });
  ZOOMR_TRY {
    each([&](cache_type&, index_t g) { edited.write(g); });
  }
  ZOOMR_CATCH(const error& cause) {
    edited.forget();
    detail::rethrow();
  }
  std::vector<token_range> entries;
  for (index_t g = 0; g < count(); ++g) entries.push_back(edited.finish(g));
  return entries;
}

template <class T, class Placement>
void grouped_kv_cache<T, Placement>::expect_same_text(index_t id) const {
  const auto& first = at(0).expect_open(handle(id, 0));
  for (index_t g = 1; g < count(); ++g) {
    const auto& state = at(g).expect_open(handle(id, g));
    const bool same_prompts = state.prompt_end == first.prompt_end && state.later_prompts == first.later_prompts &&
                              state.moved == first.moved;
    if (state.tokens() != first.tokens() || !same_prompts) {
      detail::refuse_file("the groups of the file have different texts");
    }
  }
}

}  // namespace zoomr::inline v0
