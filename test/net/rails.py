# SPDX-License-Identifier: BSD-3-Clause
"""Bulk transfers of two nodes over several shaped links, and rails that fail in the midst.

    rails.py SWIFTLANE [--strict] [--operations put,get,tag] [--sizes 64K,64M,1G] [--time SECONDS]
             [NAME...]

Prints each rate as a share of what the links carry, beside the goal, with the processor time that
all processes took meanwhile; and for a rail that fails how long it took until what is left carried
everything. Every byte is verified where a rail fails.
Exit status: 0 all transfers ended well, 1 one did not, 77 no network namespaces here. Figures below
their goal are marked; they count with --strict alone, as the machine may be busy.
"""
import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time

from topology import Link, NotPermitted, Topology, goodput

SWIFTLANE = ""
CASES = {}
BELOW = []  # the figures that miss their goal


def case(function):
    CASES[function.__name__] = function
    return function


def perf_command(net, operation, size, options, report):
    return [SWIFTLANE, "perf", operation, "--device", "real", "--tls", "self,tcp", "--rails",
            str(len(net.links)), "--size", f"{size}:{size}", "--prefix",
            f"ip netns exec {net.base}n%r", "--json", report,
            *([] if "--measure" in options else ["--measure", "bandwidth"]), *options]


def run_perf(net, operation, size, *options, disturb=None):
    """@return megabytes per second; what `disturb` does goes on beside it"""
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        command = perf_command(net, operation, size, options, report.name)
        # Messages of 64 KiB are announced as well: they are what goes over all links.
        child = subprocess.Popen(command, text=True, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT,
                                 env=os.environ | {"UCX_RNDV_THRESH": "16k"})
        try:
            if disturb:
                net.wait_for_traffic(child)
                disturb()
            out, _ = child.communicate(timeout=180)
        finally:
            child.kill()
            child.wait()
        if child.returncode != 0:
            raise AssertionError(f"{' '.join(command)}:\n{out}")
        with open(report.name) as file:
            return find_rate(json.load(file))


def find_rate(value):
    """The figure wherever the report has it."""
    if isinstance(value, dict):
        if value.get("mb_per_s"):
            return value["mb_per_s"]
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            rate = find_rate(item)
            if rate:
                return rate
    return None


def say(what, is_met):
    if not is_met:
        BELOW.append(what)
    print(f"    {what}{'' if is_met else '  BELOW'}", flush=True)


def say_rate(what, rate, limit, goal, processors):
    share = rate / limit
    say(f"{what}: {rate:.1f} MB/s of {limit:.1f}: {share:.3f}, goal {goal}, "
        f"{processors:.2f} of {os.cpu_count()} processors", share >= goal)


def say_time(what, seconds, goal):
    """@param seconds: None if it never happened
    @param goal: seconds; inf: at any time; None: or never"""
    took = "never" if seconds is None else f"{seconds * 1000:.0f} ms"
    bound = "" if goal in (None, math.inf) else f", goal {goal * 1000:.0f} ms"
    say(f"{what}: {took}{bound}", goal is None or (seconds is not None and seconds <= goal))


WINDOWS = {"64K": "1024", "64M": "4", "1G": "2"}


def fill(rates, goal, options):
    with Topology(2, [Link(rate=f"{rate}mbit") for rate in rates]) as net:
        limit = sum(goodput(rate * 1e6) for rate in rates)
        for operation in options.operations.split(","):
            for size in options.sizes.split(","):
                began, used = time.monotonic(), os.times()
                rate = run_perf(net, operation, size, "--time", f"{options.time}s", "--window",
                                WINDOWS[size], "--buffer", "1G", "--warmup", "1")
                now = os.times()
                spent = (now.children_user + now.children_system - used.children_user -
                         used.children_system)
                say_rate(f"{operation} {size} over {'+'.join(map(str, rates))} Mbit/s", rate,
                         limit, goal, spent / (time.monotonic() - began))


@case
def one_link(options):
    fill([1000], 0.99, options)


@case
def two_links(options):
    fill([1000, 1000], 0.99, options)


@case
def four_links(options):
    fill([1000] * 4, 0.99, options)


@case
def four_faster_links(options):
    fill([2500] * 4, 0.95, options)


@case
def unequal_links(options):
    fill([1000, 250], 0.98, options)


class Counters:
    """Bytes that a node has sent over each link, looked at all the time."""

    PROGRAM = ("import sys, time\n"
               "files = [open(f'/sys/class/net/{n}/statistics/tx_bytes') for n in sys.argv[1:]]\n"
               "while True:\n"
               "    values = []\n"
               "    for f in files:\n"
               "        f.seek(0)\n"
               "        values.append(f.read().strip())\n"
               "    print(time.monotonic(), *values, flush=True)\n"
               "    time.sleep(0.01)\n")

    def __init__(self, net, node=0):
        names = [f"eth{i}" for i in range(len(net.links))]
        self.samples = []
        self.child = net.popen(node, [sys.executable, "-c", self.PROGRAM, *names],
                               stdout=subprocess.PIPE, text=True)
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self):
        for line in self.child.stdout:
            self.samples.append([float(word) for word in line.split()])

    def stop(self):
        self.child.kill()
        self.child.wait()
        self.reader.join()

    def recovered_after(self, moment, link, bytes_per_second):
        """Seconds from `moment` until `link` carries so much over 50 ms, or None."""
        for first in self.samples:
            if first[0] < moment:
                continue
            later = next((s for s in self.samples if s[0] >= first[0] + 0.05), None)
            if later is None:
                return None
            if (later[1 + link] - first[1 + link]) / (later[0] - first[0]) >= bytes_per_second:
                return first[0] - moment
        return None


def rail_fails(options, fail, mend, limit, rail=1):
    """Two rails; one fails while the transfer runs, and comes back."""
    rate = 500
    other = 1 - rail
    with Topology(2, [Link(rate=f"{rate}mbit"), Link(rate=f"{rate}mbit")]) as net:
        for operation in options.operations.split(","):
            # The bytes of a get are sent by the peer.
            counters = Counters(net, node=1 if operation == "get" else 0)
            moments = {}

            def disturb():
                time.sleep(1)
                moments["fails"] = time.monotonic()
                fail(net, rail)
                time.sleep(2)
                mend(net, rail)
                moments["returns"] = time.monotonic()

            try:
                run_perf(net, operation, "64M", "--window", "2", "--verify", "--iterations", "16",
                         "--warmup", "0", disturb=disturb)
            finally:
                counters.stop()
            wanted = 0.9 * rate * 1e6 / 8
            for what, link, goal in [("fails", other, limit), ("returns", rail, math.inf)]:
                say_time(f"{operation}: eth{link} at its rate after eth{rail} {what}",
                         counters.recovered_after(moments[what], link, wanted), goal)


def messages_move(fail, mend, limit):
    """Two rails; the one of the messages fails in the midst of them, and comes back."""
    with Topology(2, [Link(), Link()]) as net:
        counters = Counters(net)
        moments = {}

        def disturb():
            time.sleep(1)
            moments["rail"] = net.busiest()
            moments["fails"] = time.monotonic()
            fail(net, moments["rail"])
            time.sleep(2)
            mend(net, moments["rail"])
            moments["returns"] = time.monotonic()

        try:
            run_perf(net, "tag", "64", "--measure", "latency", "--verify", "--time", "7s",
                     disturb=disturb)
        finally:
            counters.stop()
        rail = moments["rail"]
        for what, link, goal in [("fails", 1 - rail, limit), ("returns", rail, None)]:
            say_time(f"messages go over eth{link} after eth{rail} {what}",
                     counters.recovered_after(moments[what], link, 100e3), goal)


def down(net, rail):
    net.link_down(0, rail)


def up(net, rail):
    net.link_up(0, rail)


def swallow(net, rail):
    net.drop_all(0, rail)
    net.drop_all(1, rail)


def pass_on(net, rail):
    net.pass_all(0, rail)
    net.pass_all(1, rail)


@case
def a_link_goes_down(options):
    rail_fails(options, down, up, 0.1)


@case
def a_link_swallows_everything(options):
    rail_fails(options, swallow, pass_on, 1.0)


@case
def the_messages_link_goes_down(options):
    messages_move(down, up, 0.1)
    rail_fails(options, down, up, 0.1, rail=0)


@case
def the_messages_link_swallows_everything(options):
    messages_move(swallow, pass_on, 1.0)
    rail_fails(options, swallow, pass_on, 1.0, rail=0)


def main():
    global SWIFTLANE
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("swiftlane")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(CASES))
    parser.add_argument("--strict", action="store_true", help="figures below their goal count")
    parser.add_argument("--operations", default="put,get,tag", help="put, get, tag (all)")
    parser.add_argument("--sizes", default="64K,1G", help=f"{', '.join(WINDOWS)} (64K,1G)")
    parser.add_argument("--time", type=float, default=4, help="seconds of each measurement (4)")
    options = parser.parse_intermixed_args()
    SWIFTLANE = os.path.abspath(options.swiftlane)
    failed = 0
    for name in options.names or CASES:
        print(name, flush=True)
        try:
            CASES[name](options)
        except NotPermitted as reason:
            print(f"skipped: {reason}")
            return 77
        except (AssertionError, subprocess.TimeoutExpired) as error:
            failed += 1
            print(f"    FAILED: {error}", flush=True)
    if BELOW:
        print(f"{len(BELOW)} below their goal:", *BELOW, sep="\n    ")
    return 1 if failed or (options.strict and BELOW) else 0


sys.exit(main())
