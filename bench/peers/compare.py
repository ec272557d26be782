#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times what others do with the same shapes: FlashInfer (paged decode of fp8, merging of states, top-k), PyTorch's
attention. FlashInfer's decode of bf16 is timed in device_bench itself (device/attend_flashinfer.cu).

compare.py --out peers.json [--calls libzoomr_calls.so] [--quick]
Shapes, names and timing are those of the device rows (bench/README.md): CUDA events, a flushed and a warm L2, five
repetitions, their median. The file has the form of Google Benchmark's, so that table.py joins it: the peer's name is
the first part of a row's, the rest is the row of ours that does the same work. With --calls zoomr's own kernels are
timed here too, in turn with the peers, over the same memory. The exit status is 77 without a device, and 1 where a
package is missing or a row could not be measured; what could be measured is in the file.
"""
import argparse
import importlib
import itertools
import json
import os
import random
import statistics
import sys

import zoomr_calls

HEADS, KV_HEADS, HEAD_DIM, PAGE = 32, 8, 128, 16
RUN, STRETCH = 24, 96  # scattered: a range of 24 tokens in each 96
WARM_LAUNCHES = 10
REPETITIONS = 5


def found(name):
    """The package, or None and a sentence."""
    try:
        return importlib.import_module(name)
    except Exception as fault:  # a package that is there and cannot be loaded is missing too
        print(f"{name} cannot be imported here ({type(fault).__name__}: {fault}), so it is not measured.")
        return None


class Bench:
    """Times calls, and collects rows."""

    def __init__(self, torch, context, out, quick):
        self.torch = torch
        self.context = context
        self.out = out
        self.iterations = 5 if quick else 30
        self.flushed = torch.empty(max(256 << 20, 4 * self.l2_bytes()), dtype=torch.uint8, device="cuda")
        self.rows = []
        self.failed = False

    def l2_bytes(self):
        return getattr(self.torch.cuda.get_device_properties(0), "L2_cache_size", 64 << 20)

    def once(self, call, launches, cold):
        if cold:
            self.flushed.zero_()
            self.flushed.amax()  # read, so that the L2 owes nothing (bench/support/device_time.hpp)
        begin = self.torch.cuda.Event(enable_timing=True)
        end = self.torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(launches):
            call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e3 / launches

    def row(self, peer, name, call, read_bytes=0, **figures):
        self.in_turn(name, [(peer, call, figures)], read_bytes)

    def in_turn(self, name, calls, read_bytes=0):
        """Times calls that do the same, one after the other in each repetition.

        @param name   of our row, without /cold or /warm
        @param calls  [(peer, call, figures)]
        """
        for state in ("cold", "warm"):
            times = [[] for _ in calls]
            for repetition in range(-1, REPETITIONS):  # the first is not counted
                for (peer, call, _), own in zip(calls, times):
                    if own is None:
                        continue
                    try:
                        took = statistics.mean(self.once(call, 1 if state == "cold" else WARM_LAUNCHES, state == "cold")
                                               for _ in range(self.iterations if repetition >= 0 else 1))
                        if repetition >= 0:
                            own.append(took)
                    except Exception as fault:
                        self.skip(f"{peer}/{name}/{state}", fault)
                        times[times.index(own)] = None
            for (peer, _, figures), own in zip(calls, times):
                if own:
                    self.report(f"{peer}/{name}/{state}", statistics.median(own), figures, read_bytes)

    def report(self, name, median, figures, read_bytes):
        made = {"name": f"{name}_median", "run_name": name, "run_type": "aggregate", "aggregate_name": "median",
                "repetitions": REPETITIONS, "iterations": self.iterations, "real_time": median, "cpu_time": median,
                "time_unit": "us"}
        made.update(figures)
        if read_bytes:
            made["bytes_per_second"] = read_bytes / (median * 1e-6)
        self.add(made)
        print(f"{name:90} {median:10.2f} us", flush=True)

    def add(self, made):
        """Everything is written at once: a time limit may come."""
        self.rows.append(made)
        beside = f"{self.out}.part"
        with open(beside, "w", encoding="utf-8") as file:
            json.dump({"context": self.context, "benchmarks": self.rows}, file, indent=1)
        os.replace(beside, self.out)  # a limit of time or of the disk leaves the rows before this one

    def skip(self, name, fault):
        self.failed = True
        sentence = str(fault).strip().splitlines()
        print(f"{name} cannot be measured: {type(fault).__name__}: {sentence[0] if sentence else ''}")
        self.add({"name": name, "run_name": name, "run_type": "iteration", "error_occurred": True,
                          "error_message": f"{type(fault).__name__}: {sentence[0] if sentence else ''}"})

    def noise(self, *shape, dtype=None):
        made = self.torch.rand(shape, device="cuda", dtype=self.torch.bfloat16) * 2 - 1
        return made if dtype is None else made.to(dtype)


def slots_of(tokens, scattered, pages):
    """The pool's slots of a sequence's attended tokens: as in device/gather_attend.cu."""
    positions = []
    for first in range(0, tokens, RUN if scattered else tokens):
        length = min(RUN, tokens - first) if scattered else tokens
        at = first // RUN * STRETCH + first // RUN * 7 % (STRETCH - RUN) if scattered else 0
        positions += range(at, at + length)
    return [pages[p // PAGE] * PAGE + p % PAGE for p in positions]


class Pool:
    """Keys and values of one type in shuffled pages, for the largest problem."""

    def __init__(self, bench, sequences, tokens, dtype):
        self.pages_each = -(-tokens // PAGE)
        order = list(range(sequences * self.pages_each))
        random.Random(1).shuffle(order)
        self.pages = [order[s * self.pages_each:(s + 1) * self.pages_each] for s in range(sequences)]
        shape = (len(order), PAGE, KV_HEADS, HEAD_DIM)
        self.keys = bench.torch.empty(shape, device="cuda", dtype=dtype)
        self.values = bench.torch.empty(shape, device="cuda", dtype=dtype)
        for part in (self.keys, self.values):
            for first in range(0, shape[0], 4096):
                part[first:first + 4096] = bench.noise(*part[first:first + 4096].shape, dtype=dtype)

    def paged(self, page):
        """[pages, page, kv_heads, head_dim] of another page size: the same memory."""
        return tuple(part.view(-1, page, KV_HEADS, HEAD_DIM) for part in (self.keys, self.values))


class Ours:
    """zoomr's gather_attend over a peer's pool, and its top-k; nothing without the library."""

    def __init__(self, torch, path):
        self.torch = torch
        self.calls = None
        if path is None:
            print("Without --calls zoomr itself is not timed here, only in its own program.")
            return
        try:
            self.calls = zoomr_calls.Calls(path)
        except OSError as fault:
            print(f"{path} cannot be loaded ({fault}), so zoomr itself is timed only in its own program.")

    def stream(self):
        return self.torch.cuda.current_stream().cuda_stream

    def attention(self, query, pool, slots):
        """@return  a call, and what it writes: [sequences, heads, head_dim]"""
        torch = self.torch
        sequences, tokens = slots.shape
        group = query.shape[1] // KV_HEADS
        out = torch.empty_like(query)
        lse = torch.empty(query.shape[:2], dtype=torch.float32, device="cuda")
        wanted = zoomr_calls.Attention(
            0 if pool.keys.dtype == torch.bfloat16 else 1, group, KV_HEADS, sequences, tokens, PAGE.bit_length() - 1,
            PAGE * KV_HEADS * HEAD_DIM, HEAD_DIM, KV_HEADS * HEAD_DIM, pool.keys.data_ptr(), pool.values.data_ptr(),
            slots.data_ptr(), query.data_ptr(), out.data_ptr(), lse.data_ptr(), None,
            self.calls.splits(KV_HEADS, sequences, tokens))
        workspace = torch.zeros(self.calls.workspace_bytes(wanted) // 4, dtype=torch.float32, device="cuda")
        wanted.workspace = workspace.data_ptr()

        def call(held=(query, slots, lse, workspace)):  # kept as long as the call is
            self.calls.attend(wanted, self.stream())
        return call, out

    def top_k(self, scores, k):
        ids = self.torch.empty(scores.shape[0], k, dtype=self.torch.int32, device="cuda")
        counts = self.torch.empty(scores.shape[0], dtype=self.torch.int32, device="cuda")

        def call():
            self.calls.top_k(scores.data_ptr(), *scores.shape, k, ids.data_ptr(), counts.data_ptr(), self.stream())
        return call


def decode(bench, flashinfer, ours, pool, workspace, name, group, lists, page, last, item_bytes, tokens):
    """FlashInfer's paged decode, by both of its kernels, and gather_attend over the same tokens of the same memory, in
    turn. What FlashInfer plans on the host is timed apart; `difference` is the largest between two outputs.

    @param lists  the page numbers of each sequence
    """
    torch = bench.torch
    heads = KV_HEADS * group
    indptr = [0]
    for pages in lists:
        indptr.append(indptr[-1] + len(pages))
    ints = dict(dtype=torch.int32, device="cuda")
    indices = torch.tensor([p for pages in lists for p in pages], **ints)
    query = bench.noise(len(lists), heads, HEAD_DIM)
    cache = pool.paged(page)
    calls = []
    ours_out = None
    if ours.calls is not None:
        slots = [[p * page + t for p in pages for t in range(page)][:tokens] for pages in lists]
        call, ours_out = ours.attention(query, pool, torch.tensor(slots, **ints))
        call()
        calls.append((f"zoomr/page:{page}", call, {}))
    for peer, tensor_cores in (("flashinfer", False), ("flashinfer_tc", True)):
        full_name = f"{peer}/page:{page}"
        try:
            wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace(), "NHD", use_tensor_cores=tensor_cores)
            plan = lambda: wrapper.plan(
                torch.tensor(indptr, **ints), indices, torch.tensor([last] * len(lists), **ints), heads, KV_HEADS,
                HEAD_DIM, page, q_data_type=query.dtype, kv_data_type=pool.keys.dtype)
            plan()
            torch.cuda.synchronize()
            begin = torch.cuda.Event(enable_timing=True)
            end = torch.cuda.Event(enable_timing=True)
            begin.record()
            plan()
            end.record()
            end.synchronize()
            figures = {"plan_us": begin.elapsed_time(end) * 1e3}
            theirs, _ = wrapper.run(query, cache, return_lse=True)
            if ours_out is not None:
                figures["difference"] = float((ours_out.float() - theirs.float()).abs().max())
        except Exception as fault:
            bench.skip(f"{full_name}/{name}", fault)
            continue
        calls.append((full_name, lambda wrapper=wrapper: wrapper.run(query, cache, return_lse=True), figures))
    bench.in_turn(name, calls, 2.0 * len(lists) * tokens * KV_HEADS * HEAD_DIM * item_bytes)


def workspaces(torch):
    """Two wrappers are alive at a time: each has a workspace of its own."""
    made = [torch.empty(256 << 20, dtype=torch.uint8, device="cuda") for _ in range(2)]
    turn = itertools.cycle(made)
    return lambda: next(turn)


def attend_rows(bench, flashinfer, ours, quick):
    """The rows of fp8 in device/gather_attend.cu. Ranges of 24 tokens are pages of one token: pages of 16 could not say
    them."""
    torch = bench.torch
    dtype = getattr(torch, "float8_e4m3fn", None)
    if dtype is None:
        print("This torch has no float8_e4m3fn, so fp8 is not measured.")
        return
    workspace = workspaces(torch)
    group = HEADS // KV_HEADS
    pool = Pool(bench, 8 if quick else 32, 8192 // RUN * STRETCH + 256, dtype)
    for sequences in (1, 8) if quick else (1, 8, 32):
        for tokens in (512, 2048) if quick else (512, 2048, 8192):
            base = f"attend/fp8/group:{group}/sequences:{sequences}/tokens:{tokens}"
            scattered = [slots_of(tokens, True, pool.pages[s]) for s in range(sequences)]
            decode(bench, flashinfer, ours, pool, workspace, base + "/ranges_of_24", group, scattered, 1, 1, 1, tokens)
            whole = [pool.pages[s][:tokens // PAGE] for s in range(sequences)]
            decode(bench, flashinfer, ours, pool, workspace, base + "/one_range", group, whole, PAGE, PAGE, 1, tokens)
    del pool
    torch.cuda.empty_cache()


def merge_rows(bench, flashinfer):
    """Merging of two attention states; ours merge inside gather_attend, so there is no row beside these."""
    for tokens in (8, 64, 512):
        a, b = bench.noise(tokens, HEADS, HEAD_DIM), bench.noise(tokens, HEADS, HEAD_DIM)
        x, y = (bench.noise(tokens, HEADS).float() for _ in range(2))
        bench.row("flashinfer", f"merge_state/tokens:{tokens}", lambda: flashinfer.merge_state(a, x, b, y))


def top_k_rows(bench, flashinfer, ours, quick):
    torch = bench.torch
    top_k = getattr(flashinfer, "top_k", None) if flashinfer else None
    if flashinfer and top_k is None:
        print("This flashinfer has no top_k, so only torch.topk is measured.")
    for rows in (8, 64):
        for n in (64, 1024, 16384) if quick else (64, 256, 1024, 4096, 16384, 65536):
            for k in (16, 64, 256):
                if k > n:
                    continue
                scores = torch.rand(rows, n, device="cuda") * 2 - 1
                name = f"top_k/rows:{rows}/n:{n}/k:{k}"
                calls = [] if ours.calls is None else [("zoomr", ours.top_k(scores, k), {})]
                if top_k is not None:
                    calls.append(("flashinfer", lambda: top_k(scores, k), {}))
                calls.append(("torch", lambda: torch.topk(scores, k, sorted=False), {}))
                bench.in_turn(name, calls, 4.0 * rows * n)


def sdpa_rows(bench, quick):
    """PyTorch's attention over adjacent tokens, whichever backend it takes."""
    torch = bench.torch
    attention = torch.nn.functional.scaled_dot_product_attention
    wanted = [(s, t, f"attend/bf16/group:4/sequences:{s}/tokens:{t}/one_range")
              for s in (1, 8, 32) for t in (512, 2048, 8192)]
    wanted += [(8, c, f"step/full/context:{c}/layers:1/graph") for c in ((32768,) if quick else (4096, 32768, 131072))]
    for sequences, tokens, name in wanted:
        try:
            query = bench.noise(sequences, HEADS, 1, HEAD_DIM)
            keys, values = (bench.noise(sequences, KV_HEADS, tokens, HEAD_DIM) for _ in range(2))
        except Exception as fault:
            bench.skip(f"torch/{name}", fault)
            continue
        bench.row("torch", name, lambda: attention(query, keys, values, enable_gqa=True),
                  2.0 * sequences * tokens * KV_HEADS * HEAD_DIM * 2)
        del query, keys, values
        torch.cuda.empty_cache()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--calls", help="libzoomr_calls.so: zoomr itself, in the same process, in turn with the peers")
    parser.add_argument("--quick", action="store_true", help="fewer rows and iterations")
    options = parser.parse_args()
    torch = found("torch")
    if torch is None:
        return 1
    if not torch.cuda.is_available():
        print("torch sees no CUDA device, so no peer is measured.")
        return 77
    flashinfer = found("flashinfer")
    context = {"device": torch.cuda.get_device_name(0), "torch": torch.__version__,
               "flashinfer": getattr(flashinfer, "__version__", "missing")}
    bench = Bench(torch, context, options.out, options.quick)
    ours = Ours(torch, options.calls)
    parts = [lambda: attend_rows(bench, flashinfer, ours, options.quick),
             lambda: merge_rows(bench, flashinfer)] if flashinfer else []
    parts += [lambda: top_k_rows(bench, flashinfer, ours, options.quick), lambda: sdpa_rows(bench, options.quick)]
    for part in parts:
        try:
            part()
        except Exception as fault:  # what is measured is kept
            bench.skip("peer", fault)
    return 1 if bench.failed or flashinfer is None else 0


if __name__ == "__main__":
    sys.exit(main())
