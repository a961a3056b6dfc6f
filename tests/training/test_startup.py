"""A process that compiles nothing does not load the compiler."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def run(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout


def test_a_whole_run_loads_no_compiler_and_no_plotting(tmp_path: Path) -> None:
    program = f"""
import atexit, os, sys
from training import train
leave = os._exit
heavy = ["sympy", "torch._inductor", "sklearn", "scipy", "matplotlib", "triton"]
def report(code):
    print(code, [name for name in heavy if name in sys.modules], flush=True)
    leave(code)
os._exit = report
train.main(["--set", "run_dir={tmp_path}", "--set", "steps=3"])
"""
    assert run(program) == "0 []\n"


@pytest.mark.e2e
def test_the_compiler_still_works_when_it_is_asked_for() -> None:
    program = """
import torch
from training.startup import defer_compiler
defer_compiler()
weight = torch.nn.Parameter(torch.ones(2))
optimizer = torch.optim.SGD([weight], lr=0.5)
double = torch.compile(lambda x: x * 2, backend="eager")
double(weight).sum().backward()
optimizer.step()
print(weight.tolist())
"""
    assert run(program) == "[0.0, 0.0]\n"
