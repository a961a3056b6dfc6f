#!/usr/bin/env bash
# A fake engine: `up` records its signals, and ends with the last of INTERRUPTS; `stack select` answers SELECTED.
calls=$(dirname "$0")/calls
echo "$1 $2" >> "$calls"
case "$1 $2" in
  "stack select") [ -z "$SELECTED" ] || { echo "$SELECTED" >&2; exit 1; } ;;
  up*)
    received=0
    interrupted() { echo "$1" >> "$calls"; received=$((received + 1)); [ "$received" -lt "$INTERRUPTS" ] || exit 1; }
    trap 'interrupted SIGINT' INT
    trap 'interrupted SIGTERM' TERM
    echo ready >> "$calls"
    while [ -n "$INTERRUPTS" ]; do read -r -t 1 <> <(:); done
    ;;
esac
exit 0
