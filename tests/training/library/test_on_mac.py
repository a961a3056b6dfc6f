"""The library on a simulated Mac, with workers that are spawned."""

import re
import sys
from pathlib import Path

from engine.paths import REPOSITORY
from tests.mac.host import environment
from tests.processes import capture

NOTICE = "_ = run.steps == 20 and os.kill(os.getpid(), 15)"


def test_the_program_of_the_guide_resumes_after_a_notice(tmp_path: Path) -> None:
    guide = (REPOSITORY / "docs" / "library.md").read_text()
    [program] = re.findall(r"whole program to try:\n```python\n(.*?)```", guide, re.DOTALL)
    for text, changed in {
        "/tmp/library": str(tmp_path / "run"),
        "epochs(3)": "epochs(1)",
        "import sys": "import os, sys",
        "loss = ": f"{NOTICE}; loss = ",
    }.items():
        assert text in program
        program = program.replace(text, changed, 1)
    (tmp_path / "library.py").write_text(program)
    command = [sys.executable, "library.py"]
    ends = [capture(command, cwd=tmp_path, env=environment(tmp_path)) for _ in range(2)]
    notice = "training: SIGTERM: saving at the end of this step, then exiting\n"
    assert [(each.returncode, each.stderr) for each in ends] == [(75, notice), (0, "")]
    assert '"event": "resumed"' in (tmp_path / "run" / "metrics.jsonl").read_text()
