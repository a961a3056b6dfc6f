"""Runs of the engine with a fake `pulumi`: files, interrupts, locks, interrupted operations and events."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine import plugins, recovery
from engine.backends import FileBackend
from engine.engine import Engine
from engine.events import EventReporter, OperationResult, label
from engine.paths import REPOSITORY, Paths
from engine.recovery import MARKER
from infra.errors import ExitCode, Problem, TrainyardError
from infra.targets.advice import next_step
from tests.engine.progress import RecordedProgress
from tests.processes import TIMEOUT_SECONDS, wait_for

URN = "urn:pulumi:dev::tiny::pkg:index:Parent$kubernetes:apps/v1:Deployment::web"

FAKE = """#!{python}
import json, os, signal, sys, time
log = {log!r}
with open(log, "a") as file:
    file.write(json.dumps([sys.argv[1:], os.environ.get("TMPDIR", "")]) + "\\n")
words = [word for word in sys.argv[1:] if not word.startswith("--")]
if words[:2] == ["stack", "init"]:
    folder = sys.argv[sys.argv.index("--cwd") + 1]
    state = {state!r}
    os.makedirs(os.path.dirname(state), exist_ok=True)
    open(state, "w").write('{{"checkpoint": {{"latest": {{}}}}}}')
    open(folder + "/Pulumi.dev.yaml", "w").write("encryptionsalt: v1:salt\\n")
if words[0] == "up" and os.path.exists(log + ".invalid"):
    sys.exit("failed to save snapshot: snapshot integrity failure; it was already written, but is invalid")
if words[:2] == ["state", "repair"]:
    os.remove(log + ".invalid")
if words[0] == "up":
    open(os.environ["TMPDIR"] + "/kubeconfig", "w").write("admin")
    print(json.dumps({{"summaryEvent": {{"resourceChanges": {{"create": 2}}}}}}), flush=True)
    if {dawdle}:
        signal.signal(signal.SIGINT, signal.SIG_IGN if {stubborn} else lambda *_: sys.exit(1))
        open(log + ".ready", "w").close()
        time.sleep(600)
if words[:2] == ["stack", "export"]:
    print(json.dumps({{"deployment": json.load(open({state!r}))["checkpoint"]["latest"]}}))
if words[:2] == ["stack", "import"]:
    open({log!r} + ".imported", "w").write(sys.stdin.read())
"""


class EngineBench:
    """A project, a state folder, and a fake `pulumi` that records its calls."""

    def __init__(self, folder: Path, *, dawdle: bool = False, stubborn: bool = False) -> None:
        self.paths = Paths(cache=folder / "cache", state=folder / "state", repository=folder / "repo")
        self.log = folder / "asked"
        self.backend = FileBackend(self.paths.engine, "tiny")
        self.stack_file = self.paths.repository / "stacks" / "Pulumi.dev.yaml"
        for needed in (self.paths.bin, self.paths.engine, self.stack_file.parent):
            needed.mkdir(parents=True, exist_ok=True)
        (self.paths.repository / "Pulumi.yaml").write_text(
            "name: tiny\nruntime: python\nstackConfigDir: stacks\n"
        )
        self.stack_file.write_text("config:\n  tiny:size: 3\n")
        fake = self.paths.bin / "pulumi"
        state = str(self.backend.state_file("dev"))
        names = {"python": sys.executable, "log": str(self.log), "state": state}
        fake.write_text(FAKE.format(**names, dawdle=dawdle, stubborn=stubborn))
        fake.chmod(0o755)
        path = f"{self.paths.bin}{os.pathsep}{os.environ['PATH']}"
        self.engine = Engine(self.paths, {"PATH": path, "PULUMI_HOME": str(folder / "home")})

    def asked(self) -> list[tuple[list[str], str]]:
        """Return the arguments and TMPDIR of each start so far."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [tuple(json.loads(line)) for line in lines]

    def commands(self) -> list[str]:
        words = [[word for word in asked if not word.startswith("--")] for asked, _ in self.asked()]
        return [" ".join(each[:2]) if each[0] == "stack" else each[0] for each in words]

    def wait_for_up(self) -> None:
        """Wait until the fake runs `up` and has its signal handler."""
        wait_for(Path(f"{self.log}.ready").exists)

    def interrupt(self) -> None:
        """Send SIGINT, as Ctrl-C does, once the code that runs the engine handles it."""
        wait_for(lambda: signal.getsignal(signal.SIGINT) is not signal.default_int_handler)
        os.kill(os.getpid(), signal.SIGINT)

    def lock(self, pid: int, hostname: str = socket.gethostname()) -> Path:
        folder = self.paths.engine / ".pulumi" / "locks" / "organization" / "tiny" / "dev"
        folder.mkdir(parents=True, exist_ok=True)
        held = {"pid": pid, "username": "root", "hostname": hostname, "timestamp": "2026-01-01T00:00:00Z"}
        (folder / "one.json").write_text(json.dumps(held))
        return folder / "one.json"


@pytest.fixture
def bench(tmp_path: Path) -> EngineBench:
    return EngineBench(tmp_path)


def test_a_state_that_names_what_is_gone_is_repaired_for_the_next_operation(bench: EngineBench) -> None:
    """The engine wrote one after an `up` with errors: all that followed it ended with the same message."""
    Path(f"{bench.log}.invalid").touch()
    progress = RecordedProgress()
    with pytest.raises(TrainyardError, match="snapshot integrity failure"):
        bench.engine.up("dev", progress)
    assert "it is repaired" in "\n".join(map(str, progress.lines))
    assert bench.engine.up("dev", progress).changes == {"create": 2}


def test_the_stack_file_of_the_repository_is_never_changed(bench: EngineBench) -> None:
    before = bench.stack_file.read_text()
    result = bench.engine.up("dev", RecordedProgress())
    assert result.changes == {"create": 2}
    assert bench.stack_file.read_text() == before
    copy = bench.paths.engine / "config" / "Pulumi.dev.yaml"
    assert copy.read_text() == f"{before}encryptionsalt: v1:salt\n"
    assert str(copy) in bench.asked()[-1][0]


def test_files_of_the_kubernetes_provider_from_pulumi_by_hand_are_deleted(bench: EngineBench) -> None:
    left = bench.paths.engine / "tmp" / "kubeconfig123"
    left.parent.mkdir()
    left.write_text("admin")
    bench.engine.up("dev", RecordedProgress())
    assert not left.exists()


def test_a_salt_that_pulumi_by_hand_wrote_into_the_stack_file_is_adopted(bench: EngineBench) -> None:
    bench.engine.up("dev", RecordedProgress())
    bench.stack_file.write_text("config:\n  tiny:size: 3\nencryptionsalt: v1:other\n")
    bench.engine.up("dev", RecordedProgress())
    copy = bench.paths.engine / "config" / "Pulumi.dev.yaml"
    assert copy.read_text() == bench.stack_file.read_text()


def test_the_organisations_configuration_is_passed_to_every_policy_pack(bench: EngineBench) -> None:
    file, packs = bench.paths.state / "organisation.json", [Path("one"), Path("two")]
    bench.engine = Engine(replace(bench.paths, organisation=file), bench.engine._environment)
    bench.engine.up("dev", RecordedProgress(), policy_packs=packs)
    bench.engine.preview("dev", RecordedProgress(), policy_packs=packs)
    given = ["--policy-pack", "one", "--policy-pack-config", str(file)]
    for asked, _ in bench.asked()[-2:]:
        begin = asked.index("--policy-pack")
        assert asked[begin : begin + 4] == given
        assert asked[begin + 4 : begin + 8] == ["--policy-pack", "two", *given[2:]]


def test_a_stack_is_initialized_once(bench: EngineBench) -> None:
    assert not bench.engine.exists("dev")
    bench.engine.up("dev", RecordedProgress())
    bench.engine.up("dev", RecordedProgress())
    assert bench.engine.exists("dev")
    assert bench.commands() == ["stack init", "up", "up"]


def test_temporary_files_are_in_a_private_folder_that_is_deleted_after_the_run(bench: EngineBench) -> None:
    bench.engine.up("dev", RecordedProgress())
    folder = Path(bench.asked()[-1][1])
    assert folder.parent == bench.paths.engine / "runs"
    assert folder.name.startswith("dev@")
    assert list(folder.parent.iterdir()) == []


def test_after_one_interrupt_the_engine_shuts_down_by_itself(tmp_path: Path) -> None:
    bench, lines = EngineBench(tmp_path, dawdle=True), RecordedProgress()

    def interrupt() -> None:
        bench.wait_for_up()
        bench.interrupt()

    before = signal.getsignal(signal.SIGINT)
    threading.Thread(target=interrupt).start()
    with pytest.raises(TrainyardError, match="run the same command again") as caught:
        bench.engine.up("dev", lines)
    assert caught.value.exit_code == ExitCode.INTERRUPTED
    assert lines.lines == ["interrupted: finishing current operations; interrupt again to stop at once"]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_interrupt_kills_the_engine_and_its_plugins(tmp_path: Path) -> None:
    bench, lines = EngineBench(tmp_path, dawdle=True, stubborn=True), RecordedProgress()
    program = _named("pulumi-resource-kubernetes", bench.paths.state)
    plugins_left: list[subprocess.Popen[bytes]] = []

    def interrupt_twice() -> None:
        bench.wait_for_up()
        environment = os.environ | {MARKER: bench.asked()[-1][1]}
        plugins_left.append(subprocess.Popen([program, "600"], env=environment))
        bench.interrupt()
        wait_for(lambda: lines.lines)
        bench.interrupt()

    threading.Thread(target=interrupt_twice).start()
    with pytest.raises(TrainyardError) as caught:
        bench.engine.up("dev", lines)
    assert caught.value.exit_code == ExitCode.INTERRUPTED
    assert plugins_left[0].poll() is not None


def test_a_lock_of_an_engine_that_died_is_dropped(bench: EngineBench) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    bench.lock(dead.pid)
    bench.engine.up("dev", RecordedProgress())
    assert bench.commands()[0] == "cancel"


def test_a_lock_of_an_engine_that_died_and_is_not_reaped_yet_is_dropped(bench: EngineBench) -> None:
    dead = subprocess.Popen(["sleep", "600"], executable=_named("pulumi", bench.paths.state))
    bench.lock(dead.pid)
    dead.kill()
    try:
        wait_for(lambda: psutil.Process(dead.pid).status() == psutil.STATUS_ZOMBIE)
        assert psutil.Process(dead.pid).name() == "pulumi"
        bench.engine.up("dev", RecordedProgress())
        assert bench.commands()[0] == "cancel"
    finally:
        dead.wait()


@pytest.mark.parametrize("here", [True, False])
def test_a_lock_of_a_running_engine_or_of_another_host_is_respected(bench: EngineBench, here: bool) -> None:
    engine = subprocess.Popen(["sleep", "600"], executable=_named("pulumi", bench.paths.state))
    bench.lock(engine.pid, socket.gethostname() if here else "elsewhere")
    try:
        with pytest.raises(TrainyardError, match=f"process {engine.pid} of root"):
            bench.engine.up("dev", RecordedProgress())
        assert not bench.log.exists()
    finally:
        engine.kill()
        engine.wait()


def _named(name: str, folder: Path) -> str:
    """Start `sleep` under this name."""
    program = folder / "programs" / name
    program.parent.mkdir(exist_ok=True)
    program.write_bytes(Path("/bin/sleep").read_bytes())
    program.chmod(0o755)
    return str(program)


def test_interrupted_operations_are_removed_from_the_state(bench: EngineBench) -> None:
    bench.engine.up("dev", RecordedProgress())
    cut_off = {"checkpoint": {"latest": {"resources": [], "pending_operations": [{"type": "creating"}]}}}
    bench.backend.state_file("dev").write_text(json.dumps(cut_off))
    bench.engine.up("dev", RecordedProgress())
    assert bench.commands()[-3:] == ["stack export", "stack import", "up"]
    imported: dict[str, Any] = json.loads(Path(f"{bench.log}.imported").read_text())
    assert imported["deployment"] == {"resources": []}


def test_only_orphans_of_the_stack_are_killed(bench: EngineBench) -> None:
    plugin = _named("pulumi-resource-kubernetes", bench.paths.state)
    runs = bench.paths.engine / "runs"
    orphan = subprocess.Popen([plugin, "600"], env=os.environ | {MARKER: str(runs / "dev@1")})
    cluster = subprocess.Popen(["sleep", "600"], env=os.environ | {MARKER: str(runs / "dev@1")})
    other_stack = subprocess.Popen([plugin, "600"], env=os.environ | {MARKER: str(runs / "dev2@1")})
    other_state = subprocess.Popen([plugin, "600"], env=os.environ | {MARKER: "/elsewhere/runs/dev@1"})
    spared = (cluster, other_stack, other_state)
    for run in ("dev@1", "dev2@1"):
        (runs / run).mkdir(parents=True)
    try:
        bench.engine.recover("dev")
        assert [each.name for each in runs.iterdir()] == ["dev2@1"]
        assert orphan.poll() is not None
        assert [process.poll() for process in spared] == [None] * 3
    finally:
        for process in (orphan, *spared):
            process.kill()
            process.wait()


def test_an_orphaned_engine_gets_sigterm_before_it_is_killed(bench: EngineBench) -> None:
    asked = bench.paths.state / "asked"
    engine = bench.paths.state / "programs" / "pulumi"
    engine.parent.mkdir()
    engine.write_text(
        f"#!/bin/sh\ntrap 'echo ended > {asked}; exit' INT\necho up\nwhile :; do sleep 0.1; done\n"
    )
    engine.chmod(0o755)
    environment = os.environ | {MARKER: str(bench.paths.engine / "runs" / "dev@1")}
    orphan = subprocess.Popen([engine], env=environment, stdout=subprocess.PIPE, text=True)
    assert orphan.stdout is not None and orphan.stdout.readline() == "up\n"
    recovery.end_orphans(bench.paths.engine, "dev")
    assert asked.read_text() == "ended\n"
    assert orphan.poll() is not None


def test_an_orphan_that_has_ended_is_no_error(bench: EngineBench, monkeypatch: pytest.MonkeyPatch) -> None:
    orphan = subprocess.Popen(["sleep", "600"])
    seen = psutil.Process(orphan.pid)
    orphan.kill()
    orphan.wait()
    monkeypatch.setattr(recovery, "_marked", lambda: [(seen, str(bench.paths.engine / "runs" / "dev@1"))])
    recovery.end_orphans(bench.paths.engine, "dev")
    assert not seen.is_running()


def test_the_engine_shuts_down_when_its_command_is_killed(tmp_path: Path) -> None:
    bench = EngineBench(tmp_path, dawdle=True)
    code = (
        "import sys; from pathlib import Path; sys.path.insert(0, '.');"
        "from tests.engine.progress import RecordedProgress;"
        "from tests.engine.test_engine import EngineBench;"
        f"EngineBench(Path({str(tmp_path)!r}), dawdle=True).engine.up('dev', RecordedProgress())"
    )
    command = subprocess.Popen([sys.executable, "-c", code], cwd=REPOSITORY)
    bench.wait_for_up()
    (engine,) = psutil.Process(command.pid).children()
    command.kill()
    command.wait()
    ended, _ = psutil.wait_procs([engine], timeout=TIMEOUT_SECONDS)
    assert ended == [engine]


def test_plugins_are_installed_by_kind_name_and_version(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    kinds = (
        "language-python language-python-exec resource-kubernetes resource-pulumi-python resource-trainyard"
    )
    for name in ("pulumi", *(f"pulumi-{kind}" for kind in kinds.split())):
        (programs / name).touch()
    plugins.install(tmp_path / "home", programs)
    plugins.install(tmp_path / "home", programs)
    home = tmp_path / "home"
    assert {str(link.relative_to(home / "plugins")) for link in home.rglob("pulumi-*")} == {
        "language-python-v3.230.0/pulumi-language-python",
        "resource-kubernetes-v4.25.0/pulumi-resource-kubernetes",
        "resource-pulumi-python-v3.230.0/pulumi-resource-pulumi-python",
        "resource-trainyard-v0.1.0/pulumi-resource-trainyard",
    }


def step(op: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"op": op, "urn": URN, "type": "x"}, **more}


def error(message: str, urn: str = URN) -> dict[str, Any]:
    return {"diagnosticEvent": {"urn": urn, "message": message, "severity": "error"}}


def reported(*events: dict[str, Any], **options: Any) -> tuple[EventReporter, RecordedProgress]:
    lines = RecordedProgress()
    report = EventReporter(lines, lines, **options)
    for each in events:
        report.take(json.dumps({"sequence": 1, "timestamp": 1, **each}))
    return report, lines


def test_changed_resources_are_reported_and_unchanged_ones_are_not() -> None:
    kinds = ("resourcePreEvent", "resOutputsEvent")
    report, lines = reported(*({kind: step(op)} for op in ("create", "same") for kind in kinds))
    report.take("not an event\n")
    assert lines.lines == ["created  apps/v1:Deployment web 0.0 s"]
    assert lines.status == ["apps/v1:Deployment web"]


def test_what_lasts_is_named_while_nothing_ends() -> None:
    platform = {"metadata": {"op": "create", "urn": "urn:pulumi:a::b::trainyard:infra:Platform::web"}}
    report, lines = reported({"resourcePreEvent": platform}, {"resourcePreEvent": step("create")})
    with report.logging_what_lasts(0.01):
        wait_for(lambda: lines.lines)
    assert lines.lines[0] == "still at apps/v1:Deployment web for 0 s"
    report.take(json.dumps({"resOpFailedEvent": step("create")}))
    lines.lines.clear()
    with report.logging_what_lasts(0.01):
        time.sleep(0.05)
    assert not lines.lines


def test_a_preview_reports_what_it_would_do() -> None:
    _, lines = reported({"resOutputsEvent": step("update", planning=True)})
    assert lines.lines == ["update   apps/v1:Deployment web"]


def test_a_status_line_is_shown_and_not_logged() -> None:
    diagnosis = {"urn": URN, "message": "node spot-0 …", "severity": "info", "ephemeral": True}
    _, lines = reported({"diagnosticEvent": diagnosis})
    assert (lines.lines, lines.status) == ([], ["apps/v1:Deployment web: node spot-0 …"])


def test_every_error_becomes_a_problem_and_debug_lines_are_dropped() -> None:
    others = {"debug": "secret things", "warning": "careful"}
    said = [{"diagnosticEvent": {"message": text, "severity": level}} for level, text in others.items()]
    report, lines = reported(*said, error("no quota\n"))
    assert lines.lines == ["warning: careful"]
    assert [(p.path, p.got) for p in report.problems] == [("apps/v1:Deployment web", "no quota")]


def test_a_failure_is_reported_once_by_its_cause() -> None:
    general: dict[str, Any] = {"diagnosticEvent": {"message": "update failed", "severity": "error"}}
    for events, reason in (([general], "update failed"), ([general, error("no quota")], "no quota")):
        assert [problem.got for problem in reported(*events)[0].specific()] == [reason]


def test_the_programs_own_problems_are_reported_as_they_are_and_not_with_a_second_next_step() -> None:
    own = [Problem("pools[0].zones", "[]", "one or more\nof the region", "add one", "Pulumi.a.yaml:3:1")]
    own.append(Problem("name", "'A'", "lower case", "write 'a'"))
    ended = "an unhandled error occurred: Program exited with non-zero exit code: 1"
    report, _ = reported(*map(error, (str(TrainyardError(own)), ended, "preview failed")))
    assert "\n".join(map(str, report.specific())) == "\n".join(map(str, own))


def test_an_api_server_that_does_not_answer_is_reported_once_with_the_next_step() -> None:
    silent = (
        "configured Kubernetes cluster is unreachable: unable to load schema information from the API server:"
        ' Get "https://x.eks.amazonaws.com/openapi/v2?timeout=32s": dial tcp 10.64.1.9:443: i/o timeout'
    )
    messages = {"a": silent, "b": silent, "c": "no quota"}
    events = [error(message, URN.replace("web", name)) for name, message in messages.items()]
    first, other = reported(*events, advise=partial(next_step, None))[0].specific()
    assert first.path.endswith(" a") and "docs/runners.md" in first.fix
    assert other.got == "no quota" and "docs/runners.md" not in other.fix


@pytest.mark.parametrize(("level", "problems"), [("mandatory", 1), ("advisory", 0)])
def test_a_mandatory_policy_stops_and_an_advisory_one_warns(level: str, problems: int) -> None:
    policy = {"policyName": "spot-taint", "policyPackName": "trainyard", "enforcementLevel": level}
    evaluated = {"resourceUrn": URN, "message": "spot nodes need a taint", **policy}
    report, lines = reported({"policyEvent": evaluated})
    assert len(report.problems) == problems
    text = str(report.problems[0]) if problems else lines.lines[0]
    assert "trainyard/spot-taint" in text and "spot nodes need a taint" in text
    assert not problems or "complete the exemption above" in report.problems[0].fix


def test_a_result_is_reported_in_one_line() -> None:
    done = OperationResult("local", "up", {"create": 3, "same": 40}, 12.34)
    assert done.summary() == "up local: 3 created, 40 unchanged (12.3 s)"
    assert done.changed
    assert not OperationResult("local", "up", {"same": 40}, 1.0).changed
    assert OperationResult("local", "preview", {}, 1.0, is_preview=True).summary() == (
        "preview local: would be nothing to do (1.0 s)"
    )


def test_a_urn_is_reported_as_type_and_name() -> None:
    assert label(URN) == "apps/v1:Deployment web"
    assert label("") == ""


def test_resources_that_a_killed_engine_has_created_are_adopted_if_they_are_found() -> None:
    def pending(name: str, **more: object) -> dict[str, object]:
        urn = f"urn:pulumi:s::p::aws:ec2/vpc:Vpc::{name}"
        resource = {"urn": urn, "custom": True, "type": "aws:ec2/vpc:Vpc", "inputs": {"cidrBlock": name}}
        return {"type": "creating", "resource": resource, **more}

    operations = [pending("made"), pending("not-made"), pending("changed", type="updating")]
    exported = {"deployment": {"resources": [], "pending_operations": operations}}

    def find(unfinished: recovery.Unfinished) -> recovery.Found | None:
        assert unfinished.inputs == {"cidrBlock": unfinished.name}
        return recovery.Found("vpc-1") if unfinished.name == "made" else None

    text, found = recovery.settled(json.dumps(exported), find)
    (resource,) = json.loads(text)["deployment"]["resources"]
    assert found == [resource["urn"]]
    assert resource["id"] == "vpc-1"
    assert "pending_operations" not in json.loads(text)["deployment"]


def test_partially_written_attributes_are_removed_and_complete_ones_retained(tmp_path: Path) -> None:
    folder = tmp_path / ".pulumi" / "stacks" / "p"
    folder.mkdir(parents=True)
    for name, text in {"dev.json.attrs": "", "dev.json.bak.attrs": '{"md5": "x"}', "dev.json": ""}.items():
        (folder / name).write_text(text)
    FileBackend(tmp_path, "p").mend()
    assert sorted(file.name for file in folder.iterdir()) == ["dev.json", "dev.json.bak.attrs"]


def test_a_destroy_is_refused_before_anything_is_deleted(bench: EngineBench) -> None:
    bench.engine.up("dev", RecordedProgress())
    resources = [{"urn": URN, "protect": False}, {"urn": f"{URN}-protected", "protect": True}]
    state = {"checkpoint": {"latest": {"resources": resources}}}
    bench.backend.state_file("dev").write_text(json.dumps(state))
    message = r"protected resources \(1: apps/v1:Deployment web-protected\); nothing was deleted"
    with pytest.raises(TrainyardError, match=message) as raised:
        bench.engine.destroy("dev", RecordedProgress())
    assert raised.value.exit_code == ExitCode.WRONG_INPUT
    assert "destroy" not in bench.commands()
    state["checkpoint"]["latest"]["resources"].pop()
    bench.backend.state_file("dev").write_text(json.dumps(state))
    bench.engine.destroy("dev", RecordedProgress())
    assert "destroy" in bench.commands()
