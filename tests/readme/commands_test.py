# SPDX-License-Identifier: Apache-2.0
"""The README's commands for a shell reach CMake as root without sudo, and as a user who has it.

    python3 commands_test.py README.md

What they call is not there but for stand-ins, which write down what they were called with.
"""
import os
import re
import subprocess
import sys
import tempfile


def calls(command, programs):
    """What is called, where only these programs are there."""
    with tempfile.TemporaryDirectory() as folder:
        for name in programs:
            path = os.path.join(folder, name)
            run = '\n"$@"' if name == "sudo" else ""
            with open(path, "w", encoding="utf-8") as script:
                script.write(f'#!/bin/sh\necho "{name} $*" >> {folder}/calls{run}\n')
            os.chmod(path, 0o755)
        done = subprocess.run(["/bin/bash", "-euo", "pipefail", "-c", command], env={"PATH": folder}, cwd=folder,
                              capture_output=True, text=True, check=False)
        try:
            with open(os.path.join(folder, "calls"), encoding="utf-8") as file:
                return done.returncode, file.read().splitlines(), done.stderr
        except FileNotFoundError:
            return done.returncode, [], done.stderr


def main(readme):
    with open(readme, encoding="utf-8") as file:
        blocks = re.findall(r"(?ms)^```sh\n(.*?)^```", file.read())
    commands = [block for block in blocks if "apt-get" in block]
    assert len(commands) == 2 and all("cmake --workflow --preset" in command for command in commands), commands
    for command in commands:
        for programs in (["apt-get", "cmake"], ["apt-get", "cmake", "sudo"]):
            status, called, said = calls(command, programs)
            assert status == 0, f"{command}with {programs}: {said}"
            by_sudo = [call for call in called if call.startswith("sudo apt-get")]
            assert len(by_sudo) == (2 if "sudo" in programs else 0), called
            assert [call.split()[0] for call in called if not call.startswith("sudo")] == ["apt-get"] * 2 + ["cmake"], called


if __name__ == "__main__":
    main(sys.argv[1])
