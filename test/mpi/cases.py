# SPDX-License-Identifier: BSD-3-Clause
"""What test/mpi/run runs: transports, runtimes, programs and what each must show."""
import os
from dataclasses import dataclass, field


@dataclass
class Transport:
    tls: str             # UCX_TLS
    proof: str           # begins the names of what endpoints must lie on
    soft: bool = False   # needs the emulated adapter
    dedicated: bool = True   # has dedicated lanes to promote to
    env: dict = field(default_factory=dict)


TRANSPORTS = {
    "soft": Transport("dc,rc,self", "dc_mlx5", soft=True),
    "sm": Transport("sm,self", "sm"),
    "tcp": Transport("tcp,self", "tcp", dedicated=False),
    "ud": Transport("ud,rc,self", "ud_verbs", soft=True),
}
# Of those, where most programs run.
MAIN_TRANSPORTS = ("soft", "sm", "tcp")


@dataclass
class Runtime:
    compiler: str
    launcher: list
    env: dict = field(default_factory=dict)
    flags: list = field(default_factory=list)
    ends_survivors: bool = False   # its launcher kills all ranks when one dies


RUNTIMES = {
    # Ranks outnumber cores: a rank that waits gives way.
    "openmpi": Runtime("mpicc.openmpi", ["mpirun.openmpi", "--oversubscribe"],
                       {"OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_osc": "ucx"}),
    # Its declaration of MPI_STATUSES_IGNORE makes gcc warn wherever that is used.
    "mpich": Runtime("mpicc.mpich", ["mpirun.mpich"], {}, ["-Wno-stringop-overflow"], ends_survivors=True),
    "oshrun": Runtime("oshcc", ["oshrun", "--oversubscribe"],
                      {"OMPI_MCA_mpi_yield_when_idle": "1"}, ["-Wno-deprecated-declarations"]),
}


# Faults of a runtime's own, seen over UCX as well: what is said of a run that met one is not counted.
OWN_FAULTS = {
    # Ubuntu 24.04's Open MPI 4.1.6: ranks of OpenSHMEM now and then read past a key that they exchange.
    "oshrun": r"mca_memheap_modex_recv_all",
}
MOST_TRIES = 12


@dataclass
class Program:
    name: str
    args: str = ""
    ranks: tuple = (4,)
    runtimes: tuple = ("openmpi", "mpich")
    transports: tuple = MAIN_TRANSPORTS
    env: dict = field(default_factory=dict)
    random: int = 1000000        # {random} in args is below that, {rank} is any
    promotions: int = 0          # at least so many dedicated lanes must have come up
    demotions: int = 0           # so many must have gone
    holders: int = 0             # and so many workers must have had one
    victims: int = 0             # so many ranks kill themselves; the others must say that they survived
    launchers: dict = field(default_factory=dict)   # options of each runtime's launcher
    leaves: str = "$^"           # names that may be left in /dev/shm
    quick: bool = True
    skip: dict = field(default_factory=dict)   # runtime, or "runtime transport": reason
    # Other people's programs: what to run, files to copy beside it, what its output must and must not have.
    command: tuple = ()
    needs: str = ""              # a file; the program is skipped without it
    package: str = ""            # where that comes from
    copies: tuple = ()           # (file, name in the working folder)
    output: str = "output"       # file with the verdict
    good: str = ""
    bad: str = "$^"
    answers: str = ""            # expression of what must be the same as over the system's UCX


HOT = {"UCX_MAX_PRIORITY_EPS": "1", "UCX_MAX_HOST_LANES": "1", "UCX_DYNAMIC_TL_SWITCH_INTERVAL": "20ms",
       "UCX_DYNAMIC_TL_MIN_RESIDENCE": "20ms"}
BUSY = {"UCX_DYNAMIC_TL_SWITCH_INTERVAL": "2ms", "UCX_DYNAMIC_TL_MIN_RESIDENCE": "0",
        "UCX_DYNAMIC_TL_MIN_SCORE": "1", "UCX_MAX_PRIORITY_EPS": "1", "UCX_MAX_HOST_LANES": "1"}
STRANGERS = {"UCX_TCP_PORT_RANGE": "21000-21999", "UCX_TCP_HELLO_TIMEOUT": "500ms"}
NO_SPAWN = {"mpich": "MPI_Comm_spawn fails in Debian's MPICH over its own UCX as well"}

# The launcher lets the others go on when a rank dies. MPICH's does not, whatever it is told.
GO_ON = {"openmpi": ("--enable-recovery",)}
# Where no rank gets to its exit handlers, the emulated adapter's file waits for the next user.
ADAPTER = "softhca-"

PROGRAMS = [
    Program("ring", ranks=(2, 4)),
    Program("matching", ranks=(2, 3)),
    Program("matching", ranks=(4,), env=BUSY, quick=False),
    Program("datatypes"),
    Program("datatypes", ranks=(2,), env=BUSY, quick=False),
    Program("collectives", ranks=(3, 4)),
    Program("collectives", ranks=(8,), env=BUSY, quick=False),
    Program("onesided", ranks=(2, 3)),
    Program("onesided", ranks=(4,), env=BUSY, quick=False),
    # It replaces keys, which come to UCX from Open MPI alone.
    Program("dynamic", ranks=(3,), runtimes=("openmpi",)),
    Program("dynamic", ranks=(4,), runtimes=("openmpi",), env=BUSY, quick=False),
    Program("threads", ranks=(2, 3)),
    Program("renewed"),
    Program("communicators"),
    Program("spawn", ranks=(2,), skip=NO_SPAWN),
    Program("strangers", "1000", transports=("tcp",), env=STRANGERS),
    Program("strangers", "10000", transports=("tcp",), env=STRANGERS, quick=False),
    # Both ends count: two pairs come up one after the other, and the first must go for the second.
    Program("hot_pair", "0.5", env=HOT, promotions=4, demotions=2, holders=3),
    Program("hot_pair", "3", ranks=(8,), env=HOT, promotions=4, demotions=2, holders=3, quick=False),
    # The lane of the pair that slept is left and given to another: each of its ends counts one that came up.
    *(Program("sleeper", seconds, ranks=(3,), runtimes=("openmpi",), transports=("soft", "ud", "sm"), env=HOT,
              promotions=4, demotions=2, holders=3, quick=quick) for seconds, quick in (("2", True), ("10", False), ("60", False))),
    # Two hot pairs alone and among many that trickle, and exchanges in which all are equal.
    Program("mbw_mr", "0.05", env=HOT),
    Program("mbw_mr", "0.15 200", env=HOT, promotions=4, holders=4),
    Program("mbw_mr", "0.5 0 4194304", env=HOT, promotions=4, holders=4, quick=False),
    Program("mbw_mr", "0.5 1000", ranks=(8, 16), env=HOT, promotions=8, holders=8, quick=False),
    Program("mbw_mr", "0.5 100", ranks=(7,), env=BUSY, quick=False),
    Program("alltoall", "0.05"),
    Program("alltoall", "0.5", ranks=(8, 13), quick=False),
    Program("alltoall", "0.5", ranks=(6,), env=BUSY, quick=False),
    Program("startup", ranks=(4,)),
    Program("startup", ranks=(16,), quick=False),
    Program("victim", "run {random} {rank}", ranks=(3,), runtimes=("openmpi",), victims=1, launchers=GO_ON,
            random=300000),
    *(Program("victim", "run {random} " + dead, ranks=(4,), victims=1, launchers=GO_ON, leaves=leaves, quick=False,
              runtimes=runtimes)
      for dead in "02" for runtimes, leaves in ((("openmpi",), "$^"), (("mpich",), ADAPTER))),
    Program("victim", "run {random} 3", ranks=(5,), runtimes=("openmpi",), victims=1, launchers=GO_ON, env=BUSY,
            quick=False),
    *(Program("victim", "init {random} " + dead, ranks=(3,), victims=1, launchers=GO_ON, leaves=ADAPTER, quick=False)
      for dead in "01"),
    *(Program("victim", "finalize {random} " + dead, ranks=(3,), victims=1, launchers=GO_ON, random=20000,
              leaves=ADAPTER, quick=False) for dead in "01"),
    Program("shmem", ranks=(2, 4), runtimes=("oshrun",)),
    Program("shmem_hot", "0.5", ranks=(8,), runtimes=("oshrun",), transports=("soft", "tcp"), env=HOT, promotions=4,
            demotions=2, holders=3),
    # Within the host its puts need no lane.
    Program("shmem_hot", "0.5", ranks=(8,), runtimes=("oshrun",), transports=("sm",), env=HOT),
    Program("shmem", ranks=(4,), runtimes=("oshrun",), env=BUSY, quick=False),
]


PROGRAMS_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs")
HPCC_INPUT = "/usr/share/doc/hpcc/examples/_hpccinf.txt"
# What a launcher says may stand in the midst of a line of NetPIPE's.
NETPIPE = {"good": "262145 bytes[^>]*-->[^>]*Integrity check passed", "bad": "Integrity check failed",
           "answers": r"(\d+) bytes[^>]*-->[^>]*?Integrity check (\w+)", "ranks": (2,)}
APPS = [
    Program("lammps", ranks=(4,), runtimes=("openmpi",), needs="/usr/bin/lmp", package="lammps",
            command=("/usr/bin/lmp", "-in", os.path.join(PROGRAMS_FOLDER, "melt.lmp"), "-log", "none"),
            good="Total wall time", bad="ERROR", answers=r"(?m)^ +\d+(?: -?[\d.e+-]+){4} *$"),
    Program("hpcc", ranks=(4,), runtimes=("openmpi",), command=("/usr/bin/hpcc",), needs=HPCC_INPUT, package="hpcc",
            copies=((HPCC_INPUT, "hpccinf.txt"),), output="hpccoutf.txt", good="Success=1",
            bad=r"FAILED|Found [1-9]\d* errors",
            answers=r"\|\|Ax-b\|\|\S*= +\S+ \.+ \w+|(?:PTRANS_residual|MPIFFT_maxErr|MPIRandomAccess_Errors)=\S+"),
    Program("netpipe", runtimes=("openmpi",), command=("/usr/bin/NPopenmpi", "-i", "-u", "300000"),
            needs="/usr/bin/NPopenmpi", package="netpipe-openmpi", **NETPIPE),
    Program("netpipe", runtimes=("mpich",), command=("/usr/bin/NPmpich2", "-i", "-u", "300000"),
            needs="/usr/bin/NPmpich2", package="netpipe-mpich2", **NETPIPE),
    Program("mpi4py", ranks=(4,), runtimes=("openmpi",),
            command=("/usr/bin/python3", os.path.join(PROGRAMS_FOLDER, "heat.py")),
            needs="/usr/lib/python3/dist-packages/mpi4py", package="python3-mpi4py", good="heat 400 ",
            answers=r"heat \d+ .*"),
]
