# SPDX-License-Identifier: Apache-2.0
"""Pages of docs/results that a script fills in: each table stands between two comments that name it."""
import datetime
import json
import math
import os
import subprocess

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../.."))
RESULTS = os.path.join(ROOT, "docs/results")


def measured_now():
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True)
    return {"commit": commit.stdout.strip(), "date": datetime.date.today().isoformat()}


def write_whole(path, text):
    """A full disk leaves the file as it was."""
    beside = f"{path}.{os.getpid()}.part"
    try:
        with open(beside, "w") as f:
            f.write(text)
        os.replace(beside, path)
    finally:
        if os.path.exists(beside):
            os.unlink(beside)


def load(name, empty):
    """What a page was last made of; `empty` before that."""
    path = os.path.join(RESULTS, name)
    if not os.path.exists(path):
        return empty
    with open(path) as f:
        return json.load(f)


def wilson(share, trials):
    """The 95 % interval of a share."""
    z = 1.959964
    centre = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return max(0, centre - half), min(1, centre + half)


def with_interval(share, trials):
    """In per cent: "97 (92 – 99)"."""
    low, high = wilson(share, trials)
    return f"{100 * share:.0f} ({100 * low:.0f} – {100 * high:.0f})"


def markdown(titles, rows):
    """A table; all cells are texts."""
    return "\n".join("| " + " | ".join(row) + " |" for row in [titles, ["---"] * len(titles), *rows])


def fill(name, tables):
    """Writes the tables into the page of that name, each where the page has a place for it."""
    path = os.path.join(RESULTS, name)
    with open(path) as f:
        page = f.read()
    for table, text in tables.items():
        begin, end = f"<!-- table {table} -->\n", f"<!-- end {table} -->"
        if begin in page:
            before, rest = page.split(begin)
            page = before + begin + text + "\n" + end + rest.split(end, 1)[1]
    write_whole(path, page)
