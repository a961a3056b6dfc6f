"""Says where an installed pack is: `pulumi preview --policy-pack "$(trainyard-policies)"`; or writes it, for
`pulumi install` and `pulumi policy publish`: `trainyard-policies FOLDER`.
"""

import shutil
import sys
from pathlib import Path

PACK = Path(__file__).resolve().parent / "trainyard_policies_tree"


def main() -> None:
    """Print the pack's folder, or that of a copy with an environment of its own."""
    pack = PACK
    if len(sys.argv) > 1:
        pack = Path(shutil.copytree(PACK, sys.argv[1], ignore=shutil.ignore_patterns("__pycache__")))
        manifest = pack / "PulumiPolicy.yaml"
        manifest.write_text(manifest.read_text().replace("../" * 3 + "..", ".venv"))
    sys.stdout.write(f"{pack}\n")
