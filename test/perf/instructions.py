#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Instructions of the library for one 8-byte message, for a look in vain, for one slice of a bulk transfer, and for one atomic
operation that goes by messages, and for one announced message within a host, counted by callgrind.

The library's part of a call is what the call costs less what it spends inside the adapter
(src/softhca, standing in for libibverbs and libmlx5): the cost of every edge from a function of the
library to one of the adapter is taken off whole.

usage: instructions.py PROGRAM [--untracked PROGRAM] [--clients PROGRAM] [--functions] [--checksum] [--check]
  --untracked  the same program with sends that were compiled without a usage tracker: those of the
               library must cost as much while it is disarmed
  --clients    lanes_scale: the negotiation of a server with 4096 clients, all of which want a lane
  --functions  also list where the instructions are
  --checksum   with UCX_CHECKSUM=crc32c, where nothing goes in slices
  --check      fail if a limit is broken or memory allocated, skip (77) where counts would mean
               nothing
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict

MEASURED = "perf_measured_"
# Most instructions that a message may cost: what the limits of this project say (docs/performance.md).
ARMED_EXTRA = 10  # two of them tell a counted send from one of device memory
SENDS = {"fifo": 80, "ring": 80, "dc": 133, "rc": 101}  # with a disarmed tracker
POSTED_RECEIVE = 105
# Within a host, from so many peers: a call of progress that finds nothing, and what a message costs its receiver that
# comes before its receive, from the call that finds it to the end.
LOOKS = {1: 90, 64: 90}
LATE = {1: 480, 8: 480}
# A call of progress that brings a message for which a receive waits, beside so many receives from anybody for others.
BESIDE = {0: 315, 16: 380, 512: 380}
# A message of 16 KiB within a host that is announced, one of a window, without its copy: the send, the receiver's
# progress with the copy's part in it, the sender's progress.
ANNOUNCED = {"announce": 1240, "fetch": 2140, "end": 450}
ANNOUNCED_BYTES = 16384
# As callgrind names them; a function of valgrind's own in their place counts as well.
ALLOCATION = re.compile(r"(_?_?(int_)?(malloc|calloc|realloc|free|memalign)|posix_memalign|"
                        r"aligned_alloc|operator (new|delete)(\[\])?\(.*|mmap(64)?|brk)(@.*)?$")
HARDENING = 10  # landing pads and checks that the compiler adds by itself, as Ubuntu's does
LANES = 20000  # of all lane work in one call of progress, with 300 busy peers, however many there are
PEERS = (512, 4096)
CHECKED_PEERS = (512, 2048)  # with --check: as flat, in a third of the time
LANE_MESSAGES = "ucp::LaneDriver::on_control("
LANES_GROWTH = 2000  # that the most peers may cost more than the fewest: traffic is not the same
CLIENTS, CLIENTS_A_SECOND = 4096, 40_000_000  # 1 % of a core that does 20,000 in 5 us
# Messages a second of all clients: scores of one end about as low as those that are not said, of both about what is
# worth a lane, and far above.
CLIENT_MESSAGES = (200_000, 400_000, 1_000_000)
SLICE = 400  # of 64 KiB, from the call to the completion
# From the call to the completion, with all looks for it; "fenced" is behind a put that has to end first.
ATOMICS = {"atomic": 2600, "fenced": 4200}

# On memory that is mapped, within the call; every 64th get or fetch-add has a request, its progress apart.
MAPPED = {"short_put": 60, "short_get": 98, "fetch_add": 145, "flush": 85}
# Where sends are counted flushes look at the clock.
MAPPED_ARMED_EXTRA = {"flush": 10}

CASES = [
    # name, lane, tracker, variables
    ("dc, no tracker (UCX_LANES=scalable)", "dc", "off", {"UCX_LANES": "scalable"}),
    ("dc, no tracker (interval inf)", "dc", "off", {"UCX_DYNAMIC_TL_SWITCH_INTERVAL": "inf"}),
    ("dc, tracker disarmed", "dc", "disarmed", {}),
    ("dc, tracker armed", "dc", "armed", {}),
    ("rc, tracker disarmed", "rc", "disarmed", {}),
    ("sm fifo, tracker disarmed", "fifo", "disarmed", {}),
    ("sm fifo, tracker armed", "fifo", "armed", {}),
    ("sm ring, tracker disarmed", "ring", "disarmed", {}),
]


class Profile:
    """The edges and own costs of a callgrind.out file."""

    def __init__(self, path):
        self.own = defaultdict(int)
        self.edges = defaultdict(int)
        self.calls = defaultdict(int)
        names, files, self.file_of = {}, {}, {}
        caller = callee = None
        caller_file = None
        is_edge_cost = False
        count = 0

        def resolve(table, text):
            match = re.match(r"\((\d+)\)(?: (.*))?$", text)
            if match is None:
                return text
            if match.group(2) is not None:
                table[match.group(1)] = match.group(2)
            return table[match.group(1)]

        with open(path, encoding="utf-8") as lines:
            for line in lines:
                line = line.rstrip("\n")
                if line.startswith("fl="):
                    caller_file = resolve(files, line[3:])
                elif line.startswith(("fi=", "fe=")):
                    resolve(files, line[3:])
                elif line.startswith("fn="):
                    caller = resolve(names, line[3:])
                    self.file_of[caller] = caller_file
                    callee_file = caller_file
                elif line.startswith(("cfi=", "cfl=")):
                    callee_file = resolve(files, line[4:])
                elif line.startswith("cfn="):
                    callee = resolve(names, line[4:])
                    self.file_of.setdefault(callee, callee_file)
                elif line.startswith("calls="):
                    count = int(line[6:].split()[0])
                    is_edge_cost = True
                elif line and (line[0].isdigit() or line[0] in "+-*"):
                    cost = int(line.split()[1])
                    if is_edge_cost:
                        self.edges[caller, callee] += cost
                        self.calls[caller, callee] += count
                        is_edge_cost = False
                        callee_file = caller_file
                    else:
                        self.own[caller] += cost

    def calls_of(self, function):
        return any(cost for (caller, _), cost in self.edges.items() if caller == function)

    def copies(self):
        """What moving the bytes of messages within a process takes."""
        return sum(cost for (caller, callee), cost in self.edges.items()
                   if "sm::RemoteRegion::copy" in caller and "mem" in callee)

    def is_adapter(self, function):
        file = self.file_of.get(function) or ""
        return "softhca::" in function or "/softhca/" in file

    def library_cost(self, root, within=None):
        """Cost of root's callees, the adapter taken off, and each function's own part of it; or of what is
        called within root and has names that begin so."""
        # The walk never enters the adapter, so what that calls is its own. A function of the C
        # library that both call appears with all its cost in the second result only.
        seen, todo = set(), [root]
        if within is None:
            total = sum(c for (caller, _), c in self.edges.items() if caller == root)
        else:
            entries = [edge for edge in self.edges if edge[1].startswith(within)]
            total = sum(self.edges[edge] for edge in entries) if self.calls_of(root) else 0
            todo = [callee for _, callee in entries]
        while todo:
            function = todo.pop()
            for (caller, callee), cost in self.edges.items():
                if caller != function:
                    continue
                if self.is_adapter(callee):
                    total -= cost
                elif callee not in seen:
                    seen.add(callee)
                    todo.append(callee)
        return total, {function: self.own[function] for function in seen}


def callgrind(out, collect, program, arguments, environment=None, options=()):
    """Writes profiles of what the program does in functions of that name. Nothing is counted before it asks for it
    (perf::start_counting()). @return what it prints"""
    run = subprocess.run(
        ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--collect-atstart=no", f"--toggle-collect={collect}",
         *options, f"--callgrind-out-file={out}", program, *arguments],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if run.returncode != 0:
        sys.exit(f"{program} {' '.join(arguments)} failed:\n{run.stderr}")
    return run.stdout


def measure(program, tracker, lane, variables, parts=("send", "receive", "progress")):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("UCX_", "SOFTHCA_"))}
    # Messages of flow control come at other times in other cases: they are not what is counted.
    environment["UCX_RC_FC_WND_SIZE"] = "32000"
    environment.update(variables)
    with tempfile.TemporaryDirectory() as folder:
        results = {}
        out = os.path.join(folder, "out")
        messages = int(callgrind(out, MEASURED + "*", program, [tracker, lane], environment))
        profile = Profile(out)
        if not profile.own:
            sys.exit(f"{program} {tracker} {lane}: nothing was counted, was it compiled without valgrind/callgrind.h?")
        for what in parts:
            total, functions = profile.library_cost(MEASURED + what)
            if what == "fetch":
                total -= profile.copies()
            results[what] = (total / messages, {f: c / messages for f, c in functions.items()})
        return results


def cost_of(path):
    """All that a profile counts."""
    with open(path, encoding="utf-8") as lines:
        return next((int(line.split()[1]) for line in lines if line.startswith("summary:")), 0)


def longest_lane_work(program, what, peers):
    """The most instructions of lane work in one call of progress, what they were, and how many of them are messages
    that were put aside when they came: a profile for each call, with the look before it at what has come."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("UCX_", "SOFTHCA_"))}
    if what == "moves":
        # Who falls silent has no score at the next ranking.
        environment.update(UCX_DYNAMIC_TL_DECAY="0", UCX_DYNAMIC_TL_HOLD="0")
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        callgrind(out, MEASURED + "*", program, [what, str(peers)], environment, [f"--dump-after={MEASURED}lanes"])
        longest = (0, {}, 0)
        # What a profile counts is lane work in part, so that others need not be read once it is less.
        costs = [(cost_of(path), path) for path in (os.path.join(folder, name) for name in os.listdir(folder))]
        for cost, path in sorted(costs, reverse=True):
            if cost <= longest[0]:
                break
            profile = Profile(path)
            messages = profile.library_cost(MEASURED + "poll", LANE_MESSAGES)[0]
            lanes, own = profile.library_cost(MEASURED + "lanes")
            longest = max(longest, (lanes + messages, own, messages), key=lambda each: each[0])
    return longest


def server_work(program, messages):
    """Instructions a second of a server's negotiator, without what the model does of what it sends."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        seconds = float(callgrind(out, MEASURED + "server", program, ["clients", str(CLIENTS), str(messages)]))
        profile = Profile(out)
        model = sum(cost for (_, callee), cost in profile.edges.items()
                    if "World::deliver(" in callee and callee.endswith("Message const&)"))
        return (sum(profile.own.values()) - model) / seconds


def allocations(functions):
    return sorted(function for function in functions if ALLOCATION.match(function))


def is_hardened(program):
    """Whether its functions begin with landing pads (endbr64)."""
    notes = subprocess.run(["readelf", "-n", program], capture_output=True, text=True, check=False).stdout
    return "IBT" in notes


def print_functions(what, functions, least, digits=2):
    """Those that cost no fewer instructions than `least`, dearest first."""
    for function, cost in sorted(functions.items(), key=lambda item: -item[1]):
        if cost >= least:
            print(f"    {what:8} {cost:8.{digits}f} {function}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--untracked")
    parser.add_argument("--clients")
    parser.add_argument("--functions", action="store_true")
    parser.add_argument("--checksum", action="store_true")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    common = {"UCX_CHECKSUM": "crc32c"} if arguments.checksum else {}
    if arguments.check:
        flags = os.environ.get("CXXFLAGS", "").split()
        optimised = [f for f in flags if re.match(r"-O", f)][-1:] == ["-O2"]
        if not optimised or any(f.startswith("-fsanitize") for f in flags):
            print("skipped: counts are of a library compiled with -O2, without sanitizers")
            return 77
        if shutil.which("valgrind") is None:
            print("skipped: valgrind is not installed")
            return 77

    sends, touched, receives = {}, {}, {}
    print(f"{'library instructions per 8-byte message':40} {'send':>8} {'receive':>8} {'progress':>8}")
    for name, lane, tracker, variables in CASES:
        results = measure(arguments.program, tracker, lane, {**common, **variables})
        sends[name] = results["send"][0]
        receives[name] = results["receive"][0]
        touched[name] = set().union(*(functions for _, functions in results.values()))
        print(f"{name:40} " + " ".join(f"{results[w][0]:8.2f}"
                                       for w in ("send", "receive", "progress")), flush=True)
        if arguments.functions:
            for what, (_, functions) in results.items():
                print_functions(what, functions, 0.05)
    untracked = {}
    for name, lane, tracker, variables in CASES if arguments.untracked else []:
        if tracker == "off":
            continue
        untracked[name] = measure(arguments.untracked, tracker, lane, {**common, **variables}, ("send",))["send"][0]
        print(f"{name + ', compiled without':40} {untracked[name]:8.2f}", flush=True)
    if arguments.checksum:
        return 0
    looks, late = {}, {}
    for what, counts, parts in (("idle", looks, ("look",)), ("late", late, ("progress", "receive"))):
        for peers in LOOKS if what == "idle" else LATE:
            results = measure(arguments.program, what, str(peers), {}, parts)
            # A call that begins with others is in both.
            own = {f: c for part in parts for f, c in results[part][1].items()}
            counts[peers] = sum(results[part][0] for part in parts)
            if what == "late":
                touched[f"a message before its receive, {peers} peers"] = own
            name = "a look in vain" if what == "idle" else "a message before its receive"
            print(f"{f'{name}, {peers} peers':40} {counts[peers]:8.2f}", flush=True)
            if arguments.functions:
                print_functions(what, own, 1)
    beside = {}
    for standing in BESIDE:
        beside[standing], own = measure(arguments.program, "beside", str(standing), {}, ("progress",))["progress"]
        touched[f"a message beside {standing} receives from anybody"] = own
        print(f"{f'a message beside {standing} receives from anybody':40} {beside[standing]:8.2f}", flush=True)
        if arguments.functions:
            print_functions("beside", own, 1)
    parts = measure(arguments.program, "announced", str(ANNOUNCED_BYTES), {"UCX_RNDV_THRESH": "8k"}, tuple(ANNOUNCED))
    announced = {what: cost for what, (cost, _) in parts.items()}
    touched["an announced message"] = set().union(*(functions for _, functions in parts.values()))
    print(f"{'an announced message':40} " + " ".join(f"{announced[what]:8.2f}" for what in ANNOUNCED), flush=True)
    if arguments.functions:
        for what, (_, functions) in parts.items():
            print_functions(what, functions, 1)
    parts = measure(arguments.program, "off", "bulk",
                    {"UCX_LANES": "scalable", "UCX_DYNAMIC_TL_SWITCH_INTERVAL": "inf"},
                    ("put", "progress"))
    # The two share their functions, so that what each has of one is not known: the sum of all is.
    own = {**parts["put"][1], **parts["progress"][1]}
    per_slice = sum(own.values())
    touched["a slice"] = own
    print(f"{'library instructions per 64 KiB slice':40} {per_slice:8.2f}", flush=True)
    if arguments.functions:
        print_functions("slice", own, 0.5)
    atomics = {}
    for lane, name in (("atomic", "a fetch-add by messages"), ("fenced", "  behind a put and a fence")):
        parts = measure(arguments.program, "off", lane,
                        {"UCX_LANES": "scalable", "UCX_DYNAMIC_TL_SWITCH_INTERVAL": "inf",
                         "UCX_ATOMIC_MODE": "cpu"}, ("fetch_add", "progress"))
        own = {**parts["fetch_add"][1], **parts["progress"][1]}
        touched[name.strip()] = own
        atomics[lane] = sum(own.values())
        print(f"{name:40} {atomics[lane]:8.2f}", flush=True)
        if arguments.functions:
            print_functions("atomic", own, 5)
    mapped = {}
    for tracker in ("disarmed", "armed"):
        for what, (cost, own) in measure(arguments.program, tracker, "mapped", {}, tuple(MAPPED)).items():
            mapped[tracker, what] = cost
            touched[f"{what} on mapped memory"] = own
            print(f"{f'{what} on mapped memory, tracker {tracker}':40} {cost:8.2f}", flush=True)
            if arguments.functions:
                print_functions("mapped", own, 1)
    lanes = {}
    few, many = CHECKED_PEERS if arguments.check else PEERS
    for what, peers in (("peers", few), ("peers", many), ("moves", many)):
        lanes[what, peers], own, messages = longest_lane_work(arguments.program, what, peers)
        name = f"lane work in one call, {peers} peers" + (", who answer" if what == "moves" else "")
        print(f"{name:40} {lanes[what, peers]:8}", flush=True)
        if what == "moves":
            print(f"{'  of them, messages put aside':40} {messages:8}", flush=True)
        if arguments.functions:
            print_functions("lanes", own, 200, digits=0)
    servers = {}
    for messages in CLIENT_MESSAGES if arguments.clients else []:
        servers[messages] = server_work(arguments.clients, messages)
        print(f"{f'a second of a server of {CLIENTS} clients,':40}", flush=True)
        print(f"{f'  {messages} messages':40} {servers[messages]:8.0f}", flush=True)
    if not arguments.check:
        return 0
    base = sends[CASES[0][0]]
    failures = []
    for what, functions in touched.items():
        for function in allocations(functions):
            failures.append(f"{what}: calls {function}, allowed is no allocation")
    if max(lanes.values()) > LANES:
        failures.append(f"lane work in one call: {max(lanes.values())} instructions, allowed are {LANES}")
    if lanes["peers", many] - lanes["peers", few] > LANES_GROWTH:
        failures.append(f"lane work in one call grows with the peers: {lanes}")
    for messages, work in servers.items():
        if work > CLIENTS_A_SECOND:
            failures.append(f"a server of {CLIENTS} clients, {messages} messages: {work:.0f} instructions a second, "
                            f"allowed are {CLIENTS_A_SECOND}")
    for lane, limit in ATOMICS.items():
        if atomics[lane] > limit:
            failures.append(f"a fetch-add by messages ({lane}): {atomics[lane]:.2f} instructions, allowed are {limit}")
    for (tracker, what), cost in mapped.items():
        limit = MAPPED[what] + (MAPPED_ARMED_EXTRA.get(what, 0) if tracker == "armed" else 0) + \
            (HARDENING if is_hardened(arguments.program) else 0)
        if cost > limit:
            failures.append(f"{what} on mapped memory, tracker {tracker}: {cost:.2f} instructions, allowed are {limit}")
    for standing, limit in BESIDE.items():
        allowed = limit + (HARDENING if is_hardened(arguments.program) else 0)
        if beside[standing] > allowed:
            failures.append(f"a message beside {standing} receives from anybody: {beside[standing]:.2f} instructions, "
                            f"allowed are {allowed}")
    for what, limit in ANNOUNCED.items():
        if announced[what] > limit + (2 * HARDENING if is_hardened(arguments.program) else 0):
            failures.append(f"an announced message ({what}): {announced[what]:.2f} instructions, allowed are {limit}")
    if per_slice > SLICE:
        failures.append(f"a slice: {per_slice:.2f} instructions, allowed are {SLICE}")
    for name in (CASES[1][0], CASES[2][0]):
        if sends[name] != base:
            failures.append(f"{name}: {sends[name] - base:+.2f} instructions, allowed is none")
    if round(sends[CASES[3][0]] - base, 2) > ARMED_EXTRA:
        failures.append(f"{CASES[3][0]}: {sends[CASES[3][0]] - base:+.2f} instructions, "
                        f"allowed are {ARMED_EXTRA}")
    for name, _, tracker, _ in CASES:
        if name not in untracked:
            continue
        more = round(sends[name] - untracked[name], 2)
        # Compiled apart from the library it may cost some more: g++ 13 calls where it inlines there.
        if tracker == "disarmed" and more > 0:
            failures.append(f"{name}: {more:+.2f} instructions against a build without a tracker, allowed is none")
        # Else the other program has the library's sends, and the comparison says nothing.
        if tracker == "armed" and more <= 0:
            failures.append(f"{name}: {more:+.2f} instructions against a build without a tracker, which counts as well")
    for name, lane, tracker, _ in CASES:
        limit = SENDS[lane] + (HARDENING if is_hardened(arguments.program) else 0)
        if tracker == "disarmed" and sends[name] > limit:
            failures.append(f"{name}: {sends[name]:.2f} instructions, allowed are {limit}")
    limit = POSTED_RECEIVE + (HARDENING if is_hardened(arguments.program) else 0)
    for what, counts, limits in (("a look in vain", looks, LOOKS), ("a message before its receive", late, LATE)):
        for peers, most in limits.items():
            # Each of its functions begins with a landing pad.
            if counts[peers] > most + (2 * HARDENING if is_hardened(arguments.program) else 0):
                failures.append(f"{what}, {peers} peers: {counts[peers]:.2f} instructions, allowed are {most}")
    for name, count in receives.items():
        if count > limit:
            failures.append(f"{name}: {count:.2f} instructions to post a receive, allowed are {limit}")
    for failure in failures:
        print("FAILED", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
