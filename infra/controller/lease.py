"""The lease by which one pod of the controller acts at a time, as Kubernetes' own controllers have it."""

import time
from http import HTTPStatus

from infra.controller.api import Api, RefusedError, timestamp

SECONDS = 30
"""Seconds after its last renewal for which a lease holds; a pod that cannot renew it stops acting sooner."""
_API = "coordination.k8s.io/v1"


class Lease:
    """One lease; `holder` is this pod's name."""

    def __init__(self, api: Api, namespace: str, name: str, holder: str) -> None:
        self._api, self._holder, self._name, self._namespace = api, holder, name, namespace
        self._collection = f"/apis/{_API}/namespaces/{namespace}/leases"
        self._seen, self._since = "", 0.0

    def held(self) -> bool:
        """Take or renew the lease; whether this pod has it now.

        Another's lease has ended once it has not changed for its time by this pod's own clock.
        """
        found = self._api.find(f"{self._collection}/{self._name}")
        about = {"name": self._name, "namespace": self._namespace}
        now = timestamp("microseconds")
        spec = {"holderIdentity": self._holder, "leaseDurationSeconds": SECONDS, "renewTime": now}
        body = {"apiVersion": _API, "kind": "Lease", "metadata": about, "spec": spec}
        try:
            if found is None:
                self._api.create(self._collection, body)
                return True
            version, holder = found["metadata"]["resourceVersion"], found["spec"].get("holderIdentity")
            if holder not in {self._holder, "", None} and not self._has_ended(version):
                return False
            about["resourceVersion"] = version
            self._api.replace(f"{self._collection}/{self._name}", body)
        except RefusedError as error:
            if error.status != HTTPStatus.CONFLICT:  # another pod was faster
                raise
            return False
        return True

    def release(self) -> None:
        """Let the next pod act at once, if this one has the lease."""
        path = f"{self._collection}/{self._name}"
        found = self._api.find(path)
        if found is not None and found["spec"].get("holderIdentity") == self._holder:
            self._api.replace(path, {**found, "spec": {**found["spec"], "holderIdentity": ""}})

    def _has_ended(self, version: str) -> bool:
        if version != self._seen:
            self._seen, self._since = version, time.monotonic()
        return time.monotonic() - self._since > SECONDS
