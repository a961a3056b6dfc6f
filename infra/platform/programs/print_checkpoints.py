#!/usr/bin/env python3
# Prints the checkpoint events of the newest run under a folder, for `trainyard measure`.
import json
import pathlib
import sys

runs = pathlib.Path(sys.argv[1]).glob("*/metrics.jsonl")
newest = max(runs, key=lambda file: file.stat().st_mtime, default=None)
for line in newest.read_text().splitlines() if newest else ():
    try:
        if json.loads(line)["event"] == "checkpoint":
            print(line)
    except (ValueError, KeyError):
        continue  # a line that a killed rank has half written
