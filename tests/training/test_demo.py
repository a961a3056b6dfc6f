"""The demo kills and resumes for real, and ends with an error where the resume is not exact."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from engine.paths import REPOSITORY
from tests.mac.host import environment
from tests.processes import capture
from tests.training.launch import events
from trainyard_train.__main__ import main
from trainyard_train.demo import command

DEMO = (sys.executable, "-m", "trainyard_train", "demo")
BROKEN = {
    ", optimizer=optimizer)": (")", "other weights, or losses (first: step 1"),
    "every_steps=20": ("every_steps=1000", "a start from step 0"),
}
"""Part of the program → what is there instead, and what the demo finds."""


def shape(output: str) -> set[str]:
    """Return the lines without what differs between versions and hosts."""
    return {re.sub(r"\S+/program.py|[0-9a-f]{64}|[\d.]+", "#", line).strip() for line in output.splitlines()}


def test_a_laptop_sees_a_kill_and_an_exact_resume_that_replace_an_earlier_demo(tmp_path: Path) -> None:
    killed = tmp_path / "trainyard-demo" / "killed"
    (killed / "checkpoints" / "earlier").mkdir(parents=True)
    shown = capture(DEMO, cwd=tmp_path, env=environment(tmp_path))
    assert (shown.returncode, shown.stderr) == (0, ""), shown.stdout
    assert not (killed / "checkpoints" / "earlier").exists()
    _, _, printed = (
        (REPOSITORY / "docs/library.md").read_text().partition("$ python -m trainyard_train demo\n")
    )
    assert shape(printed.partition("```")[0]) == shape(shown.stdout)
    (resumed,), (finished,) = events(killed, "resumed"), events(killed, "finished")
    last = max(line["step"] for line in events(killed, "step") if line["attempt"] == 1)
    assert (resumed["attempt"], finished["attempt"]) == (2, 2)
    assert 0 < resumed["step"] <= last < events(killed, "step")[-1]["step"]
    _, _, digests = shown.stdout.partition("sha256 of the weights:")
    assert digests.split()[0] == digests.split()[2] != "killed"
    assert main(["checkpoint", "diff", str(killed.with_name("undisturbed")), str(killed)]) == 0


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_resume_is_an_error(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    changed, got = BROKEN[text]
    program = Path(command.__file__).with_name("program.py").read_text()
    assert text in program
    (tmp_path / "broken.py").write_text(program.replace(text, changed))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(command, "PROGRAM", "broken")
    assert main(["demo", "--folder", str(tmp_path / "demo")]) == 1
    assert f"  got:     {got}" in capfd.readouterr().err


def test_ctrl_c_leaves_no_process(tmp_path: Path) -> None:
    with subprocess.Popen(DEMO, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout
        assert next(line for line in demo.stdout if "epoch 1" in line)
        (training,) = psutil.Process(demo.pid).children()
        os.kill(demo.pid, signal.SIGINT)
        assert "stopped" in demo.stdout.read()
    assert (demo.returncode, training.is_running()) == (130, False)
