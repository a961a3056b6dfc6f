"""What docs/benchmarks.md says was measured is what benchmarks/results keeps."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from benchmarks.figures import PAGE, RESULTS, write_page


def test_the_page_has_the_figures_that_were_kept() -> None:
    assert PAGE.read_text() == write_page(), "run `python -m benchmarks.figures`"


def test_a_sample_that_changes_changes_the_page(tmp_path: Path) -> None:
    results = tmp_path / "results"
    shutil.copytree(RESULTS, results)
    for name, row in (("lost", "| `lost` | bytes"), ("restart", "| `restart` | worker")):
        before = write_page(results=results)
        kept = json.loads((results / f"{name}.json").read_text())
        kept["figures"][0]["ours"]["values"] = [1e6]
        (results / f"{name}.json").write_text(json.dumps(kept))
        changed = set(write_page(results=results).splitlines()) - set(before.splitlines())
        (line,) = changed
        assert line.startswith(row)
        assert "1e+06" in line
        assert "missed**" in line
