#!/bin/sh
# Puts a job's own PYTHONPATH before the image's, then runs a command: python_path.sh COMMAND [ARGUMENT …]
#
# A pod has one value of a variable, and without the image's there is no training package, or not even PyTorch.
PYTHONPATH=$TRAINYARD_PYTHONPATH${PYTHONPATH:+:$PYTHONPATH}
export PYTHONPATH
exec "$@"
