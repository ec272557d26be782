#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The folders are the architecture: a header includes only what stands before it in ORDER, and never a sibling; a
device header (.cuh) may include those of its own folder, and no host header (.hpp) includes a device header. Folders
have an order too, FOLDERS, and nothing is included from one that stands behind. A part (.inl) is of the header of its
name, includes nothing, and need not stand in ORDER.

The layers L0 to L7 are the sections of ORDER. The caption of a header, its second line, begins with its layer. The
table of layers in docs/design.md has a row for each, with the folders of its headers.

layers.py INCLUDE_DIR       prints each fault of the headers below INCLUDE_DIR/zoomr, and of the table; exit status 1 if
                            there are any
layers.py --self-test DIR   plants faults in copies of both and checks that each is found
"""
import pathlib
import re
import shutil
import sys
import tempfile

# One entry for each header, lowest first; an entry of several folders holds siblings that never include each other.
# `L3:` begins a layer.
ORDER = """
L0:
core/platform.hpp core/version.hpp
L1:
core/function_ref.hpp core/types.hpp core/bytes.hpp core/cpu_path.hpp core/compiled_flags.hpp core/executor.hpp core/token_range.hpp core/storage.hpp core/block_rows.hpp core/storage_types.hpp core/error.hpp core/table.hpp core/threads/waiting.hpp core/threads/offered_work.hpp core/threads/thread_pool.hpp core/threads/crew.hpp core/view.hpp core/ranks/rank_group.hpp core/ranks/thread_ranks.hpp core/ranks/mpi_ranks.hpp core/ranks/nccl_ranks.hpp core/shape.hpp core/buffer.hpp
core/carver.hpp
core/device/device.cuh core/device/streams.cuh core/device/vectors.cuh core/device/warp.cuh core/device/block.cuh
L2:
math/functions.hpp math/simd.hpp math/softmax.hpp math/dot.hpp math/products.hpp math/attention_state.hpp math/order.hpp math/logits.hpp math/hadamard.hpp
math/dot.cuh math/softmax.cuh math/best.cuh
L3:
paging/paged_kv_lane.hpp paging/stored_rows.hpp paging/resident_keys.hpp paging/block_shape.hpp paging/tiers/tier_frames.hpp paging/tiers/tier_statistics.hpp
paging/engine_memory.hpp paging/page_pool.hpp paging/engine_pool.hpp
paging/block_file.hpp paging/tiers/transfer.hpp paging/tiers/transfers.hpp paging/tiers/replacement.hpp
paging/tiers/tiered_kv_lane.hpp paging/tiers/tier.hpp paging/tiers/tiered_blocks.hpp paging/tiers/tiered_pool.hpp
policy/segment.hpp policy/slot_map.hpp policy/position_map.hpp policy/lane_logits.hpp policy/summary.hpp policy/kv_lane_attention.hpp policy/component.hpp policy/posterior_gate.hpp policy/concepts.hpp
policy/take_best.hpp policy/zones.hpp
L4:
policy/segment/|policy/evict/|policy/summarize/|policy/query/|policy/score/|policy/aggregate/|policy/select/|policy/refresh/|policy/placement/
attention/index_rule.hpp attention/run_logits.hpp attention/page_run.hpp attention/stretches.hpp attention/
L5:
policy/checks.hpp policy/compose.hpp policy/any_policy.hpp policy/policy_text.hpp policy/any_scorer_of.hpp policy/any_policy_of.hpp
presets/ presets/table.hpp
L6:
cache/logit_rule.hpp cache/rank_heads.hpp cache/rank_tokens.hpp cache/layer_anchors.hpp cache/key_rotation.hpp cache/config.hpp cache/statistics.hpp cache/trace.hpp cache/sequence.hpp cache/byte_stream.hpp cache/saving/sections.hpp cache/saving/section_writer.hpp cache/saving/section_reader.hpp
cache/tokens/query_memory.hpp cache/tokens/question_queries.hpp cache/tokens/selection.hpp cache/tokens/moved_positions.hpp cache/tokens/pinned_segments.hpp cache/tokens/query_positions.hpp cache/tokens/token_state.hpp cache/planning/voter_table.hpp cache/planning/donor_table.hpp cache/planning/anchor_table.hpp cache/planning/rank_messages.hpp cache/planning/choice_exchange.hpp cache/planning/layout.hpp
cache/planning/plan.hpp cache/planning/step_layers.hpp cache/state/unreachable_pages.hpp cache/state/erasable.hpp cache/state/sequences.hpp cache/state/cache_base.hpp cache/state/mistaken_arrays.hpp cache/state/step_items.hpp cache/state/layer_groups.hpp
cache/state/shared_writes.hpp cache/state/engine_tables.hpp
cache/host/choosing/key_masses.hpp cache/host/choosing/rounded_index.hpp cache/host/sequence_state.hpp cache/host/choosing/shortlist.hpp cache/host/choosing/chooser.hpp cache/host/eviction/pinned_tokens.hpp cache/host/eviction/observation.hpp cache/host/summarizing.hpp
cache/host/eviction/eviction_room.hpp cache/host/attending/half_queries.hpp cache/host/attending/transformed_rows.hpp cache/host/attending/prompt_attention.hpp cache/host/thread_memory.hpp cache/host/attending/cut_states.hpp cache/host/attending/state_exchange.hpp cache/host/core_sizing.hpp cache/host/core.hpp cache/host/shared_pages.hpp cache/host/editing/slot_shift.hpp cache/host/editing/span_erasure.hpp cache/host/editing/span_shift.hpp cache/host/editing/group_edit.hpp cache/host/choosing/key_scores.hpp cache/host/choosing/token_queries.hpp cache/host/choosing/token_ranges.hpp cache/host/choosing/due_choices.hpp cache/host/attending/audit.hpp cache/host/attending/finished_rows.hpp cache/host/attending/item_attention.hpp cache/host/attending/layer_attention.hpp cache/host/attending/listed_attention.hpp cache/host/choosing/index_lists.hpp cache/host/attending/listing.hpp
cache/host/eviction/prompt_observation.hpp cache/host/eviction/token_eviction.hpp cache/host/commit.hpp cache/saving/saved_parts.hpp cache/saving/saved_rule.hpp
cache/saving/saved_head.hpp cache/saving/saved_text.hpp cache/saving/saved_memory.hpp cache/saving/saved_sequence.hpp step.hpp kv_cache.hpp grouped_step.hpp index_lists.hpp grouped_kv_cache.hpp
cache/device/eviction/observed_queries.cuh cache/device/eviction/observation.cuh cache/device/eviction/eviction_state.cuh cache/device/memory/table.cuh cache/device/memory/sequence.cuh
paging/device_arena.cuh
cache/device/memory/sizes.cuh cache/device/memory/common_arrays.cuh cache/device/voting/voter_arrays.cuh cache/device/memory/layout.cuh cache/device/choosing/summaries.cuh
cache/device/launching/kernels.cuh cache/device/launching/listing.cuh cache/device/voting/segment_logits.cuh cache/device/voting/voter_kernels.cuh cache/device/choosing/choices.cuh cache/device/choosing/rank_choices.cuh cache/device/launching/layer_kernel.cuh
cache/device/tiers/fetching.cuh cache/device/tiers/placing.cuh cache/device/tiers/ahead.cuh cache/device/launching/rows.cuh
cache/device/eviction/eviction_kernels.cuh cache/device/memory/uploads.cuh cache/device/memory/page_tables.cuh cache/device/memory/planned_tokens.cuh cache/device/core.cuh
cache/device/eviction/token_eviction.cuh cache/device/launching/pass.cuh cache/device/forking.cuh cache/device/voting/voter_launches.cuh cache/device/choosing/choice_launches.cuh cache/device/tiers/fetch_launches.cuh
cache/device/checks.cuh cache/device/launching/launches.cuh device_step.cuh device_cache.cuh any_device_cache.cuh grouped_device_step.cuh grouped_device_cache.cuh cache/device/moving/choice_move.cuh cache/device/moving/voter_move.cuh cache/device/moving/sequence_move.cuh device_transfer.cuh
L7:
vocabulary.hpp zoomr.hpp compiled.hpp zoomr.cuh
""".split()
LAYERS = {}  # entry of ORDER: its layer
for entry in ORDER:
    if entry.endswith(":"):
        layer = entry[:-1]
    else:
        LAYERS[entry] = layer
ORDER = list(LAYERS)
# Lowest first. The root has two places: what an engine calls, and, of L7, what includes everything.
FOLDERS = ("core math paging policy presets attention cache cache/tokens cache/planning cache/state cache/host "
           "cache/saving cache/device root zoomr").split()
LONGEST = 400
SPDX = "// SPDX-License-Identifier: Apache-2.0"
DESIGN = pathlib.Path(__file__).parents[2] / "docs" / "design.md"


def place(header):
    """Where a header stands in ORDER, by its own name or that of its folder, or None."""
    if header in ORDER:
        return ORDER.index(header)
    for number, entry in enumerate(ORDER):
        folders = entry.split("|") if entry.endswith("/") else []
        if any(header.startswith(folder) for folder in folders):
            return number
    return None


def level(header):
    """Where the folder of a header stands in FOLDERS, or None."""
    parts = header.split("/")[:-1]
    if not parts:
        here = place(header)
        return FOLDERS.index("zoomr" if here is not None and LAYERS[ORDER[here]] == "L7" else "root")
    name = "/".join(parts[:2]) if parts[0] == "cache" else parts[0]
    return FOLDERS.index(name) if name in FOLDERS else None


def faults(include_dir):
    root = pathlib.Path(include_dir) / "zoomr"
    headers = sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.suffix in (".hpp", ".cuh"))
    if not headers:
        yield f"{root}: no headers"
    for part in sorted(path.relative_to(root).as_posix() for path in root.rglob("*.inl")):
        lines = (root / part).read_text(encoding="utf-8").splitlines()
        if not lines or lines[0] != SPDX:
            yield f"{part}: the first line must be {SPDX}"
        if len(lines) > LONGEST:
            yield f"{part}: {len(lines)} lines, more than {LONGEST}"
        if any(re.match(r"\s*#\s*include\s*[<\"]", line) for line in lines):
            yield f"{part}: a part includes nothing"
    for header in headers:
        text = (root / header).read_text(encoding="utf-8")
        lines = text.splitlines()
        here = place(header)
        if here is None:
            yield f"{header}: has no place in the layers; give it one in ORDER"
        if not lines or lines[0] != SPDX:
            yield f"{header}: the first line must be {SPDX}"
        caption = f"// {LAYERS[ORDER[here]]}. " if here is not None else "// L"
        if len(lines) < 2 or not lines[1].startswith(caption):
            yield f"{header}: its second line must begin with {caption}"
        if "#pragma once" not in lines:
            yield f"{header}: #pragma once is missing"
        if len(lines) > LONGEST:
            yield f"{header}: {len(lines)} lines, more than {LONGEST}"
        if re.search(r"\b(TODO|FIXME)\b", text):
            yield f"{header}: unfinished work (TODO, FIXME) belongs elsewhere"
        if level(header) is None:
            yield f"{header}: its folder has no place; give it one in FOLDERS"
        if not re.fullmatch(r"[a-z0-9_/]+\.(hpp|cuh)", header):
            yield f"{header}: names are snake_case"
        for kind, included in re.findall(r'^\s*#\s*include\s*([<"])([^>"]+)', text, re.MULTILINE):
            if kind == '"':
                yield f'{header}: "{included}" must be included as <zoomr/...>'
            elif included.startswith("zoomr/"):
                other = included.removeprefix("zoomr/")
                there = place(other)
                same_folder = header.rpartition("/")[0] == other.rpartition("/")[0]
                if other.endswith(".inl") and (root / other).exists():
                    continue
                if other not in headers:
                    yield f"{header}: <{included}> does not exist"
                elif header.endswith(".hpp") and other.endswith(".cuh"):
                    yield f"{header}: host code includes device code, <{included}>"
                elif header.endswith(".cuh") and same_folder and there == here:
                    continue
                elif here is not None and there is not None and there >= here:
                    yield f"{header}: {'sibling' if there == here else 'upward'} include of <{included}>"
                elif None not in (level(header), level(other)) and level(other) > level(header):
                    yield f"{header}: <{included}> is in a folder above its own"


def folder(header):
    """What the table of layers calls the folder of a header; the components' folders are one."""
    parts = header.split("/")[:-1]
    if not parts:
        return "root"
    return "policy/*/" if parts[0] == "policy" and len(parts) > 1 else f"{parts[0]}/"


def table_faults(include_dir, design):
    """Where the table of layers, in the text `design`, does not say which folders have headers of a layer."""
    root = pathlib.Path(include_dir) / "zoomr"
    folders = {layer: set() for layer in LAYERS.values()}
    for path in root.rglob("*"):
        header = path.relative_to(root).as_posix()
        if path.suffix in (".hpp", ".cuh") and place(header) is not None:
            folders[LAYERS[ORDER[place(header)]]].add(folder(header))
    rows = dict(re.findall(r"^\| (L\d) \|([^|]*)\|", design, re.MULTILINE))
    for layer in sorted(folders.keys() | rows.keys()):
        said = {name.strip("` ") for name in rows.get(layer, "").split(",")} - {""}
        there = folders.get(layer, set())
        if said != there:
            yield f"docs/design.md: {layer} is in {', '.join(sorted(there))}, not {', '.join(sorted(said))}"


PLANTED = [  # header, what is added at its end (or, with None, taken away), and what must be said of it
    ("core/types.hpp", "#include <zoomr/math/dot.hpp>", "core/types.hpp: upward include of <zoomr/math/dot.hpp>"),
    ("core/view.hpp", "# include <zoomr/core/shape.hpp>", "core/view.hpp: upward include of <zoomr/core/shape.hpp>"),
    ("policy/concepts.hpp", "#include <zoomr/policy/zones.hpp>", "policy/concepts.hpp: upward include of <zoomr/policy/zones.hpp>"),
    ("policy/score/mean_dot.hpp", "#include <zoomr/policy/score/box_bound.hpp>", "policy/score/mean_dot.hpp: sibling include"),
    ("policy/select/select_none.hpp", "#include <zoomr/policy/aggregate/head_votes.hpp>", "policy/select/select_none.hpp: sibling include"),
    ("policy/placement/placement.hpp", "#include <zoomr/policy/compose.hpp>", "policy/placement/placement.hpp: upward include"),
    ("presets/full.hpp", "#include <zoomr/presets/quest.hpp>", "presets/full.hpp: sibling include"),
    ("cache/planning/plan.hpp", "#include <zoomr/cache/host/core.hpp>", "cache/planning/plan.hpp: upward include"),
    ("policy/zones.hpp", '#include "concepts.hpp"', 'policy/zones.hpp: "concepts.hpp" must be included as'),
    ("policy/segment.hpp", "#include <zoomr/segments.hpp>", "policy/segment.hpp: <zoomr/segments.hpp> does not exist"),
    ("math/newcomer.hpp", SPDX + "\n#pragma once", "math/newcomer.hpp: has no place in the layers"),
    ("presets/newcomer.hpp", SPDX + "\n// L4. A preset.\n#pragma once", "presets/newcomer.hpp: its second line must begin with // L5."),
    ("presets/newcomer.hpp", SPDX + "\n#pragma once", "presets/newcomer.hpp: its second line must begin with // L5."),
    ("math/order.hpp", "// TODO", "math/order.hpp: unfinished work"),
    ("attention/gather.hpp", "#include <zoomr/attention/gather.cuh>", "attention/gather.hpp: host code includes device code"),
    ("policy/score/scores.cuh", "#include <zoomr/policy/select/select_none.hpp>", "policy/score/scores.cuh: sibling include"),
    ("paging/device_arena.cuh", "#include <zoomr/cache/config.hpp>", "paging/device_arena.cuh: <zoomr/cache/config.hpp> is in a folder above"),
    ("vocabulary.hpp", "#include <zoomr/zoomr.hpp>", "vocabulary.hpp: upward include"),
    ("extras/newcomer.hpp", SPDX + "\n// L1. A header.\n#pragma once", "extras/newcomer.hpp: its folder has no place"),
    ("step.hpp", "\n" * LONGEST, "step.hpp: "),
    ("policy/summary.hpp", None, "policy/summary.hpp: the first line must be"),
    ("math/simd.inl", "#include <cmath>", "math/simd.inl: a part includes nothing"),
    ("core/platform.hpp", None, "core/platform.hpp: #pragma once is missing"),
]


PLANTED_IN_TABLE = [  # a pattern in docs/design.md, what stands in its place, and what must be said
    (r"\| L2 \|[^|]*", "| L2 | `core/` ", "docs/design.md: L2 is in math/, not core/"),
    (r"\| L5 \|.*\n", "", "docs/design.md: L5 is in"),
    (r"\| L7 \|", "| L8 |", "docs/design.md: L8 is in"),
]


def self_test(include_dir):
    clean = set(faults(include_dir))
    missed = []
    design = DESIGN.read_text(encoding="utf-8")
    for pattern, instead, said in PLANTED_IN_TABLE:
        if not any(fault.startswith(said) for fault in table_faults(include_dir, re.sub(pattern, instead, design))):
            missed.append(f"planted in the table of layers, but not found: {said}")
    for header, added, said in PLANTED:
        with tempfile.TemporaryDirectory() as copy:
            shutil.copytree(include_dir, copy, dirs_exist_ok=True)
            path = pathlib.Path(copy) / "zoomr" / header
            path.parent.mkdir(exist_ok=True)
            text = path.read_text(encoding="utf-8") if path.exists() else ""
            path.write_text("" if added is None else f"{text}{added}\n", encoding="utf-8")
            if not any(fault.startswith(said) for fault in set(faults(copy)) - clean):
                missed.append(f"planted in {header}, but not found: {said}")
    return missed


if __name__ == "__main__":
    if sys.argv[1] == "--self-test":
        found = self_test(sys.argv[2])
    else:
        found = [*faults(sys.argv[1]), *table_faults(sys.argv[1], DESIGN.read_text(encoding="utf-8"))]
    print("\n".join(found))
    sys.exit(1 if found else 0)
