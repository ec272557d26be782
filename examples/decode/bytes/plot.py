# SPDX-License-Identifier: Apache-2.0
"""Draws curve.csv as curve.svg: python3 plot.py checkpoint"""
import csv
import os
import sys

LINES = {"bits_1024": "#1f77b4", "bits_4096": "#d62728", "bits_4096_window_1024": "#2ca02c",
         "bits_4096_window_256": "#7f7f7f"}
WIDTH, HEIGHT, LEFT, TOP = 640, 300, 50, 20
LOW, HIGH = 1.6, 2.6            # bits per byte


def draw(directory):
    with open(os.path.join(directory, "curve.csv")) as f:
        rows = [{k: float(v) for k, v in row.items()} for row in csv.DictReader(f)]
    last = rows[-1]["seconds"]

    def x(row):
        return LEFT + WIDTH * row["seconds"] / last

    def y(bits):
        return TOP + HEIGHT * (HIGH - min(bits, HIGH)) / (HIGH - LOW)
    text = '<text x="{:.0f}" y="{:.0f}" fill="{}" text-anchor="{}">{}</text>'.format
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 170}" height="{HEIGHT + 70}" '
           'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>']
    for tenth in range(round(10 * LOW), round(10 * HIGH) + 1, 2):
        out.append(f'<path d="M{LEFT} {y(tenth / 10):.0f}h{WIDTH}" stroke="#ddd"/>')
        out.append(text(LEFT - 6, y(tenth / 10) + 4, "black", "end", f"{tenth / 10:.1f}"))
    for part in range(0, 5):
        out.append(text(LEFT + WIDTH * part / 4, TOP + HEIGHT + 18, "black", "middle", f"{last * part / 240:.0f}"))
    note = "minutes; held-out bits per byte; dashed: the context of training changes"
    out.append(text(LEFT + WIDTH / 2, TOP + HEIGHT + 38, "black", "middle", note))
    for before, row in zip(rows, rows[1:]):
        if row["context"] != before["context"]:
            out.append(f'<path d="M{x(row):.1f} {TOP}v{HEIGHT}" stroke="#aaa" stroke-dasharray="4 3"/>')
            out.append(text(x(row) + 3, TOP + HEIGHT - 6, "#777", "start", f"{row['context']:.0f}"))
    for i, (key, colour) in enumerate(LINES.items()):
        points = " ".join(f"{x(row):.1f},{y(row[key]):.1f}" for row in rows)
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        out.append(text(LEFT + WIDTH + 8, TOP + 14 + 18 * i, colour, "start", key))
    with open(os.path.join(directory, "curve.svg"), "w") as f:
        f.write("\n".join(out + ["</svg>\n"]))


draw(sys.argv[1])
