"""`trainyard new`: writes a project from a template of `pulumi new`, without its questions."""

import re
from pathlib import Path

from infra.errors import InputError, Problem
from trainyard.stack.session import Session

_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_QUESTIONS = re.compile(r"^template:\n(?: .*\n)*", re.MULTILINE)
"""The part of a template's Pulumi.yaml that only `pulumi new` reads."""


def write_project(session: Session, template: str, folder: Path) -> None:
    """Write the template's files into a new folder, whose name is the project's.

    Raises:
        InputError: there is no such template, or the folder cannot be a project's.
    """
    templates = session.paths.repository / "templates"
    known = sorted(file.parent.name for file in templates.glob("*/Pulumi.yaml"))
    name, problems = folder.resolve().name, []
    if template not in known:
        problems.append(Problem("TEMPLATE", template, ", ".join(known), "name one of these"))
    if not _NAME.fullmatch(name):
        problems.append(Problem("FOLDER", name, "lower-case letters, digits and -", "name another folder"))
    if folder.exists():
        problems.append(Problem("FOLDER", f"{folder}, which exists", "a new folder", "name another"))
    if problems:
        raise InputError(problems)
    for source in sorted(file for file in (templates / template).rglob("*") if file.is_file()):
        text = source.read_text().replace("${PROJECT}", name).replace("${DESCRIPTION}", f"Project {name}")
        target = folder / source.relative_to(templates / template)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_QUESTIONS.sub("", text) if source.name == "Pulumi.yaml" else text)
    session.console.print(f"{folder}: set what is marked `# yours`, then see its README.md", highlight=False)
