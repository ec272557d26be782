#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which lines and branches of include/zoomr the tests execute, by clang's source-based profiles.

report.py BUILD_DIR SOURCE_DIR [--least-lines P] [--least-branches P]  a table by file, the lowest first; totals
report.py BUILD_DIR SOURCE_DIR --missed WORD                           what was not executed in files of such a path

It merges BUILD_DIR/profiles/*.profraw into all.profdata there. The former are then removed: the next run counts anew.

A template is as many functions as it has instantiations, in as many programs. A line counts as executed if it was so in
one of them. Of a condition each of its two ways out counts, in a macro for each place where the macro stands. A
template that nobody instantiates is not seen at all; headers of which nothing was seen are listed.
"""
import argparse
import collections
import json
import pathlib
import re
import shutil
import subprocess
import sys

CODE, EXPANSION, SKIPPED, GAP = range(4)  # kinds of regions, as LLVM numbers them

# What is left out, and why: printed with the table.
OTHER_PATHS = "what is compiled for processors with %s, which this one is not"
COMPILE_TIME = "functions that the compiler alone calls"
COMPILE_TIME_ONLY = re.compile(
    r"policy/checks\.hpp:|(concepts|compose|gather_tensor|gather_warp|products)\.\w+:.*\b(sums_of|placement_of|"
    r"halved|largest_power|power_above|row_products_size)\(")
BY_RULE = [  # conditions: file, what stands in the line, why
    (r"", r"\) = default;", "comparisons that the compiler writes"),
    (r"", r"^\s*ZOOMR_ASSERT\(", "ZOOMR_ASSERT, which no test can make fail"),
    (r"\.inl$", r"", "`? :` in kernels, which selects lanes of vectors and is no branch"),
]
NOT_COMPILED = "What __CUDA_ARCH__ encloses, and the kernels of NEON, are not compiled here and not counted."


def tool(name):
    found = shutil.which(name + "-14") or shutil.which(name)
    return found or sys.exit(f"coverage: there is no {name} (Debian: llvm-14)")


def missing_paths():
    """Paths of core/cpu_path.hpp that this machine cannot run."""
    try:
        flags = re.search(r"^flags\s*:(.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)[1].split()
    except (OSError, TypeError):
        return []
    needs = {"avx512": "avx512vl", "avx512_bf16": "avx512_bf16", "avx2": "avx2"}
    return sorted(path for path, flag in needs.items() if flag not in flags)


def exported(build, root):
    """What llvm-cov says of each program, with the counts of all their runs."""
    folder = build / "profiles"
    merged = folder / "all.profdata"
    profiles = sorted(folder.glob("*.profraw"))
    if profiles:
        listed = folder / "list"
        listed.write_text("".join(f"{path}\n" for path in profiles), encoding="utf-8")
        subprocess.run([tool("llvm-profdata"), "merge", f"-input-files={listed}", "-o", str(merged)],
                       check=True)
        for path in profiles:
            path.unlink()
    elif not merged.exists():
        sys.exit(f"coverage: no test has written a profile to {folder}")
    for program in sorted(path for path in (build / "bin").iterdir() if path.name.endswith("_test")):
        found = subprocess.run([tool("llvm-cov"), "export", str(program), f"-instr-profile={merged}", "-skip-expansions",
                                "-num-threads=1", f"-ignore-filename-regex=^(?!{re.escape(str(root))}/)"],
                               check=True, capture_output=True)
        # Functions that a program has, but never calls, have no counters; where another one calls them, llvm-cov says
        # that their data do not match.
        for said in found.stderr.decode().splitlines():
            if "have mismatched data" not in said:
                print(said, file=sys.stderr)
        yield json.loads(found.stdout)["data"][0]["functions"]


def executed_lines(regions):
    """{line: executed} of one function in one file: of the regions in a line the one that was executed most, as
    `llvm-cov` counts lines."""
    begins, within = {}, {}
    for l1, c1, l2, c2, count, _, _, kind in sorted(regions, key=lambda r: (r[0], r[1], -r[2], -r[3])):
        if kind == SKIPPED:
            for line in range(l1, l2 + 1):
                begins.pop(line, None), within.pop(line, None)
            continue
        if kind != GAP:
            begins[l1] = max(begins.get(l1, 0), count)
        for line in range(l1 + 1, l2 + 1):
            within[line] = count
    return {line: max(begins.get(line, 0), within.get(line, 0)) > 0 for line in begins.keys() | within.keys()}


class Coverage:
    def __init__(self, root):
        self.root = root
        self.text = {}
        # file: {line: executed}; file: {place of a condition: whether it was true, whether it was false}
        self.lines = collections.defaultdict(dict)
        self.ways = collections.defaultdict(lambda: collections.defaultdict(lambda: [False, False]))
        self.left_out = collections.Counter()
        paths = missing_paths()
        self.other_paths = OTHER_PATHS % ", ".join(paths)
        names = [rf"{len(path)}{path}(?!_)" for path in paths]
        lines = [rf"\b{path}::|cpu_path::{path}\b" for path in paths]
        heads = []
        if "avx512_bf16" in paths:  # who multiplies pairs of bfloat16, on no other path
            lines += [r"in_pairs_\b", "multiplies_pairs"]
            heads = [r"const paired_tile&", r"\bvoid pair(_keys)?\(", r"\bpair_of\(", r"float weights, words& made"]
        if paths:
            lines += ["__builtin_cpu_"]  # what is asked of the processor has one answer
        self.of_other_path = re.compile("|".join(names) or "(?!)")
        self.takes_pairs = re.compile("|".join(heads) or "(?!)")
        self.names_other_path = re.compile("|".join(lines) or "(?!)")

    def source(self, name):
        if name not in self.text:
            self.text[name] = [""] + pathlib.Path(self.root, name).read_text(encoding="utf-8").splitlines()
        return self.text[name]

    def head(self, name, line):
        """What stands before the body of a function that begins in a line."""
        text, begin = self.source(name), line
        while begin > 1 and line - begin < 3 and re.match(r"\s*(?!//|\})\S", text[begin - 1]):
            begin -= 1
        return " ".join(text[begin:line + 1])

    def relative(self, name):
        prefix = f"{self.root}/"
        return name[len(prefix):] if name.startswith(prefix) else None

    def add(self, function):
        files = [self.relative(name) for name in function["filenames"]]
        first = function["regions"][0]
        if files[first[5]] is not None:
            head = self.head(files[first[5]], first[0])
            if self.of_other_path.search(function["name"]) or self.takes_pairs.search(head):
                self.left_out[self.other_paths] += 1
                return
            if COMPILE_TIME_ONLY.search(f"{files[first[5]]}: {head}"):
                self.left_out[COMPILE_TIME] += 1
                return
        by_file = collections.defaultdict(list)
        for region in function["regions"]:
            if files[region[5]] is not None:
                by_file[region[5]].append(region)
        for file, regions in by_file.items():
            of = self.lines[files[file]]
            for line, executed in executed_lines(regions).items():
                if not executed and self.names_other_path.search(self.source(files[file])[line]):
                    continue
                of[line] = of.get(line, False) or executed
        if function["branches"]:
            self.add_ways(function, files)

    def add_ways(self, function, files):
        expanded_at = {region[6]: region for region in function["regions"] if region[7] == EXPANSION}
        seen = collections.Counter()
        for l1, c1, l2, c2, taken, not_taken, file, _, _ in function["branches"]:
            in_macro = file in expanded_at
            while file in expanded_at:
                l1, c1, l2, c2, _, file, _, _ = expanded_at[file]
            if files[file] is None or self.by_rule(files[file], l1, l2, c2):
                continue
            nth = seen[file, l1, c1] if in_macro else -1
            seen[file, l1, c1] += 1
            both = self.ways[files[file]][l1, c1, l2, c2, nth]
            both[0], both[1] = both[0] or taken > 0, both[1] or not_taken > 0

    def by_rule(self, name, first, last, end):
        line = self.source(name)[first]
        for file, text, why in BY_RULE:
            selects = text or self.source(name)[last][end - 1:].lstrip().startswith("?")
            if selects and re.search(file, name) and re.search(text, line):
                self.left_out[why] += 1
                return True
        if self.names_other_path.search(line):
            self.left_out[self.other_paths] += 1
            return True
        return False


def percent(part, whole):
    return 100 * part / whole if whole else 100.0


def show_table(coverage):
    """@return lines and branches in percent"""
    rows = []
    for name, lines in coverage.lines.items():
        ways = [way for both in coverage.ways[name].values() for way in both]
        rows.append((name, sum(lines.values()), len(lines), sum(ways), len(ways)))
    rows.sort(key=lambda row: (percent(row[1], row[2]), percent(row[3], row[4]), row[0]))
    folders = collections.defaultdict(lambda: [0, 0, 0, 0])
    for row in rows:
        for i in range(4):
            folders[f"{pathlib.PurePath(row[0]).parent}/"][i] += row[i + 1]
            folders["all"][i] += row[i + 1]
    total = folders.pop("all")
    print(f"{'lines executed':>20} {'branches, both ways':>21}")
    for name, covered, lines, taken, ways in [*rows, *((of, *n) for of, n in sorted(folders.items())), ("all", *total)]:
        print(f"{percent(covered, lines):6.1f} % {covered:5} / {lines:<5} "
              f"{percent(taken, ways):6.1f} % {taken:5} / {ways:<5} {name}")
    headers = {path.relative_to(coverage.root).as_posix() for path in coverage.root.rglob("*.*")}
    print("Nothing to execute, or nothing that was instantiated:", ", ".join(sorted(headers - coverage.lines.keys())))
    for why in sorted(coverage.left_out):
        print("Left out:", why + ".")
    print(NOT_COMPILED)
    return percent(total[0], total[1]), percent(total[2], total[3])


def show_missed(coverage, word):
    for name in sorted(coverage.lines):
        if word not in name:
            continue
        missed = {line: "never" for line, executed in coverage.lines[name].items() if not executed}
        for (line, *_), (taken, not_taken) in sorted(coverage.ways[name].items()):
            if not (taken and not_taken):
                missed.setdefault(line, "never true" if not_taken else "never false" if taken else "never")
        for line in sorted(missed):
            print(f"{name}:{line}: {missed[line]:11} {coverage.source(name)[line].strip()}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("--least-lines", type=float, default=0)
    parser.add_argument("--least-branches", type=float, default=0)
    parser.add_argument("--missed", metavar="WORD")
    given = parser.parse_args()
    root = given.source.resolve() / "include" / "zoomr"
    coverage = Coverage(root)
    for functions in exported(given.build.resolve(), root):
        for function in functions:
            coverage.add(function)
    if given.missed is not None:
        return show_missed(coverage, given.missed)
    lines, branches = show_table(coverage)
    if lines < given.least_lines or branches < given.least_branches:
        return f"coverage: {lines:.1f} % of the lines and {branches:.1f} % of the branches, wanted are at least " \
               f"{given.least_lines:g} and {given.least_branches:g}"
    return None


if __name__ == "__main__":
    sys.exit(main())
