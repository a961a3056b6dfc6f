"""The search for leaked secrets: it finds them in any readable form, and reports nothing else."""

import base64
import json
from pathlib import Path

import pytest
import yaml

from infra.common.artifacts import ROOT
from rehearsal.leaks import SECRET, Leak, kinds_in, known_in, leaks_in, lines_of

BYTES = base64.b64encode(bytes(range(150, 214))).decode()
PLANTED = {
    "a fake provider's secret": f"{SECRET}-token",
    "a secret that the engine has not encrypted": '"plaintext": "\\"a\\""',
    "a private key": "-----BEGIN " + "RSA PRIVATE KEY-----",
    "an access key of AWS": "AKIA" + "Q" * 16,
    "an access token of Google": "ya29." + "a" * 30,
    "an API key of Google": "AIza" + "b" * 35,
    "a client secret of Azure": "abc8Q~" + "c" * 34,
    "a signature of Azure": "https://x.blob.core.windows.net/c?sv=1&sig=" + "d" * 43 + "%3D",
    "a signed token": "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJyZXNlYXJjaCJ9.c2lnbmF0dXJl",
    "a key of an Azure storage account": BYTES,
    "a password, key or token under its name": "password: correct-horse",
}


@pytest.mark.parametrize("kind", PLANTED)
def test_a_secret_is_found_in_a_log_in_a_state_and_in_base64(kind: str) -> None:
    text = f"said {PLANTED[kind]} and went on"
    manifest = json.dumps({"manifest": json.dumps({"text": text})})
    kubeconfig = base64.b64encode(text.encode()).decode()
    for line in (text, manifest, f"kubeconfig = {kubeconfig}", f'"data": "{kubeconfig}"'):
        assert kinds_in(line) == {kind}, line


KEYS = "password secretAccessKey AWS_SECRET_ACCESS_KEY client-key-data token authToken refresh_token HF_TOKEN"


@pytest.mark.parametrize("key", KEYS.split())
def test_a_secret_is_recognized_by_its_key(key: str) -> None:
    value = "kX9+fJ2/qL0vB7nM"
    config = yaml.safe_dump({"users": [{"user": {key: value}}]})
    for line in (config.splitlines()[-1], json.dumps({key: value}), json.dumps(json.dumps({key: value}))):
        assert kinds_in(line) == {"a password, key or token under its name"}, line


def test_encrypted_values_and_references_to_secrets_are_not_leaks() -> None:
    for line in (
        f'"ciphertext": "v1:cPvIxatAAuc0cPvI:{BYTES}"',
        f'"integrity": "sha512-{BYTES}"',
        '"password": {"secretKeyRef": {"name": "object-store"}}',
        "automountServiceAccountToken: true",
        '"creationToken": "research-efs-8ff3d2"',
        "pad_token: endoftext",
        "-----BEGIN CERTIFICATE-----",
    ):
        assert kinds_in(line) == set(), line


def test_a_known_secret_is_named_and_a_leak_has_the_first_location_of_its_line(tmp_path: Path) -> None:
    secret = "four words of passphrase"
    encoded = base64.b64encode(f"one more {secret}".encode()).decode()
    first, second = tmp_path / "first.log", tmp_path / "second.log"
    first.write_text(f"begun\n{encoded}\n")
    second.write_text(f"{encoded}\nended\n")
    known = {"the passphrase": secret}
    assert known_in(encoded, known) == {"the passphrase"}
    assert leaks_in(lines_of([first, second]), known) == [Leak(f"{first}:2", "the passphrase")]


def test_the_plans_of_all_stacks_have_only_secrets_that_the_engine_encrypts() -> None:
    """The golden files have them in plain text; the engine's state must not."""
    golden = sorted((ROOT / "tests" / "golden").rglob("*.yaml"))
    found = {Path(leak.file.rpartition(":")[0]).name for leak in leaks_in(lines_of(golden))}
    assert found == {"local.yaml"}, "that of the cluster of this host"
