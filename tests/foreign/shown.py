# SPDX-License-Identifier: Apache-2.0
"""The host code that a page shows, as a header: python3 shown.py extending.md shown.hpp"""
import re
import sys

page, header = sys.argv[1:]
blocks = re.findall(r"```cpp\n(.*?)```", open(page, encoding="utf-8").read(), re.S)
host = [block for block in blocks if "__device__" not in block]
with open(header, "w", encoding="utf-8") as made:
    made.write("#pragma once\n\nnamespace shown {\n\n" + "\n".join(host) + "\n}  // namespace shown\n")
