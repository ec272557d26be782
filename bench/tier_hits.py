#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tier_hits.py CSV [CSV ...] PICTURE: draws what tier_hits has printed, hit rate against the device's bytes, a panel for
each CSV, whose name is its title. The picture's name says what it is: .svg or .png. Needs matplotlib."""
import csv
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
matplotlib.rcParams["svg.hashsalt"] = "zoomr"  # the same bytes each time
import matplotlib.pyplot as plt
from matplotlib import ticker

LINES = {"future_known": ("0.6", "--"), "farthest_use": ("C3", "-"), "least_frequent": ("C0", "-"),
         "least_recent": ("C2", "-")}


def main() -> int:
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    files = [pathlib.Path(name) for name in sys.argv[1:-1]]
    _, axes = plt.subplots(1, len(files), figsize=(4.2 * len(files), 3.2), sharey=True, squeeze=False)
    for axis, file in zip(axes[0], files):
        with file.open() as lines:
            rows = list(csv.DictReader(lines))
        for order, (color, style) in LINES.items():
            of = [row for row in rows if row["order"] == order]
            axis.plot([int(row["bytes"]) / 1024 for row in of], [float(row["hit_rate"]) * 100 for row in of],
                      color=color, linestyle=style, label=order)
        axis.set_title(file.stem)
        axis.set_xscale("log", base=2)
        axis.xaxis.set_major_formatter(ticker.StrMethodFormatter("{x:,.0f}"))
        axis.set_xlabel("pages of details on the device, KiB")
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("visits that hit, %")
    axes[0][0].legend(fontsize=8)
    plt.tight_layout()
    plt.savefig(sys.argv[-1], dpi=120, metadata={"Date": None} if sys.argv[-1].endswith(".svg") else None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
