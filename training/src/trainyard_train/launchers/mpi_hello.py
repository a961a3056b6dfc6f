"""Test program for MPI jobs: each rank prints its host, and all sum up their ranks.

`mpirun python -m trainyard_train.launchers.mpi_hello`
"""

from __future__ import annotations

import socket
import sys

from trainyard_train.config_base import extra


def main() -> int:
    """Print this rank's host; returns 0 if the sum over all ranks is right."""
    with extra("mpi"):
        from mpi4py import MPI

    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    total = world.allreduce(rank + 1)
    sys.stdout.write(f"rank {rank} of {size} on {socket.gethostname()}: sum of 1 to {size} is {total}\n")
    return 0 if total == size * (size + 1) // 2 else 1


if __name__ == "__main__":
    sys.exit(main())
