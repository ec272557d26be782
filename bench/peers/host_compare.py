#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times one token's attention of one layer on the host, zoomr's and a peer's, in one process and in turn.

host_compare.py --calls libzoomr_host_calls.so [--ggml FOLDER] [--torch] [--threads 1,2] [--contexts 4096,32768]
                [--rounds 9] [--out FILE]

32 heads, 8 KV heads of 128 dimensions, float16 and bfloat16. Of each round every row runs once, in turn; printed is the
median of all rounds. Peers, whose outputs are compared with ours over the same keys and values, with the same threads:
ggml's FLASH_ATTN_EXT, where FOLDER is where a package of the index carries ggml's libraries (`pip install
pywhispercpp`, then site-packages/pywhispercpp.libs), or where they were built; and PyTorch's
scaled_dot_product_attention. `plain` is plain_avx512.cpp, of our own too, with one thread. `dense` is gather_attend
over all tokens, in shuffled pages; `full`, `sentence_kv` and `zoomr_focus` are whole steps: begin, append, attend with
its choices, commit. `prompt` is what attention takes for a prompt. Times are in milliseconds; the ceilings are of one
thread, of the same run.
"""
import argparse
import ctypes
import glob
import json
import os
import statistics
import sys
import time

import numpy

HEADS, KV_HEADS, HEAD_DIM = 32, 8, 128
PROMPT = 4096  # tokens
TYPES = {"f16": (1, 1), "bf16": (2, 30)}  # in our calls, in ggml's
POLICIES = ("full", "sentence_kv", "zoomr_focus")


def pointer(array):
    return array.ctypes.data_as(ctypes.c_void_p)


def stored(numbers, kind):
    """float32 as the 16 bits of a type."""
    if kind == "f16":
        return numbers.astype(numpy.float16).view(numpy.uint16)
    bits = numbers.view(numpy.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(numpy.uint16)


class Zoomr:
    def __init__(self, path):
        self.calls = ctypes.CDLL(path)
        for name in ("zoomr_dense", "zoomr_steps"):
            getattr(self.calls, name).restype = ctypes.c_void_p
        for name in ("zoomr_advance", "zoomr_prompt", "zoomr_peak_flops", "zoomr_peak_read"):
            getattr(self.calls, name).restype = ctypes.c_double
        self.calls.zoomr_path.restype = ctypes.c_char_p

    def dense(self, kind, threads, tokens, keys, values, queries, out):
        scene = ctypes.c_void_p(self.calls.zoomr_dense(TYPES[kind][0], tokens, pointer(keys), pointer(values), threads))
        return timed(lambda: self.calls.zoomr_attend_dense(scene, pointer(queries), pointer(out)))

    def steps(self, kind, threads, policy, context):
        scene = ctypes.c_void_p(self.calls.zoomr_steps(TYPES[kind][0], POLICIES.index(policy), context, threads))
        # A sentence, so that its choices count as often as they come.
        return lambda: sum(self.calls.zoomr_advance(scene) for _ in range(24)) / 24


class Ggml:
    def __init__(self, folder):
        for name in ("libgomp", "libggml-base", "libggml-cpu"):
            for found in sorted(glob.glob(os.path.join(folder, name + "*.so*")))[:1]:
                self.library = ctypes.CDLL(found, mode=ctypes.RTLD_GLOBAL)
        for name in ("ggml_init", "ggml_new_tensor_3d", "ggml_flash_attn_ext", "ggml_new_graph", "ggml_get_data"):
            getattr(self.library, name).restype = ctypes.c_void_p

    class Params(ctypes.Structure):
        _fields_ = [("bytes", ctypes.c_size_t), ("memory", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]

    def has(self):
        names = ("avx2", "avx512", "avx512_bf16", "f16c")
        return [name for name in names if getattr(self.library, "ggml_cpu_has_" + name)()]

    def attend(self, kind, threads, tokens, keys, values, queries, out):
        call, void = self.library, ctypes.c_void_p
        made = void(call.ggml_init(self.Params(keys.nbytes + values.nbytes + (64 << 20), None, False)))

        def tensor(number, rows, planes, data):
            of = void(call.ggml_new_tensor_3d(made, number, *(ctypes.c_int64(n) for n in (HEAD_DIM, rows, planes))))
            ctypes.memmove(call.ggml_get_data(of), pointer(data), data.nbytes)
            return of

        attended = void(call.ggml_flash_attn_ext(
            made, tensor(0, 1, HEADS, queries), tensor(TYPES[kind][1], tokens, KV_HEADS, keys),
            tensor(TYPES[kind][1], tokens, KV_HEADS, values), None, ctypes.c_float(HEAD_DIM ** -0.5),
            ctypes.c_float(0), ctypes.c_float(0)))
        graph = void(call.ggml_new_graph(made))
        call.ggml_build_forward_expand(graph, attended)
        run = timed(lambda: call.ggml_graph_compute_with_ctx(made, graph, threads))
        run()
        ctypes.memmove(pointer(out), call.ggml_get_data(attended), out.nbytes)
        return run


class Torch:
    def __init__(self):
        import torch
        self.torch = torch
        torch.set_grad_enabled(False)

    def tensor(self, kind, numbers, rows):
        stored = self.torch.from_numpy(numbers)
        if stored.dtype != self.torch.float32:
            stored = stored.view(self.torch.float16 if kind == "f16" else self.torch.bfloat16)
        return stored.to(self.torch.float16 if kind == "f16" else self.torch.bfloat16).view(1, -1, rows, HEAD_DIM)

    def attend(self, kind, threads, tokens, keys, values, queries, out):
        """queries: [heads, head_dim], keys and values: [kv_heads, tokens, head_dim]."""
        asked, keys, values = (self.tensor(kind, of, rows) for of, rows in
                               ((queries, 1), (keys.view(numpy.int16), tokens), (values.view(numpy.int16), tokens)))

        def call():
            self.torch.set_num_threads(threads)
            self.out = self.torch.nn.functional.scaled_dot_product_attention(asked, keys, values, enable_gqa=True)
        run = timed(call)
        run()
        out[:] = self.out.float().numpy().reshape(out.shape)
        return run

    def prompt(self, kind, threads):
        numbers = numpy.random.default_rng(2).standard_normal((HEADS, PROMPT, HEAD_DIM), numpy.float32)
        asked, keys = self.tensor(kind, numbers, PROMPT), self.tensor(kind, numbers[:KV_HEADS].copy(), PROMPT)
        self.torch.set_num_threads(threads)
        return timed(lambda: self.torch.nn.functional.scaled_dot_product_attention(
            asked, keys, keys, is_causal=True, enable_gqa=True))()


def timed(call):
    def run():
        begin = time.perf_counter()
        call()
        return time.perf_counter() - begin
    return run


def medians(runs, rounds):
    """Milliseconds of each run, which take turns."""
    times = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            times[name].append(run())
    return {name: statistics.median(of) * 1e3 for name, of in times.items()}


def shown(row):
    print(" ".join(f"{n}={v:.4g}" if isinstance(v, float) else f"{n}={v}" for n, v in row.items()), flush=True)
    return row


def prompt(ours, peers, kind, threads, rounds, peak):
    runs = {"prompt": lambda: ours.calls.zoomr_prompt(TYPES[kind][0], PROMPT, 512, threads)}
    if "torch" in peers:
        runs["torch"] = lambda: peers["torch"].prompt(kind, threads)
    times = medians(runs, rounds)
    share = 2 * PROMPT * (PROMPT + 1) * HEADS * HEAD_DIM / times["prompt"] * 1e3 / peak["flops"] / threads
    return shown({"type": kind, "threads": threads, "tokens": PROMPT, "of_multiply_adds": share} | times)


def decode(ours, peers, kind, threads, context, rounds):
    random = numpy.random.default_rng(1)
    keys, values = (stored(random.standard_normal((KV_HEADS, context, HEAD_DIM), numpy.float32), kind)
                    for _ in range(2))
    queries = random.standard_normal((HEADS, HEAD_DIM), numpy.float32)
    out, expected = numpy.zeros_like(queries), numpy.zeros_like(queries)
    runs = {"dense": ours.dense(kind, threads, context, keys, values, queries, out)}
    runs["dense"]()
    row = {"type": kind, "threads": threads, "context": context}
    for name, peer in peers.items():
        runs[name] = peer.attend(kind, threads, context, keys, values, queries, expected)
        row["difference_" + name] = float(numpy.abs(out - expected).max())
        if not row["difference_" + name] < 1e-2:  # peers round queries, ggml adds float16 values up in float16
            sys.exit(f"{kind}, {context} tokens: outputs of {name} differ by {row['difference_' + name]}")
    of_plain = [pointer(array) for array in (keys, values, queries, out)]
    if kind == "f16" and threads == 1 and ours.calls.plain_attend(context, KV_HEADS, *of_plain) == 0:
        runs["plain"] = timed(lambda: ours.calls.plain_attend(context, KV_HEADS, *of_plain))
    runs |= {policy: ours.steps(kind, threads, policy, context) for policy in POLICIES}
    return shown(row | medians(runs, rounds))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", required=True)
    parser.add_argument("--ggml")
    parser.add_argument("--torch", action="store_true")
    parser.add_argument("--threads", default="1")
    parser.add_argument("--contexts", default="4096,8192,32768")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out")
    given = parser.parse_args()
    ours = Zoomr(given.calls)
    peers = ({"ggml": Ggml(given.ggml)} if given.ggml else {}) | ({"torch": Torch()} if given.torch else {})
    print("zoomr's path:", ours.calls.zoomr_path().decode(), "; ggml has:",
          peers["ggml"].has() if "ggml" in peers else "not measured")
    peak = {"flops": ours.calls.zoomr_peak_flops(),
            "read_512MiB": ours.calls.zoomr_peak_read(ctypes.c_longlong(1 << 29))}
    print("ceilings:", " ".join(f"{name}={value:.4g}/s" for name, value in peak.items()))
    rows = []
    for threads in map(int, given.threads.split(",")):
        rows += [prompt(ours, peers, kind, threads, given.rounds, peak) for kind in TYPES]
        for context in map(int, given.contexts.split(",")):
            rows += [decode(ours, peers, kind, threads, context, given.rounds) for kind in TYPES]
    if given.out:
        with open(given.out, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
