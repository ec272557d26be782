#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Joins results of the benchmarks and of peers/compare.py into tables of medians, and says what the goals ask for.

table.py FILE.json...     files may be cut off in the middle, as by a time limit; what is whole in them is read
"""
import json
import re
import sys

PEERS = ("flashinfer", "torch", "zoomr/")  # of device_bench and of compare.py; zoomr/...: ours, timed in turn with one


def load(path):
    """The benchmarks of a file, those behind the last whole one left out."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    try:
        return json.loads(text)["benchmarks"]
    except ValueError:
        start = text.find('"benchmarks": [')
        made, decoder = [], json.JSONDecoder()
        at = text.find("{", start) if start >= 0 else -1
        while at >= 0:
            try:
                one, end = decoder.raw_decode(text, at)
            except ValueError:
                break
            made.append(one)
            at = text.find("{", end)
        print(f"{path} was cut off; {len(made)} results are whole.")
        return made


def medians(paths):
    rows, errors = {}, {}
    for path in paths:
        for one in load(path):
            name = re.sub(r"/iterations:.*$", "", one.get("run_name", one["name"]))
            if one.get("error_occurred"):
                errors[name] = one.get("error_message", "")
            elif one.get("aggregate_name") == "median":
                rows[name] = one
    return rows, errors


def micro(row):
    return row["real_time"] * {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}[row["time_unit"]]


def split(name):
    """The peer, or "", and our row."""
    if not name.startswith(PEERS):
        return "", name
    parts = name.split("/")
    skipped = 2 if parts[1].startswith("page:") else 1
    return "/".join(parts[:skipped]), "/".join(parts[skipped:])


def main():
    rows, errors = medians(sys.argv[1:])
    if not rows and not errors:
        print("There are no results.")
    ours = {name: row for name, row in rows.items() if not split(name)[0]}
    peers = {}
    for name, row in rows.items():
        peer, mine = split(name)
        if peer:
            peers.setdefault(mine, {})[peer] = row
    shown = ("bytes_per_second", "of_copy", "of_same_copy", "of_bus", "of_read", "of_fma", "us_per_layer",
             "times_full", "attended", "passes", "host_us", "segments", "splits", "GB_per_second",
             "GFLOP_per_second", "arena_hits", "prefetched", "fetched_mb", "fetch_blocks", "fetches", "fetch_us",
             "near_us", "far_us")
    for name, row in ours.items():
        figures = []
        for key in shown:
            if key in row and row[key] == row[key]:
                value = row[key]
                figures.append(f"{value / 1e9:.0f} GB/s" if key == "bytes_per_second" else f"{key} {value:.4g}")
        for peer, other in peers.get(name, {}).items():
            figures.append(f"{peer} {micro(other):.2f} us = {micro(other) / micro(row):.2f} x ours")
        print(f"{name:82} {micro(row):11.2f} us  " + ", ".join(figures))
    print()
    for name, row in ours.items():  # whole steps of a policy, beside FlashInfer's full attention of a layer
        match = re.fullmatch(r"step/(\w+)/context:(\d+)/layers:(\d+)/graph/cold", name)
        if not match:
            continue
        full = peers.get(f"step/full/context:{match[2]}/layers:1/graph/cold", {})
        best = min((micro(other) for peer, other in full.items() if peer.startswith("flashinfer")), default=None)
        if best is not None:
            print(f"{name:60} {best / row['us_per_layer']:7.2f} times as fast a layer as FlashInfer's full attention "
                  f"({best:.1f} us)")
    for name, others in sorted(peers.items()):  # what was timed in turn, in one process
        for peer, row in others.items():
            if not peer.startswith("zoomr"):
                continue
            for other in others:
                same_pages = peer.partition("/")[2] == other.partition("/")[2]
                if other != peer and same_pages:
                    apart = others[other].get("difference")
                    off = "" if apart is None else f", outputs at most {apart:.2g} apart"
                    print(f"{name:60} {other}: {micro(others[other]) / micro(row):.2f} x ours in turn "
                          f"({micro(row):.2f} us){off}")
    for name in sorted(set(peers) - set(ours)):
        for peer, other in peers[name].items():
            print(f"{peer + '/' + name:82} {micro(other):11.2f} us")
    same = {}
    for name, sentence in errors.items():
        same.setdefault(sentence, []).append(name)
    for sentence, names in same.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        print(f"{names[0]}{more}: {sentence}")


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:  # whoever reads has seen enough
        sys.exit(0)
