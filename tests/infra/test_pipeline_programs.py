"""The exec plugins of kubeconfigs in pipelines, by lock or checksum, for short-lived credentials."""

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import flask
import pytest
from werkzeug.serving import make_server

from infra.common.artifacts import ROOT
from infra.common.target_registry import TARGETS, target_of
from local.toolchain import load_versions
from tests.infra.plan import stack_file
from trainyard.stack.change import engine_parts, wanted_artifacts
from trainyard.stack.session import Session

pytestmark = pytest.mark.engine

PROGRAMS = ROOT / "templates" / "pipelines" / "bin"


def ask(*command: str, **variables: str) -> dict[str, Any]:
    """Run a kubeconfig's exec plugin; return the credential."""
    environment = {"PATH": f"{PROGRAMS}:{os.environ['PATH']}", "TRAINYARD": str(ROOT), **variables}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    credential: dict[str, Any] = json.loads(ended.stdout)
    assert credential["kind"] == "ExecCredential"
    status: dict[str, Any] = credential["status"]
    assert status["expirationTimestamp"].endswith("Z")
    return status


def test_awss_command_line_signs_in_to_eks() -> None:
    keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "none", "AWS_SESSION_TOKEN": "of the role"}
    region = ["--region", "us-east-2"]
    arguments = ["eks", "get-token", "--cluster-name", "training", *region, "--output", "json"]
    prefix, _, encoded = ask("aws", *arguments, **keys)["token"].rpartition(".")
    assert prefix == "k8s-aws-v1"
    signed = urlsplit(base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode())
    assert signed.hostname == "sts.us-east-2.amazonaws.com"
    assert parse_qs(signed.query)["Action"] == ["GetCallerIdentity"]


@pytest.fixture
def token_service() -> Iterator[str]:
    """A fake of Google Cloud's token service, which accepts only the pipeline's token."""
    app = flask.Flask("sts")

    @app.post("/v1/token")
    def exchange() -> Any:
        if flask.request.form["subject_token"] != "of the pipeline":
            return {"error": "invalid_grant"}, 400
        issued = "urn:ietf:params:oauth:token-type:access_token"
        kind = {"token_type": "Bearer", "issued_token_type": issued}
        return {"access_token": "of google", "expires_in": 3600, **kind}

    from threading import Thread

    server = make_server("127.0.0.1", 0, app)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.port}/v1/token"
    server.shutdown()
    thread.join()


def test_google_auth_signs_in_to_gke_by_workload_federation(token_service: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("of the pipeline")
    config = {
        "type": "external_account",
        "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/p",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": token_service,
        "credential_source": {"file": str(tmp_path / "token")},
    }
    (tmp_path / "google.json").write_text(json.dumps(config))
    variables = {"GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "google.json"), "GOOGLE_CLOUD_PROJECT": "p"}
    assert ask("gke-gcloud-auth-plugin", **variables)["token"] == "of google"


@pytest.mark.parametrize("kind", [kind for kind in TARGETS if kind != "local"])
def test_prepare_installs_the_exec_plugins_that_the_toolchain_has(kind: str) -> None:
    session = Session(stack_file(kind).stem.removeprefix("Pulumi."))
    programs = target_of(kind).programs
    assert {f"binary/{name}" for name in programs} <= set(wanted_artifacts(session))
    assert set(programs) <= set(load_versions().builds)
    assert programs == (("kubelogin",) if kind == "azure" else ())


@pytest.mark.parametrize("kind", TARGETS)
def test_pytorch_is_prepared_only_if_pods_mount_it_from_the_host(kind: str) -> None:
    session = Session(stack_file(kind).stem.removeprefix("Pulumi."))
    for prepared in (wanted_artifacts(session), engine_parts(session)):
        assert ("env/training" in prepared) == (kind == "local")
