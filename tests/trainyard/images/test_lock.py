"""`trainyard stack images --lock`: a fake registry resolves tags to digests, which the stack file gets."""

import hashlib
import io
import os
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest
import yaml
from rich.console import Console

from infra.common.artifacts import LINKS, Artifacts
from infra.errors import InputError, TrainyardError
from infra.stackfile import load
from infra.stackfile.images import ImagesSpec
from infra.stackfile.source import read
from tests.infra.kubeconfigs import write_kubeconfig
from tests.infra.plan import plan, stack_file
from tests.problems import problem_of, problems_of
from tests.servers import QuietHandler, serving
from trainyard.images.lock import by_tag, lock_images, resolve, with_digests, write
from trainyard.images.registry import Registries
from trainyard.stack.session import Session

STACKS = ["aws", "aws-dev", "azure", "coreweave", "gcp", "gcp-tpu", "onprem"]
DIGEST, OTHER = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"


class _TokenRegistry(QuietHandler):
    """A fake registry that has any image, except for some names, and needs a token for the repository.

    Status, headers and body as the distribution specification has them (opencontainers/distribution-spec 1.1,
    "Pulling manifests"; distribution/distribution, token authentication; Docker Hub, usage and limits).
    """

    asked: ClassVar[list[str]] = []
    busy: ClassVar[dict[str, list[str]]] = {}
    """Part of a name → Retry-After of each remaining refusal."""

    def do_GET(self) -> None:
        host, path = self.headers["Host"], self.path
        if path.startswith("/token"):
            scope = re.search(r"scope=repository%3A(.*)%3Apull", path)
            assert scope, path
            self.respond(200, {"token": f"for {scope[1].replace('%2F', '/')}"})
            return
        name = path.removeprefix("/v2/").partition("/manifests/")[0]
        if self.headers.get("Authorization") != f"Bearer for {name}":
            challenge = f'Bearer realm="http://{host}/token",service="here",scope="repository:{name}:pull"'
            self.respond(401, {}, **{"WWW-Authenticate": challenge})
            return
        self.asked.append(path)
        for part, waits in self.busy.items():
            if part in name and waits:
                self.respond(429, {"errors": [{"code": "TOOMANYREQUESTS"}]}, **{"Retry-After": waits.pop(0)})
                return
        if "gone" in name:
            self.respond(404, {"errors": [{"code": "MANIFEST_UNKNOWN"}]})
            return
        manifest = f'{{"manifests": [], "of": "{path}"}}'.encode()
        digest = OTHER if "changed-on-its-way" in name else digest_of(manifest)
        self.respond(200, manifest, **{"Docker-Content-Digest": digest})


def digest_of(manifest: bytes) -> str:
    return f"sha256:{hashlib.sha256(manifest).hexdigest()}"


@pytest.fixture(autouse=True)
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(write_kubeconfig(tmp_path / "kubeconfig")))


@pytest.fixture
def registry() -> Iterator[str]:
    _TokenRegistry.asked, _TokenRegistry.busy = [], {}
    with serving(_TokenRegistry) as server:
        yield f"127.0.0.1:{server.server_port}"


def test_a_tag_is_resolved_to_the_digest_of_what_the_registry_sends(registry: str) -> None:
    found = resolve([f"{registry}/team/image:1"], Registries())
    sent = b'{"manifests": [], "of": "/v2/team/image/manifests/1"}'
    assert found == {f"{registry}/team/image:1": digest_of(sent)}


def test_all_unavailable_images_are_named_together(registry: str) -> None:
    images = [f"{registry}/{name}:1" for name in ("here", "gone", "changed-on-its-way")]
    problems = problems_of(lambda: resolve([*images, "127.0.0.1:1/nobody:1"], Registries()), TrainyardError)
    found = {problem.path: problem.got for problem in problems}
    assert set(found) == {*images[1:], "127.0.0.1:1/nobody:1"}
    assert found[images[1]] == "missing"
    assert "but sent sha256:" in found[images[2]]
    assert "cannot be reached" in found["127.0.0.1:1/nobody:1"]


def test_retry_after_is_followed_up_to_a_limit(registry: str) -> None:
    waited: list[float] = []
    retrying = Registries(sleep=waited.append)
    _TokenRegistry.busy = {"busy": ["3", "1"], "closed": ["3600"]}
    assert len(resolve([f"{registry}/busy:1"], retrying)) == 1
    assert waited == [3, 1]
    problem = problem_of(lambda: resolve([f"{registry}/closed:1"], retrying), TrainyardError)
    assert problem.got == "too many requests: retry later"
    assert waited == [3, 1]


@pytest.mark.parametrize("name", STACKS)
def test_the_rest_of_the_stack_file_is_not_changed(name: str, tmp_path: Path) -> None:
    original = stack_file(name).read_text()
    file = tmp_path / stack_file(name).name
    file.write_text(original)
    write(file, {"registry.example.com/b:1": DIGEST, "registry.example.com/a:1": OTHER})
    once = file.read_text()
    block = once.index("\n    # by `trainyard stack images --lock`\n")
    assert original.startswith(once[:block])
    assert once[block:].count("\n") == 6
    write(file, {"registry.example.com/b:1": OTHER})
    assert file.read_text() == once[:block] + (
        "\n    # by `trainyard stack images --lock`\n    images:\n      digests:\n"
        f"        registry.example.com/b:1: {OTHER}\n"
    )
    assert load(file).images.digests == {"registry.example.com/b:1": OTHER}


WRITTEN = """\
# of ours
config:
  trainyard:stack: # the stack
    schema: 1
    {images}
    name: 'kept as it is'   # and this

    # nothing is after it
  other:key: |
    text
"""


@pytest.mark.parametrize(
    "images",
    [
        "images: {}",
        "images: # why",
        "images: {digests: {}}",
        f"images: {{digests: {{a.b/c:1: '{OTHER}'}}}} # by hand",
        f"images:\n      digests: # by hand\n        a/b:1: {OTHER}\n        # more\n        c/d:1: {OTHER}",
    ],
)
def test_digests_replace_earlier_ones_in_any_yaml_style(images: str) -> None:
    text = with_digests(WRITTEN.replace("{images}", images), {"a.b/c:1": DIGEST})
    before, _, after = WRITTEN.partition("    {images}\n")
    assert text == f"{before}    images:\n      digests:\n        a.b/c:1: {DIGEST}\n{after}"


def test_a_stack_on_one_line_is_not_changed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="separate lines"):
        with_digests("config: {trainyard:stack: {schema: 1}}\n", {})


@pytest.mark.parametrize("name", ["aws", "gcp", "onprem"])
def test_once_locked_no_workload_of_the_stack_uses_a_tag(name: str) -> None:
    stack = load(stack_file(name))
    digests = dict.fromkeys(by_tag(stack, Artifacts.from_environment()), DIGEST)
    locked = plan(stack.model_copy(update={"images": ImagesSpec(digests=digests)}), LINKS / "rendered")
    images = [
        container["image"]
        for kind in ("Deployment", "DaemonSet")
        for each in locked.named(kind).values()
        for containers in ("containers", "initContainers")
        for container in each["spec"]["template"]["spec"].get(containers, ())
    ]
    assert images
    assert [image for image in images if not re.search(r"@sha256:[0-9a-f]{64}$", image)] == []


def test_the_embedded_cluster_pulls_nothing_that_could_be_locked() -> None:
    with pytest.raises(InputError, match="nodes import images that are built on this host"):
        by_tag(load(stack_file("local")), Artifacts.from_environment())


def test_the_command_writes_the_registrys_current_digests(
    registry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "Pulumi.aws.yaml"
    mirror = f"      mirror: {{registry: {registry}/mirror, charts: 'oci://{registry}/charts'}}\n"
    file.write_text(stack_file("aws").read_text().replace("      kind: aws\n", f"      kind: aws\n{mirror}"))
    monkeypatch.setattr(Session, "stack_file", file)
    prepared = SimpleNamespace(ensure=lambda *_: None, environment=lambda: dict(os.environ))
    monkeypatch.setattr(Session, "toolchain", prepared)
    out = io.StringIO()
    lock_images(Session("aws", console=Console(file=out, width=200)), Registries())
    content, _ = read(file)
    digests = content["images"]["digests"]
    assert len(digests) >= 5
    assert all(image.startswith(f"{registry}/mirror/") for image in digests)
    assert len(_TokenRegistry.asked) == len(digests)
    assert out.getvalue().count("new ") == len(digests)
    lock_images(Session("aws", console=Console(file=out, width=200)), Registries())
    assert out.getvalue().count("unchanged") == len(digests)
    assert yaml.safe_load(file.read_text())["config"]["trainyard:stack"]["images"]["digests"] == digests
