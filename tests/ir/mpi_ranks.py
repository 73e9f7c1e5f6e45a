"""What each rank of an MPI program computes, for tests/ir/test_collectives_mpi.py: prints JSON."""

import json
import sys

import numpy as np
from mpi4py import MPI

COMM = MPI.COMM_WORLD
OPS = {"sum": MPI.SUM, "product": MPI.PROD, "max": MPI.MAX, "min": MPI.MIN}


def results(mine: np.ndarray) -> dict[str, object]:
    """What this rank gets, of whole numbers, so that no order of summation shows."""
    ranks = COMM.Get_size()
    found: dict[str, object] = {}
    for name, op in OPS.items():
        total = np.empty_like(mine)
        COMM.Allreduce(mine, total, op)
        found[f"all_reduce {name}"] = total.tolist()
        part = np.empty_like(mine[: len(mine) // ranks])
        COMM.Reduce_scatter_block(mine, part, op)
        found[f"reduce_scatter {name}"] = part.tolist()
    gathered = np.empty((ranks * len(mine), *mine.shape[1:]), mine.dtype)
    COMM.Allgather(mine, gathered)
    found["all_gather"] = gathered.tolist()
    exchanged = np.empty_like(mine)
    COMM.Alltoall(mine, exchanged)
    found["all_to_all"] = exchanged.tolist()
    sent = mine.copy()
    COMM.Bcast(sent, root=ranks - 1)
    found["broadcast"] = sent.tolist()
    return found


def main() -> None:
    rows = np.array(json.loads(sys.argv[1]))
    mine = np.ascontiguousarray(rows[COMM.Get_rank()])
    every = COMM.gather(results(mine), root=0)
    if COMM.Get_rank() == 0:
        print(json.dumps(every))


if __name__ == "__main__":
    main()
