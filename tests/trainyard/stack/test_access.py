"""Access to a cluster that is not on this host, by a context or the stack's output, and its errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml

from infra.errors import HostError, InputError, TrainyardError
from infra.stackfile.target import ContextCluster
from tests.servers import QuietHandler, kubeconfig_of, serving
from trainyard.stack.access import connect, connect_to
from trainyard.stack.access_export import _sign_in
from trainyard.stack.session import Session


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[str]:
    """A fake API server that answers `/version` with the status that a test sets."""

    class VersionHandler(QuietHandler):
        def do_GET(self) -> None:
            self.respond(getattr(request, "param", 200), {"gitVersion": "v1.35.4"})

    with serving(VersionHandler) as listening:
        yield f"http://127.0.0.1:{listening.server_port}"


def kubeconfig(address: str, user: Mapping[str, Any]) -> str:
    return yaml.safe_dump(kubeconfig_of(address, dict(user), context="mine"))


def session(folder: Path, *, context: str = "", cluster: object = None, output: str | None = None) -> Session:
    """Make a fake session for a connection; `output` is the kubeconfig of a stack that is up."""
    engine = SimpleNamespace(
        exists=lambda _: output is not None,
        outputs=lambda _, **_options: {"kubeconfig": output},
        backend_url="s3://state",
    )
    fake = SimpleNamespace(
        context=context,
        is_on_host=False,
        stack_name="mine",
        stack=SimpleNamespace(target=SimpleNamespace(cluster=cluster)),
        paths=SimpleNamespace(engine=folder / "engine", cache=folder / "engine"),
        toolchain=SimpleNamespace(ensure=lambda *_: None),
        engine=engine,
        project_engine=engine,
        guide="docs/aws.md",
    )
    return cast(Session, cast(Any, fake))


TOKEN = {"token": "a-token"}


def test_a_context_of_the_user_has_precedence(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").write_text(kubeconfig(server, TOKEN))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    other = ContextCluster(context="another")
    assert connect(session(tmp_path, context="mine", cluster=other)).address == server
    assert connect(session(tmp_path, cluster=ContextCluster(context="mine"))).address == server
    with pytest.raises(InputError, match=r"--context(.|\n)*mine"):
        connect(session(tmp_path, context="nowhere"))


def test_without_a_context_the_stacks_output_has_the_kubeconfig(server: str, tmp_path: Path) -> None:
    assert connect(session(tmp_path, output=kubeconfig(server, TOKEN))).address == server


def test_a_cluster_of_a_clouds_account_is_asked_before_the_first_up_by_the_plans_kubeconfig(
    server: str, tmp_path: Path
) -> None:
    first = session(tmp_path)
    first.stack.target.existing_cluster = object()  # type: ignore[attr-defined]
    secret = {"kubeconfig": {"value": kubeconfig(server, TOKEN)}}
    claim = {"type": "trainyard:kubernetes:ClusterClaim", "inputs": secret}
    assert connect_to(first, [{"type": "aws:s3/bucket:Bucket"}, claim]).address == server


@pytest.mark.parametrize("output", [None, ""])
def test_a_stack_that_is_not_up_is_reported_with_the_state_that_was_read(
    output: str | None, tmp_path: Path
) -> None:
    with pytest.raises(TrainyardError, match=r"s3://state(.|\n)*--context"):
        connect(session(tmp_path, output=output))


@pytest.mark.parametrize(
    ("command", "message"),
    [(["no-such-program"], "no-such-program: not installed"), (["false"], "no credentials from `false`")],
)
def test_a_program_that_gets_no_credentials_is_named(
    command: list[str], message: str, tmp_path: Path
) -> None:
    executed = {"apiVersion": "client.authentication.k8s.io/v1", "command": command[0], "args": []}
    text = kubeconfig("http://127.0.0.1:9", {"exec": {**executed, "interactiveMode": "Never"}})
    with pytest.raises(HostError, match=message):
        connect(session(tmp_path, output=text))


@pytest.mark.parametrize("server", [401], indirect=True)
def test_expired_credentials_are_reported_with_the_next_step(server: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="sign in again"):
        connect(session(tmp_path, output=kubeconfig(server, TOKEN)))


@pytest.mark.parametrize("server", [403], indirect=True)
def test_a_user_without_the_right_to_read_the_version_is_connected(server: str, tmp_path: Path) -> None:
    assert connect(session(tmp_path, output=kubeconfig(server, TOKEN))).address == server


def test_an_endpoint_that_does_not_answer_is_reported_with_the_guide(tmp_path: Path) -> None:
    text = kubeconfig("http://127.0.0.1:9", TOKEN)  # the discard port: nothing listens
    with pytest.raises(TrainyardError, match=r"no answer(.|\n)*docs/aws\.md"):
        connect(session(tmp_path, output=text))


def test_a_sign_in_command_is_split_as_a_shell_does() -> None:
    session: Any = None
    plugin = _sign_in(session, {}, "research", "kubectl oidc-login --oidc-extra-scope='email groups'")
    assert plugin["args"] == ["oidc-login", "--oidc-extra-scope=email groups"]
    with pytest.raises(InputError, match="No closing quotation"):
        _sign_in(session, {}, "research", "kubectl 'oidc-login")
