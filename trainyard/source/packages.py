"""Installs the packages that a job needs beyond its image into a folder, which is sent as code is.

uv resolves, downloads and unpacks wheels for the image's Python and platform, on the user's host. The folder
begins with the metadata of the image's packages: uv takes them for installed, and each is constrained to its
version, so that none of them, such as PyTorch, is changed or sent.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from infra.errors import HostError, InputError, Problem
from trainyard.source.pack import Pack, pack

_MANYLINUX = (17, 28, *range(31, 41))
"""Minor versions of glibc that uv has a platform for (`uv pip install --help`)."""
_OF_HOST = re.compile(rb"^(?:bin/|[^,]*/uv_cache\.json,).*\n", re.MULTILINE)
"""Lines of a RECORD with digests of files that have this host's paths and times."""
_HOST_PYTHON = re.compile(rb"\A#!(?:/bin/sh\n'''exec' .*\n' '''|.*python.*)\n")
"""Start of a script: the path of this host's Python, through a shell where it is long."""


@dataclass(frozen=True)
class ImagePackages:
    """The Python of an image, its platform and its packages."""

    python: str
    """Version of Python, such as 3.13.5."""
    machine: str
    """Processor, as `uname -m` has it."""
    libc: str
    """Version of glibc; empty for another C library."""
    packages: Mapping[str, Sequence[str]]
    """Name of each package → its version, and the metadata that a resolver reads."""

    @classmethod
    def read(cls, text: str) -> "ImagePackages":
        """Read what `list_packages.py` printed."""
        return cls(**json.loads(text))

    @property
    def platform(self) -> str:
        """The platform in uv's words."""
        minor = int(self.libc.partition(".")[2] or 0)
        of_glibc = f"manylinux_2_{max(each for each in _MANYLINUX if each <= max(minor, 17))}"
        return f"{self.machine}-{of_glibc if self.libc else 'unknown-linux-musl'}"


@dataclass(frozen=True)
class Installed:
    """Packages beyond an image."""

    names: tuple[str, ...]
    """Name and version of each, such as `transformers 4.57.1`."""
    pack: Pack | None
    """Their files; None where the image lacks nothing."""


def install(image: ImagePackages, given: Sequence[str]) -> Installed:
    """Install what an image lacks of the given files' packages.

    Args:
        image: the image that the job runs in.
        given: requirements.txt, pylock.toml and uv.lock, and folders of wheels. With a folder no index is
            asked; folders alone are installed whole.

    Raises:
        InputError: with every file that cannot be read and requirement that conflicts with the image's, or
            what uv says: a package without a wheel for the platform, an index that does not answer.
        HostError: there is no uv.
    """
    folders = [Path(each) for each in given if Path(each).is_dir()]
    with tempfile.TemporaryDirectory(prefix="trainyard-") as name:
        work = Path(name)
        files = [
            _requirements(Path(each), work / f"{number}.txt", alone=len(folders) == len(given))
            for number, each in enumerate(given)
        ]
        if problems := [each for file in files for each in _conflicts(file, image)]:
            raise InputError(problems)
        target = _with_packages_of(image, work)
        done = _uv(*_words(image, work, files, folders))
        if done.returncode != 0:
            raise InputError([_not_installed(done.stderr, image, given)])
        return _packed(target, image, given)


def _requirements(file: Path, made: Path, *, alone: bool) -> Path:
    """Return a file of requirements that uv reads: the given one, or what another kind says, in `made`."""
    try:
        if file.is_dir():
            wheels = sorted(each.name.split("-")[:2] for each in file.glob("*.whl"))
            lines = [f"{name}=={version}" for name, version in wheels] if alone else []
            if not wheels:
                raise ValueError("a folder without wheels")
        elif file.name == "uv.lock":
            done = _uv("export", "--frozen", "--no-dev", "--no-emit-project", "--project", str(file.parent))
            lines = done.stdout.splitlines()
            if done.returncode != 0:
                raise ValueError(done.stderr.strip())
        elif file.suffix == ".toml":
            lines = [_pinned(each) for each in tomllib.loads(file.read_text(encoding="utf-8"))["packages"]]
        else:
            file.read_text(encoding="utf-8")
            return file.absolute()
    except (OSError, ValueError, KeyError, TypeError) as error:
        got = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        allowed = "requirements.txt, uv.lock, pylock.toml, or a folder of wheels"
        raise InputError([Problem(f"--with {file}", got, allowed, "name a file that can be read")]) from error
    made.write_text("".join(f"{line}\n" for line in lines))
    return made


def _pinned(package: Mapping[str, object]) -> str:
    """Return a package of a pylock.toml as a requirement."""
    marker = f" ; {package['marker']}" if "marker" in package else ""
    return f"{package['name']}=={package['version']}{marker}"


def _conflicts(file: Path, image: ImagePackages) -> Iterator[Problem]:
    """Yield each requirement that excludes the image's version; uv says it of those of other packages."""
    has = {canonicalize_name(name): version for name, (version, _) in image.packages.items()}
    here = {"python_version": ".".join(image.python.split(".")[:2]), "python_full_version": image.python}
    here |= {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": image.machine}
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            asked = Requirement(line.partition(" #")[0].rstrip(" \\"))
        except InvalidRequirement:
            continue  # an option, or uv refuses it
        version = has.get(canonicalize_name(asked.name))
        is_needed = asked.marker is None or asked.marker.evaluate(here)
        if version and is_needed and not asked.specifier.contains(version, prereleases=True):
            fix = f"write {asked.name}=={version.partition('+')[0]}, or leave it out: the image has it"
            yield Problem(f"--with {file}", f"{asked}", f"{asked.name} {version}, which the image has", fix)


def _with_packages_of(image: ImagePackages, work: Path) -> Path:
    """Make the folder, with the metadata of the image's packages."""
    target = work / "packages"
    target.mkdir()
    for name, (version, text) in image.packages.items():
        about = target / f"{canonicalize_name(name).replace('-', '_')}-{version}.dist-info"
        about.mkdir(exist_ok=True)
        (about / "METADATA").write_text(text, encoding="utf-8")
    return target


def _words(image: ImagePackages, work: Path, files: Sequence[Path], folders: Sequence[Path]) -> Iterator[str]:
    """Yield the words of uv's command line."""
    kept = work / "image.txt"
    kept.write_text("".join(f"{name}=={version}\n" for name, (version, _) in image.packages.items()))
    yield from ("pip", "install", "--quiet", "--python", sys.executable, "--target", str(work / "packages"))
    yield from ("--python-version", image.python, "--python-platform", image.platform)
    yield from ("--only-binary", ":all:", "--link-mode", "copy", "--constraints", str(kept))
    yield from (word for file in files for word in ("--requirements", str(file)))
    yield from (word for each in folders for word in ("--find-links", str(each.absolute())))
    if folders:
        yield "--no-index"


def _uv(*words: str) -> subprocess.CompletedProcess[str]:
    """Run uv: that of this environment, else that of the user."""
    own = [sys.executable, "-m", "uv"] if find_spec("uv") else [shutil.which("uv") or ""]
    if not own[0]:
        fix = "install it: https://docs.astral.sh/uv, or the extra `local` of this command"
        raise HostError([Problem("PATH", "uv: not installed", "uv, which resolves packages", fix)])
    return subprocess.run([*own, *words], capture_output=True, text=True, check=False)


def _not_installed(said: str, image: ImagePackages, given: Sequence[str]) -> Problem:
    """Return what uv said, with the way that is left."""
    path, got = f"--with {' '.join(given)}", " ".join(said.replace("error: ", "").split())
    allowed = f"wheels for Python {image.python} on {image.platform}, beside what the image has"
    if "error sending request" in said:
        fix = "add --with FOLDER with the wheels; `pip download --only-binary :all:` gets them elsewhere"
        return Problem(path, f"no package index answers: {got}", allowed, fix)
    return Problem(path, got, allowed, "change the requirement, or add --with FOLDER with wheels of your own")


def _packed(target: Path, image: ImagePackages, given: Sequence[str]) -> Installed:
    """Pack what is new, in the same bytes on every host."""
    has = {canonicalize_name(name) for name in image.packages}
    records = sorted(target.glob("*.dist-info/RECORD"))
    found = [each.parent.name.removesuffix(".dist-info") for each in records]
    if changed := [each for each in found if canonicalize_name(each.split("-")[0]) in has]:
        allowed, fix = "packages that the image has not", "remove it from the requirements"
        raise InputError([Problem(f"--with {' '.join(given)}", ", ".join(changed), allowed, fix)])
    for each in records:
        each.write_bytes(_OF_HOST.sub(b"", each.read_bytes()))
    for each in target.glob("bin/*"):
        each.write_bytes(_HOST_PYTHON.sub(b"#!/usr/bin/env python3\n", each.read_bytes(), count=1))
    is_of_image = {each.parent.name for each in target.glob("*/METADATA")} - {
        f"{each}.dist-info" for each in found
    }
    names = [str(each.relative_to(target)) for each in target.rglob("*") if each.is_file()]
    sent = [
        name
        for name in names
        if name.split("/")[0] not in {*is_of_image, ".lock"} and not name.endswith("/uv_cache.json")
    ]
    packed = pack(target, sent, is_code=False) if found else None
    return Installed(tuple(each.replace("-", " ") for each in found), packed)
