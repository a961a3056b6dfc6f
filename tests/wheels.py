"""Wheels of small packages, which install without a network."""

import zipfile
from pathlib import Path


def wheel(folder: Path, name: str, requires: str = "", tag: str = "py3-none-any") -> None:
    """Write a wheel of a package with one module and one command."""
    info, needs = f"{name}-1.0.dist-info", f"Requires-Dist: {requires}\n" if requires else ""
    content = {
        f"{name}.py": f"def main():\n    print({name!r}, 'runs')\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{needs}",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: {tag}\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
    }
    content[f"{info}/RECORD"] = "".join(f"{each},,\n" for each in (*content, f"{info}/RECORD"))
    with zipfile.ZipFile(folder / f"{name}-1.0-{tag}.whl", "w") as file:
        for each, text in content.items():
            file.writestr(each, text)
