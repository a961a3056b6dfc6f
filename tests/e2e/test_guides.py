"""The guides of the clouds, executed: every command block as printed, in order, in a new home.

The commands of a guide include the rehearsal of its shipped stack. Fakes are where a user has the real parts:
provider plugins in `~/.pulumi`, credentials in the home, the real `aws`, and a `gcloud` and an `az` that
validate their arguments. The fake of Kubernetes is attached, since there is no cloud's API server.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import flask
import pytest
from moto.iam.access_control import IAMPolicyStatement, PermissionResult
from moto.s3.models import FakeBucket
from moto.server import ThreadedMotoServer

from infra.common.artifacts import ROOT
from infra.common.target_registry import target_of
from infra.stackfile import load
from rehearsal.fake import fake_of
from rehearsal.fake_provider import FakeProvider
from rehearsal.leaks import leaks_in
from rehearsal.rehearse import ANY_VERSION, with_common
from tests.e2e.guide import FencedBlock, Transcript, blocks, paste
from tests.e2e.rehearsed import caches, copy_repository, install_plugin
from tests.e2e.test_templates import new_project
from tests.infra.plan import stack_file
from tests.processes import capture
from tests.tables import table

pytestmark = [pytest.mark.engine, pytest.mark.timeout(3000)]

GUIDES = {kind: ROOT / "docs" / f"{kind}.md" for kind in ("aws", "azure", "coreweave", "gcp", "onprem")}
AT_EVERY_CHANGE = {"aws", "onprem"}
"""Guides that each change runs, of a cloud and of a cluster of others; `make soak` runs all."""
TEMPLATES = {
    page.parent.name: page for page in sorted((ROOT / "templates").glob("*/README.md")) if blocks(page)
}
IN_THE_SOAK = set(TEMPLATES) - {"local"}
"""Templates whose README `make soak` executes, since its blocks are the same as the others'."""
PAGES = [ROOT / "README.md", ROOT / "docs/commands.md", *GUIDES.values(), *TEMPLATES.values()]
EXECUTED = {page.relative_to(ROOT) for page in (*GUIDES.values(), *TEMPLATES.values())}
"""Pages whose blocks the tests below paste; blocks of other pages have a reason why not."""
LEFT_OUT = {"README.md: make", "aws.md: aws"}
LEFT_OUT |= {f"{kind}.md: trainyard" for kind in ("azure", "coreweave", "onprem")}
"""Page → beginnings of the blocks that cannot run here, for the reason on the page; it may not grow."""
REFUSALS = table(__file__, "refusals")
CLIS = Path(__file__).with_name("clis")
INHERITED = ("HTTP", "NO_PROXY", "SSL_", "REQUESTS_", "PIP_", "UV_", "LANG", "GO", "http", "no_proxy")
"""Prefixes of the variables by which this host reaches package indexes."""


def test_every_block_is_executed_or_has_a_reason_why_not() -> None:
    found = [block for page in PAGES for block in blocks(page)]
    left_out = {f"{block.page}: {block.text.split()[0]}" for block in found if block.reason}
    assert left_out == LEFT_OUT
    others = [block for page in PAGES if page.relative_to(ROOT) not in EXECUTED for block in blocks(page)]
    assert [block.name for block in others if block.is_pasted] == []
    tests = {block.test: Path(__file__).with_name(block.test).read_text() for block in found if block.test}
    assert [name for name, text in tests.items() if "run_by(__file__" not in text] == []


@pytest.mark.parametrize("template", sorted(IN_THE_SOAK))
def test_a_readme_that_the_soak_executes_has_the_blocks_of_the_others(template: str) -> None:
    texts = [[block.text for block in blocks(TEMPLATES[name])] for name in (template, "local")]
    assert texts[0] == texts[1]


def test_the_site_has_no_broken_link(tmp_path: Path) -> None:
    """`strict` of mkdocs.yml: pages, files and anchors exist, and each page is in the navigation."""
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path)]
    made = capture(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT / ".trainyard/docs")})
    assert made.returncode == 0, made.stderr
    outside = r'<(?:script|link|img)[^>]+(?:src|href)="(?:https?:)?//'
    assert [page.name for page in tmp_path.rglob("*.html") if re.search(outside, page.read_text())] == []


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clone") / "trainyard"
    copy_repository(folder)
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "home"
    made.mkdir()
    return made


@pytest.fixture
def reader(home: Path, tmp_path: Path) -> dict[str, str]:
    """The environment of a reader's shell: a new home, and the caches of this host."""
    ours = (str(ROOT / ".venv"), str(ROOT / ".trainyard"))
    folders = [each for each in os.environ["PATH"].split(os.pathsep) if not each.startswith(ours)]
    return {
        **{key: value for key, value in os.environ.items() if key.startswith(INHERITED)},
        **caches("TRAINYARD_CACHE", "UV_CACHE_DIR", "PIP_CACHE_DIR"),
        "HOME": str(home),
        "USER": "reader",
        "TERM": "xterm",
        "COLUMNS": "200",
        "PATH": os.pathsep.join([str(tmp_path / "clis"), *folders]),
        "TRAINYARD_STATE": str(home / "state"),
        "TMPDIR": str(tmp_path),
    }


@contextmanager
def cloud_of(kind: str, home: Path, folder: Path) -> Iterator[dict[str, str]]:
    """Install the cloud's fakes where a reader has the real parts; yield variables of Kubernetes' fake."""
    stack = load(stack_file(kind)).model_dump(mode="json", by_alias=True)
    with ExitStack() as opened:
        started = opened.enter_context(fake_of(kind).start(stack, folder / "made"))
        if kind == "aws":
            sign_in_to_aws(home, opened.enter_context(moto_server()))
        attached = {}
        for package, cloud in with_common(started.clouds).items():
            provider = FakeProvider([package], ANY_VERSION, cloud=cloud, folder=folder / "made" / package)
            opened.enter_context(provider)
            if package in target_of(kind).plugins:
                install_plugin(home, package, provider.port)
            else:
                attached[package] = provider.port
        providers = ",".join(f"{package}:{port}" for package, port in attached.items())
        yield {**started.variables, "PULUMI_DEBUG_PROVIDERS": providers}


def sign_in_to_aws(home: Path, endpoint: str) -> None:
    """Write the files of `aws configure`, with moto's server as the account."""
    (home / ".aws").mkdir()
    keys = "aws_access_key_id = reader\naws_secret_access_key = reader\n"
    (home / ".aws" / "credentials").write_text(f"[default]\n{keys}")
    (home / ".aws" / "config").write_text(f"[default]\nregion = us-east-2\nendpoint_url = {endpoint}\n")


def install_clis(folder: Path) -> None:
    """Install the clouds' command lines on the reader's PATH: the real `aws`, and fakes of the others."""
    folder.mkdir()
    aws = ROOT / ".trainyard" / "clis" / "bin" / "aws"
    library = ROOT / ".trainyard" / "clis"
    (folder / "aws").write_text(f'#!/bin/sh\nPYTHONPATH={library} exec {sys.executable} {aws} "$@"\n')
    for name in ("gcloud", "az"):
        program = f'#!/bin/sh\nexec {sys.executable} {CLIS / "reference_cli.py"} {CLIS / name}.yaml "$@"\n'
        (folder / name).write_text(program)
    for installed in folder.iterdir():
        installed.chmod(0o755)


def follow(kind: str, clone: Path, home: Path, reader: Mapping[str, str], folder: Path) -> Transcript:
    """Paste a guide, which must succeed and print no secret."""
    install_clis(folder / "clis")
    mine = clone / "stacks" / "Pulumi.mine.yaml"
    mine.unlink(missing_ok=True)
    found = blocks(GUIDES[kind])
    with cloud_of(kind, home, folder) as variables:
        shown = paste(found, clone, {**reader, **variables}, mine)
    assert shown.code == 0, shown.text[-6000:]
    for block in found:
        assert not block.is_pasted or f"::{block.name}::" in shown.text, block.name
    assert leaks_in(dict.fromkeys(shown.text.splitlines(), "shown")) == []
    return shown


def expect_a_whole_lifecycle(shown: Transcript, guide: list[FencedBlock]) -> None:
    """Assert that the stack was rehearsed, created by `pulumi up`, and removed."""
    texts = {block.name: shown.of(block) for block in guide if block.is_pasted}
    whole = "".join(texts.values())
    assert "✓ destroy" in whole, "of the rehearsal"
    assert "created" in next(text for text in texts.values() if "pulumi up" in text or "Updating" in text)
    assert "deleted" in list(texts.values())[-1] or "delete" in whole


@contextmanager
def moto_server() -> Iterator[str]:
    """Serve moto on loopback; yields its address."""
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()


@pytest.fixture(autouse=True)
def moto_as_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make moto accept the requests to the state's bucket that AWS accepts.

    A policy's condition that does not match refuses nothing (ours deny calls without TLS and from others),
    and a locked bucket wants a checksum of uploads, not of copies (S3 API reference, PutObject, CopyObject).
    """
    is_permitted, is_locked = (
        IAMPolicyStatement.is_action_permitted,
        vars(FakeBucket)["has_default_lock"].fget,
    )

    def permission(self: Any, *given: Any, **named: Any) -> PermissionResult:
        return (
            PermissionResult.NEUTRAL
            if "Condition" in self._statement
            else is_permitted(self, *given, **named)
        )

    def wants_checksum(self: Any) -> bool:
        return "x-amz-copy-source" not in flask.request.headers and bool(is_locked(self))

    monkeypatch.setattr(IAMPolicyStatement, "is_action_permitted", permission)
    monkeypatch.setattr(FakeBucket, "has_default_lock", property(wants_checksum))


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[] if kind in AT_EVERY_CHANGE else [pytest.mark.soak]) for kind in GUIDES],
)
def test_the_guide_works_as_printed_and_its_cloud_refuses(
    kind: str, clone: Path, home: Path, reader: dict[str, str], tmp_path: Path
) -> None:
    survived, refused = REFUSALS[kind]
    refusing = {"TRAINYARD_REFUSE": " ".join((*survived, *refused))}
    shown = follow(kind, clone, home, reader | refusing, tmp_path)
    expect_a_whole_lifecycle(shown, blocks(GUIDES[kind]))
    text = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", shown.text)
    assert set(re.findall(r"^survived (\S+):", text, re.MULTILINE)) == {*survived}
    assert set(re.findall(r"^refused  (\S+):", text, re.MULTILINE)) == {*refused}


@pytest.mark.parametrize(
    "template",
    [pytest.param(name, marks=[pytest.mark.soak] if name in IN_THE_SOAK else []) for name in TEMPLATES],
)
def test_a_projects_readme_works_as_printed(
    template: str, clone: Path, home: Path, reader: dict[str, str], tmp_path: Path
) -> None:
    subprocess.run(["make", "venv"], cwd=clone, env=reader, check=True, capture_output=True)
    project = new_project(template, tmp_path)
    installed = {**reader, "PATH": f"{clone / '.venv/bin'}{os.pathsep}{reader['PATH']}"}
    shown = paste(blocks(project / "README.md"), project, installed, project / "stacks" / "Pulumi.dev.yaml")
    assert shown.code == 0, shown.text[-6000:]
    assert "✓ destroy" in shown.text
