"""`trainyard stack pipeline`: writes a project's pipeline, which names one commit of a copy of Trainyard."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from infra.errors import InputError, Problem
from trainyard.stack.session import Session

SERVICES: Mapping[str, Mapping[str, str]] = {
    "github": {
        "github/trainyard.yml": ".github/workflows/trainyard.yml",
        "github/trainyard-review.yml": ".github/workflows/trainyard-review.yml",
        "github/trainyard-operate.yml": ".github/workflows/trainyard-operate.yml",
        "github/trainyard-team.yml": ".github/workflows/trainyard-team.yml",
        "github/team-form.yml": ".github/ISSUE_TEMPLATE/trainyard-team.yml",
        "github/dependabot.yml": ".github/dependabot.yml",
    },
    "gitlab": {"gitlab/.gitlab-ci.yml": ".gitlab-ci.yml"},
    "azure": {"azure/azure-pipelines.yml": "azure-pipelines.yml"},
    "jenkins": {"jenkins/Jenkinsfile": "Jenkinsfile"},
}
"""Service → its files of templates/pipelines, and their places in the project."""
_STACK = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
"""A stack that can be the name of a job."""
_EACH = re.compile(r" *# @BEGIN@.*\n((?:.*\n)*)")
"""The end of a file that is repeated for each stack."""


@dataclass(frozen=True)
class Pin:
    """What a pipeline runs: a commit never moves, as a branch or a tag can."""

    repository: str
    commit: str
    organisation_file: str
    image: str = ""
    """Image of GitLab's jobs, by digest."""

    def problems(self, service: str) -> Iterator[Problem]:
        """Yield what is wrong for a service."""
        is_name = service == "github"
        form, allowed = (
            (r"[A-Za-z0-9-]+/[\w.-]+", "owner/name") if is_name else (r"(https|ssh)://[\w@:./~-]+", "a URL")
        )
        if not re.fullmatch(form, self.repository):
            yield Problem("--repository", repr(self.repository), allowed, "name your copy of Trainyard")
        if not re.fullmatch(r"[0-9a-f]{40}", self.commit):
            fix = "write what `git -C <your copy> rev-parse HEAD` prints: branches and tags can move"
            yield Problem("--commit", repr(self.commit), "40 hex digits", fix)
        if not re.fullmatch(r"[\w./-]+", self.organisation_file) or ".." in self.organisation_file:
            yield Problem("--organisation-file", self.organisation_file, "a path in your copy", "name it")
        if service == "gitlab" and not re.fullmatch(r"[\w./:-]+@sha256:[0-9a-f]{64}", self.image):
            fix = "python:3.11-bookworm by the digest of `docker buildx imagetools inspect`"
            yield Problem("--image", repr(self.image), "an image by digest, NAME@sha256:…", fix)


def write_pipeline(session: Session, service: str, pin: Pin, stacks: Sequence[str], folder: Path) -> None:
    """Write the service's files into the project. Raises InputError."""
    chosen = list(stacks) or session.paths.stack_names()
    problems = [*pin.problems(service)]
    if service not in SERVICES:
        problems.append(Problem("SERVICE", service, ", ".join(SERVICES), "name one of these"))
    elif service != "github" and len(chosen) != 1:
        fix = "name one by -s; write a pipeline for each other one in a file of its own"
        problems.append(Problem("--stack", ", ".join(chosen) or "none", "one stack", fix))
    problems += [
        Problem("--stack", each, "letters, digits, _ and -, first a letter", "rename its file")
        for each in chosen
        if not _STACK.fullmatch(each)
    ]
    if problems:
        raise InputError(problems)
    for source, place in SERVICES[service].items():
        text = (session.paths.repository / "templates/pipelines" / source).read_text()
        target = folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(filled(text, pin, chosen))
        session.console.print(f"{target}", highlight=False, soft_wrap=True)


def filled(text: str, pin: Pin, stacks: Sequence[str]) -> str:
    """Return a file for these stacks: each job of `up` needs that of the stack before it."""

    def repeated(part: re.Match[str]) -> str:
        before = ["changed", *(f"changed, {each}" for each in stacks)]
        return "".join(
            part[1].replace("@STACK@", stack).replace("@NEEDS@", needs)
            for stack, needs in zip(stacks, before, strict=False)
        )

    values = {
        "@REPOSITORY@": pin.repository,
        "@COMMIT@": pin.commit,
        "@ORGANISATION_FILE@": pin.organisation_file,
        "@IMAGE@": pin.image,
        "@STACKS@": " ".join(stacks),
    }
    text = _EACH.sub(repeated, text)
    for word, value in {**values, "@STACK@": stacks[0]}.items():
        text = text.replace(word, value)
    return text
