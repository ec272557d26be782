#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tokens a second, and bytes that a rank sends for a token, of 2 to 512 ranks in tensor parallel, computed from what
one rank takes and what a link is. Nothing is measured here, and nothing overlaps: a model to see what grows with what.

    python3 ranks.py --layers 30 --heads 9 --hidden 576 --context 4224 --segment 24 --voters 6 --attend-us 2500 \
      --model-us 5000 --latency-us 2 --bandwidth 20

One rank takes `attend-us` in the attention of all layers and `model-us` in all else. R ranks take the share of the rank
that has most heads, and 1/R of all else. An exchange takes the latency, and (R - 1) times its bytes over the bandwidth.
Each layer has two, of `hidden` floats in R parts, that every engine has. What choices send is added (docs/engine.md):

    none    nothing: full, quest, sentence_kv, and all that choose by KV head or evict
    votes   32 + 8 S bytes for each choice: zoomr_one_pass, zoomr_mass; for each layer zoomr_focus
    scores  32 + 4 H S bytes for each layer and token, H heads of the rank that has most: arkvale
    voters  32 + 4 V S bytes for each token, V voters of the rank that has most: sentence_voters, zoomr_voters

S segments = context / segment, for `scores` and `voters` rounded up to even. Votes are cast every `every` tokens. The
option `voters` is V, whatever R is, as long as a rank has as many heads.
"""
import argparse
import math


def sent(kind, at, ranks):
    """Exchanges for a token, and bytes of each to each other rank."""
    segments = -(-at.context // at.segment)
    even = segments + segments % 2
    heads = -(-at.heads // ranks)
    return {"none": (0, 0),
            "votes": (1 / at.every, 32 + 8 * segments),
            "votes of layers": (at.layers / at.every, 32 + 8 * segments),
            "scores": (at.layers, 32 + 4 * heads * even),
            "voters": (1, 32 + 4 * min(at.voters, at.layers * heads) * even)}[kind]


def seconds(at, ranks, exchanges, size):
    """Of a token."""
    def exchange(count, each):
        return count * (at.latency_us * 1e-6 + (ranks - 1) * each / (at.bandwidth * 1e9))
    alone = at.attend_us * 1e-6 * -(-at.heads // ranks) / at.heads + at.model_us * 1e-6 / ranks
    return alone + exchange(2 * at.layers, 4 * at.hidden / ranks) + exchange(exchanges, size)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default, what in (("layers", 126, "of the model"), ("heads", 128, "query heads"),
                                ("hidden", 16384, "numbers that a layer adds to each token"),
                                ("context", 32768, "tokens"), ("segment", 24, "tokens"),
                                ("voters", 8, "of the rank that has most"), ("every", 24, "tokens from vote to vote")):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{what} (default: {default})")
    for name, default, what in (("attend-us", 20000, "one rank, attention of a token, all layers"),
                                ("model-us", 200000, "one rank, all else of a token"),
                                ("latency-us", 5, "of an exchange"), ("bandwidth", 50, "GB/s that a rank sends")):
        parser.add_argument(f"--{name}", type=float, default=default, help=f"{what} (default: {default})")
    parser.add_argument("--ranks", default="2,4,8,16,32,64,128,256,512", help="(default: %(default)s)")
    at = parser.parse_args()
    if min(at.layers, at.heads, at.hidden, at.context, at.segment, at.voters, at.every) < 1:
        parser.error("numbers of things are positive")
    if min(at.attend_us, at.model_us, at.latency_us) < 0 or not 0 < at.bandwidth < math.inf:
        parser.error("times are not negative, and a link has a bandwidth")
    kinds = ("none", "votes", "votes of layers", "scores", "voters")
    print("| ranks | " + " | ".join(f"{kind}: tokens/s, bytes" for kind in kinds) + " |")
    print("|---" * (len(kinds) + 1) + "|")
    for ranks in (ranks for ranks in map(int, at.ranks.split(",")) if ranks <= at.heads):
        cells = []
        for kind in kinds:
            exchanges, size = sent(kind, at, ranks)
            cells.append(f"{1 / seconds(at, ranks, exchanges, size):.1f}, {(ranks - 1) * exchanges * size:.0f}")
        print(f"| {ranks} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
