#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What the constants of the lanes' policy (docs/design/lanes.md) are worth: each of them at half and twice its
default, all others as shipped, in the workloads of `swiftlane sim` that are about lanes, with small clusters.

usage: sweep.py [--swiftlane PROGRAM] [--jobs N] [--seeds N] [--workloads NAME,...] [--json FILE] [NAME...]
  NAME         constants, what comes behind UCX_DYNAMIC_TL_; without, all
  --jobs       simulations at a time (default: processors)
  --seeds      runs of each workload, with seeds from 1 on (default 1), whose mean is printed
  --workloads  these alone
  --json       write all figures there

Prints the figures of the defaults, then for each other value those that are better (+) or worse (-), as tables of
docs/design/lanes.md. All is modelled: the same options give the same tables.
"""

import argparse
import concurrent.futures
import json
import os
import statistics
import subprocess
import sys
import tempfile

PREFIX = "UCX_DYNAMIC_TL_"
# default, half of it, twice it. Of DECAY it is what is lost in an interval, one less it, that is halved and doubled.
CONSTANTS = {
    "SWITCH_INTERVAL": ("100ms", "50ms", "200ms"),
    "DUTY": ("0.1", "0.05", "0.2"),
    "WINDOWS": ("4", "2", "8"),
    "DECAY": ("0.8", "0.9", "0.6"),
    "TREND": ("4", "2", "8"),
    "CONFIDENCE": ("2", "1", "4"),
    "MARGIN": ("0.2", "0.1", "0.4"),
    "MIN_RESIDENCE": ("200ms", "100ms", "400ms"),
    "MIN_SCORE": ("6000", "3000", "12000"),
    "TRICKLE_RATIO": ("100", "50", "200"),
    "HOLD": ("120s", "60s", "240s"),
    "PATIENCE": ("20ms", "10ms", "40ms"),
    "WINDOW": ("512", "256", "1024"),
    "MAX_PARKED": ("20", "10", "40"),
    "KEEP": ("60s", "30s", "120s"),
}


def observed(document):
    return document["modes"]["dynamic"]["observed"]


# A figure: how it is read, whether more of it is better, and what it may differ by for other reasons than the constant.
SAVED = "saved"  # part of what lanes could save that went over dedicated lanes
FIGURES = {
    SAVED: (lambda d: observed(d)["dedicated"], True, 0.01),
    "switches": (lambda d: observed(d)["switches"], False, 3),
    "late": (lambda d: observed(d)["late_switches"], False, 1),
    "promoted": (lambda d: observed(d)["promotions"]["promoted"], True, 0.9),
    "reused": (lambda d: d["modes"]["dynamic"]["lanes"]["lanes_reused"], True, 3),
    "longest": (lambda d: observed(d)["longest_completion_ns"] / 1e6, False, 1),
}

# name: arguments, figures beside what was saved and the switches. All with the library's defaults, at rates at which
# seconds of modelled time cost seconds.
SHIPPED = ["--shipped", "--ranks", "16", "--rate", "10000"]
WORKLOADS = {
    "mbw_mr": (["mbw_mr", "--shipped", "--ranks", "4", "--pairs", "2", "--unused", "2", "--cap", "20", "--size",
                "8:8", "--settle", "250ms", "--time", "2ms"], []),
    "alltoall": (["alltoall", "--shipped", "--ranks", "5", "--cap", "1", "--size", "64:64", "--settle", "400ms", "--time",
                  "2ms"], ["late"]),
    "zipf": (["zipf", *SHIPPED, "--time", "3s"], ["late"]),
    "shift": (["shift", *SHIPPED, "--time", "2s"], ["late"]),
    "halo": (["halo", "--ranks", "6", "--time", "1s"], ["promoted"]),
    "mixed": (["halo", "--ranks", "8", "--distance", "2", "--cap", "3", "--rate", "10000", "--time", "2s",
               "--bulk-rate", "1000", "--bulk-size", "262144"], ["late"]),
    "phases": (["phases", "--ranks", "8", "--phases", "20", "--distance", "2", "--cap", "2"], ["late"]),
    "incast": (["incast", "--shipped", "--ranks", "32", "--rate", "2000", "--time", "4s"], ["late"]),
    "ring": (["ring", *SHIPPED, "--time", "1s"], ["promoted"]),
    "churn": (["churn", *SHIPPED, "--time", "6s", "--rounds", "24"], ["reused"]),
    "sleepers": (["sleepers"], ["longest"]),
}
# Full rates take longest, and depend on the seed least.
ONCE = {"mbw_mr", "alltoall"}


def figures_of(workload):
    return [SAVED, "switches", *WORKLOADS[workload][1]]


def simulate(swiftlane, workload, variables, seed):
    """@return its figures"""
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "sim.json")
        command = [swiftlane, "sim", *WORKLOADS[workload][0], "--lanes", "dynamic", "--seed", str(seed), "--json", file]
        for name, value in variables.items():
            command += ["--set", f"{PREFIX}{name}={value}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        with open(file, encoding="utf-8") as text:
            document = json.load(text)
    return {figure: FIGURES[figure][0](document) for figure in figures_of(workload)}


def show(figure, value):
    return f"{value:.3f}" if figure == SAVED else f"{value:.4g}"


def differences(workload, default, other):
    """What is better and what is worse, as text."""
    found = []
    for figure in figures_of(workload):
        _, more_is_better, noise = FIGURES[figure]
        change = other[figure] - default[figure]
        if abs(change) <= noise:
            continue
        sign = "+" if (change > 0) == more_is_better else "-"
        found.append(f"{sign} {figure} {show(figure, other[figure])}")
    return f"{workload}: {', '.join(found)}" if found else ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--swiftlane", default="src/tools/swiftlane")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--json")
    arguments = parser.parse_args()
    workloads = arguments.workloads.split(",")
    settings = [{}] + [{name: value} for name in arguments.names or CONSTANTS for value in CONSTANTS[name][1:]]
    runs = {}
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for setting in settings:
            for workload in workloads:
                key = (*setting.items(), workload)
                seeds = range(1, (1 if workload in ONCE else arguments.seeds) + 1)
                runs[key] = [pool.submit(simulate, arguments.swiftlane, workload, setting, seed) for seed in seeds]
        means = {}

        def mean_of(*key):
            figures = [future.result() for future in runs[key]]
            means[key] = {figure: statistics.mean(each[figure] for each in figures) for figure in figures[0]}
            return means[key]

        print("| workload | with the defaults |\n|---|---|")
        for workload in workloads:
            text = ", ".join(f"{figure} {show(figure, value)}" for figure, value in mean_of(workload).items())
            print(f"| {workload} | {text} |", flush=True)
        print("\n| constant | default | half | | twice | |\n|---|---|---|---|---|---|")
        for name in arguments.names or CONSTANTS:
            cells = [name, CONSTANTS[name][0]]
            for value in CONSTANTS[name][1:]:
                found = [differences(workload, means[workload,], mean_of((name, value), workload))
                         for workload in workloads]
                cells += [value, "; ".join(text for text in found if text) or "="]
            print(f"| {' | '.join(cells)} |", flush=True)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump([{"set": dict(key[:-1]), "workload": key[-1], "figures": means[key]} for key in means], file)


if __name__ == "__main__":
    main()
