#!/bin/sh
# Prepends a job's own PYTHONPATH to the image's, then runs a command: python_path.sh COMMAND [ARGUMENT …]
#
# A pod has one value per variable. Without the image's value the training package, or even PyTorch, is not found.
PYTHONPATH=$TRAINYARD_PYTHONPATH${PYTHONPATH:+:$PYTHONPATH}
export PYTHONPATH
exec "$@"
