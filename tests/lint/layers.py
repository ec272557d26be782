#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The folders are the architecture: a header includes only what stands before it in ORDER, and never a sibling; a
device header (.cuh) may include those of its own folder, and no host header (.hpp) includes a device header.

layers.py INCLUDE_DIR       prints each fault of the headers below INCLUDE_DIR/zoomr; exit status 1 if there are any
layers.py --self-test DIR   plants faults in a copy of them and checks that each is found
"""
import pathlib
import re
import shutil
import sys
import tempfile

# One entry for each header, lowest first; an entry of several folders holds siblings that never include each other.
ORDER = """
config.hpp version.hpp
core/types.hpp core/storage.hpp core/error.hpp core/view.hpp core/shape.hpp core/buffer.hpp core/paged_lane.hpp core/carver.hpp
core/device.cuh core/streams.cuh core/vectors.cuh core/block.cuh
math/functions.hpp math/softmax.hpp math/dot.hpp math/attention_state.hpp math/order.hpp math/logits.hpp
math/dot.cuh math/softmax.cuh math/best.cuh math/top_k.cuh
segment.hpp slots.hpp summaries.hpp attention.hpp concepts.hpp taking.hpp zones.hpp
tier/page_pool.hpp tier/block_shape.hpp tier/read_ring.hpp tier/block_file.hpp tier/transfer.hpp tier/early_reads.hpp
tier/transfers.hpp tier/replacement.hpp tier/tiered_lane.hpp tier/tier.hpp
tier/tiered_pool.hpp
segment/|retain/|summarize/|ask/|score/|agree/|select/|refresh/|store/|attend/
policy.hpp
policies/
cache/config.hpp cache/statistics.hpp cache/query_memory.hpp cache/selection.hpp cache/token_state.hpp
cache/sequence_state.hpp
cache/trace.hpp cache/chooser.hpp cache/observation.hpp cache/plan.hpp cache/step_layers.hpp
cache/sequences.hpp cache/evicting.hpp cache/tier_slots.hpp cache/retention_room.hpp cache/core.hpp cache/choosing.hpp
cache/audit.hpp cache/attending.hpp cache/retaining.hpp cache/commit.hpp step.hpp kv_cache.hpp
cache/observation.cuh cache/device_retained.cuh cache/device_table.cuh cache/device_sequence.cuh cache/device_arena.cuh
cache/device_sizes.cuh cache/device_layout.cuh cache/device_drift.cuh cache/device_summaries.cuh cache/device_kernels.cuh
cache/device_fetching.cuh cache/device_ahead.cuh cache/device_rows.cuh cache/device_calibration.cuh
cache/device_retain_kernels.cuh cache/device_uploads.cuh cache/device_core.cuh
cache/device_retaining.cuh cache/device_launches.cuh device_step.cuh device_cache.cuh
zoomr.hpp zoomr.cuh
""".split()
LONGEST = 300
SPDX = "// SPDX-License-Identifier: Apache-2.0"


def place(header):
    """Where a header stands in ORDER, or None."""
    for number, entry in enumerate(ORDER):
        folders = entry.split("|") if entry.endswith("/") else []
        if header == entry or any(header.startswith(folder) for folder in folders):
            return number
    return None


def faults(include_dir):
    root = pathlib.Path(include_dir) / "zoomr"
    headers = sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.suffix in (".hpp", ".cuh"))
    if not headers:
        yield f"{root}: no headers"
    for header in headers:
        text = (root / header).read_text(encoding="utf-8")
        lines = text.splitlines()
        here = place(header)
        if here is None:
            yield f"{header}: has no place in the layers; give it one in ORDER"
        if not lines or lines[0] != SPDX:
            yield f"{header}: the first line must be {SPDX}"
        if "#pragma once" not in lines:
            yield f"{header}: #pragma once is missing"
        if len(lines) > LONGEST:
            yield f"{header}: {len(lines)} lines, more than {LONGEST}"
        if re.search(r"\b(TODO|FIXME)\b", text):
            yield f"{header}: unfinished work (TODO, FIXME) belongs elsewhere"
        if not re.fullmatch(r"[a-z0-9_/]+\.(hpp|cuh)", header):
            yield f"{header}: names are snake_case"
        for kind, included in re.findall(r'^\s*#\s*include\s*([<"])([^>"]+)', text, re.MULTILINE):
            if kind == '"':
                yield f'{header}: "{included}" must be included as <zoomr/...>'
            elif included.startswith("zoomr/"):
                other = included.removeprefix("zoomr/")
                there = place(other)
                same_folder = header.rpartition("/")[0] == other.rpartition("/")[0]
                if other not in headers:
                    yield f"{header}: <{included}> does not exist"
                elif header.endswith(".hpp") and other.endswith(".cuh"):
                    yield f"{header}: host code includes device code, <{included}>"
                elif header.endswith(".cuh") and same_folder and there == here:
                    continue
                elif here is not None and there is not None and there >= here:
                    yield f"{header}: {'sibling' if there == here else 'upward'} include of <{included}>"


PLANTED = [  # header, what is added at its end (or, with None, taken away), and what must be said of it
    ("core/types.hpp", "#include <zoomr/math/dot.hpp>", "core/types.hpp: upward include of <zoomr/math/dot.hpp>"),
    ("core/view.hpp", "# include <zoomr/core/shape.hpp>", "core/view.hpp: upward include of <zoomr/core/shape.hpp>"),
    ("concepts.hpp", "#include <zoomr/zones.hpp>", "concepts.hpp: upward include of <zoomr/zones.hpp>"),
    ("score/mean_dot.hpp", "#include <zoomr/score/box_bound.hpp>", "score/mean_dot.hpp: sibling include"),
    ("select/nothing.hpp", "#include <zoomr/agree/head_votes.hpp>", "select/nothing.hpp: sibling include"),
    ("store/placement.hpp", "#include <zoomr/policy.hpp>", "store/placement.hpp: upward include"),
    ("policies/full.hpp", "#include <zoomr/policies/quest.hpp>", "policies/full.hpp: sibling include"),
    ("cache/plan.hpp", "#include <zoomr/cache/core.hpp>", "cache/plan.hpp: upward include"),
    ("zones.hpp", '#include "concepts.hpp"', 'zones.hpp: "concepts.hpp" must be included as'),
    ("segment.hpp", "#include <zoomr/segments.hpp>", "segment.hpp: <zoomr/segments.hpp> does not exist"),
    ("math/newcomer.hpp", SPDX + "\n#pragma once", "math/newcomer.hpp: has no place in the layers"),
    ("math/order.hpp", "// TODO", "math/order.hpp: unfinished work"),
    ("attend/gather.hpp", "#include <zoomr/attend/gather.cuh>", "attend/gather.hpp: host code includes device code"),
    ("attend/gather.cuh", "#include <zoomr/select/nothing.hpp>", "attend/gather.cuh: sibling include"),
    ("step.hpp", "\n" * LONGEST, "step.hpp: "),
    ("summaries.hpp", None, "summaries.hpp: the first line must be"),
    ("config.hpp", None, "config.hpp: #pragma once is missing"),
]


def self_test(include_dir):
    clean = set(faults(include_dir))
    missed = []
    for header, added, said in PLANTED:
        with tempfile.TemporaryDirectory() as copy:
            shutil.copytree(include_dir, copy, dirs_exist_ok=True)
            path = pathlib.Path(copy) / "zoomr" / header
            text = path.read_text(encoding="utf-8") if path.exists() else ""
            path.write_text("" if added is None else f"{text}{added}\n", encoding="utf-8")
            if not any(fault.startswith(said) for fault in set(faults(copy)) - clean):
                missed.append(f"planted in {header}, but not found: {said}")
    return missed


if __name__ == "__main__":
    found = self_test(sys.argv[2]) if sys.argv[1] == "--self-test" else list(faults(sys.argv[1]))
    print("\n".join(found))
    sys.exit(1 if found else 0)
