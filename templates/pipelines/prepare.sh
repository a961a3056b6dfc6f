#!/usr/bin/env bash
# Downloads, by hash or checksum, or builds all that an operation needs, before the pipeline gets credentials.
# `prepare.sh` runs in a job that cannot request a token; `prepare.sh check` in those that can, which download nothing.
# STACK is the stack, TRAINYARD the clone, TRAINYARD_STACKS the folder of the stack files.
set -euo pipefail

: "${STACK:?the stack}" "${TRAINYARD:?the clone of Trainyard}" "${TRAINYARD_STACKS:?the folder of the stack files}"
file=$TRAINYARD/.trainyard/prepared
# The commit, the folder (a Python environment cannot be moved), and the stack file, which determines what is needed.
for_what="$(git -C "$TRAINYARD" rev-parse HEAD) $TRAINYARD $(sha256sum < "$TRAINYARD_STACKS/Pulumi.$STACK.yaml")"

if [ "${1:-}" = check ]; then
  found=$(cat "$file" 2>/dev/null || echo nothing)
  [ "$found" = "$for_what" ] && exit 0
  printf '%s\n  got:     %s\n  allowed: %s\n  fix:     %s\n' "output of the job \`prepare\`" "$found" "$for_what" \
    "run the pipeline again from its start; runners of one label must share a cache and have one path" >&2
  exit 3
fi

make -C "$TRAINYARD" venv clis
"$TRAINYARD/.venv/bin/trainyard" local prepare -s "$STACK" --package
printf '%s\n' "$for_what" > "$file"
