"""What `make release` writes: wheels, each alone in an empty environment; the pages' lines in a new home."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from email import message_from_bytes
from importlib.metadata import distributions
from pathlib import Path

import pytest
import yaml

import release
from infra.common.artifacts import ROOT
from infra.errors import ExitCode
from tests.e2e.rehearsed import plain_environment
from tests.local.toolchain.test_sbom import fault_in
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
OF_USERS = (
    *(f"trainyard_train.integrations.{each}." for each in ("accelerate", "lightning", "transformers")),
    "trainyard_train.checkpointing.object_store.",
)
"""Modules for users of these frameworks, and of the extra `stores`."""


_LINE = re.compile(r"(?:uv tool|uv pip) install (?:-\S+ (?!-)\S+ |-\S+ )*'?(?:\.|dist/|pyproject)[^`\n#]*")
PAGES = [ROOT / "README.md", *(page for page in ROOT.glob("[dept]*/**/*.md") if "tests" not in page.parts)]
LINES = sorted({line.strip() for page in PAGES for line in _LINE.findall(page.read_text())})
"""All lines of the pages that install something of ours."""


@dataclass(frozen=True)
class Distribution:
    """One of the three: the package that is imported."""

    package: str
    tree: str = ""
    """Folder of the wheel that has the package, if not the environment's own."""
    lock: str = "host"
    optional: tuple[str, ...] = ()


DISTRIBUTIONS = {
    "trainyard": Distribution("trainyard", "trainyard_tree", optional=NEED_THE_ENGINE),
    "trainyard-policies": Distribution("policies", "trainyard_policies_tree"),
    "trainyard-train": Distribution("trainyard_train", lock="training", optional=OF_USERS),
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
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone after `make release`."""
    folder = tmp_path_factory.mktemp("clone")
    release.copy_files(folder)
    release.write(folder / "dist")
    # A clone has uv by pip, so that uv's cache of a new machine lacks it.
    cached = ("--require-hashes", "-r", ROOT / ".trainyard/uv.txt", "--target", folder / ".trainyard/uv")
    subprocess.run((UV, "pip", "install", "--quiet", *cached), check=True)
    return folder


@pytest.fixture(scope="module")
def wheels(clone: Path) -> dict[str, Path]:
    """The wheels by their distributions' names."""
    return {each.name.partition("-")[0].replace("_", "-"): each for each in clone.glob("dist/*.whl")}


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
def tool(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> InstalledCommand:
    folder = tmp_path_factory.mktemp("install")
    project = Path(shutil.copytree(ROOT / "stacks", folder / "project/stacks")).parent
    (project / "dist").symlink_to(clone / "dist")
    for name in ("catalog", "infra", "trainyard"):  # the project's own, which no process of ours imports
        (project / name).mkdir()
        (project / name / "__init__.py").write_text("raise ImportError(__file__)\n")
    found = newcomer(folder, project)
    found.variables["PYTHONPATH"] = "."
    (line,) = [each for each in LINES if "dist/trainyard-" in each]
    installed = found.run("sh", "-c", line)
    assert installed.returncode == 0, installed.stderr
    return found


def newcomer(folder: Path, project: Path) -> InstalledCommand:
    """Return a user with an empty home; uv takes from this host's cache what the locks have."""
    home = folder / "home"
    home.mkdir()
    host = str(ROOT / "requirements/host.txt")
    variables = {
        **plain_environment(folder),
        "UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR", str(Path.home() / ".cache/uv")),
        "UV_OFFLINE": "1",
        "UV_PYTHON": sys.executable,
        "UV_CONSTRAINT": host,
        "UV_BUILD_CONSTRAINT": host,
        "TRAINYARD_CACHE": os.environ.get("TRAINYARD_CACHE", str(Path.home() / ".cache/trainyard")),
        "GOMODCACHE": os.environ.get("GOMODCACHE", str(Path.home() / "go/pkg/mod")),
        "HOME": str(home),
        "COLUMNS": "200",
        "PATH": f"{home / '.local/bin'}:{Path(UV).parent}:{os.environ['PATH']}",
    }
    for name in ("PYTHONPATH", "TRAINYARD_STACKS", "VIRTUAL_ENV", "XDG_DATA_HOME"):
        variables.pop(name, None)
    return InstalledCommand(home, project, variables)


def python(environment: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return capture([environment / "bin/python", "-P", *words])


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_each_distribution_alone_imports_all_its_base(environments: dict[str, Path], name: str) -> None:
    each = DISTRIBUTIONS[name]
    imported = python(environments[name], "-c", IMPORT, name, each.tree, each.package, *each.optional)
    assert imported.returncode == 0, imported.stderr
    assert json.loads(imported.stdout) == {"lacks": {}, "unused": []}


def installed_here() -> dict[str, str | None]:
    """Return where each distribution of our own environment is from: of ours, the clone, editable."""
    return {each.name: each.read_text("direct_url.json") for each in distributions()}


@pytest.mark.parametrize("line", LINES)
def test_an_install_line_of_the_pages_works_as_printed(line: str, clone: Path, tmp_path: Path) -> None:
    new = newcomer(tmp_path, clone)
    if "./training" in line:
        new.variables["UV_CONSTRAINT"] = str(ROOT / "requirements/training.txt")
    start = "trainyard --help" if "uv tool" in line else ":"
    # The variable names our own environment: with it `uv pip` would install into that one.
    made = "uv venv -q --clear; uv venv -q ~/.trainyard; unset UV_PYTHON"
    before = installed_here()
    ended = new.run("sh", "-ec", f"{made}\n{line}\n{start}")
    assert installed_here() == before, "another environment than the reader's"
    assert ended.returncode == 0, ended.stderr


def test_a_release_has_sums_bills_of_materials_notes_and_the_pack(clone: Path, tmp_path: Path) -> None:
    dist = clone / "dist"
    assert capture(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=dist).returncode == 0
    assert len((dist / "SHA256SUMS").read_text().splitlines()) == 8
    for name, has in {"": "pulumi-aws", "-policies": "grpcio", "-train": "torch"}.items():
        (bill,) = dist.glob(f"trainyard{name}-[0-9]*.cdx.json")
        text = bill.read_text()
        assert fault_in(text) is None
        assert f'"name": "{has}"' in text and '"name": "pytest"' not in text
    assert "\n- " in (dist / "NOTES.md").read_text()
    (archive,) = dist.glob("trainyard-policies-*.tar.gz")
    shutil.unpack_archive(archive, tmp_path, filter="data")
    (manifest,) = tmp_path.glob("*/PulumiPolicy.yaml")
    assert "virtualenv: .venv\n" in manifest.read_text() and (manifest.parent / "catalog").is_dir()


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
    assert [re.split("[<>=]", each)[0] for each in needed] == [
        "torch",
        "numpy",
        "safetensors",
        "xxhash",
        "pydantic",
    ]
    assert stated["License-Expression"] == "Apache-2.0"


@pytest.mark.parametrize(
    ("module", "words", "lacks"),
    [
        ("train", ("--set", "steps=1"), "yaml is not installed; install trainyard-train[cli]"),
        ("tune", ("{}",), "yaml is not installed; install trainyard-train[cli]"),
    ],
)
def test_training_without_an_extra_names_it(
    environments: dict[str, Path], module: str, words: tuple[str, ...], lacks: str
) -> None:
    refused = python(environments["trainyard-train"], "-m", f"trainyard_train.{module}", *words)
    assert refused.returncode == ExitCode.WRONG_INPUT
    assert lacks in refused.stderr


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
    assert [each.name for each in (tool.home / ".local/bin").iterdir() if "trainyard" in each.name] == [
        "trainyard"
    ]


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
