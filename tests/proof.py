"""Runs the groups of a tier (tests/groups.yaml) that have not passed with the same content of what they read,
or sums up a run (`end`). As a plugin of pytest (`-p tests.proof`), it lets a soak continue.
"""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import date
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import pytest
import yaml

from engine.paths import REPOSITORY, Paths

PLAN = yaml.safe_load((REPOSITORY / "tests" / "groups.yaml").read_text())
BUDGETS = yaml.safe_load((REPOSITORY / "tests" / "budgets.yaml").read_text())
RESULTS = Paths.from_environment().cache / "results"
HOST = "uname -r; id -u; ls /dev/fuse /dev/nvidiactl; dpkg-query -W; env | grep -E '^(TRAINYARD|UPDATE)_'"
RECORDS = REPOSITORY / ".trainyard" / "proof.jsonl"  # of the tiers of a run


def flat(names: Any) -> list[str]:
    """Return the strings of nested lists, which YAML's aliases make, a folder before what is in it."""
    return sorted({name for each in names for name in ([each] if isinstance(each, str) else flat(each))})


def digest(root: Path, names: list[str]) -> str:
    """Return the digest of files and folders, of the interpreter, and of the host."""
    host = subprocess.run(["sh", "-c", HOST], capture_output=True, check=False).stdout
    found = hashlib.sha256(sys.version.encode() + host)
    for path in sorted({path for name in names for path in (root / name, *(root / name).rglob("*"))}):
        if not re.search(r"__pycache__|\.egg-info", str(path)):
            link, mode = path.is_symlink(), path.lstat().st_mode & 0o170100
            content = bytes(path.readlink()) if link else path.read_bytes() if path.is_file() else b""
            found.update(f"{path.relative_to(root)} {mode} {len(content)}\n".encode() + content)
    return found.hexdigest()[:16]


class Tier:
    def __init__(self, name: str, root: Path = REPOSITORY, plan: Any = PLAN, results: Path = RESULTS) -> None:
        self.name, self.root, self.results, self.always = name, root, results, plan["always"]
        self.groups, self.options = plan["tiers"][name]["groups"], plan["tiers"][name]["options"]
        self.counts, self.stopped = Counter[str](), False

    def run(self, sample: bool = False) -> bool:
        """Run the groups that have not passed; for a sample of a tier that has, the tests of the day."""
        began, kept = time.time(), [name for name in self.groups if self.result(name).exists()]
        # The signal ends the tests, too, which remove what they made.
        signal.signal(signal.SIGINT, lambda *_: setattr(self, "stopped", True))
        for name in self.groups:
            result = self.result(name)
            if name in kept:
                print(f"{self.name}/{name}: kept, {result.read_text()}", flush=True)
                self.counts["kept"] += int(result.read_text().split()[0])
            elif (passed := self.execute(name, *self.groups[name]["tests"])) and result == self.result(name):
                self.results.mkdir(parents=True, exist_ok=True)
                result.write_text(f"{passed} passed on {date.today()}")
        if sample and kept == [*self.groups]:
            tests = [(name, test) for name in kept for test in self.groups[name]["tests"]]
            name, test = tests[date.today().toordinal() % len(tests)]
            if not self.execute(name, test) and not self.stopped:
                self.result(name).unlink()
        record = {"tier": self.name, "began": began, "ended": time.time(), "counts": self.counts}
        with RECORDS.open("a") as records:
            records.write(json.dumps(record) + "\n")
        return self.counts["failed"] == 0

    def reads(self, name: str) -> list[str]:
        """Return what a group may read; one that names nothing sees all, and always runs."""
        group = self.groups[name]
        names = flat([self.always, group["tests"], group["reads"]]) if "reads" in group else []
        return flat(str(path.relative_to(self.root)) for each in names for path in self.root.glob(each))

    def result(self, name: str) -> Path:
        """Return the file that exists if the group has passed with this content."""
        return self.results / f"{self.name}-{name}-{digest(self.root, self.reads(name))}"

    def execute(self, name: str, *tests: str) -> int:
        """Run tests, for root with what they may read alone; then return how many passed, if none failed."""
        command = [sys.executable, "-m", "pytest", *tests, "-m", f"{self.name} and not soak"]
        command += ["-k", self.groups[name].get("select", "")]
        if alone := bool(reads := self.reads(name)) and os.geteuid() == 0:
            only = ("sh", str(REPOSITORY / "tests" / "only.sh"), *reads, "--")
            command = ["unshare", "--mount", "--propagation=private", *only, *command]
        print(f"{self.name}/{name}: {'stopped' if self.stopped else ' '.join(tests)}", flush=True)
        with NamedTemporaryFile("r") as report:
            command = [*command, f"--junitxml={report.name}", *self.options.split()]
            code = self.stopped or subprocess.run(command, cwd=self.root, check=False).returncode
            found = Counter({key: int(n) for key, n in re.findall(r' (\w+)="(\d+)"', report.read(300))})
        failed = max(found["failures"] + found["errors"], int(code != 0))
        passed = max(found["tests"] - failed - found["skipped"], 0)
        self.counts.update(passed=passed, failed=failed, skipped=found["skipped"])
        return passed if alone and not failed else 0


def machine_seconds() -> float:
    """Measure fixed work of two processes."""
    began, work = time.monotonic(), [sys.executable, "-c", "sum(n * n % 7 for n in range(16_000_000))"]
    for process in [subprocess.Popen(work) for _ in range(2)]:
        process.wait()
    return time.monotonic() - began


def end(code: int) -> bool:
    """Print a run's minutes beside its budgets, which a slower machine extends, and its sums."""
    tiers = [json.loads(line) for line in RECORDS.read_text().splitlines()]
    slower, counts = max(1.0, machine_seconds() / BUDGETS["machine_seconds"]), Counter[str]()
    began = min((tier["began"] for tier in tiers), default=time.time())
    for tier in (*tiers, {"tier": "all", "began": began, "ended": time.time(), "counts": {}}):
        minutes, budget = (tier["ended"] - tier["began"]) / 60, BUDGETS["minutes"][tier["tier"]] * slower
        counts.update({**tier["counts"], "above": minutes > budget})
        note = ": above its budget, failed" if minutes > budget else ""
        print(f"{tier['tier']:8} {minutes:5.1f} of {budget:.1f} minutes{note}")
    failed = max(counts["failed"] + counts["above"], int(code != 0))
    skipped = f", {counts['skipped']} skipped" if counts["skipped"] else ""
    print(f"{counts['kept']} kept, which passed before with the same content of all that they read")
    print(f"{counts['passed']} passed, {failed} failed{skipped}")
    return failed == 0


NOTES = RESULTS / f"soak-{digest(REPOSITORY, PLAN['soak'])}"  # the tests that have passed with this content


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    passed = NOTES.read_text().splitlines() if NOTES.exists() else []
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in passed])
    items[:] = [item for item in items if item.nodeid not in passed]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and report.passed:
        NOTES.parent.mkdir(parents=True, exist_ok=True)
        with NOTES.open("a") as notes:
            notes.write(f"{report.nodeid}\n")


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    sys.exit(not (end(int(rest[0])) if what == "end" else Tier(what).run(sample="sample" in rest)))
