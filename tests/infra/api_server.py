"""A real API server without a cluster: etcd and kube-apiserver, without controllers and nodes."""

import base64
import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from infra.common.artifacts import ROOT
from tests.processes import TIMEOUT_SECONDS, free_port, wait_for

ADMIN, JOB_CONTROLLER = "admin", "job-controller"
_ACCOUNTS = "system:serviceaccounts"
_TOKENS = f"""\
{ADMIN},{ADMIN},1,"system:masters"
{JOB_CONTROLLER},system:serviceaccount:kube-system:job-controller,2,"system:masters,{_ACCOUNTS},{_ACCOUNTS}:kube-system"
"""
"""Users as `token,user,uid,"groups"`. All have every right, so that only admission refuses requests."""
Manifest = Mapping[str, Any]


class BareServer:
    """Clients of the server, one for each token."""

    def __init__(self, port: int, store: int) -> None:
        self.address = f"https://127.0.0.1:{port}"
        self._store = f"http://127.0.0.1:{store}"
        self._http = {
            token: httpx.Client(
                base_url=self.address,
                verify=False,
                headers={"authorization": f"Bearer {token}"},
                timeout=TIMEOUT_SECONDS,
                trust_env=False,
            )
            for token in (ADMIN, JOB_CONTROLLER)
        }

    def serves(self) -> bool:
        with suppress(httpx.TransportError):
            return self._http[ADMIN].get("/readyz").is_success
        return False

    def stored(self, path: str) -> dict[str, Any]:
        """Return an object as etcd has it: `example.com/widgets/default/one`."""
        key = base64.b64encode(f"/registry/{path}".encode()).decode()
        answer = httpx.post(f"{self._store}/v3/kv/range", json={"key": key}, trust_env=False).json()
        found: dict[str, Any] = json.loads(base64.b64decode(answer["kvs"][0]["value"]))
        return found

    def apply(self, manifest: Manifest, by: str = ADMIN) -> None:
        """Create or change an object by server-side apply; again where a busy server gave up (34 s)."""
        for _ in range(5):
            answer = self._http[by].patch(
                path_of(manifest),
                params={"fieldManager": "test", "force": "true"},
                content=json.dumps(manifest),
                headers={"content-type": "application/apply-patch+yaml"},
            )
            if answer.status_code != httpx.codes.GATEWAY_TIMEOUT:
                break
        assert answer.is_success, answer.text

    def refusal(self, manifest: Manifest, by: str = ADMIN) -> str:
        """Return why an object would not be created; empty if it would."""
        return self._answer(manifest, by).get("message", "")

    def refusal_of_change(self, manifest: Manifest, patch: Manifest, by: str = ADMIN) -> str:
        """Return why an existing object would not be changed by this merge patch; empty where it would."""
        answer = self._http[by].patch(
            path_of(manifest),
            params={"dryRun": "All"},
            content=json.dumps(patch),
            headers={"content-type": "application/merge-patch+json"},
        )
        return "" if answer.is_success else str(answer.json()["message"])

    def reason(self, manifest: Manifest, by: str = ADMIN) -> str:
        """Return the reason of the refusal, such as Invalid; empty if there is none."""
        return self._answer(manifest, by).get("reason", "")

    def _answer(self, manifest: Manifest, by: str) -> dict[str, str]:
        answer = self._http[by].post(collection(manifest), params={"dryRun": "All"}, json=dict(manifest))
        status: dict[str, str] = {} if answer.is_success else answer.json()
        return status


def path_of(manifest: Manifest) -> str:
    """Return the path of an object."""
    return f"{collection(manifest)}/{manifest['metadata']['name']}"


def collection(manifest: Manifest) -> str:
    """Return the path that objects of this kind are created under."""
    api, kind = manifest["apiVersion"], manifest["kind"].lower()
    root = f"/apis/{api}" if "/" in api else f"/api/{api}"
    plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
    namespace = manifest["metadata"].get("namespace")
    return f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"


@contextmanager
def api_server(folder: Path) -> Iterator[BareServer]:
    """Run an API server until the context ends, with its data in `folder`."""
    store, peer, port = free_port(), free_port(), free_port()
    key, tokens = folder / "accounts.key", folder / "tokens.csv"
    key.write_bytes(_private_key())
    tokens.write_text(_TOKENS)
    etcd = [
        "etcd",
        f"--data-dir={folder / 'etcd'}",
        *(f"--{each}-client-urls=http://127.0.0.1:{store}" for each in ("listen", "advertise")),
        f"--listen-peer-urls=http://127.0.0.1:{peer}",
        f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
        f"--initial-cluster=default=http://127.0.0.1:{peer}",
        "--unsafe-no-fsync",
        "--log-level=error",
    ]
    server = [
        str(ROOT / ".trainyard" / "bin" / "kube-apiserver"),
        f"--etcd-servers=http://127.0.0.1:{store}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={folder / 'certificates'}",
        f"--token-auth-file={tokens}",
        "--authorization-mode=RBAC",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        "--feature-gates=WatchList=false",
        "--disable-admission-plugins=ServiceAccount",
    ]
    log = folder / "api-server.log"
    with log.open("w") as output, _running(etcd, output), _running(server, output):
        made = BareServer(port, store)
        wait_for(made.serves, log.read_text)
        yield made


@contextmanager
def _running(command: list[str], output: Any) -> Iterator[None]:
    with subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) as process:
        try:
            yield
        finally:
            process.kill()


def _private_key() -> bytes:
    made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form, secret = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return made.private_bytes(serialization.Encoding.PEM, form, secret)
