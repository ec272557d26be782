# SPDX-License-Identifier: Apache-2.0
"""Who packages or cites the library reads one version everywhere: that of CMakeLists.txt.

    python3 version.py ROOT
"""
import os
import re
import sys

PLACES = {  # a pattern whose groups, joined by dots, are the version
    "CMakeLists.txt": r"project\(zoomr VERSION ([0-9.]+)",
    "CITATION.cff": r"(?m)^version: ([0-9.]+)$",
    "CHANGELOG.md": r"(?m)^## ([0-9.]+), \d{4}-\d\d-\d\d$",
    "include/zoomr/core/version.hpp": r"_MAJOR ([0-9]+)\n.*_MINOR ([0-9]+)\n.*_PATCH ([0-9]+)",
    "packaging/vcpkg/zoomr/vcpkg.json": r'"version": "([0-9.]+)"',
}


def main(root):
    found = {}
    for name, pattern in PLACES.items():
        with open(os.path.join(root, name), encoding="utf-8") as file:
            match = re.search(pattern, file.read())
        found[name] = ".".join(match.groups()) if match else "none"
    if len(set(found.values())) == 1 and "none" not in found.values():
        return 0
    for name, version in found.items():
        print(f"{name}: version {version}")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
