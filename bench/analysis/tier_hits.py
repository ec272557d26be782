#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tier_hits.py CSV [CSV ...] PICTURE: draws what tier_hits or tier_ahead has printed against the device's bytes.

A column for each CSV, whose name is its title: visits that hit; of tier_ahead those just after choices, and under them
what was brought in vain. The picture's name says what it is: .svg or .png. Needs matplotlib."""
import csv
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
matplotlib.rcParams["svg.hashsalt"] = "zoomr"  # the same bytes each time
import matplotlib.pyplot as plt
from matplotlib import ticker

LINES = {"future_known": ("0.6", "--"), "cyclic_mru": ("C3", "-"), "lfu": ("C0", "-"), "lru": ("C2", "-"),
         "next_choice": ("0.6", "--"), "nothing": ("k", "-"), "runners_up_1": ("C3", "-"), "runners_up_4": ("C3", "-."),
         "runners_up_16": ("C3", ":"), "neighbours": ("C0", "-"), "lately_chosen_8": ("C2", "-"),
         "layer_before": ("C1", "-")}


def draw(axis, rows, kind, height):
    """A line for each kind of row; height(row) is what it shows."""
    for name, (color, style) in LINES.items():
        of = [row for row in rows if row[kind] == name]
        if of:
            axis.plot([int(row["bytes"]) / 1024 for row in of], [height(row) for row in of], color=color,
                      linestyle=style, label=name)
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_formatter(ticker.StrMethodFormatter("{x:,.0f}"))
    axis.grid(alpha=0.3)


def main() -> int:
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    files = [pathlib.Path(name) for name in sys.argv[1:-1]]
    tables = []
    for file in files:
        with file.open() as lines:
            tables.append(list(csv.DictReader(lines)))
    ahead = "ahead" in tables[0][0]
    _, axes = plt.subplots(1 + ahead, len(files), figsize=(4.2 * len(files), 3.2 + 2.6 * ahead), sharex="col",
                           sharey=False if ahead else "row", squeeze=False)
    for column, (file, rows) in enumerate(zip(files, tables)):
        if ahead:
            draw(axes[0][column], rows, "ahead", lambda row: float(row["hit_rate_after_choices"]) * 100)
            draw(axes[1][column], rows, "ahead", lambda row: float(row["wasted_per_pass_of_all_layers"]) *
                 int(row["bytes"]) / int(row["slots"]) / 1000)
        else:
            draw(axes[0][column], rows, "order", lambda row: float(row["hit_rate"]) * 100)
        axes[0][column].set_title(file.stem)
        axes[-1][column].set_xlabel("pages of details on the device, KiB")
    axes[0][0].set_ylabel("visits after choices that hit, %" if ahead else "visits that hit, %")
    if ahead:
        axes[1][0].set_ylabel("brought in vain, KB a pass")
    axes[0][0].legend(fontsize=8)
    plt.tight_layout()
    plt.savefig(sys.argv[-1], dpi=120, metadata={"Date": None} if sys.argv[-1].endswith(".svg") else None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
