# SPDX-License-Identifier: BSD-3-Clause
"""What the comparisons share: cores, tables of figures, what is compared of many rounds, and bounds."""
import math
import os
import subprocess

BENCHES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bench")
UCX_ENV = {"OMPI_MCA_pml": "ucx", "OMPI_MCA_opal_common_ucx_tls": "any", "OMPI_MCA_opal_common_ucx_devices": "any",
           "OMPI_MCA_btl": "^openib,ofi,uct,usnic", "OMPI_MCA_mtl": "^ofi,psm,psm2",
           "UCX_WARN_UNUSED_ENV_VARS": "n"}


def root_env():
    """Open MPI refuses to start as root unless told twice."""
    return {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"} if os.geteuid() == 0 else {}


def system_env():
    """The environment of a runtime over the system's UCX."""
    kept = {key: value for key, value in os.environ.items() if key not in ("LD_LIBRARY_PATH", "UCX_TLS")}
    return dict(kept, **root_env(), **UCX_ENV)


def cores():
    """The first CPU of each core."""
    found = set()
    for cpu in os.sched_getaffinity(0):
        try:
            with open(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") as siblings:
                found.add(int(siblings.read().replace("-", ",").split(",")[0]))
        except (OSError, ValueError):
            found.add(cpu)
    return sorted(found)


def compile_bench(name, compiler, folder):
    """Path of the benchmark, compiled if its source is newer."""
    target = os.path.join(folder, name)
    source = os.path.join(BENCHES, name + ".c")
    newest = max(os.path.getmtime(path) for path in (source, *(os.path.join(BENCHES, name) for name in ("bench.h", "rounds.h"))))
    if not os.path.exists(target) or os.path.getmtime(target) < newest:
        os.makedirs(folder, exist_ok=True)
        subprocess.run([compiler, "-O2", "-pthread", source, "-o", target], check=True)
    return target


def rows(text):
    """Lines of a size and a figure."""
    found = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) == 2 and words[0].isdigit():
            found[int(words[0])] = float(words[1])
    return found


def quartile(figures, higher):
    """What is reached in the better quarter of the runs."""
    ordered = sorted(figures, reverse=higher)
    return ordered[len(ordered) // 4]


def mean(ratios):
    """Geometric mean."""
    return math.exp(sum(math.log(ratio) for ratio in ratios) / len(ratios))


def judge_bounds(bounds):
    """Prints each of (what, value, relation, bound); returns them as a report, and whether all hold."""
    report = []
    for what, value, relation, bound in bounds:
        holds = value <= bound if relation == "<=" else value >= bound
        report.append({"what": what, "value": value, "relation": relation, "bound": bound, "holds": holds})
        print(f"  {'ok  ' if holds else 'MISS'} {what}: {value:.3f} ({relation} {bound})", flush=True)
    return report, all(entry["holds"] for entry in report)
