# SPDX-License-Identifier: Apache-2.0
"""The program that a page shows is the one that is compiled and run: python3 check.py PAGE.md PROGRAM"""
import re
import sys

page, program = (open(path, encoding="utf-8").read() for path in sys.argv[1:])
compiled = program.split("// [readme]\n")[1].strip()
shown = [block.strip() for block in re.findall(r"```cpp\n(.*?)```", page, re.S)]
if compiled not in shown:
    sys.exit(f"{sys.argv[1]} does not show the program of {sys.argv[2]} as it is compiled")
