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

# Okabe and Ito's colours, dashed for what knows the future; markers, so that print without colours tells them apart.
LINES = {"future_known": ("#7F7F7F", "--", "X"), "cyclic_mru": ("#D55E00", "-", "s"), "lfu": ("#0072B2", "-", "o"),
         "lru": ("#009E73", "-", "^"),
         "next_choice": ("#7F7F7F", "--", "X"), "nothing": ("#000000", "-", "."), "runners_up_1": ("#0072B2", "-", "o"),
         "runners_up_4": ("#56B4E9", "-", "s"), "runners_up_16": ("#CC79A7", "-", "D"),
         "neighbours": ("#009E73", "-", "^"), "lately_chosen_8": ("#E69F00", "-", "v"),
         "layer_before": ("#D55E00", "-", "P")}


def draw(axis, rows, kind, height):
    """A line for each kind of row; height(row) is what it shows."""
    for number, (name, (color, style, marker)) in enumerate(LINES.items()):
        of = [row for row in rows if row[kind] == name]
        if of:
            axis.plot([int(row["bytes"]) / 1024 for row in of], [height(row) for row in of], color=color,
                      linestyle=style, label=name, marker=marker, markersize=4, linewidth=1.2,
                      markevery=(number % 5, 5))
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
    figure, axes = plt.subplots(1 + ahead, len(files), figsize=(3.6 * len(files) + 1.4, 3.2 + 2.6 * ahead),
                                sharex="col", sharey=False if ahead else "row", squeeze=False)
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
    plt.tight_layout(rect=(0, 0, 1 - 1.4 / figure.get_figwidth(), 1))
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="center right", fontsize=8, frameon=False)
    plt.savefig(sys.argv[-1], dpi=120, metadata={"Date": None} if sys.argv[-1].endswith(".svg") else None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
