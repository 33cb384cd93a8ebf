# SPDX-License-Identifier: BSD-3-Clause
"""Heat on a ring of cells, shared out to the ranks: halo exchanges, reductions, gathers, pickled objects.

The printed figures are the answer: they depend on every message's content and on nothing else.
"""
from array import array

from mpi4py import MPI

CELLS = 5000   # of each rank
STEPS = 400

world = MPI.COMM_WORLD
rank, size = world.rank, world.size
left, right = (rank - 1) % size, (rank + 1) % size
cells = array("d", (((rank * CELLS + i) * 7919) % 1000 / 10 for i in range(CELLS + 2)))
edge = array("d", [0.0])
for step in range(STEPS):
    world.Sendrecv(cells[1:2], left, 1, edge, right, 1)
    cells[-1] = edge[0]
    world.Sendrecv(cells[-2:-1], right, 2, edge, left, 2)
    cells[0] = edge[0]
    inner = [c + 0.25 * (a - 2 * c + b) for a, c, b in zip(cells, cells[1:], cells[2:])]
    cells[1:-1] = array("d", inner)
    if step % 100 == 99:
        # Summed in the ranks' order by all of them: the runtime's own reductions may take another.
        parts = world.allgather({"rank": rank, "sum": sum(inner), "most": max(inner)})
        whole = array("d", bytes(8 * CELLS * size))
        world.Allgather(cells[1:-1], whole)
        total = world.allreduce(rank + step, op=MPI.SUM)
        assert [part["rank"] for part in parts] == list(range(size)) and total == size * (size - 1) // 2 + size * step
        if rank == 0:
            print("heat", step + 1, repr(sum(part["sum"] for part in parts)), repr(max(part["most"] for part in parts)),
                  repr(sum((i % 97) * value for i, value in enumerate(whole))), flush=True)
