#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests of the TCP transport between network namespaces.

    run.py SWIFTLANE [--all] [NAME...]

Each test lays out a topology and runs `swiftlane bench` in it, one rank a node. The quick ones are
part of `make check`; --all adds those that take longer or want iperf3. Without the right to make
namespaces everything is skipped (exit status 77).
"""
import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

from topology import Link, NotPermitted, Topology, goodput

SWIFTLANE = ""
QUICK, LONG = [], []


def quick(function):
    QUICK.append(function)
    return function


def long(function):
    LONG.append(function)
    return function


def bench_command(net, benchmark, *options, ranks=2):
    return [SWIFTLANE, "bench", benchmark, "--ranks", str(ranks), "--tls", "self,tcp", "--device",
            "real", "--prefix", f"ip netns exec {net.base}n%r", *options]


def environment(**settings):
    return {**os.environ, **{f"UCX_{name}": value for name, value in settings.items()}}


def bench(net, benchmark, *options, ranks=2, timeout=60, **settings):
    """Runs to the end; returns the rows: {size: megabytes per second or microseconds}."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = bench_command(net, benchmark, *options, "--json", file.name, ranks=ranks)
        result = subprocess.run(command, text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, timeout=timeout,
                                env=environment(**settings))
        if result.returncode != 0:
            raise AssertionError(f"{' '.join(command)}:\n{result.stdout}")
        rows = {}
        for line in result.stdout.splitlines():
            row = re.match(r"(\d+)\s+([0-9.]+)", line)
            if row and int(row[1]) not in rows:
                rows[int(row[1])] = float(row[2])
        return rows


def expect(condition, text):
    if not condition:
        raise AssertionError(text)


# --- quick ---


@quick
def messages_of_all_sizes_are_right():
    with Topology(2, [Link()]) as net:
        for size in ["8", "4K", "1M"]:
            bench(net, "mbw_mr", "--size", size, "--iterations", "2", "--warmup", "0", "--window",
                  "16", "--verify")


@quick
def ipv6_works():
    with Topology(2, [Link(ipv6=True)]) as net:
        bench(net, "mbw_mr", "--size", "16K", "--iterations", "3", "--verify")


@quick
def several_nodes_and_interfaces():
    with Topology(4, [Link(), Link()]) as net:
        bench(net, "alltoall", "--size", "1K", "--iterations", "20", "--verify", ranks=4)
        bench(net, "alltoall", "--size", "64K", "--iterations", "5", "--verify", ranks=4,
              NET_DEVICES="eth1")


@quick
def loss_loses_nothing():
    with Topology(2, [Link(loss=0.01)]) as net:
        bench(net, "mbw_mr", "--size", "4K", "--iterations", "4", "--verify")
        bench(net, "mbw_mr", "--size", "256K", "--iterations", "1", "--window", "16", "--verify",
              TCP_CONNECTIONS="4")


@quick
def a_shaped_link_is_filled():
    # Slow enough that the kernel's buffers keep it busy while a busy machine runs others, and tried
    # again where the machine itself stood still.
    with Topology(2, [Link(rate="50mbit")]) as net:
        best, wanted, tries = 0, 0.9 * goodput(50e6), 5
        while best < wanted and tries > 0:
            best = max(best, bench(net, "mbw_mr", "--size", "256K", "--iterations", "2", "--warmup",
                                   "0", "--window", "32")[256 << 10])
            tries -= 1
        expect(best >= wanted, f"{best} MB/s at best over 50 Mbit/s")


@quick
def delay_is_passed_on():
    with Topology(2, [Link(delay=0.005)]) as net:
        latency = bench(net, "alltoall", "--size", "8", "--iterations", "10")[8]
        expect(latency >= 5000, f"{latency} us over 5 ms one way")
        bench(net, "mbw_mr", "--size", "64K", "--iterations", "1", "--window", "8", "--verify")


def ends_in_error(net, disturb, limit, **settings):
    """A benchmark that is disturbed in its midst ends, with an error, within the limit."""
    bench_run = subprocess.Popen(
        bench_command(net, "mbw_mr", "--size", "4K", "--iterations", "100000000"),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=environment(**settings))
    try:
        net.wait_for_traffic(bench_run)
        time.sleep(0.5)
        expect(bench_run.poll() is None, "the benchmark did not run")
        disturb()
        began = time.monotonic()
        try:
            bench_run.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running {limit} s after the disturbance") from None
        expect(bench_run.returncode != 0, "no error")
        return time.monotonic() - began
    finally:
        bench_run.kill()
        bench_run.communicate()


@quick
def a_link_that_goes_down_is_an_error_in_time():
    with Topology(2, [Link()]) as net:
        ends_in_error(net, lambda: net.link_down(1, 0), 15, TCP_USER_TIMEOUT="1s",
                      TCP_KEEPIDLE="1s", TCP_KEEPINTVL="1s", TCP_KEEPCNT="1")


@quick
def a_link_that_swallows_everything_is_an_error_in_time():
    with Topology(2, [Link()]) as net:
        ends_in_error(net, lambda: (net.drop_all(0, 0), net.drop_all(1, 0)), 15,
                      TCP_USER_TIMEOUT="1s", TCP_KEEPIDLE="1s", TCP_KEEPINTVL="1s",
                      TCP_KEEPCNT="1")


def survives(net, disturb, *options, seconds=2, **others):
    """A run of which every byte is checked ends well though it is disturbed in its midst."""
    for longer in [1, 4, 16]:
        if was_disturbed(net, disturb, *options, seconds=longer * seconds, **others):
            return
    raise AssertionError("the run was always over before it was disturbed")


def was_disturbed(net, disturb, *options, operation="tag", seconds, **settings):
    command = [SWIFTLANE, "perf", operation, "--tls", "self,tcp", "--device", "real", "--verify",
               "--prefix", f"ip netns exec {net.base}n%r", "--rails", str(len(net.links)), "--time",
               f"{seconds}s", *options]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             env=environment(**settings))
    try:
        net.wait_for_traffic(child)
        time.sleep(0.5)
        in_its_midst = child.poll() is None
        if in_its_midst:
            disturb()
        out, _ = child.communicate(timeout=60 + 2 * seconds)
        expect(child.returncode == 0, f"{' '.join(command)}:\n{out}")
        return in_its_midst
    except subprocess.TimeoutExpired:
        raise AssertionError("it never went on") from None
    finally:
        child.kill()
        child.communicate()


MESSAGES = ["--measure", "latency", "--size", "64:64"]
TRANSFERS = ["--measure", "bandwidth", "--size", "1M:1M", "--window", "8", "--buffer", "16M"]


@quick
def messages_move_when_their_link_goes_down():
    with Topology(2, [Link(), Link()]) as net:
        survives(net, lambda: net.link_down(0, net.busiest()), *MESSAGES)


@quick
def messages_move_when_their_link_falls_silent():
    with Topology(2, [Link(), Link()]) as net:
        def swallow():
            link = net.busiest()
            net.drop_all(0, link)
            net.drop_all(1, link)

        survives(net, swallow, *MESSAGES)


@quick
def transfers_end_when_the_link_of_their_messages_goes_down():
    with Topology(2, [Link(rate="200mbit"), Link(rate="200mbit")]) as net:
        survives(net, lambda: net.link_down(1, 0), *TRANSFERS)


@quick
def transfers_end_when_the_link_of_their_messages_falls_silent():
    with Topology(2, [Link(rate="200mbit"), Link(rate="200mbit")]) as net:
        survives(net, lambda: (net.drop_all(0, 0), net.drop_all(1, 0)), *TRANSFERS)


STRANGER = r"""
import errno, random, socket, sys
host, ports, count = sys.argv[1], [int(p) for p in sys.argv[2].split(",")], int(sys.argv[3])
held, refused = [], 0
for i in range(count):
    s = socket.socket()
    s.settimeout(5)
    try:
        s.connect((host, ports[i % len(ports)]))
        if i % 3 == 0:
            s.send(random.randbytes(random.randrange(1, 200)))
        held.append(s)
    except OSError:
        refused += 1
        s.close()
    if len(held) > 800:
        held.pop(0).close()
print("knocked", count, "refused by the kernel", refused)
"""


@quick
def strangers_do_not_disturb_the_job():
    with Topology(3, [Link()]) as net:
        job = subprocess.Popen(
            bench_command(net, "mbw_mr", "--size", "1K", "--settle", "2s", "--iterations", "400",
                          "--verify"),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=environment(TCP_PORT_RANGE="7400-7410"))
        try:
            for _ in range(100):
                listening = net.run(0, ["ss", "-ltnH"]).stdout
                if "10.50.0.1:74" in listening:
                    break
                time.sleep(0.05)
            ports = re.findall(r"10\.50\.0\.1:(74\d\d)", listening)
            expect(ports, "nobody listens")
            knock = net.run(2, [sys.executable, "-c", STRANGER, net.address(0), ",".join(ports),
                                "10000"], timeout=50)
            expect(knock.returncode == 0, knock.stdout)
            out, _ = job.communicate(timeout=50)
            expect(job.returncode == 0, out)
        finally:
            job.kill()
            job.communicate()


# --- longer ---


def iperf3(net, links, seconds=4):
    """Sum over the links, megabytes per second."""
    servers = [net.popen(1, ["iperf3", "-s", "-1", "-B", net.address(1, i)],
                         stdout=subprocess.DEVNULL) for i in links]
    try:
        time.sleep(0.5)
        clients = [net.popen(0, ["iperf3", "-J", "-t", str(seconds), "-O", "1", "-c",
                                 net.address(1, i), "-B", net.address(0, i)],
                             stdout=subprocess.PIPE, text=True) for i in links]
        results = [json.loads(client.communicate()[0]) for client in clients]
        return sum(r["end"]["sum_received"]["bits_per_second"] for r in results) / 8e6
    finally:
        for server in servers:
            server.kill()
            server.wait()


@long
def bandwidth_is_that_of_iperf3():
    for rate in ["100mbit", "1gbit"]:
        with Topology(2, [Link(rate=rate)]) as net:
            peer = iperf3(net, [0])
            # A long window: what it costs to begin and to end one is not the link's.
            ours = bench(net, "mbw_mr", "--size", "1M", "--iterations", "2", "--warmup", "1",
                         "--window", "64")[1 << 20]
            print(f"    {rate}: {ours:.2f} MB/s, iperf3 {peer:.2f}, ratio {ours / peer:.3f}")
            expect(ours >= 0.97 * peer, f"{ours} of {peer} MB/s at {rate}")


@long
def two_shaped_links_carry_their_sum():
    with Topology(2, [Link(rate="100mbit"), Link(rate="100mbit")]) as net:
        peer = iperf3(net, [0, 1])
        ours = bench(net, "mbw_mr", "--size", "4M", "--iterations", "2", "--warmup", "1",
                     "--window", "16", MAX_RNDV_RAILS="2")[4 << 20]
        print(f"    {ours:.2f} MB/s, iperf3 over both {peer:.2f}, ratio {ours / peer:.3f}")
        expect(ours >= 0.97 * peer, f"{ours} of {peer} MB/s over two links")


@long
def bandwidth_under_loss():
    with Topology(2, [Link(loss=0.002, delay=0)]) as net:
        one = bench(net, "mbw_mr", "--size", "1M", "--iterations", "4", TCP_CONNECTIONS="1")
        many = bench(net, "mbw_mr", "--size", "1M", "--iterations", "4", TCP_CONNECTIONS="8")
        print(f"    1 connection {one[1 << 20]:.1f} MB/s, 8 connections {many[1 << 20]:.1f} MB/s")


@long
def heavy_loss_and_delay_lose_nothing():
    with Topology(2, [Link(loss=0.05)]) as net:
        bench(net, "mbw_mr", "--size", "16K", "--iterations", "4", "--verify", timeout=300)
    with Topology(2, [Link(delay=0.02)]) as net:
        bench(net, "mbw_mr", "--size", "256K", "--iterations", "1", "--window", "8", "--verify",
              timeout=300)


def flap(net, seconds):
    """Links fail one after the other, in either way, and come back."""
    end = time.monotonic() + seconds
    turn = 0
    while time.monotonic() < end:
        link = turn % len(net.links)
        if turn % 4 < 2:
            net.link_down(turn % 2, link)
            time.sleep(0.3)
            net.link_up(turn % 2, link)
        else:
            for node in [0, 1]:
                net.drop_all(node, link)
            time.sleep(1.2)
            for node in [0, 1]:
                net.pass_all(node, link)
        time.sleep(0.7)
        turn += 1


@long
def short_losses_that_meet_what_is_sent_again_are_no_death():
    # Where a kernel sends again after 0.2, 0.6, 1.4, 3, 6.2 and 12.6 s, it never meets a whole link.
    def lose():
        for lost, whole in [(3.7, 2.0), (1.5, 4.8), (2.2, 3.0)]:
            for node in [0, 1]:
                net.drop_all(node, 0)
            time.sleep(lost)
            for node in [0, 1]:
                net.pass_all(node, 0)
            time.sleep(whole)

    with Topology(2, [Link()]) as net:
        survives(net, lose, *MESSAGES, seconds=20)


@long
def messages_survive_links_that_come_and_go():
    with Topology(2, [Link(), Link()]) as net:
        survives(net, lambda: flap(net, 12), *MESSAGES, seconds=12)
        survives(net, lambda: flap(net, 12), "--measure", "bandwidth", "--size", "1K:64K",
                 seconds=2)


@long
def transfers_survive_links_that_come_and_go():
    with Topology(2, [Link(rate="300mbit"), Link(rate="300mbit")]) as net:
        for operation in ["put", "get", "tag"]:
            survives(net, lambda: flap(net, 10), *TRANSFERS, operation=operation, seconds=10)


@long
def many_ranks():
    with Topology(8, [Link(), Link(loss=0.001)]) as net:
        bench(net, "alltoall", "--size", "4K", "--iterations", "50", "--verify", ranks=8,
              timeout=300)


def main():
    global SWIFTLANE
    arguments = [a for a in sys.argv[1:] if not a.startswith("--")]
    SWIFTLANE = os.path.abspath(arguments[0])
    tests = QUICK + (LONG if "--all" in sys.argv else [])
    tests = [t for t in tests if not arguments[1:] or t.__name__ in arguments[1:]]
    missing = [tool for tool in ["ip", "tc", "nft", "ss"] if shutil.which(tool) is None]
    if os.geteuid() != 0 or missing:
        print(f"skipped: network namespaces need root and the tools ip, tc, ss, nft {missing}")
        return 77
    failed = 0
    for test in tests:
        began = time.monotonic()
        try:
            test()
            word = "ok"
        except NotPermitted as reason:
            print(f"skipped: {reason}")
            return 77
        except Exception as error:  # one that fails must not keep the others from running
            failed += 1
            word = f"FAILED: {error}"
        print(f"{test.__name__} ({time.monotonic() - began:.1f} s): {word}", flush=True)
    return 1 if failed else 0


sys.exit(main())
