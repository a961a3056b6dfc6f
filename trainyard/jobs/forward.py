"""`trainyard job forward`: listens on a port of this host, and carries each connection to a port of the pod
that runs a rank. Each connection looks the pod up again, since a restarted job has another.
"""

import socket
import threading
from contextlib import suppress

from infra.clients.kubernetes import PortConnection
from infra.errors import InputError, Problem, TrainyardError
from trainyard.jobs.cluster import MemberCluster, key_of
from trainyard.jobs.key import JobKey
from trainyard.jobs.node_pods import NodePod, running_pod
from trainyard.stack.remote import CHUNK, Remote
from trainyard.stack.session import Session

HOST = "127.0.0.1"


def forward_port(session: Session, name: str, ports: str, rank: int) -> None:
    """Listen on 127.0.0.1 of this host, and pass each connection to the pod of a rank, until Ctrl-C.

    Raises:
        InputError: there is no such job, the rank does not run, or the port is taken here.
    """
    here, there = parsed(ports)
    key = key_of(session, name)
    tunnel = Tunnel(MemberCluster(session), Remote(session.api), key, rank, there)
    pod = tunnel.pod()
    with _listening(here) as listener:
        here = listener.getsockname()[1]
        session.console.print(
            f"{HOST}:{here} → port {there} of {pod.name} on {pod.node}; Ctrl-C ends it",
            highlight=False,
            soft_wrap=True,
        )
        session.console.file.flush()
        tunnel.serve(listener, session)


def parsed(ports: str) -> tuple[int, int]:
    """Read `PORT` or `LOCAL:PORT`; a local port of 0 is any that is free.

    Raises:
        InputError: the text has neither form.
    """
    local, _, remote = ports.rpartition(":")
    numbers = (local or remote, remote)
    if not all(each.isdigit() for each in numbers) or not (int(numbers[0]) < 1 << 16 > int(remote) > 0):
        fix = "name the port that the job listens on, such as 6006, or 16006:6006"
        raise InputError([Problem("PORT", ports, "PORT or LOCAL:PORT, of 1 to 65535", fix)])
    return int(numbers[0]), int(remote)


class Tunnel:
    """Carries connections to a port of whichever pod has the rank: after a restart that is another."""

    def __init__(self, cluster: MemberCluster, remote: Remote, key: JobKey, rank: int, port: int) -> None:
        self._cluster, self._remote, self._key, self._rank, self._port = cluster, remote, key, rank, port

    def pod(self) -> NodePod:
        """Return the pod that has the rank now. Raises InputError where none has."""
        return running_pod(self._cluster, self._key, self._rank)

    def serve(self, listener: socket.socket, session: Session) -> None:
        """Take connections until the process is interrupted; one that fails does not end the others."""
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=self._carry, args=(connection, session), daemon=True).start()

    def _carry(self, connection: socket.socket, session: Session) -> None:
        with connection:
            try:
                forwarded = self._remote.socket(self.pod(), self._port)
            except TrainyardError as error:
                session.progress.log(str(error))
                return
            sending = threading.Thread(target=_send, args=(connection, forwarded), daemon=True)
            sending.start()
            with suppress(OSError):
                for data in forwarded.chunks():
                    connection.sendall(data)
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # which ends the other direction, too
            sending.join()
            if forwarded.error:
                session.progress.log(f"port {self._port}: {forwarded.error.strip()}")


def _send(source: socket.socket, forwarded: PortConnection) -> None:
    """Send until the source ends; port-forward has no end of one direction alone, so it ends both."""
    with suppress(OSError):
        while data := source.recv(CHUNK):
            forwarded.send(data)
    forwarded.close()


def _listening(port: int) -> socket.socket:
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        fix = "stop the program that listens there, or write LOCAL:PORT, such as 0:6006 for any free port"
        raise InputError([Problem("PORT", f"{HOST}:{port}: {error.strerror}", "a free port", fix)]) from error
