#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compares what shared libraries export with what the public headers declare.

A library libX.so.0 must export the functions and variables of its headers (libraries to headers: see
HEADERS), nothing else, without symbol versions, and be called libX.so.0. libucp has libucs's names as well. What runtimes import
(runtimes.txt) must be among it.
"""

import argparse
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True
import declarations  # noqa: E402

PACKAGES = ["ucp", "uct", "ucs", "ucm"]
HEADERS = {
    "ucp": ["ucp/api/ucp.h", "ucp/api/ucpx.h", "ucp/api/device/ucp_host.h"],
    "ucs": ["ucp/api/ucp.h", "ucs/debug/log_def.h", "ucs/debug/debug_int.h", "ucs/debug/memtrack_int.h",
            "ucs/config/global_opts.h", "ucs/memory/memtype_cache.h", "ucs/sys/string.h"],
    "ucm": ["ucm/api/ucm.h"],
    "swiftlane_ucm": ["ucm/api/ucm.h"],
    "uct": ["uct/api/uct.h"],
}
# Names that libraries export beside those that begin with their own.
PREFIXES = {"ucp": ("ucp_", "ucpx_", "ucs_"), "ucs": ("ucs_",), "ucm": ("ucm_",), "uct": ("uct_",),
            "swiftlane_ucm": ("ucm_",)}


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def imports():
    """Names that runtimes import, by library."""
    result = {}
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "runtimes.txt"), encoding="utf-8") as file:
        for line in file:
            words = line.split("#")[0].split()
            if words:
                result.setdefault(words[0], set()).update(words[1:])
    return result


def check(library, include, cc):
    name = re.match(r"lib(\w+)\.so", os.path.basename(library)).group(1)
    known = declarations.read(cc, include, HEADERS[name], PACKAGES)
    wanted = {n for n in known.functions + known.variables
              if n.startswith(PREFIXES[name]) and n not in known.inline_functions}
    if name == "ucp":
        wanted.add("swiftlane_services")  # for libucs and libuct beside it
    if name == "swiftlane_ucm":  # UCX's names, made ours
        wanted = {"swiftlane_" + n for n in wanted - {"ucm_global_opts"}} | {"swiftlane_ucm_options"}
    exported = {line.split()[-1] for line in output("nm", "-D", "--defined-only", library).splitlines()}
    soname = re.search(r"soname: \[(.*?)\]", output("readelf", "-d", library))
    bad = [f"declared, not exported: {n}" for n in sorted(wanted - exported)]
    bad += [f"exported, not declared: {n}" for n in sorted(exported - wanted)]
    bad += [f"imported by a runtime, not exported: {n}"
            for n in sorted(imports().get(name, set()) - exported)]
    if soname is None or soname.group(1) != f"lib{name}.so.0":
        bad.append(f"soname is {soname.group(1) if soname else 'missing'}")
    for line in bad:
        print(f"{library}: {line}")
    print(f"lib{name}.so.0: {len(wanted)} names declared, {len(exported)} exported")
    return not bad


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ours", required=True, help="folder of our headers")
    parser.add_argument("--cc", default="cc")
    parser.add_argument("libraries", nargs="+")
    arguments = parser.parse_args()
    include = os.path.abspath(arguments.ours)
    results = [check(library, include, arguments.cc.split()) for library in arguments.libraries]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
