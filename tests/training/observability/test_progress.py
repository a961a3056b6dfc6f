"""The progress bar of a run: shown on a terminal, absent from logs."""

import io
import re
import sys
from pathlib import Path

import pytest

from tests.training.test_trainer import NoticeAt, configure, train
from trainyard_train.observability.trackers import bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    @property
    def last(self) -> str:
        """Return what the terminal shows at the end."""
        return re.split(r"[\r\n]+", self.getvalue().strip())[-1]


def test_a_run_on_a_terminal_shows_its_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, again = Terminal(), Terminal()
    monkeypatch.setattr(sys, "stderr", first)
    assert not train(configure(tmp_path), NoticeAt(11))
    assert re.search(r"12/24 .*loss \d\.\d{4}, held out \d+\.\d%, saved 12", first.last)
    monkeypatch.setattr(sys, "stderr", again)
    assert train(configure(tmp_path))
    assert "12/24" in again.getvalue(), "it continues at the resumed step"
    assert re.search(r"100%.* 24/24 .*saved 24", again.last)


def test_a_run_with_output_to_a_file_has_no_bar(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(configure(tmp_path))
    assert capsys.readouterr().err == ""


def test_before_the_first_step_there_is_no_bar() -> None:
    terminal = Terminal()
    bar(terminal)({"event": "failed", "step": 0, "error": "no rank arrived"})
    assert terminal.getvalue() == ""
