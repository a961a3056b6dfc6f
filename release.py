"""Writes what a release publishes to dist/, from this commit: `make release`.

The wheels of the three distributions, a bill of materials (SBOM) of each, the policy pack, notes, SHA256SUMS.
"""

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from email import message_from_bytes
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from local.locked import entries
from local.toolchain.sbom import bill_of_materials, locked
from policies.trainyard_policies import write_pack

ROOT = Path(__file__).resolve().parent
FOLDERS = {"trainyard": ".", "trainyard-policies": "policies", "trainyard-train": "training"}
"""Distribution → its folder."""


def write(dist: Path) -> list[Path]:
    """Write all files of a release to a folder, and return them; what else is in the folder remains."""
    with tempfile.TemporaryDirectory() as name:
        staging = Path(name)
        copy_files(staging / "repository")
        wheels = {name: _wheel(name, staging / "repository" / each, dist) for name, each in FOLDERS.items()}
        version = wheels["trainyard"].name.split("-")[1]
        with zipfile.ZipFile(wheels["trainyard-policies"]) as wheel:
            wheel.extractall(staging / "wheel")
        tree = staging / "wheel" / "trainyard_policies_tree"
        pack = write_pack(staging / f"trainyard-policies-{version}", tree)
        archive = Path(shutil.make_archive(str(dist / pack.name), "gztar", staging, pack.name))
    bills = [_bill(name, version, wheel) for name, wheel in wheels.items()]
    parts = dict(
        re.findall(r"^## (\S+).*\n((?:(?!## ).*\n)*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    )
    notes = dist / "NOTES.md"
    notes.write_text(f"# Trainyard {version}\n{parts.get(version, parts['Unreleased'])}")
    files = sorted([*wheels.values(), *bills, archive, notes])
    sums = dist / "SHA256SUMS"
    digests = [f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in files]
    sums.write_text("".join(digests))
    return [*files, sums]


def copy_files(target: Path) -> None:
    """Copy the files of this repository that a build takes, without what git ignores."""
    listed = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", ":!tests", ":!docs")
    for name in filter(None, subprocess.check_output(listed, cwd=ROOT, text=True).split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target / name)


def _wheel(name: str, source: Path, dist: Path) -> Path:
    options = ("--wheel", "--offline", "--no-build-isolation", "--python", sys.executable, "--out-dir", dist)
    subprocess.run((Path(sys.executable).with_name("uv"), "build", "--quiet", *options, source), check=True)
    (wheel,) = dist.glob(f"{name.replace('-', '_')}-*.whl")
    return wheel


def _bill(name: str, version: str, wheel: Path) -> Path:
    """Write the SBOM of a wheel: all that its lock has for its base and its extras, but the contributors'."""
    lock = (ROOT / "requirements/training.txt").read_text()  # as in the images of jobs
    if name != "trainyard-train":
        with zipfile.ZipFile(wheel) as files:
            (metadata,) = (each for each in files.namelist() if each.endswith(".dist-info/METADATA"))
            stated = message_from_bytes(files.read(metadata)).get_all("Requires-Dist", ())
        needed = {Requirement(each).name for each in stated if 'extra == "dev"' not in each} - {name}
        lock = entries(ROOT / "requirements/host.txt", *map(canonicalize_name, needed))
    bill = wheel.with_name(f"{name}-{version}.cdx.json")
    bill.write_bytes(bill_of_materials(name, version, locked(lock), "library"))
    return bill


if __name__ == "__main__":
    if subprocess.check_output(("git", "status", "--porcelain"), cwd=ROOT):
        sys.exit("make release\n  got:     uncommitted changes\n  allowed: a commit\n  fix:     git commit")
    for earlier in (ROOT / "dist").glob("trainyard*"):
        earlier.unlink()
    for written in write(ROOT / "dist"):
        sys.stdout.write(f"{written.stat().st_size / 1024:>8.0f} KiB  {written.relative_to(ROOT)}\n")
