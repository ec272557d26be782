# SPDX-License-Identifier: Apache-2.0
"""Draws a training's curve.csv as curve.svg: python3 plot.py checkpoints/plain"""
import csv
import os
import sys

COLOURS = ["#d62728", "#1f77b4", "#2ca02c", "#7f7f7f"]
WIDTH, HEIGHT, LEFT, TOP = 640, 300, 50, 20


class Accuracy:                  # of LEDGER
    lines = ["fine", "coarse", "chain", "exact"]
    low, high = 0.0, 1.0
    along, unit = "tokens", 1e6
    note = "million tokens; dashed: the next size opens, or the guidance ends"

    @staticmethod
    def stage(row):
        return row["registers"], row["guidance"] == 0


class Bits:                      # of the byte-level model
    lines = ["bits_1024", "bits_4096", "bits_4096_window_1024", "bits_4096_window_256"]
    low, high = 1.6, 2.6
    along, unit = "seconds", 60
    note = "minutes; held-out bits per byte; dashed: the context of training changes"

    @staticmethod
    def stage(row):
        return (row["context"],)


def draw(directory):
    with open(os.path.join(directory, "curve.csv")) as f:
        rows = [{k: float(v) for k, v in row.items()} for row in csv.DictReader(f)]
    of = Bits if "context" in rows[0] else Accuracy
    last = rows[-1][of.along]

    def x(row):
        return LEFT + WIDTH * row[of.along] / last

    def y(value):
        return TOP + HEIGHT * (of.high - min(value, of.high)) / (of.high - of.low)
    text = '<text x="{:.0f}" y="{:.0f}" fill="{}" text-anchor="{}">{}</text>'.format
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 170}" height="{HEIGHT + 70}" '
           'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>']
    for fifth in range(6):
        value = of.low + (of.high - of.low) * fifth / 5
        out.append(f'<path d="M{LEFT} {y(value):.0f}h{WIDTH}" stroke="#ddd"/>')
        out.append(text(LEFT - 6, y(value) + 4, "black", "end", f"{value:.1f}"))
    for part in range(5):
        out.append(text(LEFT + WIDTH * part / 4, TOP + HEIGHT + 18, "black", "middle", f"{last * part / 4 / of.unit:.1f}"))
    out.append(text(LEFT + WIDTH / 2, TOP + HEIGHT + 38, "black", "middle", of.note))
    for before, row in zip(rows, rows[1:]):
        if of.stage(row) != of.stage(before):
            out.append(f'<path d="M{x(row):.1f} {TOP}v{HEIGHT}" stroke="#aaa" stroke-dasharray="4 3"/>')
            out.append(text(x(row) + 3, TOP + HEIGHT - 6, "#777", "start", f"{of.stage(row)[0]:.0f}"))
    for i, (key, colour) in enumerate(zip(of.lines, COLOURS)):
        points = " ".join(f"{x(row):.1f},{y(row[key]):.1f}" for row in rows)
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        out.append(text(LEFT + WIDTH + 8, TOP + 14 + 18 * i, colour, "start", key))
    with open(os.path.join(directory, "curve.svg"), "w") as f:
        f.write("\n".join(out + ["</svg>\n"]))


draw(sys.argv[1])
