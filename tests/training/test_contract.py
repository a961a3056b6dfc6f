"""Other programs know a run's facts without PyTorch, which their environment lacks."""

import subprocess
import sys

import pytest

from trainyard_train import contract

WITHOUT = "import sys; sys.modules.update(dict.fromkeys(('torch', 'numpy', 'pydantic'))); "


def test_they_are_imported_without_the_packages_of_training() -> None:
    program = WITHOUT + "from trainyard_train.contract import FILE; print(FILE)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == f"{contract.FILE}\n"


@pytest.mark.parametrize(("grace", "seconds"), [(4, 3), (20, 15), (60, 55), (300, 295)])
def test_the_exit_comes_before_sigkill(grace: float, seconds: float) -> None:
    assert contract.exit_seconds(grace) == seconds
