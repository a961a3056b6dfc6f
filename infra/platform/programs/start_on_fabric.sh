#!/bin/sh
# Starts a command; in a job of one node, NCCL selects the network by itself.
#
# The pod of such a job may have no fabric device, and NCCL would then fail on the network that NCCL_NET names. Jobs of
# several nodes are checked by check_fabric.sh.
[ "${PET_NNODES:-}" != 1 ] || unset NCCL_NET
exec "$@"
