# SPDX-License-Identifier: BSD-3-Clause
"""What other people's programs answer over the system's UCX: the answers over the library must be the same."""
import ctypes.util
import os
import re
import shutil
import subprocess
import tempfile

from figures import system_env


def read_output(folder, program):
    """What the launcher and the program have written."""
    paths = {os.path.join(folder, name) for name in ("output", program.output)}
    return "".join(open(path, errors="replace").read() for path in sorted(paths) if os.path.exists(path))


def copy_inputs(program, folder):
    for source, name in program.copies:
        shutil.copy(source, os.path.join(folder, name))


def answers(program, text):
    return re.findall(program.answers, text)


def over_ucx(program, runtime, ranks, limit):
    """The answers, or None; and what there is to say."""
    if not program.answers:
        return None, "its output has nothing to compare"
    if not ctypes.util.find_library("ucp"):
        return None, "the system has no UCX"
    with tempfile.TemporaryDirectory(prefix="swiftlane-ucx-") as folder:
        copy_inputs(program, folder)
        command = runtime.launcher + ["-np", str(ranks), *program.command]
        with open(os.path.join(folder, "output"), "w") as out:
            try:
                status = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, cwd=folder, timeout=limit,
                                        env=dict(system_env(), **runtime.env, UCX_LOG_LEVEL="error")).returncode
            except subprocess.TimeoutExpired:
                return None, f"no end within {limit} s"
        text = read_output(folder, program)
        found = answers(program, text)
        if status != 0 or not found:
            return None, f"exit status {status}: {text[-500:]}"
        return found, f"{len(found)} answers"
