#!/bin/sh
# Prepends a job's own PYTHONPATH to the image's, then runs a command: python_path.sh COMMAND [ARGUMENT …]
#
# A pod has one value per variable. Without the image's value the training package, or even PyTorch, is not found.
# Packages beyond the image (TRAINYARD_PACKAGES) are in the job's own value already; they bring programs as well.
if [ "${TRAINYARD_PACKAGES:-}" ]; then
    [ -d "$TRAINYARD_PACKAGES" ] || {
        text="trainyard: packages $TRAINYARD_PACKAGES: not in the team's store; \`trainyard run\` puts them there"
        echo "$text" >&2
        echo "$text" 2>/dev/null >"${TERMINATION_LOG:-/dev/termination-log}"
        exit 2
    }
    PATH=$TRAINYARD_PACKAGES/bin:$PATH
fi
PYTHONPATH=$TRAINYARD_PYTHONPATH${PYTHONPATH:+:$PYTHONPATH}
export PYTHONPATH
exec "$@"
