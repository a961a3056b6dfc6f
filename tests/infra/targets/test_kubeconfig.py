"""References to the user's kubeconfig: a stack stores the cluster's address, and never credentials."""

import base64
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.clients.kubernetes import ClusterAccess
from infra.common.artifacts import ROOT
from infra.errors import InputError
from infra.targets.kubeconfig import (
    EXEC_API,
    credential,
    kubeconfig_with_credentials,
    kubeconfig_without_credentials,
)
from tests.tables import table

AUTHORITY = base64.b64encode(b"authority").decode()
TOKEN, KEY, CERTIFICATE = "s3cret-token", "s3cret-key", "s3cret-certificate"
USERS: Mapping[str, Mapping[str, Any]] = {
    "token": {"token": TOKEN},
    "file": {"tokenFile": "token", "token": "an old one"},
    "certificate": {
        "client-certificate": "dev.crt",
        "client-key-data": base64.b64encode(KEY.encode()).decode(),
    },
    "plugin": {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1beta1",
            "command": "./sign-in",
            "args": [TOKEN],
            "env": [{"name": "WHO", "value": "mei"}],
            "provideClusterInfo": True,
        }
    },
    "other": {"token": TOKEN, "as": "ops", "as-groups": ["admins"]},
    "nobody": {},
}
"""Name of a context → its user."""
PLUGIN = """#!/usr/bin/env python3
import json, os, sys
asked = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
token = "-".join([sys.argv[1], os.environ["WHO"], asked["spec"]["cluster"]["server"]])
status = {"token": token, "expirationTimestamp": "2030-01-01T00:00:00Z"}
print(json.dumps({"apiVersion": asked["apiVersion"], "kind": "ExecCredential", "status": status}))
"""


def entry(name: str, **cluster: Any) -> dict[str, Any]:
    """Return a kubeconfig with one context, its cluster and its user."""
    reached = {"server": "https://10.0.0.1:6443", "certificate-authority-data": AUTHORITY, **cluster}
    return {
        "contexts": [{"name": name, "context": {"cluster": f"c-{name}", "user": f"u-{name}"}}],
        "clusters": [{"name": f"c-{name}", "cluster": reached}],
        "users": [{"name": f"u-{name}", "user": dict(USERS.get(name, {"token": TOKEN}))}],
    }


def merged(*entries: Mapping[str, Any]) -> dict[str, Any]:
    return {part: [each for one in entries for each in one[part]] for part in entries[0]}


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Variables of a home with all these users, the files that they name, and a second kubeconfig."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "token").write_text(f"{TOKEN}\n")
    (folder / "dev.crt").write_text(CERTIFICATE)
    (folder / "sign-in").write_text(PLUGIN.replace("/usr/bin/env python3", sys.executable))
    (folder / "sign-in").chmod(0o700)
    (folder / "config").write_text(yaml.safe_dump(merged(*map(entry, USERS))))
    (folder / "ca.crt").write_bytes(b"another")
    apart = entry(
        "apart",
        **{"certificate-authority-data": None, "certificate-authority": "ca.crt", "tls-server-name": "api"},
    )
    first = entry("token", server="https://10.0.0.2:6443")
    (folder / "more").write_text(yaml.safe_dump(merged(apart, first)))
    return {"KUBECONFIG": f"{folder}/config:{folder}/none:{folder}/more"}


@pytest.mark.parametrize("name", USERS)
def test_a_reference_has_the_cluster_and_no_credential(name: str, environ: Mapping[str, str]) -> None:
    text = kubeconfig_without_credentials(name, environ)
    held = text + "".join(_decoded(text))
    assert not [secret for secret in (TOKEN, KEY, CERTIFICATE, "an old one") if secret in held]
    config = yaml.safe_load(text)
    assert config["current-context"] == name
    (cluster,) = config["clusters"]
    assert cluster["cluster"] == {"server": "https://10.0.0.1:6443", "certificate-authority-data": AUTHORITY}
    (user,) = config["users"]
    asked = user["user"].get("exec", {})
    assert [asked.get("command"), *asked.get("args", [])] == (
        [None] if name == "nobody" else ["trainyard", "credential", name]
    )
    assert user["user"].get("as") == ("ops" if name == "other" else None)


def _decoded(text: str) -> list[str]:
    """Return the decoded base64 values in a text."""
    found = [word for word in text.split() if len(word) > 7]
    decoded = []
    for word in found:
        try:
            decoded.append(base64.b64decode(word, validate=True).decode())
        except ValueError:
            continue
    return decoded


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("token", {"token": TOKEN}),
        ("file", {"token": TOKEN}),
        ("certificate", {"clientKeyData": KEY, "clientCertificateData": CERTIFICATE}),
        (
            "plugin",
            {"token": f"{TOKEN}-mei-https://10.0.0.1:6443", "expirationTimestamp": "2030-01-01T00:00:00Z"},
        ),
    ],
)
def test_the_credential_is_the_users_own(
    name: str, status: Mapping[str, str], environ: Mapping[str, str]
) -> None:
    answer = credential(name, environ)
    assert answer == {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": status,
    }


def test_a_plugin_gets_the_clusters_authority_and_its_own_settings_and_no_files(tmp_path: Path) -> None:
    """As client-go gives them: certificates as data, an extension as `config`, nothing else."""
    (tmp_path / "ca.crt").write_bytes(b"authority")
    (tmp_path / "show").write_text(
        f"#!{sys.executable}\n"
        "import json, os\n"
        'print(json.dumps({"status": {"token": os.environ["KUBERNETES_EXEC_INFO"]}}))\n'
    )
    (tmp_path / "show").chmod(0o700)
    shown = {"apiVersion": EXEC_API, "command": "./show", "provideClusterInfo": True}
    extensions = [
        {"name": "other.example/settings", "extension": {"audience": "another"}},
        {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "gpus"}},
    ]
    files = {"certificate-authority-data": None, "certificate-authority": "ca.crt", "extensions": extensions}
    environ = of(tmp_path, {"exec": shown}, **files, **{"tls-server-name": "api"})
    received = json.loads(credential("dev", environ)["status"]["token"])
    assert received["spec"]["cluster"] == {
        "server": "https://10.0.0.1:6443",
        "tls-server-name": "api",
        "certificate-authority-data": AUTHORITY,
        "config": {"audience": "gpus"},
    }
    (cluster,) = yaml.safe_load(kubeconfig_with_credentials("dev", environ=environ))["clusters"]
    assert cluster["cluster"]["certificate-authority-data"] == AUTHORITY


def test_the_first_file_that_has_a_name_wins_and_files_lie_beside_it(environ: Mapping[str, str]) -> None:
    (cluster,) = yaml.safe_load(kubeconfig_without_credentials("apart", environ))["clusters"]
    another = base64.b64encode(b"another").decode()
    assert cluster["cluster"] == {
        "server": "https://10.0.0.1:6443",
        "certificate-authority-data": another,
        "tls-server-name": "api",
    }
    (cluster,) = yaml.safe_load(kubeconfig_without_credentials("token", environ))["clusters"]
    assert cluster["cluster"]["server"] == "https://10.0.0.1:6443"


def test_a_client_signs_in_by_a_command(environ: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The clients are the provider's, kubectl, and ours."""
    monkeypatch.setenv("KUBECONFIG", environ["KUBECONFIG"])
    monkeypatch.setenv("PATH", f"{ROOT / '.venv' / 'bin'}:/usr/bin:/bin")
    context = yaml.safe_load(kubeconfig_without_credentials("token", environ))
    del context["clusters"][0]["cluster"]["certificate-authority-data"]  # is none
    _, headers = ClusterAccess(context).now()
    assert headers == [("Authorization", f"Bearer {TOKEN}")]


def of(tmp_path: Path, user: Mapping[str, Any], **cluster: Any) -> Mapping[str, str]:
    config = entry("dev", **cluster)
    config["users"][0]["user"] = dict(user)
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    return {"KUBECONFIG": str(tmp_path / "config")}


@pytest.mark.parametrize(
    ("user", "cluster", "message"),
    [
        ({"username": "me", "password": KEY}, {}, "username, password"),
        ({"auth-provider": {"name": "oidc"}}, {}, "auth-provider"),
        ({"token": TOKEN}, {"proxy-url": f"http://me:{KEY}@proxy:3128"}, "proxy-url with credentials"),
        (
            {"token": TOKEN},
            {"certificate-authority-data": None, "certificate-authority": "gone.crt"},
            "gone.crt",
        ),
    ],
)
def test_kubeconfigs_that_cannot_be_referenced_are_refused_in_the_preview(
    user: Mapping[str, Any], cluster: Mapping[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message) as error:
        kubeconfig_without_credentials("dev", of(tmp_path, user, **cluster))
    assert KEY not in str(error.value)


@pytest.mark.parametrize("command", ["no-such-program", "false", "echo"])
def test_a_plugin_that_fails_is_reported_without_its_arguments(command: str, tmp_path: Path) -> None:
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": command, "args": [KEY]}
    environ = {**of(tmp_path, {"exec": plugin}), "PATH": "/usr/bin:/bin"}
    with pytest.raises(
        InputError, match=rf"no credentials from `{command}`|{command}: not installed"
    ) as error:
        credential("dev", environ)
    assert KEY not in str(error.value)


@pytest.mark.parametrize(("text", "wrong"), table(__file__, "no_kubeconfigs"))
def test_what_is_no_kubeconfig_is_refused_without_secrets(text: str, wrong: str, tmp_path: Path) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(InputError, match=wrong) as error:
        credential("dev", {"KUBECONFIG": str(tmp_path / "config")})
    assert TOKEN not in str(error.value)


@pytest.mark.parametrize("plugin", [{"command": None}, {"command": "echo", "env": [{"name": "A"}]}])
def test_a_plugin_of_a_wrong_form_is_reported(plugin: Mapping[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a plugin that signs the user in"):
        credential("dev", of(tmp_path, {"exec": plugin}))


def test_an_unknown_context_is_refused_with_those_that_exist(environ: Mapping[str, str]) -> None:
    with pytest.raises(InputError, match="apart, certificate, file, nobody, other, plugin, token"):
        kubeconfig_without_credentials("prod", environ)
