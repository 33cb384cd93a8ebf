#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs the commands that README.md, SECURITY.md and the pages in docs/ show.

    documents.py --source DIR --build DIR [--list]

A command is an indented line, or one between fences of sh or console; a comment behind it begins with two spaces and "#". Those of `swiftlane` are run, as
they stand or, if they take long or need what is not here, as OTHERWISE says. Scripts and programs of the tree must
exist and have the options that are shown, as must targets of make. On pages for users all others stand in ELSEWHERE,
which says what runs them. What OTHERWISE or ELSEWHERE names and no document shows is an error, so that the lists stay
short. Of commands in the middle of a text the subcommand and the options must exist.

Lines of docs/troubleshooting.md that begin with ">" are what the library writes, with "..." for what varies: the rest
must stand in the sources. Pictures have the panels, axes and curves of those that contrib/pictures draws now; their
points may differ, so that a change of the model need not draw them anew. Every function of an installed header has a comment before it (`make doc` wants one for
each name of ucpx.h). Links lead to pages and headings that there are, and pages that sources name exist. A table with a
column "default" tells those of docs/variables.md.
"""
import argparse
import functools
import glob
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

TIMEOUT = 120  # seconds for a command; all take a second or two

# What is run in place of a command, or why nothing is. FILE, PROGRAM and so on are replaced in all.
OTHERWISE = {
    "perf put --size 64K:1G --verify": "perf put --size 64K:128K --time 10ms --verify",
    "bench mbw_mr --ranks 4 --pairs 2 --lanes dynamic --verify":
        "bench mbw_mr --ranks 4 --pairs 2 --lanes dynamic --verify --size 8 --time 10ms --settle 0",
    "bench alltoall --ranks 128 --tls self,sm --size 8:8 --iterations 20 --settle 0":
        "bench alltoall --ranks 8 --tls self,sm --size 8:8 --iterations 20 --settle 0",
    "sim zipf --ranks 64 --seed 1": "sim zipf --ranks 8 --seed 1 --time 2ms",
    "top": "top --once",
    # A job beside them, and files of it: test/tools/plot/plot_test.cc.
    "top --record run.jsonl": None,
    "plot run.jsonl --to run.html": None,
    "plot /tmp/trace-*.json --to lanes.svg": None,
    "plot before.json after.json --to compare.svg": None,
    "plot one.json two.json --to both.svg": None,
    "explain --peer-set UCX_TLS=rc_v": "explain --soft --peer-set UCX_TLS=rc_v",
    "run -v -- mpirun -np 4 ./program": "run -v -- ./program",
    "run -v --soft -- mpirun -np 4 ./program": "run -v --soft -- ./program",
    # What a cluster has.
    "perf server": "perf server --help",
    "perf tag --connect HOST --size 8:1M --time 100ms": None,
    "run -- srun --mpi=pmix ./program": "run -- ./program",
    "run -- mpirun -x LD_LIBRARY_PATH -x UCX_TCP_JOB_KEY -x UCX_LOG_LEVEL ./program": "run -- ./program",
    "run -v -- mpirun -np 2 --host a,b ./osu_mbw_mr": "run -v -- ./program",
    "bench mbw_mr|alltoall [options]": ["bench mbw_mr --help", "bench alltoall --help"],
    "sim   mbw_mr|alltoall|zipf|shift|bulk|halo|phases|ring|incast|churn|sleepers|replay [options]":
        [f"sim {pattern} --help" for pattern in
         "mbw_mr alltoall zipf shift bulk halo phases ring incast churn sleepers replay".split()],
    "perf put|get|tag|am|batch [options]          two processes of this machine":
        [f"perf {operation} --help" for operation in ("put", "get", "tag", "am", "batch")],
    "perf server [--listen HOST:PORT]             on one host, and on the other:": "perf server --help",
    "perf put|get|tag|am|batch --connect HOST[:PORT] [options]": None,  # two hosts: test/tools/perf/perf_test.cc
    'perf put --device real --tls tcp --prefix "ip netns exec node%r" --size 64K --sleep --time 10s':
        "perf put --device real --tls tcp --prefix env --size 64K --sleep --time 10ms",
    'perf put --device real --tls tcp --prefix "ip netns exec node%r" --size 1G --window 2 '
    "--buffer 2G --iterations 4 --measure bandwidth":
        "perf put --device real --tls tcp --prefix env --size 1M --window 2 --buffer 2M --iterations 4 "
        "--measure bandwidth",
    "perf batch --size 64K --pieces 1000 --measure bandwidth":
        "perf batch --size 64K --pieces 10 --measure bandwidth --time 10ms",
    "perf put --size 64000K --window 1 --measure bandwidth":
        "perf put --size 64K --window 1 --measure bandwidth --time 10ms",
    "perf batch --size 4K --pieces 1000 --measure bandwidth":
        "perf batch --size 4K --pieces 1000 --measure bandwidth --time 10ms",
    "perf put --size 4K --window 1 --measure bandwidth":
        "perf put --size 4K --window 1 --measure bandwidth --time 10ms",
    "perf put --size 4K --window 64 --measure bandwidth":
        "perf put --size 4K --window 64 --measure bandwidth --time 10ms",
    "sim bulk --lanes dedicated --size 16M:16M --model qp_gbps=50 --set UCX_BULK_QPS=8":
        "sim bulk --lanes dedicated --size 1M:1M --model qp_gbps=50 --set UCX_BULK_QPS=8",
    "bench mbw_mr --device real --ranks 2 --pairs 1 --verify --lanes scalable,dynamic,dedicated":
        "bench mbw_mr --device soft --ranks 2 --pairs 1 --verify --lanes scalable,dynamic,dedicated --size 8 "
        "--time 10ms --settle 0",
}

# Commands that are neither of swiftlane nor of the tree, by how they begin: the test that runs them, or None where
# nothing here can.
ELSEWHERE = {
    "mpirun -x LD_LIBRARY_PATH --mca pml ucx": "test/package/installed.sh",
    "PKG_CONFIG_PATH=PREFIX/lib/pkgconfig cc program.c": "test/package/installed.sh",
    "cmake -DCMAKE_PREFIX_PATH=PREFIX": "test/package/installed.sh",
    "cc program.c -IPREFIX/include": "test/package/installed.sh",
    "cc examples/hello.c": "test/package/installed.sh",
    "./hello": "test/package/installed.sh",
    "cc examples/client_server.c": "test/package/installed.sh",
    "./client_server": "test/package/installed.sh",
    "LD_LIBRARY_PATH=PREFIX/lib/swiftlane/softhca ibv_devinfo": "test/softhca/programs.sh",
    "LD_LIBRARY_PATH=PREFIX/lib/swiftlane/softhca ib_write_bw -c DC": "test/softhca/programs.sh",
    "ibv_devinfo -v": "test/softhca/programs.sh",
    "salloc -N 2 contrib/check-hardware": None,
    "podman build -f contrib/packages/Containerfile": None,
    "docker run": None,
    "mpirun -np 64 apptainer": None,
    "bpftrace -p PID": None,  # test/abi/probes.sh: the probes are those that the page lists
    "gdb -p PID": None,
    "./configure --enable-fuzz": None,
}
# These hold figures of what is, no commands.
FOR_DEVELOPERS = ("docs/design/", "docs/architecture.md")


def documents(source):
    pages = sorted(glob.glob(os.path.join(source, "docs", "**", "*.md"), recursive=True))
    return [*sorted(glob.glob(os.path.join(source, "*.md"))), *pages]


def headings(path):
    """The names that links have for them."""
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.startswith("#"):
                yield re.sub(r"[^\w\- ]", "", line.lstrip("#").strip().lower()).replace(" ", "-")


def dead_links(source):
    """(file, link) of what leads nowhere."""
    for path in documents(source):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
            name, _, heading = link.partition("#")
            target = os.path.join(os.path.dirname(path), name) if name else path
            if not os.path.exists(target) or heading and heading not in headings(target):
                yield os.path.relpath(path, source), link
    for folder in ("src", "test", "contrib", "docs"):
        for path in glob.glob(os.path.join(source, folder, "**", "*"), recursive=True):
            if not os.path.isfile(path):
                continue
            with open(path, encoding="utf-8", errors="replace") as file:
                for page in re.findall(r"(?<![\w/])docs/[\w/-]+\.md", file.read()):
                    if not os.path.exists(os.path.join(source, page)):
                        yield os.path.relpath(path, source), page


def commands(source):
    """(document, line number, command) of all documents; continued lines are one."""
    for path in documents(source):
        joined, start, fence = "", 0, None
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
        for number, line in enumerate(lines, 1):
            if line.startswith("```"):
                fence = line[3:].strip() if fence is None else None
                continue
            if fence is not None:
                line = "    " + re.sub(r"^\$ ", "", line) if fence in ("sh", "bash", "console") else ""
            if not joined and not line.startswith("    "):
                continue
            start = start if joined else number
            joined += " " + line.strip() if joined else line[4:].rstrip()
            if joined.endswith("\\"):
                joined = joined[:-1].rstrip()
                continue
            command, joined = re.sub(r"\s{2,}#.*", "", joined), ""
            if command and not command.startswith(("#", " ")):
                yield os.path.relpath(path, source), start, command


def unknown_words(source, build):
    """(document, command) of commands within a text whose subcommand or options there are not."""
    helps = {}

    def help_of(*words):
        if words not in helps:
            result = subprocess.run([os.path.join(build, "src/tools/swiftlane"), *words], text=True, check=False,
                                    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=TIMEOUT)
            helps[words] = set(re.findall(r"--[a-z][\w-]*", result.stdout)) if result.returncode == 0 else None
        return helps[words]

    for path in documents(source):
        with open(path, encoding="utf-8") as file:
            text = re.sub(r"\s*\n\s*", " ", file.read())
        for span in re.findall(r"`([^`]+)`", text):
            part = swiftlane_part(span)
            words = shlex.split(part[1].split(" -- ")[0]) if part else []
            if not words:
                continue
            has_more = len(words) > 1 and words[0] in ("bench", "perf", "sim") and re.match(r"[a-z]", words[1])
            every = "--help-all" if words[0] in ("bench", "perf") else "--help"  # options of some pattern
            options = help_of(*words[:2], "--help") if has_more else help_of(words[0], every)
            named = {word.split("=")[0] for word in words if re.match(r"--[a-z]", word)}
            if options is None or named - options:
                yield os.path.relpath(path, source), span


def swiftlane_part(command):
    """Variables before `swiftlane`, and the words after it as they stand; None if it is another command."""
    match = re.match(r"((?:[A-Z_]+=\S+ )*)(?:\S*/)?swiftlane (.*)$", command)
    return (match.group(1).split(), match.group(2)) if match else None


def run(build, folder, settings, words):
    environment = dict(os.environ, XDG_CACHE_HOME=folder)
    for setting in settings:
        name, value = setting.split("=", 1)
        environment[name] = value.replace("/tmp/", folder + "/")
    words = ["/bin/true" if word == "./program" else os.path.join(folder, word) if word == "FILE" else word
             for word in shlex.split(words)]
    result = subprocess.run([os.path.join(build, "src/tools/swiftlane"), *words], env=environment, cwd=folder, text=True,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            timeout=TIMEOUT, check=False)
    return None if result.returncode == 0 else f"exit status {result.returncode}: {result.stdout[-500:]}"


@functools.cache
def makefile_text(source, build):
    """What targets are looked for in: not what lies in build folders, where a release may come and go meanwhile."""
    paths = [os.path.join(build, "Makefile"), os.path.join(source, "Makefile.am")]
    for folder in ("src", "test", "contrib"):
        paths += glob.glob(os.path.join(source, folder, "**", "*.am"), recursive=True)
    texts = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            texts.append(file.read())
    return "\n".join(texts)


def missing(source, build, document, command, unused):
    """What another command names and is not there, or that nothing runs it; None if nothing is amiss.

    What it has of ELSEWHERE is taken from `unused`."""
    for start, test in ELSEWHERE.items():
        if command.startswith(start):
            unused.discard(start)
            return None if test is None or os.path.exists(os.path.join(source, test)) else f"no file {test}"
    words = [word for word in command.split() if not re.match(r"[A-Z_]+=", word)]
    if not words or words[0] == "export":
        return None
    makefile = makefile_text(source, build)
    if words[0] == "make":
        targets = [each for each in words[1:] if "=" not in each and not each.startswith("-")]
        for target in targets:
            if not re.search(rf"^{re.escape(target)}(\$\(EXEEXT\))?( [^:=\n]*)?:", makefile, re.M):
                return f"no target {target}"
        return None
    if words[0] == "python3":
        del words[0]
    word = re.sub(r"^(BUILD|\.\.)/", "", words[0])
    if word.startswith(("contrib/", "test/", "examples/")):
        path = os.path.join(source, word)
        if not os.path.exists(path):
            return None if re.search(rf"\b{re.escape(word)}\b", makefile) else f"no file {word}"
        with open(path, encoding="utf-8") as file:
            text = file.read()
        with open(os.path.join(source, "configure.ac"), encoding="utf-8") as file:
            text += re.sub(r"AC_ARG_(WITH|ENABLE)\(\[?([\w-]+)", r"--with-\2 --without-\2 --enable-\2 --disable-\2", file.read())
        options = [each.split("=")[0] for each in words[1 : (words + ["--"]).index("--")] if each.startswith("--")]
        return next((f"{word} has no {each}" for each in options if not re.search(rf"{each}\b", text)), None)
    # What begins like a command, and is no line of C.
    if re.fullmatch(r"(?!//)[a-z./][\w./+-]*", word) and command[-1] not in ";{}" and not document.startswith(FOR_DEVELOPERS):
        return "nothing runs it: ELSEWHERE says what does"
    return None


def unknown_messages(source):
    """(line number, part) of messages in docs/troubleshooting.md that no text in the sources has."""
    texts = ""
    for path in glob.glob(os.path.join(source, "src", "**", "*"), recursive=True):
        if path.endswith((".cc", ".h")):
            with open(path, encoding="utf-8") as file:
                joined = re.sub(r'"\s*\n\s*"', "", file.read())
            texts += "\n".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', joined)) + "\n"
    with open(os.path.join(source, "docs", "troubleshooting.md"), encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            for part in line[2:].split("...") if line.startswith("> ") else []:
                if part.strip(" :;,.?()\n") and part.strip() not in texts:
                    yield number, part.strip()


def wrong_defaults(source):
    """(document, variable, what it says) of tables whose second column is the default, beside docs/variables.md."""
    with open(os.path.join(source, "docs", "variables.md"), encoding="utf-8") as file:
        defaults = dict(re.findall(r"^\*\*`(\w+)=(.*?)`\*\*", file.read(), re.M))
    for path in documents(source):
        prefix = None
        with open(path, encoding="utf-8") as file:
            for line in file:
                cells = [cell.strip() for cell in line.replace("`", "").strip("|\n").split("|")] if line[0] == "|" else []
                if len(cells) < 2:
                    prefix = None
                elif cells[1] == "default" and re.fullmatch(r"variable|UCX_\w*", cells[0]):
                    prefix = cells[0].replace("variable", "")
                elif prefix is not None and not cells[0].startswith("-"):
                    names = cells[0].split(", ")
                    said = cells[1].split(", ") if len(names) > 1 else [cells[1]]
                    said = said * len(names) if len(said) == 1 else said
                    for name, value in zip(names, said):
                        value = re.sub(r"(:| \().*", "", value).replace("\\", "")
                        # "none" is a value, or says that there is no value.
                        meant = {value, ""} if value == "none" else {value}
                        if defaults.get(prefix + name, "unknown") not in meant:
                            yield os.path.relpath(path, source), prefix + name, value


def installed_headers(source):
    """Those that the HEADERS of Makefile fragments list."""
    for path in sorted(glob.glob(os.path.join(source, "src", "**", "*.am"), recursive=True)):
        with open(path, encoding="utf-8") as file:
            text = file.read().replace("\\\n", " ")
        for names in re.findall(r"^\w+_HEADERS = (.*)$", text, re.M):
            yield from names.split()


def undocumented_functions(source):
    """(header, line number, name) of functions without a comment before them."""
    for header in installed_headers(source):
        with open(os.path.join(source, header), encoding="utf-8") as file:
            lines = file.read().splitlines()
        for number, line in enumerate(lines, 1):
            match = re.match(r"(?:UCS_F_DEVICE )?(?!typedef|return|#)[a-z][\w ]*[ *]+(uc[pxstm]+_\w+)\(", line)
            before = [each for each in lines[: number - 1] if not each.startswith("template <")]
            if match and not before[-1].rstrip().endswith("*/"):
                yield header, number, match.group(1)


def words_of(picture):
    """Titles, axes and curves with names of two words or more, numbers left out."""
    with open(picture, encoding="utf-8") as file:
        texts = re.findall(r"<text>(?:<tspan[^>]*>)?([^<]+)<", file.read())
    return {re.sub(r"[0-9]+", "N", text.strip()) for text in texts if re.search(r"[a-z],? \(?[a-z0-9]", text)}


def old_pictures(source, build, folder):
    """(picture, what is the matter) of those that show something else than the command draws now."""
    if shutil.which("gnuplot") is None:
        return
    environment = dict(os.environ, SWIFTLANE=os.path.join(build, "src/tools/swiftlane"), OUT=folder)
    subprocess.run([os.path.join(source, "contrib/pictures")], env=environment, check=True, timeout=TIMEOUT)
    kept = os.path.join(source, "docs/pictures")
    for name in sorted({*os.listdir(kept), *os.listdir(folder)}):
        paths = [os.path.join(place, name) for place in (kept, folder)]
        if not all(map(os.path.exists, paths)):
            yield name, "is drawn or kept, but not both"
        elif words_of(paths[0]) != words_of(paths[1]):
            yield name, f"differs in {words_of(paths[0]) ^ words_of(paths[1])}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", required=True)
    parser.add_argument("--build", required=True)
    parser.add_argument("--list", action="store_true", help="print what would be run")
    options = parser.parse_args()
    options.build = os.path.abspath(options.build)
    failed, unused, unused_elsewhere = 0, set(OTHERWISE), set(ELSEWHERE)
    ran = set()  # what several pages show is run once
    with tempfile.TemporaryDirectory() as folder:
        for document, number, command in commands(options.source):
            part = swiftlane_part(command)
            if part is None:
                problem = missing(options.source, options.build, document, command, unused_elsewhere)
                if problem:
                    print(f"{document}:{number}: {command}: {problem}")
                    failed += 1
                continue
            settings, words = part
            unused.discard(words)
            instead = OTHERWISE.get(words, words)
            for each in [] if instead is None else [instead] if isinstance(instead, str) else instead:
                if (*settings, each) in ran:
                    continue
                ran.add((*settings, each))
                if options.list:
                    print(f"{document}:{number}: {each}")
                    continue
                try:
                    problem = run(options.build, folder, settings, each)
                except subprocess.TimeoutExpired:
                    problem = f"takes longer than {TIMEOUT} s"
                if problem:
                    print(f"{document}:{number}: swiftlane {each}: {problem}")
                    failed += 1
    with tempfile.TemporaryDirectory() as folder:
        for name, problem in old_pictures(options.source, options.build, folder):
            print(f"docs/pictures/{name}: {problem} (contrib/pictures draws it anew)")
            failed += 1
    for path, name, value in wrong_defaults(options.source):
        print(f"{path}: the default of {name} is not {value}")
        failed += 1
    for path, span in unknown_words(options.source, options.build):
        print(f"{path}: there is no such command or option: {span}")
        failed += 1
    for path, link in dead_links(options.source):
        print(f"{path}: nothing is at {link}")
        failed += 1
    for header, number, name in undocumented_functions(options.source):
        print(f"{header}:{number}: {name} is not documented")
        failed += 1
    for number, part in unknown_messages(options.source):
        print(f"docs/troubleshooting.md:{number}: the library does not write: {part}")
        failed += 1
    for words in sorted(unused):
        print(f"no document shows: swiftlane {words}")
    for start in sorted(unused_elsewhere):
        print(f"no document shows: {start}")
    print(f"{len(ran)} commands of documents, {failed} failed")
    return 1 if failed or unused or unused_elsewhere or not ran else 0


if __name__ == "__main__":
    sys.exit(main())
