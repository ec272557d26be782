# SPDX-License-Identifier: Apache-2.0
"""Counts what a warp executes in the main loops of the kernels that read much, from their machine code: registers.py
compares it with instructions.txt.

Counted is what each turn of a loop executes as a rule. Left out are turns for what is seldom: a tile that is not full
(an inner loop that copies piece by piece), and states that are rescaled because a maximum has risen (a stretch of
multiplications that a branch jumps over). Of voters' keys the soft cap of logits is left out, and a logit that is made
twice, which those of the first 256 keys of a segment are not. A look-up of a token among 64 ranges takes 6 turns of its
loop. Of top-k all is counted that its loops over whole pieces of a row hold: those of three digits, and that which
writes ids.
"""
import re
import subprocess
import sys
from collections import Counter

TILE_BYTES = 16384  # keys and values of a tile, as gather.cuh sizes it
LATENTS = "latents of 576"  # in the name of a kernel: its four warps share a tile of 16 of them, in 16 bits
LATENT_BYTES = 16 * 576 * 2
RANGES_LOG = 6

# name, pattern of the kernel as registers.py writes it, what one turn of its loop is for, most that is allowed for that
GATHER = r"gather_attend_kernel<{}, .*rows_of_ranges, scaled_logits"
KEYS = r"^score_by_keys_kernel<{}, key_mass, {}>"
LAYER = r"layer_kernel<128, 4, policy<{}.*, bfloat16, bfloat16>"
GATED = (
    ("gather bfloat16, group 4", GATHER.format("bfloat16, 128, 4"), "KB", 80),
    ("gather bfloat16, group 8", GATHER.format("bfloat16, 128, 8"), "KB", 80),
    ("gather bfloat16, group 8, head_dim 64", GATHER.format("bfloat16, 64, 8"), "KB", 110),
    ("gather float8, group 4", GATHER.format("float8, 128, 4"), "KB", 140),
    ("gather float8, group 8", GATHER.format("float8, 128, 8"), "KB", 140),
    ("gather int8, group 8", GATHER.format("int8, 128, 8"), "KB", 160),
    (f"gather bfloat16, group 16, {LATENTS}", GATHER.format("bfloat16, 576, 16") + ".*values_in_keys<512>", "KB", 125),
    ("score bfloat16 means, group 4", r"score_kernel<4, 128, .*<bfloat16, bfloat16, bfloat16>", "8 segments", 340),
    ("score float8 means, group 4", r"score_kernel<4, 128, .*<bfloat16, bfloat16, float8>", "8 segments", 370),
    ("layer, float means, group 4", LAYER.format("sentences, observation_window, key_mean"), "8 segments", 340),
    ("layer, float boxes, group 4", LAYER.format("fixed_pages, keep_all, key_box"), "8 segments", 460),
    ("voters' keys, bfloat16", KEYS.format(128, "bfloat16"), "KB of keys", 70),
    ("voters' keys, bfloat16, head_dim 64", KEYS.format(64, "bfloat16"), "KB of keys", 95),
    ("voters' keys, float8", KEYS.format(128, "float8"), "KB of keys", 160),
    ("top-k of floats", r"^top_k_kernel<float>", "KB of a row", 560),
)


class Kernel:
    """The machine code of one kernel."""

    def __init__(self, text):
        self.code = [(int(at, 16), what.strip()) for at, what in re.findall(r"/\*([0-9a-f]{4,6})\*/\s+([^;]+);", text)]
        self.loops = sorted({(target, at) for at, what in self.code for target in [branch(what)]
                             if target is not None and target < at})

    def between(self, first, last):
        return [what for at, what in self.code if first <= at <= last]

    def inside(self, loop):
        return [inner for inner in self.loops if inner != loop and loop[0] <= inner[0] and inner[1] <= loop[1]]

    def rescaling(self, loop):
        """Stretches that a branch jumps over, and that hardly do anything but multiply."""
        found = []
        for at, what in self.code:
            target = branch(what)
            if not loop[0] <= at <= loop[1] or target is None or target <= at or not what.startswith("@"):
                continue
            skipped = self.between(at + 16, target - 16)
            if len(skipped) > 16 and operations(skipped)["FMUL"] > len(skipped) // 2:
                found.append((at + 16, target - 16))
        return found


def branch(what):
    found = re.search(r"\bBRA(?:\.\S+)? (?:[!\w]+, )?`?\(?(0x[0-9a-f]+)", what)
    return int(found.group(1), 16) if found else None


def operations(code):
    return Counter(re.sub(r"^@!?U?P\w+ ", "", what).split()[0].split(".")[0] for what in code)


def of_gather(kernel, latents):
    """Instructions of all warps of a block for each KB of keys and values; and how many warps these are."""
    both = [loop for loop in kernel.loops
            if {"LDGSTS", "BAR", "HMMA"} <= set(operations(kernel.between(*loop)))]
    loop = min(both, key=lambda each: each[1] - each[0])
    code, inner = kernel.between(*loop), kernel.inside(loop)
    seldom = [each for each in inner if "LDGSTS" in operations(kernel.between(*each))] + kernel.rescaling(loop)
    searches = [each for each in inner if each not in seldom and {"LD", "LDG"} & set(operations(kernel.between(*each)))]
    search = min(searches, key=lambda each: each[1] - each[0])
    find = max(searches, key=lambda each: each[1] - each[0])
    in_search, in_find = (len(kernel.between(*each)) for each in (search, find))
    copies = operations(code)["LDGSTS"] - sum(operations(kernel.between(*each))["LDGSTS"] for each in seldom)
    bytes_of_tile = LATENT_BYTES if latents else TILE_BYTES
    warps = bytes_of_tile // (copies * 512)
    always = len(code) - in_find - sum(len(kernel.between(*each)) for each in seldom)
    tokens = 16 if latents else 16 * warps  # of a tile
    found = (in_find - in_search + RANGES_LOG * in_search) * (tokens / 32)
    return (always * warps + found) / (bytes_of_tile / 1024), warps, bytes_of_tile


def of_score(kernel):
    """Instructions of a warp for the segments that it scores at once."""
    loop = min((each for each in kernel.loops if operations(kernel.between(*each))["SHFL"] >= 31),
               key=lambda each: each[1] - each[0])
    return len(kernel.between(*loop))


def of_keys(kernel, head_dim, number):
    """Instructions of a warp for each KB of keys, while it makes logits, finds the greatest, and adds exponentials."""
    scoring = [loop for loop in kernel.loops if kernel.between(loop[1], loop[1])[0].startswith("@")
               and operations(kernel.between(*loop))["LDGSTS"]
               and not any("LDGSTS" in operations(kernel.between(*inner)) for inner in kernel.inside(loop))]
    assert len(scoring) == 2, "voters' keys: logits, and exponentials"
    count = 0
    for loop in scoring:
        divides = [(at, branch(what)) for at, what in kernel.code
                   if loop[0] <= at < (branch(what) or 0) <= loop[1] and what.startswith("@")
                   and "CALL" in operations(kernel.between(at + 16, branch(what) - 16))]
        assert divides, "voters' keys: the soft cap divides"
        count += sum(1 for at, _ in kernel.code
                     if loop[0] <= at <= loop[1] and not any(first < at < end for first, end in divides))
    return count / (32 * int(head_dim) * {"bfloat16": 2, "float8": 1}[number] / 1024)


def of_top_k(kernel):
    """Instructions of the warps of a block for each KB of a row, in all of the passes over it."""
    passes = []
    for loop in kernel.loops:
        code = kernel.between(*loop)
        pieces = sum("LDG.E.128" in what for what in code)  # of 16 bytes for each lane
        if pieces:
            passes.append(len(code) * 2 / pieces)
    assert len(passes) == 4, "top-k: three digits and the writing"
    return sum(passes)


def loads(kernel):
    """Widths of its reads of global memory, in bytes."""
    widths = Counter()
    for _, what in kernel.code:
        operation = re.sub(r"^@!?U?P\w+ ", "", what).split()[0]
        if re.match(r"(LD|LDG|LDGSTS)\b", operation):
            bits = re.search(r"\.(U8|S8|U16|S16|64|128)\b", operation)
            widths[{"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}[bits.group(1)] if bits else 4] += 1
    return " ".join(f"{width}:{widths[width]}" for width in sorted(widths))


def disassembled(cuobjdump, cubin, plain):
    """{kernel: Kernel}, with names as `plain` makes them of those in the code."""
    said = subprocess.run([cuobjdump, "-sass", cubin], capture_output=True, text=True, check=True).stdout
    parts = re.split(r"\n\s*Function : ", said)[1:]
    mangled = "\n".join(part.split("\n", 1)[0].strip() for part in parts)
    names = subprocess.run(["c++filt"], input=mangled, capture_output=True, text=True, check=True).stdout.split("\n")
    return {plain(name): Kernel(part) for name, part in zip(names, parts)}


def measured(kernels, registers):
    """Rows of the table, and a sentence for each limit that is passed.

    registers  {kernel: (registers of a thread, bytes of shared memory of a block)}
    In a row: warps of a block, blocks that fit an SM, KB that they have under way, widths in bytes of loads with their
    number.
    """
    rows = [f"{'':38} {'count':>6} {'limit':>6} {'for each':>11} registers {'shared':>7}  warps  blocks  coming   "
            "loads"]
    faults = []
    for name, pattern, unit, limit in GATED:
        matching = [kernel for kernel in kernels if re.search(pattern, kernel)]
        if len(matching) != 1:
            sys.exit(f"{name}: {len(matching)} kernels match {pattern}")
        (full,) = matching
        if unit == "KB":
            count, warps, bytes_of_tile = of_gather(kernels[full], LATENTS in name)
        elif unit == "KB of keys":
            count, warps = of_keys(kernels[full], *re.search(r"<(\d+), .*, (\w+)>", full).groups()), 4
        elif unit == "KB of a row":
            count, warps = of_top_k(kernels[full]), 16
        else:
            count, warps = of_score(kernels[full]), 8 if "layer" in name else 4
        used, shared = registers[full]
        of_block = -(-used // 8) * 8 * 32 * warps
        blocks = min(65536 // of_block, 2048 // (32 * warps), 233472 // (shared + 1024))
        coming = f"{blocks * bytes_of_tile // 1024}" if unit == "KB" else "-"
        rows.append(f"{name:38} {count:6.1f} {limit:6} {unit:>11} {used:10} {shared:7} {warps:6} {blocks:7} {coming:>7}"
                    f"   {loads(kernels[full])}")
        if count > limit:
            faults.append(f"{name}: {count:.1f} instructions for {unit}, {limit} are allowed")
    return rows, faults
