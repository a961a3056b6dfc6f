"""Lists the files of a folder that are sent as code, with the commit and the files that are left out.

In a git repository the tracked files are sent, elsewhere those that `.gitignore` does not ignore.
`.trainyardignore` excludes some of them, and the user may name further ones.
"""

import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from infra.errors import HostError, InputError, Problem
from trainyard.source.pack import Stored, matches

IGNORE = ".trainyardignore"
"""Name of the file that lists what is not uploaded, in the form of .gitignore."""
_INSIDE = ("rev-parse", "--is-inside-work-tree")
_TRACKED = ("ls-files", "-z", "--cached", "--recurse-submodules")
_IGNORED = ("ls-files", "-z", "--cached", "--ignored", f"--exclude-per-directory={IGNORE}")
_UNTRACKED = ("ls-files", "-z", "--others", "--exclude-standard")
_COMMIT = ("rev-parse", "--verify", "--quiet", "HEAD")
_CHANGED = ("status", "--porcelain", "--untracked-files=no", "--", ".")
_IGNORED_BY_GIT = ("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
_STORED = ("ls-files", "-z", "--stage", "--eol")
_CANNOT = ("config", "--get-regexp", r"^core\.(filemode|symlinks|autocrlf)$")
_OF_DESKTOPS = (".DS_Store", "._*", "Thumbs.db", "desktop.ini", "*:Zone.Identifier")
"""Patterns of files that macOS and Windows write into folders that are looked at; never sent."""
_LEFT_BEHIND = (
    *_OF_DESKTOPS,
    ".*",
    "*.egg-info",
    "*.pyc",
    "__pycache__",
    "build",
    "dist",
    "env",
    "node_modules",
    "venv",
)
"""Patterns of files that tools leave behind; most ignored files are such."""


@dataclass(frozen=True)
class Listing:
    """The files of a folder that a job gets."""

    names: tuple[str, ...]
    """Paths of the files, relative to the folder."""
    untracked: tuple[str, ...] = ()
    """Files that git neither tracks nor ignores; they are not code."""
    ignored: tuple[str, ...] = ()
    """Files and folders that git ignores, except what tools leave behind: a program may need them."""
    commit: str = ""
    """The commit that is checked out; empty outside of git."""
    dirty: bool = False
    """Whether tracked files differ from the commit."""
    stored: Mapping[str, Stored] = field(default_factory=dict)
    """What git stores in another form than this disk."""


def list_files(folder: Path, listed: Sequence[str] = ()) -> Listing:
    """List the files; `listed` are patterns of untracked files to include.

    Raises:
        InputError: a pattern finds nothing, or git cannot read the folder.
        HostError: there is no git.
    """
    if shutil.which("git") is None:
        got, fix = "git: not installed", "install it; a folder need not be a repository"
        raise HostError([Problem("PATH", got, "git, which lists what is ignored", fix)])
    more = _listed(folder, listed)
    if not _is_repository(folder):
        return Listing((*(name for name in _not_ignored(folder) if not _fits(name, _OF_DESKTOPS)), *more))
    left_out = set(_split(_git(folder, *_IGNORED)))
    untracked = (name for name in _split(_git(folder, *_UNTRACKED)) if not _fits(name, _OF_DESKTOPS))
    tracked = dict.fromkeys(_split(_git(folder, *_TRACKED)))
    return Listing(
        names=(*(each for each in tracked if not (each in left_out or _fits(each, _OF_DESKTOPS))), *more),
        untracked=tuple(
            name
            for name in untracked
            if not (name in more or (name.endswith("/") and any(each.startswith(name) for each in more)))
        ),
        ignored=tuple(_ignored(_git(folder, *_IGNORED_BY_GIT), more)),
        commit=_git(folder, *_COMMIT, check=False).decode().strip(),
        dirty=bool(_git(folder, *_CHANGED).strip()),
        stored=dict(_stored(folder)),
    )


def _is_repository(folder: Path) -> bool:
    """Whether git tracks the folder. Raises InputError if git does not say it, as of another owner's."""
    try:
        return _git(folder, *_INSIDE).strip() == b"true"
    except InputError as error:
        if "not a git repository" in error.problems[0].got:
            return False
        raise


def _stored(folder: Path) -> Iterator[tuple[str, Stored]]:
    """Yield the tracked files whose mode, link or line ends this checkout changes, as on Windows' disks."""
    lines = (line.partition(" ") for line in _git(folder, *_CANNOT, check=False).decode().splitlines())
    settings = {name: value for name, _, value in lines}
    lacks_modes, lacks_links = (settings.get(f"core.{name}") == "false" for name in ("filemode", "symlinks"))
    has_crlf = settings.get("core.autocrlf") == "true"
    if not (lacks_modes or lacks_links or has_crlf):
        return
    for line in _git(folder, *_STORED).split(b"\0")[:-1]:
        stage, ends, name = line.split(b"\t", 2)
        mode = int(stage.split()[0], 8)
        is_text = not any(attribute in ends for attribute in (b"attr/-text", b"eol=crlf"))
        was_lf = has_crlf and is_text and ends.startswith(b"i/lf") and b"w/lf" not in ends
        lacks = lacks_links if stat.S_ISLNK(mode) else lacks_modes
        yield os.fsdecode(name), Stored(mode if lacks else None, was_lf)


def _ignored(output: bytes, taken: Sequence[str]) -> Iterator[str]:
    """Return the files that git ignores, each folder in place of its content."""
    folder = "/"
    for name in sorted(os.fsdecode(each) for each in output.split(b"\0") if each):
        if name.startswith(folder) or _fits(name, _LEFT_BEHIND):
            continue
        folder = name if name.endswith("/") else folder
        if not any(each.startswith(name) for each in taken):
            yield name


def _fits(name: str, patterns: Sequence[str]) -> bool:
    base = name.rstrip("/").rpartition("/")[2]
    return any(fnmatch(base, pattern) for pattern in patterns)


def _not_ignored(folder: Path) -> list[str]:
    """Names that the patterns do not ignore: git evaluates them in an empty repository."""
    with tempfile.TemporaryDirectory(prefix="trainyard-") as folder_path:
        _git(folder, "init", "--quiet", "--bare", folder_path)
        where = (f"--git-dir={folder_path}", "--work-tree=.")
        found = [
            _split(_git(folder, *where, "ls-files", "-z", "--others", f"--exclude-per-directory={file}"))
            for file in (".gitignore", IGNORE)
        ]
    also = set(found[1])
    nested = [name for name in found[0] if name in also and name.endswith("/")]
    return [
        *(name for name in found[0] if name in also and not name.endswith("/")),
        *(f"{outer}{name}" for outer in nested for name in _not_ignored(folder / outer)),
    ]


def _listed(folder: Path, patterns: Sequence[str]) -> list[str]:
    found: dict[str, None] = {}
    problems = []
    for pattern in patterns:
        fitting = [name for name in _walk(folder) if matches(name, [pattern])]
        if not fitting:
            fix = "name a file, a folder or a pattern of this folder, such as configs/*.yaml"
            problems.append(Problem("files", repr(pattern), f"the content of {folder}", fix))
        found |= dict.fromkeys(fitting)
    if problems:
        raise InputError(problems)
    return list(found)


def _walk(folder: Path) -> list[str]:
    """Names of all files and links, but for git's own."""
    found = []
    for folder_path, folders, files in os.walk(folder):
        folders[:] = [each for each in folders if each != ".git"]
        links = [each for each in folders if Path(folder_path, each).is_symlink()]
        found += [os.path.relpath(Path(folder_path, each), folder) for each in (*files, *links)]
    return found


def _split(output: bytes) -> list[str]:
    """Split git's output into names; those of other repositories in the folder end with `/`."""
    return [os.fsdecode(each) for each in output.split(b"\0") if each]


def _git(folder: Path, *words: str, check: bool = True) -> bytes:
    english = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, check=False, env=english)
    if check and done.returncode != 0:
        error, *more = done.stderr.decode(errors="replace").strip().removeprefix("fatal: ").splitlines() or [
            ""
        ]
        fix = next((line.strip() for line in more if line.startswith("\tgit ")), f"git {words[0]}")
        raise InputError([Problem(str(folder), f"git: {error}", "a folder that git can read", fix)])
    return done.stdout
