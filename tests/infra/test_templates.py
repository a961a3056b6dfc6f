"""Templates are stack files that hold, as `pulumi new` fills them in."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
import yaml

from infra.artifacts import ROOT
from infra.spec import load, parse
from tests.infra.judged import findings
from tests.infra.plan import plan
from trainyard.price import bill

TEMPLATES = ["local", "aws", "gcp", "azure", "coreweave", "onprem"]


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
    assert stack.provider.kind == template
    assert stack.name == ("dev" if template == "local" else "vision-models")
    assert bill(stack, date(2026, 11, 21)).data()["stack"] == stack.name


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_names_what_pulumi_new_asks_for(template: str) -> None:
    project = yaml.safe_load((ROOT / "templates" / template / "Pulumi.yaml").read_text())
    assert project["name"] == "${PROJECT}"
    assert project["stackConfigDir"] == "stacks"
    assert set(project["template"]) == {"displayName", "description", "quickstart"}


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
