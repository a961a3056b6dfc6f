"""On a simulated Mac, for a user without root and without a variable of ours, what needs Linux says so."""

import sys
from pathlib import Path

import pytest

from engine.paths import REPOSITORY
from tests.mac.host import environment, trainyard
from tests.processes import capture
from trainyard import cli

COMMANDS = {
    0: "--help; stack validate -s aws; stack validate -s onprem --expand; cost -s aws; catalog regions;"
    " explain pools.zones; new job project; stack env -s onprem",
    2: "preview -s onprem; up -s onprem; doctor -s onprem; status -s onprem; new no-such; team login no.yaml;"
    " jobs --context no; run --context no -- python train.py; run --dry-run -- python train.py; logs; jobs",
    3: "up -s local; down -s local; doctor -s local",
}
"""Exit code → commands. No kubeconfig exists, so the context of the stack file `onprem` is refused."""


@pytest.mark.parametrize("code", COMMANDS)
def test_no_command_ends_in_a_traceback(code: int, tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    for words in COMMANDS[code].split(";"):
        ended = trainyard(tmp_path / "host", *words.split(), cwd=tmp_path)
        assert "Traceback" not in ended.stdout + ended.stderr
        assert ended.returncode == code, words
    last = {0: "export", 2: "trainyard team login FILE", 3: "use a Linux virtual machine"}
    assert last[code] in ended.stdout + ended.stderr and "sudo" not in ended.stderr
    assert code or (tmp_path / "host/home/.local/state/trainyard/pulumi/passphrase").exists()


@pytest.mark.parametrize(
    ("number", "instead"), [("2", "torchrun --standalone --nproc-per-node=2"), ("1", "python")]
)
def test_the_launcher_names_the_one_to_use_before_pytorch_is_imported(
    number: str, instead: str, tmp_path: Path
) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "torch.py").write_text("raise SystemExit('imported')")
    variables = environment(tmp_path)
    variables["PYTHONPATH"] += f":{REPOSITORY / 'training/src'}:{tmp_path}"
    command = ["trainyard_train", "run", f"--nproc-per-node={number}", "train.py", "--lr", "1"]
    ended = capture([sys.executable, "-m", *command], cwd=tmp_path, env=variables)
    sentence = f"starting ranks needs Linux: the agent forks. On this host: {instead} train.py --lr 1"
    assert (ended.returncode, ended.stderr) == (2, f"training: {sentence}\n")


def test_the_page_says_of_each_command_where_it_runs() -> None:
    page = (REPOSITORY / "docs/status.md").read_text().partition("## Laptops")[2]
    shown = {*cli.COMMANDS, *cli.GROUPS} - {name for name, each in cli.SETTINGS.items() if each.get("hidden")}
    assert {name for name in shown if f"`{name}`" not in page} == set()
