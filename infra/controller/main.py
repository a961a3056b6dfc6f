"""Runs the controller's tasks in a pod, as long as this pod has the lease, until SIGTERM."""

import json
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from infra.controller.api import Api, RefusedError
from infra.controller.lease import Lease
from infra.controller.unstartable import Unstartable

NAME = "trainyard-controller"
"""Name of its namespace, Deployment, lease, ConfigMap and account."""
UNSTARTABLE = "unstartable"
"""Task, and the name of its account."""
SETTINGS = "settings.json"
"""File beside this one: `namespaces` of the teams, and `unstartable_seconds`. The pod sees its changes."""
PERIOD_SECONDS = 5.0


def main() -> None:
    """Act until SIGTERM. What fails is one line on the standard output, and done again at the next look."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    own = Api.of_pod()
    lease = Lease(own, NAME, NAME, os.environ["HOSTNAME"])
    task = Unstartable(own.as_account(NAME, UNSTARTABLE))
    try:
        while True:
            try:
                if lease.held():
                    settings = json.loads(Path(__file__).with_name(SETTINGS).read_text())
                    task.look(settings["namespaces"], settings["unstartable_seconds"])
            except (OSError, RefusedError) as error:
                print(f"{type(error).__name__}: {error}", flush=True)
            time.sleep(PERIOD_SECONDS)
    finally:
        with suppress(OSError, RefusedError):
            lease.release()
