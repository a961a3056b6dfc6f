"""Uploads code into the team's store, unless the store has it, through the team's upload pod."""

import time
from collections.abc import Callable
from contextlib import closing
from http import HTTPStatus
from typing import IO, TYPE_CHECKING

from infra.clients.kubernetes import ApiServer, Object, PodConnection
from infra.clients.kubernetes.pods import STATUS, STDERR, STDIN, STDOUT, PodContainer
from infra.common import names
from infra.errors import InputError, Problem, TrainyardError
from infra.platform.programs import program
from trainyard.source.pack import Pack
from trainyard.stack.remote import CHUNK, Remote

if TYPE_CHECKING:
    from trainyard.source.packages import ImagePackages

POD_SECONDS = 300.0
"""Seconds until the pod must run: its image may have to be pulled."""
ANSWER_SECONDS = 600.0
"""Seconds until an answer: a volume over the network takes minutes for 30,000 files of packages."""
_STORED, _SEND = "stored", "send"
_LABEL = f"app.kubernetes.io/name={names.UPLOADS}"
Progress = Callable[[int, int], object]
"""Called with the bytes that were sent, and the total."""


class StoreProgram:
    """The program in the team's pod that has the store, from its start on."""

    def __init__(self, connection: PodConnection) -> None:
        self._connection = connection

    def has(self, digest: str) -> bool:
        """Whether a pack is there; it can be asked once.

        Raises:
            TrainyardError: the program has ended.
        """
        self._connection.write(STDIN, f"{digest}\n".encode())
        answer = _answer(self._connection)
        if answer not in {_STORED, _SEND}:
            raise TrainyardError([_broken(answer)])
        return answer == _STORED

    def take(self, pack: Pack, progress: Progress = lambda _sent, _all: None) -> None:
        """Send the pack that it has not.

        Raises:
            TrainyardError: the pack did not arrive whole.
        """
        with pack.compressed() as sent:
            _send(self._connection, sent, progress)
        if (answer := _answer(self._connection)) != _STORED:
            raise TrainyardError([_broken(answer)])

    def close(self) -> None:
        """End it, whatever it does."""
        self._connection.close()


class CodeStore:
    """The packs of code that a team has."""

    def __init__(self, api: ApiServer, namespace: str) -> None:
        self._api, self._namespace = api, namespace

    def has(self, digest: str, *, packages: bool = False) -> bool:
        """Whether a pack is there."""
        with closing(self.started(packages=packages)) as started:
            return started.has(digest)

    def started(self, *, packages: bool = False) -> StoreProgram:
        """Start the program that answers for the store of code, or for that of packages.

        Raises:
            TrainyardError: the team has no pod for that.
        """
        store = [names.PACKAGE_STORE, "unpacked"] if packages else [names.CODE_STORE]
        command = ["python3", "-IS", "-c", program("receive_code.py"), *store]
        return StoreProgram(
            Remote(self._api).start(self._entered(self._pod()), command, stdin=True, tty=False)
        )

    def packages_of(self, image: str) -> "ImagePackages":
        """Return the Python and the packages of the image that a job runs in.

        Raises:
            InputError: the team's pod for uploads, which is asked, has another image.
            TrainyardError: the image has no Python of its own.
        """
        from trainyard.source.packages import ImagePackages  # what parses requirements takes 40 ms

        pod = self._pod()
        has = str(pod["spec"]["containers"][0].get("image"))
        if has != image:
            got, fix = f"{image}: not known", "put them into it, or leave --image out"
            raise InputError([Problem("packages of the image", got, f"those of {has}", fix)])
        done = Remote(self._api).run(self._entered(pod), ["python3", "-c", program("list_packages.py")])
        if done.code != 0:
            fix = "put the packages into an image, and leave --with out"
            raise TrainyardError([Problem("packages of the image", done.errors.strip(), "a list", fix)])
        return ImagePackages.read(done.output)

    def _entered(self, pod: Object) -> PodContainer:
        return PodContainer(pod["metadata"]["name"], self._namespace, names.UPLOADS)

    def _pod(self) -> Object:
        """Return the team's pod for uploads, once it runs."""
        deadline, hidden = time.monotonic() + POD_SECONDS, {HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND}
        path = f"/api/v1/namespaces/{self._namespace}/pods"
        while True:
            pods: list[Object] = self._api.items(path, {"labelSelector": _LABEL}, empty_on=hidden)
            for pod in pods:
                if _is_ready(pod):
                    return pod
            if not pods or time.monotonic() > deadline:
                raise TrainyardError([_no_pod(self._namespace, pods)])
            time.sleep(1.0)


def _is_ready(pod: Object) -> bool:
    ready = [each["status"] for each in pod["status"].get("conditions", ()) if each["type"] == "Ready"]
    return ready == ["True"] and "deletionTimestamp" not in pod["metadata"]


def _answer(connection: PodConnection) -> str:
    """Return the program's next line, or its standard error if it has ended."""
    line, deadline = b"", time.monotonic() + ANSWER_SECONDS
    while b"\n" not in line and time.monotonic() < deadline:
        connection.update(timeout=1)
        line += connection.read(STDOUT)
        if not connection.is_open() and b"\n" not in line:
            return _text(connection.read(STDERR)) or _text(connection.read(STATUS))
    return _text(line).strip()


def _send(connection: PodConnection, sent: IO[bytes], progress: Progress) -> None:
    number = sent.seek(0, 2)
    sent.seek(0)
    connection.write(STDIN, b"%d\n" % number)
    while part := sent.read(CHUNK):
        connection.write(STDIN, part)
        progress(sent.tell(), number)


def _text(value: bytes) -> str:
    return value.decode(errors="replace").strip()


def _broken(answer: str) -> Problem:
    got = f"the upload is incomplete: {answer or 'the connection broke off'}"
    return Problem("code", got, "a complete upload", "run the same command again")


def _no_pod(namespace: str, pods: list[Object]) -> Problem:
    if not pods:
        fix = "ask your platform team to run `trainyard up` or `pulumi up` again"
        got = f"{namespace} has no pod that receives code"
        return Problem("code", got, "a stack that this version has deployed", fix)
    name = pods[0]["metadata"]["name"]
    waiting = [
        f"{each['state']['waiting'].get('reason')}: {each['state']['waiting'].get('message', '')}"
        for each in pods[0]["status"].get("containerStatuses", ())
        if each["state"].get("waiting")
    ]
    got = f"pod {name} is not ready: {', '.join(waiting) or pods[0]['status'].get('phase')}"
    fix = f"look at it: kubectl describe pod -n {namespace} {name}"
    return Problem("code", got, "a pod that receives the team's code", fix)
