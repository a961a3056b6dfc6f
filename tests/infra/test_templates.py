"""Templates are stack files that hold, as `pulumi new` fills them in."""

from __future__ import annotations

import tomllib
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.artifacts import ROOT
from infra.spec import load, parse, parse_fleet
from tests.infra.judged import findings
from tests.infra.plan import plan
from trainyard.component.outputs import OUTPUTS
from trainyard.price import bill

TEMPLATES = ["local", "aws", "gcp", "azure", "coreweave", "onprem", "team"]
"""Those of a cluster, or of a part of one."""
PROGRAMS = [*TEMPLATES, "fleet"]
PACKAGE = "https://github.com/your-organisation/trainyard.git@{version}"


def filled(template: str, name: str) -> dict[str, object]:
    """The stack file with the project's name; the engine puts a line end behind it in YAML files."""
    text = (ROOT / "templates" / template / "stacks" / "Pulumi.dev.yaml").read_text()
    data: dict[str, object] = yaml.safe_load(text.replace("${PROJECT}", f"{name}\n"))
    return data


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_is_a_stack_that_holds_and_can_be_priced(template: str) -> None:
    config = filled(template, "vision-models")["config"]
    assert isinstance(config, dict)
    stack = parse(config["trainyard:stack"])
    assert stack.provider.kind == ("onprem" if template == "team" else template)
    assert stack.name == ("dev" if template == "local" else "vision-models")
    assert bill(stack, date(2026, 11, 21)).data()["stack"] == stack.name


def project_of(template: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "templates" / template / "Pulumi.yaml").read_text())
    return found


def test_every_folder_but_that_of_the_pipelines_is_a_template() -> None:
    folders = {each.name for each in (ROOT / "templates").iterdir()}
    assert folders == {*PROGRAMS, "policies", "pipelines"}
    files = [file for file in (ROOT / "templates").rglob("*") if file.name != "bin"]
    assert not [file for file in files if file.is_symlink()]


@pytest.mark.parametrize("template", [*PROGRAMS, "policies"])
def test_a_template_asks_for_two_names_and_uses_the_package_of_this_version(template: str) -> None:
    project = project_of(template)
    assert (project["name"], project["description"]) == ("${PROJECT}", "${DESCRIPTION}")
    assert set(project["template"]) == {"displayName", "description", "quickstart"}
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert project["packages"]["trainyard"] == PACKAGE.format(version=version)


@pytest.mark.parametrize("template", PROGRAMS)
def test_a_template_hands_the_stack_file_to_the_component_and_exports_all_of_it(template: str) -> None:
    project = project_of(template)
    key, kind = ("fleet", "Fleet") if template == "fleet" else ("stack", "Cluster")
    ((name, resource),) = project["resources"].items()
    assert resource == {"type": f"trainyard:{kind}", "properties": {key: f"${{trainyard:{key}}}"}}
    assert project["stackConfigDir"] == "stacks"
    assert project["outputs"] == {output: f"${{{name}.{output}}}" for output in OUTPUTS[kind]}


def test_the_fleets_template_is_a_fleet_that_holds() -> None:
    config = filled("fleet", "vision")["config"]
    assert isinstance(config, dict)
    assert parse_fleet(config["trainyard:fleet"]).name == "vision"


@pytest.mark.clouds
@pytest.mark.parametrize("template", [name for name in TEMPLATES if name != "aws"])
def test_the_policies_find_nothing_in_what_a_template_makes(
    template: str, tmp_path: Path, rendered: Path
) -> None:
    """That of AWS is judged on the real engine, by the pipeline's own tests."""
    data = filled(template, "vision-models")
    file = tmp_path / "Pulumi.dev.yaml"
    file.write_text(yaml.safe_dump(data))
    assert findings("dev", plan(load(file), rendered), file=file) == []
