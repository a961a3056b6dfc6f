"""Says where an installed pack is: `pulumi preview --policy-pack "$(trainyard-policies)"`; or writes it, for
`pulumi install` and `pulumi policy publish`: `trainyard-policies FOLDER`.
"""

import shutil
import sys
from pathlib import Path

PACK = Path(__file__).resolve().parent / "trainyard_policies_tree"


def write_pack(folder: Path, pack: Path = PACK) -> Path:
    """Copy an installed pack to a new folder, as one whose environment `pulumi install` makes in it."""
    shutil.copytree(pack, folder, ignore=shutil.ignore_patterns("__pycache__"))
    manifest = folder / "PulumiPolicy.yaml"
    manifest.write_text(manifest.read_text().replace("../" * 3 + "..", ".venv"))
    return folder


def main() -> None:
    """Print the pack's folder, or that of a copy with an environment of its own."""
    pack = write_pack(Path(sys.argv[1])) if len(sys.argv) > 1 else PACK
    sys.stdout.write(f"{pack}\n")
