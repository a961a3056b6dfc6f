"""Downloads official releases of programs, and verifies them against the publishers' checksums; says why a
release cannot be used.
"""

import os
import platform
import re
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from engine.progress import Task
from infra.errors import ExitCode, Problem, TrainyardError
from local.toolchain.store import file_digest, sha256
from local.toolchain.versions import Build, PinnedRelease

if TYPE_CHECKING:
    from local.toolchain.providers import ProviderPlugin

SETTING = "TRAINYARD_DOWNLOADS"
"""Environment variable for downloads: `auto` (default), or `never` to build even where a release exists."""

PROBE_SECONDS = 4.0
"""Timeout for a release site's first answer, after which we build instead."""

READ_SECONDS = 60.0
"""Timeout for a download without progress."""

CHUNK_BYTES = 1 << 20

ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
"""Architecture of this host, with the name that Go and most publishers use."""

SYSTEM = platform.system().lower()
"""Operating system of this host, likewise."""

PLATFORM = ARCHITECTURE if SYSTEM == "linux" else f"{SYSTEM} {ARCHITECTURE}"
"""Part of the cache keys of programs."""

_ELF, _MACH_O = b"\x7fELF", b"\xcf\xfa\xed\xfe"
_MACHINES = {
    (_ELF, 62): ("linux", "amd64"),
    (_ELF, 183): ("linux", "arm64"),
    (_MACH_O, 0x01000007): ("darwin", "amd64"),
    (_MACH_O, 0x0100000C): ("darwin", "arm64"),
}
"""First bytes of a program, and the number of its processor (elf(5), mach/machine.h)."""

_DIGEST = re.compile(r"\b(?:[0-9a-fA-F]{64}|[0-9a-fA-F]{40})\b")
_ALGORITHMS = {64: "sha256", 40: "sha1"}
"""Number of hexadecimal digits in a listed digest → its algorithm. Pulumi's bridged providers list SHA-1:
`shasum` without an option (pulumi/pulumi-aws, .github/workflows/publish.yml)."""


class BrokenOffError(Exception):
    """A download that began and failed, so that the program must be built."""


class Releases:
    """Fetches releases over HTTP; a site that does not answer is not asked again."""

    def __init__(self, *, allowed: bool) -> None:
        self._allowed = allowed
        self._refusals: dict[str, str] = {}
        """Host or address → reason why nothing can be downloaded from it; empty if it answers."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> "Releases":
        """Read `TRAINYARD_DOWNLOADS`."""
        return cls(allowed=environ.get(SETTING, "auto") != "never")

    def refusal(self, build: "Build | ProviderPlugin") -> str:
        """Why the build's release cannot be downloaded, in words; empty if it can."""
        if build.release is None:
            return "its publisher releases no program"
        if not self._allowed:
            return f"{SETTING}=never"
        address = _filled(build.release.checksums, build, next(iter(build.programs)))
        host = urlsplit(address).hostname or address
        if address not in self._refusals and host not in self._refusals:
            status, answer = _probe(address)
            self._refusals[host if status is None else address] = answer
        return self._refusals.get(host, self._refusals.get(address, ""))

    def fetch(self, build: "Build | ProviderPlugin", release: PinnedRelease, folder: Path, task: Task) -> str:
        """Put the build's programs into `folder`; return their origin in words.

        Raise TrainyardError where a checksum differs, and BrokenOffError where the line fails.
        """
        import httpx  # slow to import, and not needed with a filled cache

        try:
            return self._fetch(build, release, folder, task)
        except httpx.HTTPError as error:
            raise BrokenOffError(f"{type(error).__name__} {error}".strip()) from error

    def _fetch(
        self, build: "Build | ProviderPlugin", release: PinnedRelease, folder: Path, task: Task
    ) -> str:
        programs = {_filled(release.archive, build, program): program for program in build.programs}
        for address, program in programs.items():
            file = folder / ".download"
            _download(address, file, task)
            _check(file, address, _fetched_text(_filled(release.checksums, build, program)))
            if tarfile.is_tarfile(file):
                _unpack(file, folder, [*build.programs, *release.also])
            else:
                shutil.copyfile(file, folder / program)
            file.unlink()
        for file in folder.iterdir():
            file.chmod(0o755)
            if other := foreign_platform(file):
                raise _refused(
                    next(iter(programs)), f"{file.name} for {other}", f"one for {SYSTEM} {ARCHITECTURE}"
                )
        _require_all(folder, build, next(iter(programs)))
        return f"release {build.version}, verified, from {urlsplit(next(iter(programs))).hostname}"


def foreign_platform(program: Path) -> str:
    """Return the system and processor that a program is for, if these are others than this host's."""
    with program.open("rb") as file:
        head = file.read(20)
    number = head[18:20] if head.startswith(_ELF) else head[4:8]
    made_for = _MACHINES.get((head[:4], int.from_bytes(number, "little")), (SYSTEM, ARCHITECTURE))
    return "" if made_for == (SYSTEM, ARCHITECTURE) else " ".join(made_for)


def _filled(
    template: str,
    build: "Build | ProviderPlugin",
    program: str,
    system: str = SYSTEM,
    architecture: str = ARCHITECTURE,
) -> str:
    return template.format(
        version=build.version,
        program=program,
        os=system,
        arch=architecture,
        x64={"amd64": "x64"}.get(architecture, architecture),
        uname={"amd64": "x86_64"}.get(architecture, architecture),
    )


def _probe(address: str) -> tuple[int | None, str]:
    """Ask for the checksums: a site without them is of no use. Return its status, if any, and why not."""
    import httpx

    host = urlsplit(address).hostname
    try:
        answer = httpx.get(address, timeout=PROBE_SECONDS, follow_redirects=True)
    except httpx.HTTPError as error:
        return None, f"{host} cannot be reached ({type(error).__name__})"
    refusal = "" if answer.is_success else f"{host} answers {answer.status_code} for its checksums"
    return answer.status_code, refusal


def _fetched_text(address: str) -> str:
    import httpx

    answer = httpx.get(address, timeout=READ_SECONDS, follow_redirects=True)
    return answer.raise_for_status().text


def _download(address: str, file: Path, task: Task) -> None:
    import httpx

    with httpx.stream("GET", address, timeout=READ_SECONDS, follow_redirects=True) as answer:
        answer.raise_for_status()
        total = int(answer.headers.get("content-length", 0)) >> 20
        with file.open("wb") as target:
            for chunk in answer.iter_bytes(CHUNK_BYTES):
                target.write(chunk)
                task.advanced(target.tell() >> 20, total or None, f"MiB of {address.rsplit('/', 1)[-1]}")


def _check(file: Path, address: str, published: str) -> None:
    """Compare with the published list: lines of `<digest>  <file>`, or one bare digest."""
    name = address.rsplit("/", 1)[-1]
    lines = [line for line in published.splitlines() if _DIGEST.search(line)]
    ours = [line for line in lines if line.split()[-1].lstrip("*").removeprefix("./") == name] or (
        lines if len(lines) == 1 else []
    )
    listed = [match[0].lower() for line in ours if (match := _DIGEST.search(line))]
    got = {file_digest(file, _ALGORITHMS[len(each)]) for each in listed} or {sha256(file)}
    if not got & set(listed):
        allowed = " or ".join(f"{_ALGORITHMS[len(each)]} {each}" for each in listed)
        raise _refused(address, ", ".join(sorted(got)), allowed or "a digest that the publisher lists")


def _unpack(archive: Path, folder: Path, wanted: Sequence[str]) -> None:
    with tarfile.open(archive) as tar:
        for member in tar:
            name = Path(member.name).name
            source = tar.extractfile(member) if member.isfile() and name in wanted else None
            if source:
                with (folder / name).open("wb") as target:
                    shutil.copyfileobj(source, target)


def _require_all(folder: Path, build: "Build | ProviderPlugin", address: str) -> None:
    missing = [program for program in build.programs if not (folder / program).is_file()]
    if missing:
        raise _refused(
            address, f"no {', '.join(missing)} in it", f"an archive with {', '.join(build.programs)}"
        )


def _refused(address: str, got: str, allowed: str) -> TrainyardError:
    fix = (
        f"run again; if it persists, do not trust the site: with {SETTING}=never it is not used, and"
        " what has a pinned source is built"
    )
    return TrainyardError([Problem(address, got, allowed, fix)], ExitCode.FAILED)
