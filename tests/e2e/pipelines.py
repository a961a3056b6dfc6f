"""The pipelines of a project, as `trainyard stack pipeline` writes them."""

from collections.abc import Mapping
from typing import Any

import yaml

from infra.common.artifacts import ROOT
from trainyard.stack.pipeline import Pin, filled

COMMIT = "0123456789abcdef0123456789abcdef01234567"
GITHUB_FILES = ("trainyard.yml", "trainyard-review.yml", "trainyard-operate.yml", "trainyard-team.yml")
STACKS = ("dev", "staging", "prod")


def written(file: str, *stacks: str) -> str:
    """Return a file of a pipeline."""
    repository = "team/trainyard" if file.startswith("github/") else "https://gitlab.com/team/trainyard.git"
    image = f"python:3.11-bookworm@sha256:{0:064}"
    pin = Pin(repository, COMMIT, "templates/pipelines/organisation.json", image)
    return filled((ROOT / "templates/pipelines" / file).read_text(), pin, stacks or STACKS)


CALLER, REVIEW, OPERATE, TEAM = (yaml.safe_load(written(f"github/{file}")) for file in GITHUB_FILES)
JOBS: Mapping[str, Any] = {
    **TEAM["jobs"], **OPERATE["jobs"], **REVIEW["jobs"], "prepare": OPERATE["jobs"]["prepare"],
}  # fmt: skip
"""Jobs of GitHub; `prepare` of both has the same steps."""
GITLAB: Mapping[str, Any] = yaml.safe_load(written("gitlab/.gitlab-ci.yml"))
GITLAB_JOBS = [name for name, job in GITLAB.items() if name[0] != "." and {"script", "extends"} & {*job}]


def gitlab(name: str) -> dict[str, Any]:
    """Return a job of GitLab merged with what it extends, as GitLab does."""
    job = GITLAB[name]
    base = gitlab(job["extends"]) if "extends" in job else {}
    return {**base, **job, "variables": {**base.get("variables", {}), **job.get("variables", {})}}


def github_steps(job: str) -> dict[str, str]:
    """Return the scripts of a job's named steps."""
    return {step["name"]: step["run"] for step in JOBS[job]["steps"] if "run" in step}
