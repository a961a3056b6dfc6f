#!/bin/sh
# Starts a Python program on each accelerator: start_ranks.sh RESTARTS PYTHON (FILE | -m MODULE) [ARGUMENT …]
#
# The training package's agent starts the ranks if the image has it, and restarts them in place; else torchrun starts
# them. Both read the Trainer's PET_* variables.
restarts=$1 python=$2
shift 2
command -v "$python" >/dev/null || python=python3
known='import importlib.util as u, sys; sys.exit(not u.find_spec("trainyard_train.script"))'
if "$python" -c "$known" 2>/dev/null; then
    exec "$python" -m trainyard_train run --restarts="$restarts" "$@"
fi
if [ "$1" = -m ]; then
    shift
    set -- --module "$@"
fi
exec "$python" -m torch.distributed.run --max-restarts="$restarts" "$@"
