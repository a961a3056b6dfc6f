"""Lists the files of a folder that are sent as code, with the commit and the files that are left out.

In a git repository the tracked files are sent, elsewhere those that `.gitignore` does not ignore.
`.trainyardignore` excludes some of them, and the user may name further ones.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from infra.errors import HostError, InputError, Problem
from trainyard.source.pack import matches

IGNORE = ".trainyardignore"
"""Name of the file that lists what is not uploaded, in the form of .gitignore."""
_INSIDE = ("rev-parse", "--is-inside-work-tree")
_TRACKED = ("ls-files", "-z", "--cached", "--recurse-submodules")
_IGNORED = ("ls-files", "-z", "--cached", "--ignored", f"--exclude-per-directory={IGNORE}")
_UNTRACKED = ("ls-files", "-z", "--others", "--exclude-standard")
_COMMIT = ("rev-parse", "--verify", "--quiet", "HEAD")
_CHANGED = ("status", "--porcelain", "--untracked-files=no", "--", ".")
_IGNORED_BY_GIT = ("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
_LEFT_BEHIND = (".*", "*.egg-info", "*.pyc", "__pycache__", "build", "dist", "env", "node_modules", "venv")
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
    if _git(folder, *_INSIDE, check=False).strip() != b"true":
        return Listing((*_not_ignored(folder), *more))
    left_out = set(_names(_git(folder, *_IGNORED)))
    tracked = dict.fromkeys(_names(_git(folder, *_TRACKED)))
    return Listing(
        names=(*(name for name in tracked if name not in left_out), *more),
        untracked=tuple(name for name in _names(_git(folder, *_UNTRACKED)) if name not in more),
        ignored=tuple(_ignored(_git(folder, *_IGNORED_BY_GIT), more)),
        commit=_git(folder, *_COMMIT, check=False).decode().strip(),
        dirty=bool(_git(folder, *_CHANGED).strip()),
    )


def _ignored(output: bytes, taken: Sequence[str]) -> Iterator[str]:
    """Return the files that git ignores, each folder in place of its content."""
    folder = "/"
    for name in sorted(os.fsdecode(each) for each in output.split(b"\0") if each):
        if name.startswith(folder) or _is_left_behind(name):
            continue
        folder = name if name.endswith("/") else folder
        if not any(each.startswith(name) for each in taken):
            yield name


def _is_left_behind(name: str) -> bool:
    base = name.rstrip("/").rpartition("/")[2]
    return any(fnmatch(base, pattern) for pattern in _LEFT_BEHIND)


def _not_ignored(folder: Path) -> list[str]:
    """Names that the patterns do not ignore: git evaluates them in an empty repository."""
    with tempfile.TemporaryDirectory(prefix="trainyard-") as folder_path:
        _git(folder, "init", "--quiet", "--bare", folder_path)
        where = (f"--git-dir={folder_path}", "--work-tree=.")
        found = [
            _names(_git(folder, *where, "ls-files", "-z", "--others", f"--exclude-per-directory={file}"))
            for file in (".gitignore", IGNORE)
        ]
    also = set(found[1])
    return [name for name in found[0] if name in also]


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


def _names(output: bytes) -> list[str]:
    """Split git's output into names, without other repositories in the folder, which end with `/`."""
    return [os.fsdecode(each) for each in output.split(b"\0") if each and not each.endswith(b"/")]


def _git(folder: Path, *words: str, check: bool = True) -> bytes:
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, check=False)
    if check and done.returncode != 0:
        error = done.stderr.decode(errors="replace").strip().removeprefix("fatal: ")
        raise InputError(
            [Problem(str(folder), f"git: {error}", "a folder that git can read", f"git {words[0]}")]
        )
    return done.stdout
