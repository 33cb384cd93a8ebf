# SPDX-License-Identifier: BSD-3-Clause
"""Network namespaces with links between them, laid out by a declaration and gone when it ends.

    with Topology(nodes=2, links=[Link(rate="100mbit"), Link(loss=0.01)]) as net:
        net.run(0, ["ip", "addr"])

Link i of node n has the address 10.(50+i).0.(n+1)/24 and the name eth<i>; all nodes of a link can
reach each other over it (two nodes by a veth pair, more by a bridge in a namespace of its own).
"""
import os
import subprocess
import sys
import time
from dataclasses import dataclass


def goodput(bits):
    """Megabytes of payload per second on Ethernet of so many bits per second, MTU 1500."""
    return bits / 8e6 * 1448 / 1514


def bits_per_second(rate):
    """Of a rate as tc has it."""
    for unit, factor in [("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9)]:
        if rate.endswith(unit):
            return float(rate.removesuffix(unit)) * factor
    raise ValueError(f"{rate}: expected a number and kbit, mbit or gbit")


class NotPermitted(Exception):
    """Namespaces cannot be made here."""


@dataclass
class Link:
    rate: str = ""      # shaped by tbf at each end: "1gbit"
    bucket: str = ""    # of tbf; by default what passes in 2 ms
    loss: float = 0.0   # share of packets dropped on arrival, by nftables
    delay: float = 0.0  # seconds one way, by a relay between two tunnel devices
    mtu: int = 1500
    ipv6: bool = False

    def __post_init__(self):
        # A bucket that is smaller than the kernel's large segments cuts them into packets before they
        # reach the peer, and both ends' processors are the limit then: 64 KiB are, at 1 Gbit/s.
        if self.rate and not self.bucket:
            self.bucket = f"{max(64, round(bits_per_second(self.rate) * 2e-3 / 8e3))}kb"


def sh(command, check=True, quiet=False):
    return subprocess.run(command, shell=True, check=check, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT if not quiet else subprocess.DEVNULL).stdout


class Topology:
    def __init__(self, nodes, links, congestion="cubic"):
        """congestion: the kernel's default unless said, whatever the host's own connections use."""
        self.count = nodes
        self.links = links
        self.congestion = congestion
        self.base = f"sl{os.getpid()}"
        self.relays = []

    def node(self, n):
        return f"{self.base}n{n}"

    def address(self, n, link=0):
        return f"fd00:{50 + link}::{n + 1}" if self.links[link].ipv6 else f"10.{50 + link}.0.{n + 1}"

    def __enter__(self):
        try:
            sh(f"ip netns add {self.node(0)}")
        except (subprocess.CalledProcessError, FileNotFoundError) as error:
            raise NotPermitted(f"no network namespaces here: {error}") from error
        try:
            for n in range(1, self.count):
                sh(f"ip netns add {self.node(n)}")
            for n in range(self.count):
                sh(f"ip -n {self.node(n)} link set lo up")
            for i, link in enumerate(self.links):
                self._lay(i, link)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for relay in self.relays:
            relay.kill()
            relay.wait()
        for name in [self.node(n) for n in range(self.count)] + [f"{self.base}br"]:
            sh(f"ip netns del {name}", check=False)

    def _lay(self, i, link):
        if link.delay:
            self._lay_delayed(i, link)
        elif self.count == 2:
            sh(f"ip -n {self.node(0)} link add eth{i} type veth peer name eth{i} netns {self.node(1)}")
        else:
            bridge = f"{self.base}br"
            sh(f"ip netns add {bridge}", check=False)
            sh(f"ip -n {bridge} link add br{i} type bridge && ip -n {bridge} link set br{i} up")
            for n in range(self.count):
                sh(f"ip -n {self.node(n)} link add eth{i} type veth peer name e{i}n{n} netns {bridge}")
                sh(f"ip -n {bridge} link set e{i}n{n} mtu {link.mtu} master br{i} up")
        for n in range(self.count):
            name = f"ip -n {self.node(n)}"
            sh(f"{name} link set eth{i} mtu {link.mtu} up")
            if link.ipv6:
                sh(f"{name} addr add {self.address(n, i)}/64 dev eth{i} nodad")
            else:
                sh(f"{name} addr add {self.address(n, i)}/24 dev eth{i}")
            self._choose_congestion_control(n, i)
            if link.rate:
                sh(f"tc -n {self.node(n)} qdisc add dev eth{i} root tbf rate {link.rate} "
                   f"burst {link.bucket} latency 20ms")
            if link.loss:
                self._lose(n, i, link.loss)

    def _choose_congestion_control(self, n, i):
        """Of the route: a namespace's default can only be one that the host lets everybody use."""
        own = self.address(n, i)
        net = f"fd00:{50 + i}::/64 metric 256" if self.links[i].ipv6 else f"10.{50 + i}.0.0/24 src {own} scope link"
        # Where the kernel does not have it, the host's stays.
        sh(f"ip -n {self.node(n)} route replace {net} dev eth{i} proto kernel "
           f"congctl {self.congestion}", check=False)

    def _lose(self, n, i, loss):
        # Drawn per packet; 1 takes all.
        share = "" if loss >= 1 else f"numgen random mod 10000 < {round(loss * 10000)}"
        sh(f"ip netns exec {self.node(n)} nft 'add table inet loss{i}; "
           f"add chain inet loss{i} in {{ type filter hook input priority 0; }}; "
           f"add rule inet loss{i} in iifname eth{i} {share} drop'")

    def _lay_delayed(self, i, link):
        relay = subprocess.Popen(
            [sys.executable, os.path.join(os.path.dirname(__file__), "relay.py"), f"eth{i}",
             str(link.delay), self.node(0), self.node(1)], stdout=subprocess.PIPE, text=True)
        self.relays.append(relay)
        if relay.stdout.readline().strip() != "ready":
            raise NotPermitted("no tunnel devices here")

    # --- what happens while programs run ---

    def link_down(self, n, i):
        sh(f"ip -n {self.node(n)} link set eth{i} down")

    def link_up(self, n, i):
        sh(f"ip -n {self.node(n)} link set eth{i} up")

    def drop_all(self, n, i):
        """The link swallows every packet without a word."""
        self._lose(n, i, 1.0)

    def pass_all(self, n, i):
        """The link of which drop_all() took everything works again."""
        sh(f"ip netns exec {self.node(n)} nft delete table inet loss{i}")

    def sent(self, n):
        """Bytes that a node has sent over each link."""
        files = " ".join(f"/sys/class/net/eth{i}/statistics/tx_bytes" for i in range(len(self.links)))
        return [int(word) for word in sh(f"ip netns exec {self.node(n)} cat {files}").split()]

    def busiest(self):
        """The link over which most was sent: that of the messages, if there is nothing else."""
        sent = self.sent(0)
        return sent.index(max(sent))

    def wait_for_traffic(self, child, limit=30):
        """Until a program that was started has begun to send in earnest, or is over."""
        end = time.monotonic() + limit
        while child.poll() is None and sum(self.sent(0)) < 50e3 and time.monotonic() < end:
            time.sleep(0.05)

    def popen(self, n, command, **options):
        return subprocess.Popen(["ip", "netns", "exec", self.node(n)] + command, **options)

    def run(self, n, command, **options):
        return subprocess.run(["ip", "netns", "exec", self.node(n)] + command, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
