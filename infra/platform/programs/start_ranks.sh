#!/bin/sh
# Starts a program of Python's on each accelerator: start_ranks.sh RESTARTS PYTHON (FILE | -m MODULE) [ARGUMENT …]
#
# By the training package's agent where the image has it, which starts ranks again in place; else by torchrun.
# Both read Trainer's PET_* variables.
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
