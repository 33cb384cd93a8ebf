# SPDX-License-Identifier: BSD-3-Clause
"""Carries packets between tunnel devices of two network namespaces, each after a delay.

    relay.py DEVICE SECONDS NAMESPACE NAMESPACE

Prints "ready" when both devices are there.
"""
import ctypes
import fcntl
import os
import select
import struct
import sys
import time
from collections import deque

TUNSETIFF, IFF_TUN, IFF_NO_PI, CLONE_NEWNET = 0x400454CA, 1, 0x1000, 0x40000000
libc = ctypes.CDLL(None, use_errno=True)


def open_tunnel(device, namespace):
    with open(f"/run/netns/{namespace}") as handle:
        if libc.setns(handle.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    tunnel = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tunnel, TUNSETIFF, struct.pack("16sH", device.encode(), IFF_TUN | IFF_NO_PI))
    return tunnel


def main():
    device, delay = sys.argv[1], float(sys.argv[2])
    ends = [open_tunnel(device, namespace) for namespace in sys.argv[3:5]]
    print("ready", flush=True)
    # Packets of one delay leave in the order in which they came.
    under_way = deque()
    while True:
        wait = max(0, under_way[0][0] - time.monotonic()) if under_way else None
        readable, _, _ = select.select(ends, [], [], wait)
        now = time.monotonic()
        for end in readable:
            try:
                for _ in range(64):
                    under_way.append((now + delay, ends[1 - ends.index(end)], os.read(end, 65536)))
            except BlockingIOError:
                pass
        while under_way and under_way[0][0] <= time.monotonic():
            _, end, packet = under_way.popleft()
            try:
                os.write(end, packet)
            except OSError:
                pass  # the other device is down, or full: packets get lost


main()
