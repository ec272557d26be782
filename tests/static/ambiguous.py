#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Names of the host's headers that are ambiguous where a source uses both namespaces, std and zoomr, are those in
KNOWN: docs/engine.md names them. Each word of the headers is looked up by itself.

ambiguous.py COMPILER INCLUDE_DIR
"""
import os
import pathlib
import re
import subprocess
import sys

KNOWN = {"errc"}
STANDARD = """algorithm any array atomic barrier bit bitset charconv chrono codecvt compare complex concepts
condition_variable coroutine deque exception expected filesystem format forward_list fstream functional future
initializer_list iomanip ios iostream istream iterator latch limits list locale map mdspan memory memory_resource mutex
new numbers numeric optional ostream queue random ranges ratio regex scoped_allocator semaphore set shared_mutex
source_location span sstream stack stdexcept stop_token streambuf string string_view strstream syncstream system_error
thread tuple type_traits typeindex typeinfo unordered_map unordered_set utility valarray variant vector version""".split()


def main(compiler, include_dir):
    root = pathlib.Path(include_dir)
    headers = [path for path in root.rglob("*") if path.suffix in (".hpp", ".inl")]
    headers = [path for path in headers if not re.search("#include <(mpi|nccl).h>", path.read_text(encoding="utf-8"))]
    text = "\n".join(re.sub(r"//.*", "", path.read_text(encoding="utf-8")) for path in headers)
    words = sorted(set(re.findall(r"\b[a-z]\w*\b", text)))
    source = "".join(f"#if __has_include(<{name}>)\n#include <{name}>\n#endif\n" for name in STANDARD)
    source += "".join(f"#include <{path.relative_to(root).as_posix()}>\n" for path in headers if path.suffix == ".hpp")
    source += "namespace both {\nusing namespace std;\nusing namespace zoomr;\n}\n"
    source += "".join(f"namespace asks_{word} {{ using both::{word}; }}\n" for word in words)
    limit = ["-ferror-limit=0"] if "clang" in subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout else []
    said = subprocess.run([compiler, "-std=c++20", "-w", "-fsyntax-only", *limit, f"-I{root}", "-x", "c++", "-"],
                          input=source, capture_output=True, text=True, env=os.environ | {"LC_ALL": "C"}).stderr
    found = set(re.findall(r"reference to '(\w+)' is ambiguous", said))
    if found != KNOWN:
        print(f"ambiguous beside std: {sorted(found)}, known: {sorted(KNOWN)}")
    return found != KNOWN


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
