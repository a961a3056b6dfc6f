"""The language host under the real engine, as a user runs it by hand: `pulumi …` in a project's folder."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from engine import plugins
from engine.paths import REPOSITORY
from engine.recovery import MARKER
from infra.stackfile.scalars import value_of
from tests.e2e.engines import installed
from tests.infra.stackfile.test_scalars import PASSED
from tests.processes import TIMEOUT_SECONDS, wait_for

pytestmark = pytest.mark.engine

RUNTIME = {"name": "python", "options": {"virtualenv": sys.prefix}}

PROGRAM = """
import os, time
import pulumi
from pulumi.dynamic import CreateResult, Resource, ResourceProvider

class Sleeper(ResourceProvider):
    def create(self, props):
        time.sleep(float(props["seconds"]))
        if "ASLEEP" in os.environ:
            open(os.environ["ASLEEP"] + ".begun", "w").close()
        while os.path.exists(os.environ.get("ASLEEP", "")):
            time.sleep(0.05)
        return CreateResult("one", {**props, "slept": True})

class Nap(Resource):
    slept: pulumi.Output[bool]
    def __init__(self, name, seconds):
        super().__init__(Sleeper(), name, {"seconds": seconds, "slept": None})

config = pulumi.Config()
nap = Nap("nap", config.get_float("seconds") or 0)
print("hello from the program")
pulumi.export("slept", nap.slept)
pulumi.export("organization", pulumi.get_organization())
pulumi.export("password", config.require_secret("password"))
"""

POLICIES = """
from pulumi_policy import EnforcementLevel, PolicyPack, ResourceValidationPolicy

def short(resource, report):
    if resource.props.get("seconds", 0) > 5:
        report("a nap of more than 5 s")

PolicyPack("naps", policies=[ResourceValidationPolicy(
    name="short",
    description="Naps are short.",
    enforcement_level=EnforcementLevel.MANDATORY,
    validate=short,
)])
"""


class PulumiProject:
    """A project with a separate backend, in which `pulumi` runs."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.program = folder / "program"
        self.policies = folder / "policies"
        self.environment = os.environ | environment
        for place, name, project, code in (
            (self.program, "Pulumi.yaml", {"name": "tiny"}, PROGRAM),
            (self.policies, "PulumiPolicy.yaml", {"name": "naps", "version": "0.1.0"}, POLICIES),
        ):
            place.mkdir()
            (place / name).write_text(yaml.safe_dump(project | {"runtime": RUNTIME}))
            (place / "__main__.py").write_text(code)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["pulumi", "--non-interactive", *arguments],
            cwd=self.program,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str) -> tuple[int, str]:
        process = self.start(*arguments)
        output, _ = process.communicate(timeout=600)
        return process.returncode, output

    def outputs(self) -> dict[str, Any]:
        code, output = self.run("stack", "output", "--json")
        assert code == 0
        found: dict[str, Any] = json.loads(output)
        return found


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    found = installed(tmp_path_factory.mktemp("state"), "binary/pulumi", "plugin/python-exec")
    plugins.install(Path(found["PULUMI_HOME"]), REPOSITORY / ".trainyard/bin")
    return found | {"PULUMI_IGNORE_AMBIENT_PLUGINS": "true"}


@pytest.fixture
def project(tmp_path: Path, environment: dict[str, str]) -> PulumiProject:
    project = PulumiProject(tmp_path, environment)
    stack = f"s{tmp_path.name[-30:].strip('_').replace('_', '-')}"
    assert project.run("stack", "init", stack)[0] == 0
    assert project.run("config", "set", "--secret", "password", "hunter2")[0] == 0
    return project


def left_running(project: PulumiProject) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if str(project.program) in " ".join(process.cmdline()) or process.cwd() == str(project.program):
                found.append(process)
        except psutil.Error:
            continue
    return found


def variable(process: psutil.Process, name: str) -> str:
    try:
        return process.environ().get(name, "")
    except psutil.Error:
        return ""


def read_until(engine: subprocess.Popen[str], text: str) -> str:
    """Read what the engine prints, up to a line that has the text."""
    assert engine.stdout is not None
    output = ""
    while text not in output:
        line = engine.stdout.readline()
        assert line, f"it ended: {output}"
        output += line
    return output


def test_up_runs_a_program_with_its_config_its_secrets_and_a_dynamic_resource(project: PulumiProject) -> None:
    code, output = project.run("up", "--yes", "--skip-preview")
    assert code == 0, output
    assert "hello from the program" in output
    assert "warning" not in output
    assert project.outputs() == {"slept": True, "organization": "organization", "password": "[secret]"}
    code, output = project.run("up", "--yes", "--skip-preview", "--expect-no-changes")
    assert code == 0, output
    assert left_running(project) == []


WORDS = st.sampled_from([*PASSED, "0", "00", "true", "FALSE", "null", "~", "+1", "1e-7", "-1_0", "0O7", "0X"])
PIECES = st.lists(st.sampled_from([*"0123456789", *"_.-+:eExXoObBTZaf ", "2026-", "11:"]), max_size=12)


def is_plain(text: str) -> bool:
    """Whether YAML reads the text as one unquoted scalar, and JSON can express it."""
    try:
        node = yaml.compose(f"key: {text}")
    except yaml.YAMLError:
        return False
    value = node.value[0][1] if isinstance(node, yaml.MappingNode) and len(node.value) == 1 else None
    return (
        isinstance(value, yaml.ScalarNode) and value.value == text and not text.startswith("0000")
    )  # Go has a year 0


def test_every_unquoted_scalar_is_passed_to_the_program_as_the_stack_files_reader_reads_it(
    project: PulumiProject,
) -> None:
    (project.program / "__main__.py").write_text(
        "import os\nopen('seen.json', 'w').write(os.environ['PULUMI_CONFIG'])"
    )
    [file] = project.program.glob("Pulumi.*.yaml")
    before = yaml.safe_load(file.read_text())

    @settings(max_examples=4, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(st.sets(WORDS | PIECES.map("".join).filter(is_plain), min_size=100, max_size=200))
    def holds(texts: set[str]) -> None:
        written = dict(enumerate(sorted(texts)))
        lines = [f"    k{number}: {text}" for number, text in written.items()]
        head = yaml.safe_dump({key: value for key, value in before.items() if key != "config"})
        config = yaml.safe_dump({"config": before["config"]})
        file.write_text("\n".join([f"{head}{config}  tiny:scalars:", *lines, ""]))
        code, output = project.run("preview")
        assert code == 0, output
        seen = json.loads(json.loads((project.program / "seen.json").read_text())["tiny:scalars"])
        found = {text: seen[f"k{number}"] for number, text in written.items()}
        assert {text: repr(value) for text, value in found.items()} == {
            text: repr(value_of(text)) for text in found
        }

    holds()


def test_a_policy_pack_evaluates_a_preview(project: PulumiProject) -> None:
    code, output = project.run("preview", "--policy-pack", str(project.policies))
    assert code == 0, output
    project.run("config", "set", "seconds", "9")
    code, output = project.run("preview", "--policy-pack", str(project.policies))
    assert code != 0
    assert "a nap of more than 5 s" in output
    assert "Traceback" not in output


def test_an_exception_in_the_program_is_shown_once_with_the_users_frames_only(project: PulumiProject) -> None:
    with (project.program / "__main__.py").open("a") as program:
        program.write("raise ValueError('no such zone')\n")
    code, output = project.run("preview")
    assert code != 0
    assert output.count("ValueError: no such zone") == 1
    assert "runpy" not in output


def test_ctrl_c_waits_for_what_is_under_way_and_ends_without_a_traceback(project: PulumiProject) -> None:
    asleep = project.program / "asleep"
    asleep.touch()
    project.environment["ASLEEP"] = str(asleep)
    engine = project.start("up", "--yes", "--skip-preview")
    output = read_until(engine, "nap creating")
    engine.send_signal(signal.SIGINT)
    output += read_until(engine, "cancelling")
    asleep.unlink()
    rest, _ = engine.communicate(timeout=TIMEOUT_SECONDS)
    assert "nap created" in rest
    assert "Traceback" not in output + rest
    assert engine.returncode != 0
    assert left_running(project) == []
    code, output = project.run("up", "--yes", "--skip-preview")
    assert code == 0, output
    assert "nap created" not in output


def test_a_killed_engine_takes_the_host_and_the_program_with_it(project: PulumiProject) -> None:
    with (project.program / "__main__.py").open("a") as program:
        program.write("print('napping', flush=True); time.sleep(600)\n")
    engine = project.start("preview")
    read_until(engine, "napping")
    engine.kill()
    engine.wait()
    wait_for(lambda: not left_running(project), lambda: f"left running: {left_running(project)}")


OPERATE = """
import os, sys
from pathlib import Path
from engine.engine import Engine
from engine.paths import Paths
from engine.progress import for_stream
operation, stack, project, state = sys.argv[1:]
paths = Paths(cache=Path(), state=Path(state), repository=Path(project))
getattr(Engine(paths, {}), operation)(stack, for_stream())
"""


def test_two_commands_at_once_spare_each_others_plugins(project: PulumiProject, tmp_path: Path) -> None:
    engine = Path(project.environment["PULUMI_BACKEND_URL"].removeprefix("file://"))
    (project.program / "stacks").mkdir()
    with (project.program / "Pulumi.yaml").open("a") as file:
        file.write("stackConfigDir: stacks\n")
    for stack in "ab":
        (project.program / f"stacks/Pulumi.{stack}.yaml").write_text("config: {tiny:password: hunter2}\n")
        (tmp_path / stack).touch()

    def start(operation: str, stack: str) -> subprocess.Popen[str]:
        words = [operation, stack, str(project.program), str(engine.parent)]
        variables = {**project.environment, "ASLEEP": str(tmp_path / stack)}
        command = [sys.executable, "-c", OPERATE, *words]
        return subprocess.Popen(command, cwd=REPOSITORY, env=variables, stderr=subprocess.PIPE, text=True)

    def marked(stack: str) -> list[psutil.Process]:
        folder = f"{engine}/runs/{stack}@"
        return [each for each in psutil.process_iter() if variable(each, MARKER).startswith(folder)]

    first, killed = start("up", "a"), start("up", "b")
    try:
        wait_for(lambda: all((tmp_path / f"{stack}.begun").exists() for stack in "ab"))
        running = marked("a")
        assert {"pulumi"} < {each.name() for each in running}
        killed.kill()
        (tmp_path / "b").unlink()
        for operation, stack, code in (("up", "b", 0), ("destroy", "b", 0), ("preview", "a", 1)):
            other = start(operation, stack)
            _, output = other.communicate(timeout=600)
            assert other.returncode == code, output
        assert "held by process" in output
        assert all(each.is_running() for each in running)
        (tmp_path / "a").unlink()
        _, output = first.communicate(timeout=600)
        assert first.returncode == 0, output
    finally:
        first.kill()
        killed.kill()


def test_about_and_install_work_as_with_the_official_host(project: PulumiProject) -> None:
    code, output = project.run("about", "--json")
    assert code == 0
    about = json.loads(output)
    assert about["runtime"]["executable"] == f"{sys.prefix}/bin/python"
    assert "trainyard" in {each["name"] for each in about["dependencies"]}
    file = project.program / "Pulumi.yaml"
    file.write_text(file.read_text().replace(sys.prefix, "fresh"))
    code, output = project.run("install")
    assert code == 0, output
    assert (project.program / "fresh" / "bin" / "python").exists()


def test_the_program_starts_with_a_relative_path(project: PulumiProject, environment: dict[str, str]) -> None:
    (project.program / "infra").symlink_to(REPOSITORY / "infra")
    with (project.program / "Pulumi.yaml").open("a") as file:
        file.write("main: infra\n")
    project.environment["PYTHONPATH"] = "."
    code, output = project.run("preview")
    assert code != 0
    assert "Missing required configuration variable 'trainyard:stack'" in output
