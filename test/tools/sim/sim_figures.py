#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""sim_figures.py [SWIFTLANE] [NAME...]: the modelled figures that the project promises, on 64 ranks.

Runs `swiftlane sim` for each case below (or those named), prints its figures and fails if one is
outside its bound. Rates of shorter runs than these hang on when they end.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile

CAP = 4
# Of these the first and the last two take longest to settle, up to 6 ms.
ZIPF_SEEDS = (1, 2, 3, 6, 10, 13, 14)
# "trickle" has a lukewarm endpoint to every other rank beside the hot one, "mbw_mr" 16 silent ones.
PAIRS = ["mbw_mr", "--pairs", "32", "--size", "8:512"]
TRICKLE = PAIRS + ["--unused", "62"]


def rates(document, mode):
    return [row["messages_per_s"] for row in document["modes"][mode]["rows"]]


def least_ratio(document, other):
    """Of dynamic to another mode, over all sizes."""
    pairs = zip(rates(document, "dynamic"), rates(document, other), strict=True)
    return min(ours / theirs for ours, theirs in pairs)


def hot_alone(document):
    """Links of the map that are promoted and should not be, or should be and are not."""
    ranks = document["options"]["ranks"]
    return sum((entry["state"] == "established") !=
               (abs(entry["rank"] - entry["peer"]) == ranks // 2)
               for entry in document["lanes"]["map"])


def observed(document):
    return document["modes"]["dynamic"]["observed"]


def slowest_recovery(document):
    intervals = [each["intervals"] for each in observed(document)["recoveries"]]
    return max(10**6 if each is None else each for each in intervals)


OF_DEDICATED = ("of dedicated only", lambda d: least_ratio(d, "dedicated"))
OF_SCALABLE = ("of scalable only", lambda d: least_ratio(d, "scalable"))
WRONG_LANES = ("pairs on the wrong lane", hot_alone, "==", 0)

# name: arguments, figures. A figure: what, how it is read, and its bound if there is one.
CASES = {
    "mbw_mr": (PAIRS + ["--unused", "16", "--trickle", "0"],
               [(*OF_DEDICATED, ">=", 0.97), OF_SCALABLE, WRONG_LANES]),
    "trickle": (TRICKLE, [(*OF_DEDICATED, ">=", 0.97), (*OF_SCALABLE, ">=", 1.3), WRONG_LANES]),
    "trickle, DC's costs halved": (TRICKLE + ["--dc-cost-scale", "0.5"],
                                   [OF_DEDICATED, OF_SCALABLE, WRONG_LANES]),
    "trickle, DC's costs doubled": (TRICKLE + ["--dc-cost-scale", "2"],
                                    [OF_DEDICATED, OF_SCALABLE, WRONG_LANES]),
    "alltoall": (["alltoall", "--size", "64:64", "--lanes", "scalable,dynamic"],
                 [(*OF_SCALABLE, ">=", 0.98)]),
    **{f"zipf, seed {seed}": (["zipf", "--lanes", "dynamic", "--time", "16ms", "--seed", str(seed)], [
        ("weight of a greedy matching's", lambda d: observed(d)["matching"]["ratio"], ">=", 0.95),
        ("links outside the margin", lambda d: observed(d)["matching"]["outside_margin"], "==", 0),
    ]) for seed in ZIPF_SEEDS},
    "shift": (["shift", "--lanes", "dynamic"],
              [("intervals until the rate is back", slowest_recovery, "<=", 10)]),
}
# What every run must show.
ALWAYS = [
    ("switches in the second half", lambda d: observed(d)["late_switches"], "==", 0),
    ("dedicated lanes of a rank", lambda d: observed(d)["peak"], "<=", CAP),
]
HOLDS = {
    "==": lambda value, bound: value == bound,
    "<=": lambda value, bound: value <= bound,
    ">=": lambda value, bound: value >= bound,
}


def simulate(swiftlane, arguments):
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "sim.json")
        command = [swiftlane, "sim", *arguments, "--ranks", "64", "--cap", str(CAP), "--json", file]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        with open(file, encoding="utf-8") as text:
            return json.load(text)


def processor_time():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main():
    swiftlane = sys.argv[1] if len(sys.argv) > 1 else "src/tools/swiftlane"
    misses = 0
    for name in sys.argv[2:] or CASES:
        arguments, figures = CASES[name]
        before = processor_time()
        document = simulate(swiftlane, arguments)
        print(f"{name} (modelled; {processor_time() - before:.0f} s of a processor)")
        for what, read, *bound in figures + ALWAYS:
            value = read(document)
            text = f"{value:.3f}" if isinstance(value, float) else str(value)
            verdict = ""
            if bound:
                comparison, limit = bound
                is_met = HOLDS[comparison](value, limit)
                verdict = f" {comparison} {limit}" + ("" if is_met else "  MISSED")
                misses += not is_met
            print(f"    {text:>8} {what}{verdict}", flush=True)
    print("all figures are within their bounds" if misses == 0 else f"{misses} figures MISSED")
    return 1 if misses else 0


if __name__ == "__main__":
    sys.exit(main())
