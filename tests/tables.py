"""Tables of cases, which lie in YAML beside the test that reads them."""

from pathlib import Path
from typing import Any

import yaml


def table(test: str, name: str = "") -> Any:
    """Return `<name>.yaml` beside a test's file, or the file of the test's own name."""
    file = Path(test)
    found: Any = yaml.safe_load(file.with_name(f"{name or file.stem.removeprefix('test_')}.yaml").read_text())
    return found
