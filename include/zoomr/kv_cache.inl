// SPDX-License-Identifier: Apache-2.0
// What any_kv_cache does, in the order of its class. It is not in the class, so that a program that declares an
// instantiation (`extern template`) does not compile it again.
namespace zoomr::inline v0 {

template <class T, class Placement>
any_kv_cache<T, Placement>::any_kv_cache(any_kv_cache&& other) noexcept = default;
template <class T, class Placement>
any_kv_cache<T, Placement>& any_kv_cache<T, Placement>::operator=(any_kv_cache&& other) noexcept = default;
template <class T, class Placement>
any_kv_cache<T, Placement>::~any_kv_cache() = default;

template <class T, class Placement>
memory_use any_kv_cache<T, Placement>::capacity() const {
  return core_type::sizing::bytes(core_->sizes, core_->policy, core_->limits);
}

template <class T, class Placement>
auto any_kv_cache<T, Placement>::begin(view<const step_item> items) -> step_type {
  const auto check = [this](const step_item& item, index_t i) { expect_passable(item, i); };
  base::plan_step(items, check, [&] {
    for (const step_item& item : items) plan_item(item);
    core_->step.expect_room();
    for (index_t i = 0; i < items.size(); ++i) renew_summaries(*core_, items[i], i);
    if constexpr (pool_type::owns_pages) {
      take_pages_to_write(*core_);
    } else {
      expect_tables(*core_, items);
      take_tables(*core_, items);
    }
    for (index_t i = 0; i < items.size(); ++i) {
      if (items[i].positions.size() > 0) take_positions(i, items[i]);
    }
  });
  return step_type(*core_);
}

template <class T, class Placement>
auto any_kv_cache<T, Placement>::begin(sequence seq, view<const token_id> ids, bool prompt_ends) -> step_type {
  const step_item item{seq, ids, prompt_ends};
  return begin(view<const step_item>(&item, {1}));
}

template <class T, class Placement>
void any_kv_cache<T, Placement>::plan(view<const step_item> items, view<index_t> taken) const {
  const auto check = [this](const step_item& item, index_t i) { expect_passable(item, i); };
  base::plan_taken(items, taken, check, [this](const step_item& item) { plan_item(item); });
}

template <class T, class Placement>
sequence any_kv_cache<T, Placement>::fork(sequence from) {
  const detail::sequence_state& original = expect_unused(from);
  const sequence copy = base::open();
  become(state(copy.id), original);
  return copy;
}

template <class T, class Placement>
void any_kv_cache<T, Placement>::fork(sequence from, sequence into) {
  const detail::sequence_state& original = expect_unused(from);
  expect_open(into);
  if (!(from == into)) become(base::emptied(into), original);
}

template <class T, class Placement>
void any_kv_cache<T, Placement>::block_table(sequence seq,
                                             view<const index_t> pages) requires(!pool_of<Placement, T>::owns_pages) {
  expect_unused(seq);
  detail::take_table(core_->limits.engine, state(seq.id), pages, "block_table: it",
                     [](const std::string& reason) { detail::raise_precondition(reason); });
}

template <class T, class Placement>
template <class Turn>
void any_kv_cache<T, Placement>::plan_erase(sequence seq, token_range positions, const Turn& turn) const {
  const detail::sequence_state& state = base::expect_unused(seq);
  if (!detail::needs_erasing(state, positions)) {
    if (positions.size() > 0) core_->expect_known(state, positions.first);
    return;
  }
  with_erasure(seq, positions, turn, [](auto& erasure) { erasure.prepare(); });
}

template <class T, class Placement>
bool any_kv_cache<T, Placement>::holds_all() const {
  return core_->sizes.kept == 0 && core_->limits.token_ranks.alone() &&
         !detail::frees_passed_pages(core_->policy, core_->limits) &&
         !detail::frees_unreachable_pages(core_->policy, core_->limits);
}

template <class T, class Placement>
bool any_kv_cache<T, Placement>::evicts_while_decoding() const {
  return core_->sizes.kept > 0 && core_->policy.evict.while_decoding;
}

template <class T, class Placement>
template <class Turn>
void any_kv_cache<T, Placement>::shift(sequence seq, token_range positions, index_t distance, const Turn& turn) {
  expect_unused(seq);
  expect_not_dealt("shift");
  detail::expect_turns(turn, base::model());
  detail::span_shift shifted(*core_, seq.id, positions, turn, distance);
  apply(shifted);
}

template <class T, class Placement>
void any_kv_cache<T, Placement>::expect_not_dealt(const char* call) const {
  ZOOMR_EXPECTS(
      core_->limits.token_ranks.alone(),
      std::string(call) + ": config.token_ranks divide the tokens, so that this rank has a part of them only");
}

template <class T, class Placement>
void any_kv_cache<T, Placement>::save(sequence seq, byte_sink& to) {
  expect_not_dealt("save");
  detail::save_sequence(*core_, base::expect_unused(seq), &to);
}

template <class T, class Placement>
byte_count any_kv_cache<T, Placement>::save_bytes(sequence seq) {
  expect_not_dealt("save_bytes");
  return detail::save_sequence(*core_, base::expect_unused(seq), nullptr);
}

template <class T, class Placement>
sequence any_kv_cache<T, Placement>::load(byte_source& from, view<const index_t> pages) {
  core_->step.expect_idle();
  expect_not_dealt("load");
  ZOOMR_EXPECTS(!pool_type::owns_pages || pages.size() == 0,
                "load: there is a block table, but the pages are the cache's own: it is for the placement "
                "engine_pages");
  return detail::load_sequence(*core_, from, pages);
}

template <class T, class Placement>
const selection_row& any_kv_cache<T, Placement>::selected(sequence seq, index_t row) const {
  ZOOMR_EXPECTS(row >= 0 && row < selection_rows(), "selected: there is no such row");
  return expect_open(seq).active_selection.row(row);
}

template <class T, class Placement>
memory_use any_kv_cache<T, Placement>::bytes(sequence seq) const {
  return core_->bytes_in_use(expect_open(seq));
}

template <class T, class Placement>
slot_map any_kv_cache<T, Placement>::slots_of(sequence seq, index_t layer, index_t kv_head) const {
  const detail::sequence_state& state = expect_open(seq);
  expect_kv_lane(layer, kv_head);
  return state.slots_of(core_->lane_of(layer, kv_head));
}

// clang up to 15 instantiates, with the class, members too whose constraints do not hold: hence `if constexpr` in
// `tiers`, `in_memory` and `kv_lane`.
template <class T, class Placement>
tier_statistics any_kv_cache<T, Placement>::tiers() const requires tiered_placement<Placement> {
  if constexpr (tiered_placement<Placement>) return core_->pool.stats();
  return {};
}

template <class T, class Placement>
bool any_kv_cache<T, Placement>::in_memory(sequence seq, index_t layer, index_t kv_head,
                                           index_t slot) const requires tiered_placement<Placement> {
  const detail::sequence_state& state = open_lane(seq, layer, kv_head);
  ZOOMR_EXPECTS(slot >= 0 && slot < state.slots(), "in_memory: there is no such slot");
  const index_t page = state.pages[static_cast<std::size_t>(slot / page_tokens)];
  if constexpr (tiered_placement<Placement>) {
    return page >= 0 && core_->pool.in_memory(core_->pool.piece_of(core_->donors.stored(layer), kv_head), page);
  }
  return false;
}

template <class T, class Placement>
any_kv_cache<T, Placement>::any_kv_cache(const shape& model, const detail::any_policy& policy, const config& limits,
                                         function_ref<std::unique_ptr<const detail::any_policy>()> make_policy) {
  const memory_use use = bytes_of(model, policy, limits);
  core_ = allocated(use.total(), [&] {
    std::unique_ptr<const detail::any_policy> own_policy = make_policy();
    detail::expect_classes(*own_policy, limits);
    return std::make_unique<core_type>(model, std::move(own_policy), limits);
  });
}

template <class T, class Placement>
memory_use any_kv_cache<T, Placement>::bytes_of(const shape& model, const detail::any_policy& policy,
                                                const config& limits) {
  return allocated(0, [&] {
    detail::expect_possible(model, policy, limits);
    return core_type::sizing::bytes(model, policy, limits);
  });
}

template <class T, class Placement>
template <class Turn>
token_range any_kv_cache<T, Placement>::erase_span(sequence seq, token_range positions, const Turn& turn) {
  const detail::sequence_state& state = expect_unused(seq);
  if (!detail::needs_erasing(state, positions)) {
    const auto entries = static_cast<index_t>(state.pages.size());
    if (positions.size() > 0) base::rollback(seq, positions.first);
    return {static_cast<index_t>(state.pages.size()), entries};
  }
  return with_erasure(seq, positions, turn, [](auto& erasure) { return apply(erasure); });
}

template <class T, class Placement>
template <class Turn, class Work>
auto any_kv_cache<T, Placement>::with_erasure(sequence seq, token_range positions, const Turn& turn, Work work) const {
  expect_not_dealt("erase");
  if constexpr (std::is_same_v<Turn, position_gap>) {
    const detail::unturned none{};
    detail::span_erasure erasure(*core_, seq.id, positions, none, true);
    return work(erasure);
  } else {
    detail::expect_turns(turn, base::model());
    detail::span_erasure erasure(*core_, seq.id, positions, turn, false);
    return work(erasure);
  }
}

template <class T, class Placement>
template <class Edit>
token_range any_kv_cache<T, Placement>::apply(Edit& edit) {
  edit.prepare();
  ZOOMR_TRY { edit.write(); }
  ZOOMR_CATCH(const error& cause) {
    edit.forget();
    detail::rethrow();
  }
  return edit.finish();
}

template <class T, class Placement>
void any_kv_cache<T, Placement>::expect_kv_lane(index_t layer, index_t kv_head) const {
  const shape& model = core_->sizes.model;
  ZOOMR_EXPECTS(layer >= 0 && layer < model.layers && kv_head >= 0 && kv_head < model.kv_heads,
                "there is no KV head " + std::to_string(kv_head) + " in a layer " + std::to_string(layer));
}

template <class T, class Placement>
const detail::sequence_state& any_kv_cache<T, Placement>::open_lane(sequence seq, index_t layer,
                                                                    index_t kv_head) const {
  const detail::sequence_state& state = expect_open(seq);
  expect_kv_lane(layer, kv_head);
  return state;
}

template <class T, class Placement>
void any_kv_cache<T, Placement>::become(detail::sequence_state& copy, const detail::sequence_state& original) {
  copy.become(original, core_->sizes);
  if constexpr (pool_type::owns_pages) detail::share_pages(original.pages, core_->pool);
}

template <class T, class Placement>
void any_kv_cache<T, Placement>::expect_passable(const step_item& item, index_t i) const {
  const detail::sequence_state& stepped = state(item.seq.id);
  if constexpr (pool_type::owns_pages) base::expect_no_table(item, i);
  detail::expect_item(stepped, item, core_->limits);
  expect_beginning(core_->policy, core_->limits, stepped, item);
  expect_observed(core_->policy, stepped, item);
  if (item.positions.size() > 0) expect_positions(core_->policy, core_->limits.logits, stepped, item);
  if (item.spans.size() > 0) detail::expect_spans(core_->policy, stepped, item, core_->limits.max_tokens);
}

template <class T, class Placement>
void any_kv_cache<T, Placement>::plan_alone(view<const step_item> items, view<index_t> taken) const {
  base::plan_alone(items, taken, [this](const step_item& item) { plan_item(item); });
}

template <class T, class Placement>
void any_kv_cache<T, Placement>::plan_item(const step_item& item) const {
  const auto& stepped = state(item.seq.id);
  const detail::layout& sizes = core_->sizes;
  const detail::planned_item& planned = core_->step.add(core_->policy, stepped, stepped.log.last_position(), item,
                                                        core_->limits, sizes.most_segments, sizes.remembered);
  if (planned.chooses || planned.goes_on()) core_->pending[static_cast<std::size_t>(planned.seq)].clear();
}

template <class T, class Placement>
[[gnu::noinline]] void any_kv_cache<T, Placement>::take_positions(index_t i, const step_item& item) {
  const detail::planned_item& planned = core_->step.items[static_cast<std::size_t>(i)];
  for (index_t t = 0; t < planned.tokens; ++t) state(item.seq.id).moved.add(planned.first + t, item.positions[t]);
}

}  // namespace zoomr::inline v0
