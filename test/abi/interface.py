#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compares our public headers with those of an installed UCX.

Every name that UCX's headers declare must exist in ours and mean the same: values of enumerators and
macros, types and signatures, sizes, alignments and offsets. The names come from the headers
themselves. Differences that newer versions of UCX brought are listed in differences.txt.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import declarations  # noqa: E402

HEADERS = ["ucp/api/ucp.h", "ucm/api/ucm.h", "uct/api/version.h"]
LATER_HEADERS = ["ucp/api/device/ucp_host.h"]  # compared where UCX has them
PACKAGES = ["ucp", "uct", "ucs", "ucm"]
PROMISED = (1, 13)  # in full
OFFERED = (1, 22)  # what ucp.h declares
# Newer versions have them no more.
GONE = {("macro", "ucs_prefetch(1)"), ("field", "ucs_config_names_array_t::pad")}
# Macros that stand for no value: attributes and the like. Their text is compared.
TEXT = re.compile(r"^$|__attribute__|^static |^\{\}$")
# Text whose spelling is free; macros.c and the compiler show that it serves.
FREE_TEXT = {"UCS_STATIC_INIT", "UCS_STATIC_CLEANUP"}

PROBE = """
#include <cstddef>
#include <cstdio>
#include <type_traits>
#include <typeinfo>
{includes}
static void show(const char* name, const char* value) {{ std::printf("%s = \\"%s\\"\\n", name, value); }}
template <class T> static void show(const char* name, T value) {{
    std::printf("%s = %lld, %zu bytes\\n", name, static_cast<long long>(value), sizeof value);
}}
template <class T> static void type(const char* name) {{
    std::printf("type %s = %s\\n", name, typeid(T*).name());
}}
template <class T> static void size(const char* name) {{
    std::printf("size %s = %zu, aligned %zu\\n", name, sizeof(T), alignof(T));
}}
#define FIELD(t, f) std::printf("field %s::%s = at %zu, %zu bytes, %s\\n", #t, #f, \\
    offsetof(t, f), sizeof(static_cast<t*>(nullptr)->f), \\
    typeid(std::remove_reference_t<decltype((static_cast<t*>(nullptr)->f))>*).name())
#define FUNCTION(n) std::printf("function %s = %s\\n", #n, typeid(decltype(&n)).name())
#define VARIABLE(n) std::printf("variable %s = %s\\n", #n, typeid(decltype(&n)).name())
int main() {{
{body}
}}
"""


def probe_source(known):
    lines = [f'show("enumerator {n}", {n});' for n in known.enumerators]
    lines += [f'type<{t}>("{t}");' for t in known.types]
    complete = sorted({t for t, _ in known.fields})
    lines += [f'size<{t}>("{t}");' for t in complete]
    lines += [f"FIELD({t}, {p});" for t, p in known.fields]
    lines += [f"FUNCTION({n});" for n in known.functions]
    lines += [f"VARIABLE({n});" for n in known.variables]
    lines += [f'show("macro {n}", {n});' for n, text in known.macros.items() if not TEXT.search(text)]
    includes = "\n".join(f"#include <{header}>" for header in HEADERS)
    return PROBE.format(includes=includes, body="\n".join("    " + line for line in lines))


def run(compiler, include, source, name, folder):
    program = os.path.join(folder, "probe")
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(source)
    subprocess.run([*compiler, "-O0", "-w", "-I", include, path, "-o", program],
                   check=True)
    return subprocess.run([program], check=True, capture_output=True, text=True).stdout


def check_each_alone(cc, cxx, include, files):
    """Each of our headers compiles by itself, without a warning, also as older C and C++."""
    strict = ["-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I", include]
    for file in sorted(files):
        for compiler in ([*cc, "-std=c99", "-x", "c"], [*cxx, "-std=c++11", "-x", "c++"]):
            subprocess.run([*compiler, *strict, "-"], input=f"#include <{file}>\nint used;\n", text=True,
                           check=True)


def meanings(output):
    result = {}
    for line in output.splitlines():
        name, _, meaning = line.partition(" = ")
        result[name] = meaning
    return result


def restrict(known, names):
    """`known` without what is not among `names`."""
    result = declarations.Declarations()
    result.enumerators = [n for n in known.enumerators if ("enumerator", n) in names]
    result.types = [t for t in known.types if ("type", t) in names]
    result.fields = [(t, p) for t, p in known.fields if ("field", f"{t}::{p}") in names]
    result.functions = [n for n in known.functions if ("function", n) in names]
    result.variables = [n for n in known.variables if ("variable", n) in names]
    result.macros = {n: v for n, v in known.macros.items() if ("macro", n) in names}
    return result


def is_guard(known, kind, name):
    return kind == "macro" and known.macros.get(name) == "" and re.search(r"_H_*$", name)


def is_helper(known, difference):
    """True of names from UCX's headers other than those of ucp."""
    kind, _, name = difference.removeprefix("- ").partition(" ")
    kind = "type" if kind == "size" else kind
    return not known.origins.get((kind, name), "ucp/").startswith("ucp/")


def read_allowances(path):
    result = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            line = line.rstrip("\n")
            if line and not line.startswith("#"):
                pattern, _, reason = line.partition("  ")
                if not reason:
                    sys.exit(f"{path}: no reason in: {line}")
                result.append(re.compile(pattern))
    return result


def compare(arguments, folder):
    here = os.path.dirname(os.path.abspath(__file__))
    cc, cxx = arguments.cc.split(), arguments.cxx.split()
    HEADERS.extend(h for h in LATER_HEADERS if os.path.exists(os.path.join(arguments.theirs, h)))
    theirs = declarations.read(cc, arguments.theirs, HEADERS, PACKAGES)
    ours = declarations.read(cc, arguments.ours, HEADERS, PACKAGES)
    version = (int(theirs.macros["UCP_API_MAJOR"]), int(theirs.macros["UCP_API_MINOR"]))
    if version > OFFERED:
        print(f"UCX {version[0]}.{version[1]} is newer than what is offered: nothing to compare")
        sys.exit(77)
    if len(theirs.functions) < 100 or len(theirs.fields) < 100:
        sys.exit("UCX's headers were not understood")

    check_each_alone(cc, cxx, arguments.ours, ours.files | {"ucp/api/ucpx.h"})

    found = []  # differences
    their_names = {(k, n) for k, n in theirs.names() if not is_guard(theirs, k, n)}
    our_names = {(k, n) for k, n in ours.names() if not is_guard(ours, k, n)} - (GONE - their_names)
    private = re.compile(r"macro .*_(\(\d+\))?$")
    found += [f"- {kind} {name}" for kind, name in their_names - our_names]
    found += [f"+ {kind} {name}" for kind, name in our_names - their_names
              if not private.match(f"{kind} {name}")]

    common = their_names & our_names
    source = probe_source(restrict(theirs, common))
    their_meaning = meanings(run([*cxx, "-std=gnu++20"], arguments.theirs, source, "probe.cc", folder))
    our_meaning = meanings(run([*cxx, "-std=gnu++20"], arguments.ours, source, "probe.cc", folder))
    details = {}
    for name, meaning in their_meaning.items():
        if our_meaning[name] != meaning:
            found.append(name)
            details[name] = f"{meaning} in UCX, {our_meaning[name]} here"
    for name, text in theirs.macros.items():
        if TEXT.search(text) and name in ours.macros and name not in FREE_TEXT:
            if text.split() != ours.macros[name].split() and \
                    text.replace(" ", "") != ours.macros[name].replace(" ", ""):
                found.append(f"macro {name}")
                details[f"macro {name}"] = f"{text} in UCX, {ours.macros[name]} here"

    with open(os.path.join(here, "macros.c"), encoding="utf-8") as file:
        macros = file.read()
    for name, count in theirs.function_macros.items():
        shared = ("macro", f"{name}({count})") in common and not name.endswith("_")
        if shared and not re.search(rf"\b{name}\(", macros):
            sys.exit(f"macros.c does not show what {name} yields")
    their_lines = run(cc, arguments.theirs, macros, "macros.c", folder).splitlines()
    our_lines = run(cc, arguments.ours, macros, "macros.c", folder).splitlines()
    if len(their_lines) != len(our_lines):
        sys.exit("macros.c prints another number of lines")
    for line, (their_line, our_line) in enumerate(zip(their_lines, our_lines)):
        if their_line != our_line:
            name = f"yield {our_line.partition(' = ')[0]} in line {line}"
            found.append(name)
            details[name] = f"{their_line.partition(' = ')[2]} in UCX, {our_line} here"

    allowances = read_allowances(os.path.join(here, "differences.txt")) if version < OFFERED else []
    used = set()
    used_for = []
    bad = []
    told = []
    for difference in found:
        described = f"{difference}: {details[difference]}" if difference in details else difference
        if version > PROMISED and is_helper(theirs, difference):
            told.append(described)
            continue
        matching = [a for a in allowances if a.fullmatch(difference)]
        used.update(matching)
        if matching:
            used_for.append(difference)
        else:
            bad.append(described)
    if version <= PROMISED:
        bad += [f"differences.txt: nothing matches {a.pattern}" for a in allowances if a not in used]
    for line in sorted(told):
        print(f"not promised: {line}")
    for line in sorted(bad):
        print(line)
    checked = len(common) + len(their_lines)
    print(f"UCX {version[0]}.{version[1]}: {len(theirs.files)} headers, {checked} names and values "
          f"compared, {len(found) - len(used_for)} differ wrongly, {len(used_for)} as listed")
    return 1 if bad else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ours", required=True, help="folder of our headers")
    parser.add_argument("--theirs", required=True, help="folder of UCX's headers")
    parser.add_argument("--cc", default="cc")
    parser.add_argument("--cxx", default="c++")
    arguments = parser.parse_args()
    arguments.ours = os.path.abspath(arguments.ours)
    arguments.theirs = os.path.abspath(arguments.theirs)
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(compare(arguments, folder))


if __name__ == "__main__":
    main()
