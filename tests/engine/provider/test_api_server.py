"""Clients of an API server for several resources at once, which must not share temporary certificates."""

from __future__ import annotations

import base64
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import pytest
import yaml
from kubernetes.config import kube_config

from engine.provider.api_server import connect


def kubeconfig() -> str:
    """Return a kubeconfig with embedded certificates, as the embedded cluster's has."""
    data = {key: base64.b64encode(key.encode()).decode() for key in ("certificate", "key", "authority")}
    user = {"client-certificate-data": data["certificate"], "client-key-data": data["key"]}
    cluster = {"server": "https://127.0.0.1:1", "certificate-authority-data": data["authority"]}
    return yaml.safe_dump(
        {
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "here"}}],
            "clusters": [{"name": "here", "cluster": cluster}],
            "users": [{"name": "here", "user": user}],
        }
    )


def test_a_client_gets_no_certificate_file_that_another_thread_still_writes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def open_slowly(name: str, mode: str) -> IO[Any]:
        time.sleep(0.05)
        return Path(name).open(mode)

    def certificate(_: int) -> str:
        return Path(connect(kubeconfig()).configuration.cert_file).read_text()

    monkeypatch.setattr(kube_config, "open", open_slowly, raising=False)
    monkeypatch.setattr(kube_config, "_temp_files", {})
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with ThreadPoolExecutor() as pool:
        assert set(pool.map(certificate, range(4))) == {"certificate"}
