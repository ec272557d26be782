# SPDX-License-Identifier: Apache-2.0
"""Draws what zoomr-replay --json has written: error and captured mass against bytes, one curve for each policy.

    python3 plot.py replay.json OUT      writes OUT.svg and OUT.png; needs matplotlib

Bytes are the most that a device would hold in a step, accounted. A point is a budget; a policy without one is a point
alone. Policies that left out nothing are not drawn, but for `full`, which is the dashed line.
"""
import json
import sys

import matplotlib

matplotlib.use("Agg")
matplotlib.rcParams["svg.hashsalt"] = "zoomr"  # the same bytes each time
import matplotlib.pyplot as plt  # noqa: E402

PANELS = [("error", "error of outputs, mean, %"), ("captured", "captured mass, %")]


def curves_of(document):
    """By name and settings, without the budget: sorted points (MiB, error, captured mass)."""
    curves, full = {}, None
    for run in document["runs"]:
        name, *settings = run["policy"].split("+")
        curve = "+".join([name.partition("@")[0], *settings])
        mebibytes = run["stats"]["device_peak"] / 2**20
        if curve == "full":
            full = mebibytes
        elif run["conclusive"]:
            curves.setdefault(curve, []).append((mebibytes, *(100 * run[key] for key, _ in PANELS)))
    return {name: sorted(points) for name, points in curves.items()}, full


def draw(document, out):
    curves, full = curves_of(document)
    if not curves:
        sys.exit("no policy left out anything: there is nothing to draw")
    colours = plt.get_cmap("tab20").colors
    figure, panels = plt.subplots(1, len(PANELS), figsize=(11, 4.4), sharex=True)
    for number, (axes, (_, label)) in enumerate(zip(panels, PANELS), 1):
        for i, (name, points) in enumerate(curves.items()):
            axes.plot([p[0] for p in points], [p[number] for p in points], label=name, linewidth=1.3, markersize=5,
                      marker="osD^vPX"[i % 7], color=colours[i % len(colours)])
        if full is not None:
            axes.axvline(full, color="black", linewidth=0.8, linestyle="--")
            axes.annotate("full", (full, 1), (0, 2), xycoords=("data", "axes fraction"), textcoords="offset points",
                          ha="center", fontsize=8)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda mebibytes, _: f"{mebibytes:g}")
        axes.set(xlabel="MiB on the device at the peak, accounted", ylabel=label)
        axes.grid(alpha=0.3)
    panels[0].set_ylim(bottom=0)
    trace = document["trace"]
    figure.suptitle(f"{trace['model'] or 'a trace'}: {trace['prompt']} tokens of prompt, "
                    f"{trace['tokens'] - trace['prompt']} after it")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="center right", fontsize=8)
    figure.tight_layout(rect=(0, 0, 0.83, 1))
    figure.savefig(out + ".svg", metadata={"Date": None})
    figure.savefig(out + ".png", dpi=110)


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        draw(json.load(file), sys.argv[2])
