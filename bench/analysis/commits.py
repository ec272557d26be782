#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the rows of two commits (docs/comparing.md).

    commits.py --before FILE.json... --after FILE.json...

FILE.json is what a benchmark program writes by --benchmark_out. Files of one side are several runs of one build. A row
says both medians, their ratio, and whether it is more than chance: whether the middle halves of the repetitions of both
sides lie apart. Exit code 2 if the two cannot be compared.
"""
import argparse
import json
import statistics
import sys

SAME = ("host_name", "num_cpus", "compiler", "flags", "processor_path")  # on both sides, or other things are compared
MICROSECONDS = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}


class Incomparable(Exception):
    pass


def read(paths):
    """What is said of the build, and the times of all repetitions of each row."""
    context, rows = None, {}
    for path in paths:
        try:
            with open(path, encoding="utf-8") as file:
                said = json.load(file)
            build, rows_read = said["context"], [row for row in said["benchmarks"] if row["run_type"] == "iteration"]
        except (OSError, ValueError, KeyError, TypeError) as fault:
            raise Incomparable(f"{path}: no results of a benchmark ({fault})") from fault
        for name in (*SAME, "commit"):
            if context and build.get(name) != context.get(name):
                raise Incomparable(f"{path}: its {name} is {build.get(name)}, that of {paths[0]} {context.get(name)}")
        context = context or build
        for row in rows_read:
            if not row.get("error_occurred"):
                time = row["real_time"] * MICROSECONDS[row["time_unit"]]
                rows.setdefault(row["run_name"].split("/iterations:")[0].split("/min_time:")[0], []).append(time)
    return context, rows


def middle(times):
    """The quartiles of some times."""
    return statistics.quantiles(times, n=4, method="inclusive") if len(times) > 1 else times * 3


def compare(before, after):
    """Lines of a table: row, both medians in us, ratio, what it means."""
    lines = []
    for name in before:
        if name not in after:
            continue
        (low, was, high), (new_low, new, new_high) = middle(before[name]), middle(after[name])
        verdict = "slower" if new_low > high else "faster" if new_high < low else "within noise"
        lines.append((name, f"{was:.2f}", f"{new:.2f}", f"{new / was:.3f}", verdict))
    return lines


def main():
    parser = argparse.ArgumentParser(description="Compares the rows of two commits.")
    parser.add_argument("--before", nargs="+", required=True, metavar="FILE.json")
    parser.add_argument("--after", nargs="+", required=True, metavar="FILE.json")
    given = parser.parse_args()
    try:
        (old, before), (new, after) = read(given.before), read(given.after)
        for name in SAME:
            if old.get(name) != new.get(name):
                raise Incomparable(f"{name} is {old.get(name)} before and {new.get(name)} after: "
                                   "only the commits may differ")
        lines = compare(before, after)
        if not lines:
            raise Incomparable("no row is in both")
    except Incomparable as fault:
        print(f"commits.py: {fault}", file=sys.stderr)
        return 2
    for side, context in (("before", old), ("after", new)):
        print(f"{side}: {context.get('commit', 'unknown')}")
    lines.insert(0, ("row", "before, us", "after, us", "ratio", ""))
    widths = [max(len(line[column]) for line in lines) for column in range(5)]
    for line in lines:
        cells = (cell.rjust(width) for cell, width in zip(line[1:4], widths[1:4]))
        print("  ".join([line[0].ljust(widths[0]), *cells, line[4]]).rstrip())
    missing = sorted((before.keys() | after.keys()) - (before.keys() & after.keys()))
    if missing:
        print(f"in one of them alone, or failed: {', '.join(missing)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
