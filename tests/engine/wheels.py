"""Wheels of small packages, which install without a network."""

from pathlib import Path
from zipfile import ZipFile


def write_wheel(folder: Path, name: str) -> Path:
    """Write a wheel of a package with one module, which prints its path."""
    wheel = folder / f"{name}-1.0-py3-none-any.whl"
    files = {
        f"{name}.py": "WHERE = __file__\n",
        f"{name}-1.0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{name}-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = f"{name}-1.0.dist-info/RECORD"
    with ZipFile(wheel, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
        archive.writestr(record, "".join(f"{path},,\n" for path in (*files, record)))
    return wheel
