"""`trainyard team secret`: stores, lists and removes values for a team's jobs, in versioned Secrets.

Members may only create Secrets, since every other verb returns their content. So each value is a new Secret,
such as `hf-token-v3` for HF_TOKEN, and no Secret is changed. The newest version is found by dry runs of
creating a version: the API server refuses one that exists. This needs versions without gaps, so `rm` removes
all versions of a name.
"""

import base64
import getpass
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from infra.clients.kubernetes import ApiError
from infra.errors import ExitCode, InputError, Problem, TrainyardError
from trainyard.forms import Form
from trainyard.jobs.cluster import MemberCluster
from trainyard.stack.session import Session

LABEL = "trainyard.dev/secret"
"""Label of a Secret with the name that jobs refer to it by."""
NAME = re.compile(r"[A-Z][A-Z0-9_]{0,99}")
MOST_BYTES = 1 << 20
"""Kubernetes' limit for a Secret's data."""
MOST_VERSIONS = 1 << 20


@dataclass(frozen=True)
class Version:
    """A Secret that holds one value of a name."""

    name: str
    """Name that jobs use, such as `HF_TOKEN`; also the key in the Secret."""
    number: int

    @property
    def object_name(self) -> str:
        """The Secret's own name."""
        return f"{self.name.lower().replace('_', '-').rstrip('-')}-v{self.number}"


class Secrets:
    """The secrets of one team, as far as the user may go."""

    def __init__(self, cluster: MemberCluster, namespace: str) -> None:
        self._api, self.namespace = cluster.api, namespace

    def newest(self, name: str) -> Version | None:
        """Return the newest version of a name; None if there is none. It needs only the right to create.

        Raises:
            ApiError: the user may not create Secrets here.
        """
        above = 1
        while self._exists(Version(name, above)):
            above *= 2
        low, high = above // 2, above  # the newest is at least `low`, and below `high`
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._exists(Version(name, middle)) else (low, middle)
        return Version(name, low) if low else None

    def add(self, name: str, value: bytes) -> Version:
        """Make the next version with this value; a concurrent one gets another number."""
        before = self.newest(name)
        for number in range(before.number + 1 if before else 1, MOST_VERSIONS):
            version = Version(name, number)
            if self._create(version, value):
                return version
        raise TrainyardError([Problem(name, f"{MOST_VERSIONS} versions", "fewer", "remove it first")])

    def versions(self) -> list[tuple[Version, str]]:
        """Return all versions of all names, and when each was made.

        Raises:
            TrainyardError: the user may not list Secrets.
        """
        try:
            secrets = self._api.items(self._path(), {"labelSelector": LABEL})
        except ApiError as error:
            raise _refused(error, "list", self.namespace) from error
        found = [each["metadata"] for each in secrets]
        return sorted(
            (
                (Version(about["labels"][LABEL], _number(about["name"])), str(about["creationTimestamp"]))
                for about in found
            ),
            key=lambda each: (each[0].name, each[0].number),
        )

    def remove(self, name: str) -> int:
        """Remove all versions of a name, the newest first; return how many there were.

        Raises:
            TrainyardError: the user may not delete Secrets.
        """
        newest = self.newest(name)
        numbers = range(newest.number, 0, -1) if newest else ()
        for number in numbers:
            try:
                self._api.delete(self._path(Version(name, number).object_name))
            except ApiError as error:
                raise _refused(error, "delete", self.namespace) from error
        return len(numbers)

    def _path(self, name: str = "") -> str:
        return f"/api/v1/namespaces/{self.namespace}/secrets" + (f"/{name}" if name else "")

    def _exists(self, version: Version) -> bool:
        return not self._create(version, b"", dryRun="All")

    def _create(self, version: Version, value: bytes, **query: str) -> bool:
        """Return whether it was made, or would be; False where there is one of that name."""
        try:
            self._api.create(self._path(), _secret(version, value), query)
        except ApiError as error:
            if error.status == HTTPStatus.CONFLICT:
                return False
            raise
        return True


def _secret(version: Version, value: bytes) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": version.object_name, "labels": {LABEL: version.name}},
        "type": "Opaque",
        "immutable": True,
        "data": {version.name: base64.b64encode(value).decode()},
    }


def _number(object_name: str) -> int:
    found = re.search(r"-v(\d+)$", object_name)
    return int(found[1]) if found else 0


def set_secret(session: Session, name: str) -> None:
    """Ask for the value, or read it from the standard input, and store it as the newest version.

    Raises:
        InputError: the name or the value is invalid; nothing was created.
    """
    checked(name)
    cluster = MemberCluster(session)
    secrets = Secrets(cluster, cluster.namespace)
    version = secrets.add(name, _value(name))
    session.console.print(
        f"{name} is key {name} of Secret {version.object_name} in {secrets.namespace};"
        " jobs name both (secretKeyRef)",
        highlight=False,
        soft_wrap=True,
    )


def _value(name: str) -> bytes:
    """Read the value without echo; one newline at its end is not part of it."""
    if sys.stdin.isatty():
        value = getpass.getpass(f"value of {name} (hidden): ").encode()
    else:
        value = sys.stdin.buffer.read(MOST_BYTES + 1).removesuffix(b"\n").removesuffix(b"\r")
    if not value or len(value) > MOST_BYTES:
        got = "nothing" if not value else f"more than {MOST_BYTES} bytes"
        fix = f"type it, or give it on the standard input: trainyard team secret set {name} < FILE"
        raise InputError([Problem(f"value of {name}", got, "1 byte to 1 MiB", fix)])
    return value


def checked(name: str) -> str:
    """Return the name of a secret.

    Raises:
        InputError: the name is invalid; a value that was given with it is not repeated.
    """
    if NAME.fullmatch(name):
        return name
    shown = name.partition("=")[0]
    fix = "name it as the variable that your program reads; the value is asked for, never an argument"
    allowed = "capital letters, digits and _, as HF_TOKEN (at most 100)"
    raise InputError([Problem("NAME", shown + ("=…" if "=" in name else ""), allowed, fix)])


def list_secrets(session: Session, form: Form) -> None:
    """Print names, versions and ages; never a value. It needs the right to list Secrets, which shows them."""
    cluster = MemberCluster(session)
    found = Secrets(cluster, cluster.namespace).versions()
    if form is Form.JSON:
        plain = [
            {"name": each.name, "version": each.number, "secret": each.object_name, "created": created}
            for each, created in found
        ]
        session.console.file.write(json.dumps(plain, indent=2) + "\n")
        return
    for each, created in found:
        session.console.print(
            f"{each.name}  version {each.number}  {each.object_name}  {created}", highlight=False
        )
    if not found:
        session.console.print("no secrets; `trainyard team secret set NAME` stores one")


def remove_secret(session: Session, name: str) -> None:
    """Remove all versions of a name; jobs that have started keep what they read.

    Raises:
        InputError: there is no such secret.
    """
    checked(name)
    cluster = MemberCluster(session)
    secrets = Secrets(cluster, cluster.namespace)
    if not (number := secrets.remove(name)):
        fix = "see which there are: trainyard team secret ls"
        raise InputError([Problem(name, f"no such secret in {secrets.namespace}", "an existing secret", fix)])
    session.console.print(
        f"removed {name} with its {number} versions from {secrets.namespace}", highlight=False
    )


def secrets_of(given: Sequence[str]) -> list[tuple[str, dict[str, str]]]:
    """Return the name of each secret, and how the job takes it: its `key`, and `variable` or `file`.

    Raises:
        InputError: a name is none.
    """
    found = []
    for each in given:
        name, _, way = each.partition("=")
        taken = {"file": way[1:]} if way.startswith("@") else {"variable": way or name}
        found.append((checked(name), {"key": name, **taken}))
    return found


def _refused(error: ApiError, verb: str, namespace: str) -> TrainyardError:
    if error.status != HTTPStatus.FORBIDDEN:
        raise error
    problem = Problem(
        path=f"secrets of {namespace}",
        got=f"you may not {verb} them, since that shows the values: members may only create new ones",
        allowed="the right of an administrator",
        fix="ask the cluster's administrator; `trainyard team secret set NAME` replaces an old value",
    )
    return TrainyardError([problem], ExitCode.FAILED)
