"""The templates of `pulumi new`: valid once filled in, with the spec's questions and no policy violations."""

import tomllib
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.common.artifacts import ROOT
from infra.stackfile import load, parse, parse_fleet
from infra.stackfile.job_file import parse_job
from tests.infra.evaluated import findings
from tests.infra.golden import assert_matches
from tests.infra.plan import plan
from tests.infra.template_questions import ASKED, questions, questions_of_program, with_questions
from trainyard.component.outputs import OUTPUTS
from trainyard.component.training_job import check
from trainyard.cost.price import price_report

TEMPLATES = ["local", "aws", "gcp", "azure", "coreweave", "onprem"]
"""Templates of clusters."""
PROGRAMS = [*TEMPLATES, "fleet"]
ALL = [*PROGRAMS, "job", "policies"]
PACKAGE = "https://github.com/your-organisation/trainyard.git@{version}"


def filled(template: str, name: str) -> dict[str, object]:
    """Return the stack file with the project's name, after which the engine adds a newline in YAML files."""
    text = (ROOT / "templates" / template / "stacks" / "Pulumi.dev.yaml").read_text()
    data: dict[str, object] = yaml.safe_load(text.replace("${PROJECT}", f"{name}\n"))
    return data


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_is_a_valid_stack_and_can_be_priced(template: str) -> None:
    config = filled(template, "vision-models")["config"]
    assert isinstance(config, dict)
    stack = parse(config["trainyard:stack"])
    assert stack.target.kind == template
    assert stack.name == ("dev" if template == "local" else "vision-models")
    assert price_report(stack, date(2026, 11, 21)).data()["stack"] == stack.name


def project_of(template: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "templates" / template / "Pulumi.yaml").read_text())
    return found


def test_every_folder_but_that_of_the_pipelines_is_a_template() -> None:
    folders = {each.name for each in (ROOT / "templates").iterdir()}
    assert folders == {*ALL, "pipelines"}
    files = [file for file in (ROOT / "templates").rglob("*") if file.name != "bin"]
    assert not [file for file in files if file.is_symlink()]


@pytest.mark.parametrize("template", ALL)
def test_a_template_has_two_placeholders_and_uses_the_package_of_this_version(template: str) -> None:
    project = project_of(template)
    assert (project["name"], project["description"]) == ("${PROJECT}", "${DESCRIPTION}")
    assert set(project["template"]) - {"config"} == {"displayName", "description", "quickstart"}
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert project["packages"]["trainyard"] == PACKAGE.format(version=version)


@pytest.mark.parametrize("template", ALL)
def test_a_templates_questions_are_those_of_the_spec(template: str) -> None:
    """Descriptions are the spec's, defaults those of the template's stack file; there are at most six."""
    asked = questions_of_program(template, project_of(template))
    if template in TEMPLATES:
        config = filled(template, "vision-models")["config"]
        assert isinstance(config, dict)
        asked = questions(template, config["trainyard:stack"])
    file = ROOT / "templates" / template / "Pulumi.yaml"
    assert_matches(with_questions(file.read_text(), asked), file)
    assert (project_of(template)["template"].get("config") or {}) == asked
    assert len(asked) <= 6


@pytest.mark.parametrize("template", ASKED)
def test_answers_become_values_of_the_stack(template: str, tmp_path: Path) -> None:
    """The engine writes each answer as a string, under a separate key."""
    data: Any = filled(template, "vision-models")
    asked = questions(template, data["config"]["trainyard:stack"])
    data["config"] |= {key: each["default"] for key, each in asked.items()}
    file = tmp_path / "Pulumi.dev.yaml"
    file.write_text(yaml.safe_dump(data))
    assert load(file) == parse(filled(template, "vision-models")["config"]["trainyard:stack"])  # type: ignore[index]


@pytest.mark.parametrize("template", PROGRAMS)
def test_a_template_passes_the_stack_file_to_the_component_and_exports_all_outputs(template: str) -> None:
    project = project_of(template)
    key, kind = ("fleet", "Fleet") if template == "fleet" else ("stack", "Cluster")
    ((name, resource),) = project["resources"].items()
    assert resource == {"type": f"trainyard:{kind}", "properties": {key: f"${{trainyard:{key}}}"}}
    assert project["stackConfigDir"] == "stacks"
    assert project["outputs"] == {output: f"${{{name}.{output}}}" for output in OUTPUTS[kind]}


def test_the_jobs_template_is_a_valid_job() -> None:
    data = project_of("job")["resources"]["training"]["properties"]["job"]
    known = {"${pulumi.project}": "vision", "${team}": "research"}
    job = parse_job({key: known.get(str(value), value) for key, value in data.items()})
    check(job)
    assert (job.name, job.team) == ("vision", "research")
    assert set(project_of("job")["outputs"]) <= set(OUTPUTS["TrainingJob"])


def test_the_fleets_template_is_a_valid_fleet() -> None:
    config = filled("fleet", "vision")["config"]
    assert isinstance(config, dict)
    assert parse_fleet(config["trainyard:fleet"]).name == "vision"


@pytest.mark.clouds
@pytest.mark.parametrize("template", [name for name in TEMPLATES if name != "aws"])
def test_a_templates_plan_violates_no_policies(template: str, tmp_path: Path, rendered: Path) -> None:
    """The pipeline's tests evaluate that of AWS on the real engine."""
    data = filled(template, "vision-models")
    file = tmp_path / "Pulumi.dev.yaml"
    file.write_text(yaml.safe_dump(data))
    assert findings("dev", plan(load(file), rendered), file=file) == []
