"""The same numbers for Prometheus and TensorBoard as in metrics.jsonl."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.training.launch import free_port
from tests.training.test_trainer import configure, events, train
from training.config import ConfigError, parse_config


def test_prometheus_is_told_what_the_log_says(tmp_path: Path) -> None:
    port = free_port()
    train(configure(tmp_path, export={"prometheus_port": port}))
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        lines = [text.rpartition(" ") for text in answer.read().decode().splitlines()]
    found = {name: float(value) for name, _, value in lines if not name.startswith("#")}
    last = events(tmp_path, "step")[-1]
    assert found["training_loss"] == last["loss"]
    assert found["training_samples"] == last["samples"] == 2400
    assert found["training_step"] == 24
    assert found['training_events_total{event="step"}'] == 24
    assert found["training_checkpoint_seconds_count"] == len(events(tmp_path, "checkpoint"))


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("0.0.0.0", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(OSError, match=rf"export.prometheus_port: got {port}: .*; choose a free port"):
            train(configure(tmp_path, export={"prometheus_port": port}))


def test_a_port_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"export\.prometheus_port: got 70000"):
        parse_config({"run_dir": "/x", "export": {"prometheus_port": 70000}})


READ = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
board = EventAccumulator(sys.argv[1])
board.Reload()
print(json.dumps({tag: [[e.step, e.value] for e in board.Scalars(tag)] for tag in board.Tags()["scalars"]}))
"""


@pytest.mark.e2e
def test_tensorboard_reads_what_the_log_says(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    only_that = os.environ | {"PYTHONPATH": f"{root}:{root / '.trainyard' / 'training-env'}"}  # as in a pod
    options = [f"run_dir={tmp_path}", "export.tensorboard=true", "steps=20", "evaluate_every=10"]
    arguments = [part for text in options for part in ("--set", text)]
    subprocess.run([sys.executable, "-m", "training.train", *arguments], env=only_that, check=True)
    command = [sys.executable, "-c", READ, str(tmp_path / "tensorboard")]
    out = subprocess.run(command, env=only_that, check=True, capture_output=True, text=True).stdout
    found = json.loads(out)
    assert found["train/loss"] == [
        [line["step"], pytest.approx(line["loss"], rel=1e-6)] for line in events(tmp_path, "step")
    ]
    assert [step for step, _ in found["held out/accuracy"]] == [10, 20]
