"""The three wheels: each alone in an empty environment, and the command line in a new home."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from email import message_from_bytes
from pathlib import Path

import pytest
import yaml

from infra.common.artifacts import ROOT
from infra.errors import ExitCode
from tests.e2e.rehearsed import caches, copy_repository, plain_environment
from tests.processes import capture

pytestmark = pytest.mark.engine

UV = str(ROOT / ".venv/bin/uv")
STACKS = sorted(file.stem.removeprefix("Pulumi.") for file in (ROOT / "stacks").glob("Pulumi.*.yaml"))
ALL = """
import importlib, json, pkgutil, sys, trainyard_start
trainyard_start.put_tree_first()
import trainyard
from trainyard.cli import app_of
for module in pkgutil.walk_packages(trainyard.__path__, "trainyard."):
    if not module.name.endswith("__main__") and not module.name.startswith("trainyard.page.serve"):
        importlib.import_module(module.name)
for words in json.load(sys.stdin):
    app_of(words)(words, standalone_mode=False)
"""
"""Imports each module of the commands but the page's, then runs a list of commands, in one process."""
IMPORT = """
import ast, importlib, json, pathlib, pkgutil, re, sys, sysconfig
from importlib.metadata import files, packages_distributions, requires

distribution, tree, name, *but = sys.argv[1:]
own = {str(each.locate()) for each in files(distribution)}
sys.path.insert(0, f"{sysconfig.get_path('purelib')}/{tree}")
lacks = {}
package = importlib.import_module(name)
for module in pkgutil.walk_packages(package.__path__, f"{name}.", onerror=lambda _: None):
    if not module.name.endswith("__main__") and not f"{module.name}.".startswith(tuple(but)):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            lacks[module.name] = error.name
of, used = packages_distributions(), set()
for file in {getattr(module, "__file__", None) for module in [*sys.modules.values()]} & own:
    for node in ast.walk(ast.parse(pathlib.Path(file).read_text())):
        names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        used |= set().union(*(of.get(each.partition(".")[0], ()) for each in names))
plain = lambda name: re.sub(r"[-_.]+", "-", re.match(r"[-.\\w]+", name)[0]).lower()
base = {plain(each) for each in requires(distribution) if "extra ==" not in each}
print(json.dumps({"lacks": lacks, "unused": sorted(base - set(map(plain, used)))}))
"""
"""Imports each module of a package; prints what they lack, and packages of the base that none imports."""


NEED_THE_ENGINE = (
    "trainyard.stack.deploy_role.", "trainyard.stack.doctor.", "trainyard.stack.exports.",
    "trainyard.commands.stack.rehearse.", "trainyard.component.", "trainyard.images.images.",
    "trainyard.images.lock.", "trainyard.stack.find.", "trainyard.stack.preview.", "trainyard.stack.schema.",
    "trainyard.stack.unlock.", "trainyard.page.serve",
)  # fmt: skip
"""Modules that import packages of the extras `local` and, the page, `ui`."""
OF_USERS = tuple(
    f"trainyard_train.integrations.{each}." for each in ("accelerate", "lightning", "transformers")
)
"""Modules for users of these frameworks."""


@dataclass(frozen=True)
class Distribution:
    """Where one of the three is, and the package that is imported."""

    source: str
    package: str
    tree: str = ""
    """Folder of the wheel that has the package, if not the environment's own."""
    lock: str = "host"
    optional: tuple[str, ...] = ()


DISTRIBUTIONS = {
    "trainyard": Distribution(".", "trainyard", "trainyard_tree", optional=NEED_THE_ENGINE),
    "trainyard-policies": Distribution("policies", "policies", "trainyard_policies_tree"),
    "trainyard-train": Distribution("training", "trainyard_train", lock="training", optional=OF_USERS),
}


@dataclass(frozen=True)
class InstalledCommand:
    """An installed command line, in a folder with the shipped stack files."""

    home: Path
    project: Path
    variables: dict[str, str]

    def run(self, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        """Run a program that is installed."""
        return capture(words, cwd=self.project, env=self.variables, input=given, timeout=600)

    @property
    def environment(self) -> Path:
        return self.home / ".local/share/uv/tools/trainyard"


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheels by their distributions' names, built from a copy of the repository."""
    folder = tmp_path_factory.mktemp("wheels")
    copy = folder / "repository"
    copy_repository(copy, "tests", "docs")
    for each in DISTRIBUTIONS.values():
        options = ("--wheel", "--offline", "--no-build-isolation", "--python", sys.executable)
        command = (UV, "build", *options, "--out-dir", folder, copy / each.source)
        subprocess.run(command, check=True, capture_output=True)
    shutil.rmtree(copy)
    return {wheel.name.partition("-")[0].replace("_", "-"): wheel for wheel in folder.glob("*.whl")}


@pytest.fixture(scope="module")
def environments(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """An environment for each distribution, with it and its base dependencies alone."""
    folder = tmp_path_factory.mktemp("environments")
    for name, wheel in wheels.items():
        subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, folder / name], check=True)
        lock = ROOT / f"requirements/{DISTRIBUTIONS[name].lock}.txt"
        options = ("--quiet", "--offline", "--python", folder / name, "--constraints", lock)
        subprocess.run((UV, "pip", "install", *options, wheel), check=True)
    return {name: folder / name for name in wheels}


@pytest.fixture(scope="module")
def tool(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> InstalledCommand:
    folder = tmp_path_factory.mktemp("install")
    home, project = folder / "home", folder / "project"
    shutil.copytree(ROOT / "stacks", project / "stacks")
    ours = caches("UV_CACHE_DIR", "TRAINYARD_CACHE", "GOMODCACHE")
    variables = {**plain_environment(folder), **ours, "HOME": str(home), "COLUMNS": "200"}
    variables["PATH"] = f"{home / '.local/bin'}:{os.environ['PATH']}"
    for name in ("TRAINYARD_STACKS", "VIRTUAL_ENV", "XDG_DATA_HOME"):
        variables.pop(name, None)
    for name in ("catalog", "infra", "trainyard"):  # the project's own, which no process of ours imports
        (project / name).mkdir()
        (project / name / "__init__.py").write_text("raise ImportError(__file__)\n")
    variables["PYTHONPATH"] = "."
    found = InstalledCommand(home, project, variables)
    lock, what = str(ROOT / "requirements/host.txt"), f"trainyard[local] @ {wheels['trainyard'].as_uri()}"
    # A clone has uv by pip, so that uv's cache of a new machine lacks it.
    cached = ("--require-hashes", "-r", str(ROOT / ".trainyard/uv.txt"), "--target", str(folder / "uv"))
    found.run(UV, "pip", "install", "--quiet", *cached)
    installed = found.run(UV, "tool", "install", "--offline", "--constraints", lock, what)
    assert installed.returncode == 0, installed.stderr
    return found


def python(environment: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return capture([environment / "bin/python", "-P", *words])


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_each_distribution_alone_imports_all_its_base(environments: dict[str, Path], name: str) -> None:
    each = DISTRIBUTIONS[name]
    imported = python(environments[name], "-c", IMPORT, name, each.tree, each.package, *each.optional)
    assert imported.returncode == 0, imported.stderr
    assert json.loads(imported.stdout) == {"lacks": {}, "unused": []}


def test_no_file_is_in_two_wheels(wheels: dict[str, Path]) -> None:
    """The command's tree has the others' sources too, to build images and to start the pack."""
    files = [name for wheel in wheels.values() for name in zipfile.ZipFile(wheel).namelist()]
    assert len(files) == len(set(files))
    tree = zipfile.Path(wheels["trainyard"]) / "trainyard_tree"
    assert (tree / "policies/pack.py").exists() and (tree / "training/src/trainyard_train/run.py").exists()


def test_the_training_package_has_few_packages_of_its_own(wheels: dict[str, Path]) -> None:
    with zipfile.ZipFile(wheels["trainyard-train"]) as wheel:
        (name,) = [each for each in wheel.namelist() if each.endswith("/METADATA")]
        stated = message_from_bytes(wheel.read(name))
    needed = [each for each in stated.get_all("Requires-Dist", ()) if "extra ==" not in each]
    names = [re.split("[<>=]", each)[0] for each in needed]
    assert names == ["torch", "numpy", "safetensors", "xxhash", "pydantic"]
    assert stated["License-Expression"] == "Apache-2.0"


@pytest.mark.parametrize(("module", "words"), [("train", ("--set", "steps=1")), ("tune", ("{}",))])
def test_training_without_an_extra_names_it(
    environments: dict[str, Path], module: str, words: tuple[str, ...]
) -> None:
    refused = python(environments["trainyard-train"], "-m", f"trainyard_train.{module}", *words)
    assert refused.returncode == ExitCode.WRONG_INPUT
    assert "yaml is not installed; install trainyard-train[cli]" in refused.stderr


def test_a_command_without_its_extra_names_it(environments: dict[str, Path]) -> None:
    command = (environments["trainyard"] / "bin/trainyard", "stack", "deploy-role", "-s", "aws")
    refused = capture(command, cwd=ROOT)
    assert refused.returncode == ExitCode.HOST
    path, got, allowed, fix = refused.stderr.splitlines()[1:]
    assert path == "packages of the extra `local`"
    assert got == "  got:     No module named 'pulumi'"
    assert allowed.startswith("  allowed: pulumi<4,>=3.207, pulumi-kubernetes<5,>=")
    assert fix.startswith("  fix:     ") and " pulumi==3.230.0 " in fix


def test_the_installed_pack_and_its_copy_start_without_a_clone(
    environments: dict[str, Path], tmp_path: Path
) -> None:
    """A copy is what `pulumi install` and `pulumi policy publish` take: whole, with its requirements."""
    environment = environments["trainyard-policies"]
    for target, expected in (((), environment), ((tmp_path / "pack",), tmp_path / "pack/.venv")):
        command = [environment / "bin/trainyard-policies", *target]
        pack = Path(subprocess.check_output(command, text=True).strip())
        runtime = yaml.safe_load((pack / "PulumiPolicy.yaml").read_text())["runtime"]
        assert (pack / runtime["options"]["virtualenv"]).resolve() == expected
        assert "pulumi>=" in (pack / "requirements.txt").read_text()
        started = (environment / "bin/python", "-u", "-P", "-m", "pulumi.policy", "127.0.0.1:1", pack)
        with subprocess.Popen(started, stdout=subprocess.PIPE, text=True) as served:
            assert served.stdout is not None
            port = served.stdout.readline().strip()
            served.kill()
        assert port.isdigit()


def test_the_command_line_alone_is_put_on_path(tool: InstalledCommand) -> None:
    """The engine would use a `pulumi-resource-trainyard` on PATH, whatever version a program pins."""
    names = [each.name for each in (tool.home / ".local/bin").iterdir()]
    assert [each for each in names if "trainyard" in each] == ["trainyard"]


def test_no_other_process_of_the_environment_finds_our_packages(tool: InstalledCommand) -> None:
    find = "from importlib.util import find_spec; print(*map(find_spec, ('engine', 'local', 'policies')))"
    found = tool.run(str(tool.environment / "bin/python"), "-P", "-c", find)
    assert found.stdout == "None None None\n"


def test_commands_without_requests_work_without_a_clone(tool: InstalledCommand) -> None:
    helped = tool.run("trainyard", "--help")
    assert helped.returncode == 0 and "Usage: trainyard" in helped.stdout
    commands = [
        *(["stack", "validate", "--stack", stack] for stack in STACKS),
        *(["cost", "-s", stack] for stack in STACKS if stack != "hybrid"),
        ["catalog", "machines", "--accelerator", "h200"],
        ["new", "aws", "models"],
        ["stack", "validate", "--schema", "json"],
        ["stack", "validate", "--schema", "package"],
    ]
    ran = tool.run(str(tool.environment / "bin/python"), "-P", "-c", ALL, given=json.dumps(commands))
    assert ran.returncode == 0, ran.stderr
    for stack in STACKS:
        assert f"✓ Pulumi.{stack}.yaml is valid" in ran.stdout
    assert "USD/month" in ran.stdout and "gd-8xh200ib-i128" in ran.stdout
    schemas = [ROOT / "stacks/schema.json", ROOT / "engine/provider/schema.json"]
    assert ran.stdout.endswith("".join(file.read_text() for file in schemas))


def test_a_plan_is_made_in_the_environment_that_it_was_installed_in(tool: InstalledCommand) -> None:
    previewed = tool.run("trainyard", "preview", "--stack", "local")
    assert previewed.returncode == 0, previewed.stderr[-3000:]
    assert "kueue.x-k8s.io/v1beta2:LocalQueue team-research/research" in previewed.stderr


def test_a_targets_sdk_is_offered_when_it_is_needed_and_not_before(tool: InstalledCommand) -> None:
    refused = tool.run("trainyard", "preview", "--stack", "coreweave")
    assert refused.returncode == 3
    assert "pulumi-coreweave" in refused.stderr
    assert "fix:     uv tool install 'trainyard[coreweave,local] @ file://" in refused.stderr


def test_a_members_command_asks_the_cluster_by_a_context_alone(tool: InstalledCommand) -> None:
    refused = tool.run("trainyard", "jobs", "--context", "nowhere")
    assert refused.returncode == 2
    assert refused.stderr.startswith("1 problem\n--context\n  got:     'nowhere'")
