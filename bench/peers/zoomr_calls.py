# SPDX-License-Identifier: Apache-2.0
"""zoomr's plain C calls (calls.cu), for compare.py: the same memory, in the same process, in turn with a peer.

zoomr_calls.py --check LIBRARY   the calls against sums written out, in memory of the host: for a library that was built
                                 for the SIMT shim; exit status 1 if they differ
"""
import ctypes
import math
import random
import struct
import sys

HEAD_DIM = 128


class Attention(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in ("type", "group", "kv_heads", "sequences", "tokens", "page_bits")]
    _fields_ += [(name, ctypes.c_longlong) for name in ("page_stride", "head_stride", "token_stride")]
    _fields_ += [(name, ctypes.c_void_p) for name in ("keys", "values", "slots", "queries", "out", "lse", "workspace")]
    _fields_ += [("splits", ctypes.c_int)]


class Calls:
    """The library; its calls take addresses as plain numbers."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        for name in ("zoomr_attend", "zoomr_top_k"):
            getattr(self.library, name).restype = ctypes.c_char_p
        self.library.zoomr_workspace_bytes.restype = ctypes.c_longlong
        self.library.zoomr_top_k.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                                             ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]

    def splits(self, kv_heads, sequences, tokens):
        return self.library.zoomr_splits(kv_heads, sequences, tokens)

    def workspace_bytes(self, wanted):
        return self.library.zoomr_workspace_bytes(ctypes.byref(wanted))

    def attend(self, wanted, stream):
        self._expect(self.library.zoomr_attend(ctypes.byref(wanted), ctypes.c_void_p(stream)))

    def top_k(self, scores, rows, n, k, ids, counts, stream):
        self._expect(self.library.zoomr_top_k(scores, rows, n, k, ids, counts, stream))

    @staticmethod
    def _expect(sentence):
        if sentence is not None:
            raise RuntimeError(sentence.decode())


def to_bf16(x):
    bits = struct.unpack("<I", struct.pack("<f", x))[0]
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def from_bf16(bits):
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


def check(path):
    """Pages [page, token, KV head, dim], as FlashInfer has them, against attention written out."""
    calls = Calls(path)
    dice = random.Random(1)
    group, kv_heads, sequences, tokens, pages, page = 4, 2, 2, 37, 8, 16
    count = pages * page * kv_heads * HEAD_DIM
    numbers = [to_bf16(dice.uniform(-1, 1)) for _ in range(2 * count)]
    stored = (ctypes.c_uint16 * (2 * count + 8))(*numbers)
    first = -ctypes.addressof(stored) % 16 // 2  # 16 bytes are copied at a time
    ctypes.memmove(ctypes.addressof(stored) + 2 * first, (ctypes.c_uint16 * len(numbers))(*numbers), 4 * count)
    slots = [sorted(dice.sample(range(pages * page), tokens)) for _ in range(sequences)]
    heads = kv_heads * group
    queries = (ctypes.c_uint16 * (sequences * heads * HEAD_DIM))(*[to_bf16(dice.uniform(-1, 1))
                                                                  for _ in range(sequences * heads * HEAD_DIM)])
    out = (ctypes.c_uint16 * len(queries))()
    lse = (ctypes.c_float * (sequences * heads))()
    listed = (ctypes.c_int * (sequences * tokens))(*[slot for each in slots for slot in each])
    base = ctypes.addressof(stored) + 2 * first
    wanted = Attention(0, group, kv_heads, sequences, tokens, 4, page * kv_heads * HEAD_DIM, HEAD_DIM,
                       kv_heads * HEAD_DIM, base, base + 2 * count, ctypes.addressof(listed), ctypes.addressof(queries),
                       ctypes.addressof(out), ctypes.addressof(lse), None, 2)
    workspace = (ctypes.c_char * calls.workspace_bytes(wanted))()
    wanted.workspace = ctypes.addressof(workspace)
    calls.attend(wanted, 0)
    faults = 0
    for s in range(sequences):
        for h in range(heads):
            query = [from_bf16(q) for q in queries[(s * heads + h) * HEAD_DIM:(s * heads + h + 1) * HEAD_DIM]]
            at = [(slot * kv_heads + h // group) * HEAD_DIM for slot in slots[s]]
            logits = [sum(q * from_bf16(k) for q, k in zip(query, numbers[a:a + HEAD_DIM])) / math.sqrt(HEAD_DIM)
                      for a in at]
            weights = [math.exp(x) for x in logits]
            faults += abs(lse[s * heads + h] - math.log(sum(weights))) > 1e-4
            for d in range(0, HEAD_DIM, 7):
                expected = sum(w * from_bf16(numbers[count + a + d]) for w, a in zip(weights, at)) / sum(weights)
                got = from_bf16(out[(s * heads + h) * HEAD_DIM + d])
                # rounded to bfloat16 is the output, and on tensor cores each weight; no value is larger than 1
                faults += abs(got - expected) > 2 ** -8 * (abs(expected) + 1) + 1e-6
    scores = [dice.choice([0.25, 0.5, 0.75]) if i % 3 else dice.uniform(-1, 1) for i in range(2 * 50)]
    held = (ctypes.c_float * len(scores))(*scores)
    ids, counts = (ctypes.c_int * 14)(), (ctypes.c_int * 2)()
    calls.top_k(ctypes.addressof(held), 2, 50, 7, ctypes.addressof(ids), ctypes.addressof(counts), 0)
    for row in range(2):
        best = sorted(sorted(range(50), key=lambda i: (-held[50 * row + i], i))[:7])
        faults += list(ids[7 * row:7 * row + 7]) != best or counts[row] != 7
    wanted.group = 3
    try:
        calls.attend(wanted, 0)
        faults += 1
    except RuntimeError as refused:
        faults += "group must be" not in str(refused)
    print(f"{faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] != "--check":
        sys.exit(__doc__)
    sys.exit(check(sys.argv[2]))
