"""Settings of a process before it trains: deferred compiler, flight recorder, deterministic algorithms."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from trainyard_train.elasticity import startup


def run(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout


def test_a_whole_run_loads_no_compiler_and_no_plotting(tmp_path: Path) -> None:
    program = f"""
import atexit, os, sys
from trainyard_train import train
os_exit = os._exit
heavy = ["sympy", "torch._inductor", "sklearn", "scipy", "matplotlib", "triton"]
def report(code):
    print(code, [name for name in heavy if name in sys.modules], flush=True)
    os_exit(code)
os._exit = report
train.main(["--set", "run_dir={tmp_path}", "--set", "steps=3"])
"""
    assert run(program) == "0 []\n"


@pytest.mark.ranks
def test_the_compiler_still_works_when_it_is_asked_for() -> None:
    program = """
import torch
from trainyard_train.elasticity.startup import defer_compiler
defer_compiler()
weight = torch.nn.Parameter(torch.ones(2))
optimizer = torch.optim.SGD([weight], lr=0.5)
double = torch.compile(lambda x: x * 2, backend="eager")
double(weight).sum().backward()
optimizer.step()
print(weight.tolist())
"""
    assert run(program) == "[0.0, 0.0]\n"


def test_nccls_watchdog_writes_its_collectives_where_stacks_are_unless_set_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("BUFFER_SIZE", "DUMP_ON_TIMEOUT", "DUMP_TEMP_FILE"):
        monkeypatch.setenv(f"TORCH_FR_{name}", "")
        monkeypatch.delenv(f"TORCH_FR_{name}")
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "50")
    startup.record_collectives(tmp_path)
    assert {name: value for name, value in os.environ.items() if name.startswith("TORCH_FR_")} == {
        "TORCH_FR_BUFFER_SIZE": "50",
        "TORCH_FR_DUMP_ON_TIMEOUT": "1",
        "TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/watchdog-flight-",
    }


def test_deterministic_algorithms_and_cublas_are_set_for_a_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    with startup.deterministic():
        assert torch.are_deterministic_algorithms_enabled()
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] in {":4096:8", ":16:8"}, "all that PyTorch accepts"
    assert not torch.are_deterministic_algorithms_enabled()


def test_without_determinism_pytorchs_defaults_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    with startup.deterministic():
        assert torch.backends.cudnn.deterministic
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    with startup.deterministic(wanted=False):
        assert "CUBLAS_WORKSPACE_CONFIG" not in os.environ
        assert not torch.are_deterministic_algorithms_enabled()
        assert not torch.backends.cudnn.deterministic
