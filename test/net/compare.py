#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compare MPI over Swiftlane's TCP with MPI over the tcp of UCX, and with iperf3, between namespaces.

    compare.py [--build DIR] [--short] [--pairs N] [--bench NAME] [--effort FACTOR] [--largest BYTES]
               [--loopback | [--rate RATE] [--links N] [--congestion NAME]] [--iperf3 PATH]
               [--newer-ucx DIR] [--variant NAME=VALUE[,NAME=VALUE...]] [--json FILE]

Two network namespaces with names of their own are two hosts to Open MPI's launcher; one rank runs in
each. With --loopback two processes of this host do, over its loopback. The contestants run in turn,
round by round:

  latency  half a round trip
  rate     messages in windows, which times the length is the bandwidth
  stream   the same with 1 to 64 MiB, beside iperf3 with one stream and with eight

Ranks are pinned to a core each, in stream to half of the cores each, and so are iperf3's ends. Each
round begins with the latency of a bare cache line between two cores, and rounds in which that is more
than 1.2 times its best are dropped, as in test/mpi/compare. Lower quartiles of times and upper
quartiles of bandwidths are compared. A variant is Swiftlane once more, with other settings, bound to
nothing. Nothing else may run meanwhile. Namespaces need root. Exit status: 0 all bounds hold, 1 one
does not, 2 something could not run, 77 no namespaces or no Open MPI here.
"""
import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../mpi"))
from figures import (compile_bench, cores, judge_bounds, mean, quartile, root_env, rows,  # noqa: E402
                     system_env)
from topology import Link, NotPermitted, Topology  # noqa: E402

LINE_LIMIT = 1.2
# benchmark: is a higher figure better, largest message of a full and of a short run
BENCHES = {"latency": (False, 4 << 20, 64 << 10), "rate": (True, 4 << 20, 64 << 10),
           "stream": (True, 64 << 20, 4 << 20)}
PROGRAMS = {"latency": "latency", "rate": "rate", "stream": "rate"}
SHORTEST_OF_STREAM = 1 << 20
STREAMS = (1, 8)  # of iperf3
PEERS = ("ucx", "newer")
# What the ranks must be told, since the launcher hands on nothing of itself but its own settings.
HANDED_ON = ("LD_LIBRARY_PATH", "UCX_MODULE_DIR", "UCX_TLS", "UCX_NET_DEVICES", "UCX_LOG_LEVEL",
             "UCX_WARN_UNUSED_ENV_VARS", "UCX_MAX_RNDV_RAILS", "UCX_TCP_BURST")


def places(is_wide):
    """For either rank the processors that it is pinned to, as taskset has them."""
    pair = (cores() + sorted(os.sched_getaffinity(0)))[:2]
    if not is_wide or len(cores()) < 2:
        return [str(cpu) for cpu in pair]
    half = len(cores()) // 2
    return [",".join(map(str, part)) for part in (cores()[:half], cores()[half:])]


def pinned(program, is_wide):
    """The words that start a rank of the program where it belongs."""
    first, second = places(is_wide)
    return ["sh", "-c", f'if [ "$OMPI_COMM_WORLD_RANK" = 0 ]; then cpus={first}; else cpus={second}; fi; '
            'exec taskset -c $cpus "$0" "$@"'] + program


class Loopback:
    """Two processes of this host."""

    devices = "lo"

    def launch(self, program, is_wide, _):
        """The command that starts the program's two ranks."""
        return ["mpirun.openmpi", "-np", "2", "--oversubscribe", "--bind-to", "none"] + pinned(program, is_wide)

    def inside(self, _, command):
        """The command, run at that end."""
        return command

    def address(self, _):
        return "127.0.0.1"


class Hosts:
    """Namespaces that are hosts named node0 and node1 to the launcher."""

    def __init__(self, net, folder):
        self.net = net
        self.devices = ",".join(f"eth{i}" for i in range(len(net.links)))
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

    def launch(self, program, is_wide, variables):
        """The command that starts the program's two ranks, one on each host, with these variables of the caller's."""
        mpirun = ["mpirun.openmpi", "--mca", "plm_rsh_agent", self.agent, "--mca", "oob_tcp_if_include", "eth0",
                  "--host", "node0:1,node1:1", "-np", "2", "--bind-to", "none"]
        for name in variables:
            mpirun += ["-x", name]
        return [self.agent, "node0", shlex.join(mpirun + pinned(program, is_wide))]

    def inside(self, n, command):
        return ["ip", "netns", "exec", self.net.node(n)] + command

    def address(self, n):
        return self.net.address(n)


class Comparison:
    def __init__(self, options, hosts):
        self.options = options
        self.hosts = hosts
        build = os.path.abspath(options.build)
        self.programs = {name: compile_bench(name, "mpicc.openmpi", os.path.join(build, "test/mpi/bench/openmpi"))
                         for name in {*PROGRAMS.values(), "line"}}
        shared = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": hosts.devices, "UCX_MAX_RNDV_RAILS": str(options.links)}
        plain = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
        swiftlane = [os.path.join(build, "src/tools/swiftlane"), "run", "--"]
        own, theirs = dict(plain, **root_env(), **shared), dict(system_env(), **shared)
        self.contestants = {"swiftlane": (swiftlane, own), "ucx": ([], theirs)}
        if options.newer_ucx:
            self.contestants["newer"] = ([], dict(theirs, LD_LIBRARY_PATH=os.path.abspath(options.newer_ucx)))
        self.variables = list(HANDED_ON)
        for number, variant in enumerate(options.variant):
            settings = dict(pair.split("=", 1) for pair in variant.split(","))
            self.variables += [name for name in settings if name not in self.variables]
            self.contestants[f"variant{number + 1}"] = (swiftlane, dict(own, **settings))

    def start(self, contestant, arguments, is_wide=False, **settings):
        command, env = self.contestants[contestant]
        return subprocess.run(command + self.hosts.launch(arguments, is_wide, self.variables), capture_output=True,
                              text=True, timeout=600, env=dict(env, **settings))

    def iperf3(self, streams, seconds):
        """Bytes in a microsecond."""
        server_at, client_at = places(True)
        pin = ["taskset", "-c"]
        server = subprocess.Popen(self.hosts.inside(1, pin + [server_at, self.options.iperf3, "-s", "-1"]),
                                  stdout=subprocess.DEVNULL)
        try:
            time.sleep(0.3)
            client = subprocess.run(
                self.hosts.inside(0, pin + [client_at, self.options.iperf3, "-J", "-O", "1", "-t", str(seconds), "-P",
                                            str(streams), "-c", self.hosts.address(1)]),
                capture_output=True, text=True, timeout=600)
            report = json.loads(client.stdout)
            if "error" in report:
                sys.exit(f"compare: iperf3: {report['error']}")
            return report["end"]["sum_received"]["bits_per_second"] / 8e6
        finally:
            server.kill()
            server.wait()

    def measure(self, contestant, bench):
        largest = self.options.largest or BENCHES[bench][2 if self.options.short else 1]
        words = [self.programs[PROGRAMS[bench]], str(largest), str(self.options.effort)]
        if bench == "stream":
            words.append(str(SHORTEST_OF_STREAM))
        done = self.start(contestant, words, bench == "stream")
        table = rows(done.stdout)
        if done.returncode or not table:
            sys.stderr.write(f"compare: {contestant} {bench}: exit {done.returncode}\n"
                             f"{done.stdout[-1500:]}{done.stderr[-1500:]}\n")
            sys.exit(2)
        if BENCHES[bench][0]:
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
            tables = {name: self.measure(name, bench) for name in self.contestants}
            if bench == "stream" and self.options.iperf3:
                seconds = 1 if self.options.short else 3
                sizes = list(tables["swiftlane"])
                for streams in STREAMS:
                    tables[f"iperf3 -P{streams}"] = dict.fromkeys(sizes, self.iperf3(streams, seconds))
            rounds.append((line, tables))
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
            if done.returncode or (ours, over_tcp) != ((0, 0) if name in PEERS else (2, 2)):
                sys.stderr.write(f"compare: {name} does not run over itself and TCP:\n{text[-2500:]}\n")
                sys.exit(2)


def judge(figures, higher):
    def ratios(peer):
        return [row["swiftlane"] / row[peer] for row in figures.values() if peer in row]

    to_ucx, to_iperf3 = ratios("ucx"), ratios(f"iperf3 -P{max(STREAMS)}")
    if not higher:
        return [("latency, geometric mean to UCX", mean(to_ucx), "<=", 1.0), ("worst size", max(to_ucx), "<=", 1.05)]
    bounds = [("bandwidth, geometric mean to UCX", mean(to_ucx), ">=", 1.0), ("worst size", min(to_ucx), ">=", 0.95)]
    if to_iperf3:
        bounds += [(f"bandwidth, geometric mean to iperf3 -P{max(STREAMS)}", mean(to_iperf3), ">=", 0.95)]
    return bounds


def print_table(bench, figures):
    names = list(next(iter(figures.values())))
    print(f"{bench}, {'MB/s' if BENCHES[bench][0] else 'us'}")
    print(f"{'size':>9}" + "".join(f"{name:>12}" for name in names) +
          "".join(f"{'/' + name:>13}" for name in names[1:]))
    for size, row in figures.items():
        print(f"{size:>9}" + "".join(f"{row[name]:>12.3f}" for name in names) +
              "".join(f"{row['swiftlane'] / row[name]:>13.3f}" for name in names[1:]), flush=True)


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=".", help="build folder (.)")
    parser.add_argument("--short", action="store_true", help="one round, small messages: does it run")
    parser.add_argument("--pairs", type=int, help="rounds that count (15; 1 with --short)")
    parser.add_argument("--effort", type=float, help="factor on the messages of a run (1; 0.05 with --short)")
    parser.add_argument("--largest", type=int, help="longest message (4 MiB, of stream 64; 64 KiB with "
                        "--short, of stream 4 MiB)")
    parser.add_argument("--loopback", action="store_true", help="between two processes, without namespaces")
    parser.add_argument("--rate", default="", help="shape each link to this (1gbit; not shaped by default)")
    parser.add_argument("--links", type=int, default=1, help="links between the hosts (1)")
    parser.add_argument("--congestion", default="cubic", help="the kernel's congestion control (cubic)")
    parser.add_argument("--bench", choices=BENCHES, action="append", help="only these")
    parser.add_argument("--iperf3", default=shutil.which("iperf3"),
                        help="the program (that of the search path; without one it is left out)")
    parser.add_argument("--newer-ucx", help="a folder of libraries of another UCX, to compare with as well")
    parser.add_argument("--variant", action="append", default=[], help="Swiftlane with these variables as well")
    parser.add_argument("--json", help="write everything to this file")
    options = parser.parse_args()
    options.pairs = options.pairs or (1 if options.short else 15)
    options.effort = options.effort or (0.05 if options.short else 1)
    if options.loopback and (options.rate or options.links != 1):
        parser.error("--loopback: there are no links to be shaped")
    return options


def version_of(program):
    """The first line that it says of itself; of iperf3 it tells whether streams have threads (from 3.16 on)."""
    return subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split("\n")[0]


def compare(options, hosts):
    comparison = Comparison(options, hosts)
    comparison.check_contestants()
    report = {"pairs": options.pairs, "loopback": options.loopback, "rate": options.rate, "links": options.links,
              "congestion": options.congestion, "variants": options.variant, "load": os.getloadavg()[0],
              "benches": {}}
    links = f"{options.links} links {'of ' + options.rate if options.rate else 'not shaped'}"
    print(f"load before: {report['load']:.2f} on {len(cores())} cores; {'loopback' if options.loopback else links}")
    if options.iperf3:
        report["iperf3"] = version_of(options.iperf3)
        print(report["iperf3"])
    verdict = True
    for bench in options.bench or BENCHES:
        higher = BENCHES[bench][0]
        kept = comparison.run(bench)
        figures = {size: {name: quartile([tables[name][size] for tables in kept], higher) for name in kept[0]}
                   for size in kept[0]["swiftlane"]}
        print_table(bench, figures)
        bounds, all_hold = judge_bounds(judge(figures, higher))
        verdict &= all_hold
        report["benches"][bench] = {"figures": figures, "rounds": kept, "bounds": bounds}
    if options.json:
        with open(options.json, "w") as out:
            json.dump(report, out, indent=1)
    return 0 if verdict else 1


def main():
    options = read_options()
    tools = ["taskset", "mpirun.openmpi"] + ([] if options.loopback else ["ip", "tc", "unshare"])
    missing = [tool for tool in tools if not shutil.which(tool)]
    if missing:
        print(f"skipped: these tools are missing: {', '.join(missing)}")
        return 77
    if options.loopback:
        return compare(options, Loopback())
    if os.geteuid() != 0:
        print("skipped: namespaces need root; --loopback does not")
        return 77
    try:
        with tempfile.TemporaryDirectory() as folder, \
                Topology(2, [Link(rate=options.rate)] * options.links, options.congestion) as net:
            return compare(options, Hosts(net, folder))
    except NotPermitted as reason:
        print(f"skipped: {reason}")
        return 77


sys.exit(main())
