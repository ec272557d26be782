# SPDX-License-Identifier: Apache-2.0
"""The README's program is the one that is compiled and run: python3 check.py README.md call_site.cpp"""
import re
import sys

readme, program = (open(path, encoding="utf-8").read() for path in sys.argv[1:])
compiled = program.split("// [readme]\n")[1].strip()
shown = [block.strip() for block in re.findall(r"```cpp\n(.*?)```", readme, re.S)]
if compiled not in shown:
    sys.exit(f"README.md does not show the program of {sys.argv[2]} as it is compiled")
