#!/bin/sh
# Start what the arguments say; NCCL may choose the network of a job of one node, whose pod may have no device of the
# fabric: it would refuse the one that NCCL_NET names. Whether more nodes have their fabric, check_fabric.sh looks.
[ "${PET_NNODES:-}" != 1 ] || unset NCCL_NET
exec "$@"
