"""All files that state the version, which a test compares and `make release` writes."""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from pathlib import Path

from infra.common.artifacts import ROOT

STATED: Mapping[str, str] = {
    "pyproject.toml": r'^version = "(.+)"$',
    "policies/pyproject.toml": r'^version = "(.+)"$',
    "training/pyproject.toml": r'^version = "(.+)"$',
    "engine/provider/pulumi-plugin.json": r'^  "version": "(.+)"',
    "engine/provider/schema.json": r'^  "version": "(.+)"',
    "policies/PulumiPolicy.yaml": r"^version: (.+)$",
    "policies/pack.py": r'^VERSION = "(.+)"$',
}
"""File → pattern of the line that states the version."""
PAGES = ("README.md", "[pt]*/README.md", "docs/*.md", "templates/*/*.md", "templates/*/Pulumi.yaml")
NAMED = (
    r"(?:trainyard(?:\*|\.git|_train|[_-]policies)?|git\+URL)(?:@v?|/tree/v|-v?)(\d+\.\d+\.\d+)"
    r"|# a tag, v(\d+\.\d+\.\d+)"
)
"""Pattern of a release in commands on the pages."""
CHANGELOG = "CHANGELOG.md"
UNRELEASED = "## Unreleased\n"
_HEADING = re.compile(r"^## (\d+\.\d+\.\d+) - \d{4}-\d{2}-\d{2}$", re.MULTILINE)

Version = tuple[int, ...]


def files(root: Path = ROOT) -> Iterator[tuple[Path, str]]:
    """Yield each file that states a version, and the pattern of the statement."""
    yield from ((root / name, pattern) for name, pattern in STATED.items())
    yield from ((page, NAMED) for glob in PAGES for page in sorted(root.glob(glob)))


def stated(root: Path = ROOT) -> dict[str, set[str]]:
    """Return file → the versions that it states."""
    return {
        str(file.relative_to(root)): {
            version
            for found in re.findall(pattern, file.read_text(), re.MULTILINE)
            for version in _parts(found)
        }
        for file, pattern in files(root)
    }


def write(version: str, on: date, root: Path = ROOT) -> list[Path]:
    """Write a version to all files, and its heading to the changelog; return the files that changed."""
    changed = []
    for file, pattern in files(root):
        text = re.sub(pattern, _with(version), before := file.read_text(), flags=re.MULTILINE)
        if text != before:
            file.write_text(text)
            changed.append(file)
    changelog = root / CHANGELOG
    heading = f"{UNRELEASED}\n## {version} - {on}\n"
    changelog.write_text(changelog.read_text().replace(UNRELEASED, heading, 1))
    return [*changed, changelog]


def problem(version: str, root: Path = ROOT) -> str:
    """Return why this cannot be the next release; empty if it can."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        return f"got {version!r}; allowed: X.Y.Z"
    text = (root / CHANGELOG).read_text()
    former = released(text)
    if former and _ordered(version) <= _ordered(former[0]):
        return f"got {version}; allowed: more than {former[0]}, the last release of {CHANGELOG}"
    _, _, rest = text.partition(UNRELEASED)
    if "- " not in (_HEADING.split(rest)[0] if rest else ""):
        return f"{CHANGELOG} has no change under {UNRELEASED.strip()!r}"
    return ""


def released(changelog: str) -> list[str]:
    """Return the releases of a changelog, newest first."""
    return _HEADING.findall(changelog)


def _parts(found: str | tuple[str, ...]) -> list[str]:
    return [found] if isinstance(found, str) else [each for each in found if each]


def _with(version: str) -> Callable[[re.Match[str]], str]:
    def replaced(match: re.Match[str]) -> str:
        former = next(group for group in match.groups() if group)
        return match[0].replace(former, version)

    return replaced


def _ordered(version: str) -> Version:
    return tuple(map(int, version.split(".")))
