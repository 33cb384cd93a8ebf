#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compare MPI over Swiftlane's TCP with MPI over the tcp of the system's UCX, between namespaces.

    compare.py [--build DIR] [--short] [--pairs N] [--bench NAME] [--effort FACTOR] [--largest BYTES]
               [--rate RATE] [--links N] [--congestion NAME] [--json FILE]

Two network namespaces with names of their own are two hosts to Open MPI's launcher; one rank runs in
each, pinned to a core. The contestants run in turn, round by round: latency, and the rate of messages
in windows, which times the length is the bandwidth. Each round begins with the latency of a bare cache
line between the two cores, and rounds in which that is more than 1.2 times its best are dropped, as in
test/mpi/compare. Lower quartiles of times and upper quartiles of bandwidths are compared.
Nothing else may run meanwhile. Needs root. Exit status: 0 all bounds hold, 1 one does not, 2 something
could not run, 77 no namespaces or no Open MPI here.
"""
import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../mpi"))
from figures import (compile_bench, cores, judge_bounds, mean, quartile, root_env, rows,  # noqa: E402
                     system_env)
from topology import Link, NotPermitted, Topology  # noqa: E402

LINE_LIMIT = 1.2
# benchmark: is a higher figure better, largest message of a full and of a short run
BENCHES = {"latency": (False, 4 << 20, 64 << 10), "rate": (True, 4 << 20, 64 << 10)}
# What the ranks must be told, since the launcher hands on nothing of itself but its own settings.
HANDED_ON = ("LD_LIBRARY_PATH", "UCX_MODULE_DIR", "UCX_TLS", "UCX_NET_DEVICES", "UCX_LOG_LEVEL",
             "UCX_WARN_UNUSED_ENV_VARS", "UCX_MAX_RNDV_RAILS", "UCX_TCP_BURST")


class Hosts:
    """Namespaces that are hosts named node0 and node1 to the launcher."""

    def __init__(self, net, folder):
        self.net = net
        self.agent = os.path.join(folder, "agent")
        self.hosts = os.path.join(folder, "hosts")
        with open(self.hosts, "w") as hosts:
            hosts.write("127.0.0.1 localhost\n")
            hosts.writelines(f"{net.address(n)} node{n}\n" for n in range(2))
        # As the launcher calls its remote shell: the host, then words for the shell there.
        with open(self.agent, "w") as agent:
            agent.write(f"""#!/bin/sh
host=$1
shift
exec ip netns exec {net.base}n"${{host#node}}" unshare -u -m sh -c \\
    'mount --bind {self.hosts} /etc/hosts && hostname "$0" && exec sh -c "$1"' "$host" "$*"
""")
        os.chmod(self.agent, 0o755)

    def launch(self, program):
        """The command that starts the program's two ranks, one on each host and core."""
        first, second = (cores() + sorted(os.sched_getaffinity(0)))[:2]
        pinned = (f'if [ "$OMPI_COMM_WORLD_RANK" = 0 ]; then cpu={first}; else cpu={second}; fi; '
                  'exec taskset -c $cpu "$0" "$@"')
        mpirun = ["mpirun.openmpi", "--mca", "plm_rsh_agent", self.agent, "--mca", "oob_tcp_if_include", "eth0",
                  "--host", "node0:1,node1:1", "-np", "2", "--bind-to", "none"]
        for name in HANDED_ON:
            mpirun += ["-x", name]
        return [self.agent, "node0", shlex.join(mpirun + ["sh", "-c", pinned] + program)]


class Comparison:
    def __init__(self, options, hosts):
        self.options = options
        self.hosts = hosts
        build = os.path.abspath(options.build)
        self.programs = {name: compile_bench(name, "mpicc.openmpi", os.path.join(build, "test/mpi/bench/openmpi"))
                         for name in [*BENCHES, "line"]}
        devices = ",".join(f"eth{i}" for i in range(options.links))
        shared = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": devices, "UCX_MAX_RNDV_RAILS": str(options.links)}
        plain = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
        self.contestants = {
            "swiftlane": ([os.path.join(build, "src/tools/swiftlane"), "run", "--"],
                          dict(plain, **root_env(), **shared)),
            "ucx": ([], dict(system_env(), **shared)),
        }

    def start(self, contestant, arguments, **settings):
        command, env = self.contestants[contestant]
        return subprocess.run(command + self.hosts.launch(arguments), capture_output=True, text=True, timeout=600,
                              env=dict(env, **settings))

    def measure(self, contestant, bench):
        largest = self.options.largest or BENCHES[bench][2 if self.options.short else 1]
        done = self.start(contestant, [self.programs[bench], str(largest), str(self.options.effort)])
        table = rows(done.stdout)
        if done.returncode or not table:
            sys.stderr.write(f"compare: {contestant} {bench}: exit {done.returncode}\n"
                             f"{done.stdout[-1500:]}{done.stderr[-1500:]}\n")
            sys.exit(2)
        if bench == "rate":
            return {size: rate * size for size, rate in table.items()}
        return table

    def line(self):
        pair = [str(cpu) for cpu in (cores() + sorted(os.sched_getaffinity(0)))[:2]]
        done = subprocess.run([self.programs["line"]] + pair, capture_output=True, text=True, check=True)
        return float(done.stdout)

    def run(self, bench):
        """All rounds that count: {contestant: rows} for each."""
        rounds = []
        for _ in range(3 * self.options.pairs):
            line = self.line()
            rounds.append((line, {name: self.measure(name, bench) for name in self.contestants}))
            best = min(entry[0] for entry in rounds)
            kept = [tables for line, tables in rounds if line <= LINE_LIMIT * best]
            print(f"  {bench} round {len(rounds)}: line {line:.3f} us (best {best:.3f}), {len(kept)} kept", flush=True)
            if len(kept) >= self.options.pairs:
                break
        return kept

    def check_contestants(self):
        """Each must run over what it is named after, and over TCP."""
        arguments = [self.programs["latency"], "1", "0.01"]
        for name in self.contestants:
            done = self.start(name, arguments, UCX_LOG_LEVEL="info")
            text = done.stdout + done.stderr
            lines = [line.split(" INFO ", 1)[1] for line in text.splitlines() if " INFO " in line]
            ours = sum(line.startswith("Swiftlane") for line in lines)
            over_tcp = sum("tcp 1" in line for line in lines if "endpoints by transport" in line)
            if done.returncode or (ours, over_tcp) != ((2, 2) if name == "swiftlane" else (0, 0)):
                sys.stderr.write(f"compare: {name} does not run over itself and TCP:\n{text[-2500:]}\n")
                sys.exit(2)


def judge(bench, figures, higher):
    ratios = [row["swiftlane"] / row["ucx"] for row in figures.values()]
    if higher:
        return [("bandwidth, geometric mean to UCX", mean(ratios), ">=", 1.0), ("worst size", min(ratios), ">=", 0.95)]
    return [("latency, geometric mean to UCX", mean(ratios), "<=", 1.0), ("worst size", max(ratios), "<=", 1.05)]


def print_table(bench, figures):
    print(f"{bench}, {'MB/s' if BENCHES[bench][0] else 'us'}")
    print(f"{'size':>9}{'swiftlane':>12}{'ucx':>12}{'ratio':>9}")
    for size, row in figures.items():
        print(f"{size:>9}{row['swiftlane']:>12.3f}{row['ucx']:>12.3f}{row['swiftlane'] / row['ucx']:>9.3f}", flush=True)


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=".", help="build folder (.)")
    parser.add_argument("--short", action="store_true", help="one round, small messages: does it run")
    parser.add_argument("--pairs", type=int, help="rounds that count (15; 1 with --short)")
    parser.add_argument("--effort", type=float, help="factor on the messages of a run (1; 0.05 with --short)")
    parser.add_argument("--largest", type=int, help="longest message (4 MiB; 64 KiB with --short)")
    parser.add_argument("--rate", default="", help="shape each link to this (1gbit; not shaped by default)")
    parser.add_argument("--links", type=int, default=1, help="links between the hosts (1)")
    parser.add_argument("--congestion", default="cubic", help="the kernel's congestion control (cubic)")
    parser.add_argument("--bench", choices=BENCHES, action="append", help="only these")
    parser.add_argument("--json", help="write everything to this file")
    options = parser.parse_args()
    options.pairs = options.pairs or (1 if options.short else 15)
    options.effort = options.effort or (0.05 if options.short else 1)
    return options


def compare(options, net, folder):
    comparison = Comparison(options, Hosts(net, folder))
    comparison.check_contestants()
    report = {"pairs": options.pairs, "rate": options.rate, "links": options.links,
              "congestion": options.congestion, "load": os.getloadavg()[0],
              "benches": {}}
    print(f"load before: {report['load']:.2f} on {len(cores())} cores; {options.links} links "
          f"{'of ' + options.rate if options.rate else 'not shaped'}")
    verdict = True
    for bench in options.bench or BENCHES:
        higher = BENCHES[bench][0]
        kept = comparison.run(bench)
        figures = {size: {name: quartile([tables[name][size] for tables in kept], higher)
                          for name in comparison.contestants} for size in kept[0]["swiftlane"]}
        print_table(bench, figures)
        bounds, all_hold = judge_bounds(judge(bench, figures, higher))
        verdict &= all_hold
        report["benches"][bench] = {"figures": figures, "rounds": kept, "bounds": bounds}
    if options.json:
        with open(options.json, "w") as out:
            json.dump(report, out, indent=1)
    return 0 if verdict else 1


def main():
    options = read_options()
    missing = [tool for tool in ("ip", "tc", "unshare", "taskset", "mpirun.openmpi") if not shutil.which(tool)]
    if os.geteuid() != 0 or missing:
        print(f"skipped: namespaces need root and the tools ip, tc, unshare, taskset, mpirun.openmpi {missing}")
        return 77
    try:
        with tempfile.TemporaryDirectory() as folder, \
                Topology(2, [Link(rate=options.rate)] * options.links, options.congestion) as net:
            return compare(options, net, folder)
    except NotPermitted as reason:
        print(f"skipped: {reason}")
        return 77


sys.exit(main())
