"""Batch scripts of Slurm as command lines of `trainyard run`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infra.errors import InputError
from tests.tables import table
from trainyard.source.options import RunRequest, job_of, written
from trainyard.source.sbatch import is_batch_script, request_of

SCRIPT = Path(__file__).with_name("train.sbatch")


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_scripts_lines_are_a_job_which_starts_the_script() -> None:
    Path(SCRIPT.name).write_text(SCRIPT.read_text())
    notes: list[str] = []
    asked = RunRequest([SCRIPT.name, "--lr", "1"], flags={"queue": "gpu"})
    assert is_batch_script(asked) and not is_batch_script(RunRequest(["python", SCRIPT.name]))
    asked = request_of(asked, notes.append)
    job = job_of(asked, written(asked), "research", Path())
    assert (asked.nodes, asked.gpus, job.queue, job.time_limit_minutes) == (2, 16, "gpu", 240)
    assert job.command == ("sbatch", "train.sbatch", "--lr", "1") and job.files == ("train.sbatch",)
    assert job.name.startswith("train-") and job.needs and job.needs.accelerator == "h100"
    assert [each.split()[1] for each in notes] == ["--output", "--partition"]


@pytest.mark.parametrize(("lines", "more", "nodes", "gpus", "variables", "keys"), table(__file__)["sizes"])
def test_sizes_tasks_and_times_are_read_as_sbatch_reads_them(
    lines: str, more: dict[str, Any], nodes: int | None, gpus: int, variables: list[str], keys: dict[str, Any]
) -> None:
    Path("t.sbatch").write_text(f"#!/bin/bash\n#SBATCH {lines}\nsrun x\n")
    found = request_of(RunRequest(["t.sbatch"], **more), lambda _: None)
    assert (found.nodes, found.gpus, list(found.environment)) == (nodes, gpus, variables)
    assert {key: found.flags[key] for key in keys} == keys


PROBLEMS = table(__file__)["problems"]


@pytest.mark.parametrize(("text", "messages"), list(zip(PROBLEMS[::2], PROBLEMS[1::2], strict=True)))
def test_what_cannot_be_kept_is_refused_at_once(text: str, messages: list[str]) -> None:
    Path("t.sbatch").write_bytes(text.encode())
    with pytest.raises(InputError) as refused:
        request_of(RunRequest(["t.sbatch"]), lambda _: None)
    assert [each for each in messages if each not in str(refused.value)] == []
