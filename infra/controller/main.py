"""Runs the controller's tasks in a pod, as long as this pod has the lease, until SIGTERM."""

import json
import os
import signal
import sys
import time
from contextlib import suppress

from infra.controller.api import Api, RefusedError
from infra.controller.lease import Lease
from infra.controller.unstartable import Unstartable

NAME = "trainyard-controller"
"""Name of its namespace, Deployment, lease, ConfigMap and account."""
SETTINGS = "CONTROLLER_SETTINGS"
"""Variable with JSON: `namespaces`, those of the teams, and `unstartable_seconds`."""
PERIOD_SECONDS = 5.0


def main() -> None:
    """Act until SIGTERM. What fails is one line on the standard output, and done again at the next look."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    settings, own = json.loads(os.environ[SETTINGS]), Api.of_pod()
    lease = Lease(own, NAME, NAME, os.environ["HOSTNAME"])
    account = own.as_account(NAME, "unstartable")
    task = Unstartable(account, settings["namespaces"], settings["unstartable_seconds"])
    try:
        while True:
            try:
                if lease.held():
                    task.look()
            except (OSError, RefusedError) as error:
                print(f"{type(error).__name__}: {error}", flush=True)
            time.sleep(PERIOD_SECONDS)
    finally:
        with suppress(OSError, RefusedError):
            lease.release()
