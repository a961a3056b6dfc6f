"""Links our plugins into the folder where the engine looks for installed plugins.

The engine also accepts a plugin on PATH, but warns at each operation, and another plugin on PATH could then
take its place.
"""

import json
import secrets
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

VERSIONS_FROM = {"kubernetes": "pulumi-kubernetes"}
"""Plugin → SDK that asks the engine for a plugin of its own version; ours serves all in its range."""
OWN = Path(__file__).resolve().parent / "provider" / "pulumi-plugin.json"


def install(home: Path, bin_folder: Path) -> None:
    """Link each `pulumi-<kind>-<name>` of `bin_folder` into `home/plugins/<kind>-<name>-v<version>/`."""
    for executable in [*bin_folder.glob("pulumi-language-*"), *bin_folder.glob("pulumi-resource-*")]:
        _, kind, name = executable.name.split("-", 2)
        if name.endswith("-exec"):
            continue
        folder = home / "plugins" / f"{kind}-{name}-v{_version(name)}"
        folder.mkdir(parents=True, exist_ok=True)
        link = folder / executable.name
        if link.is_symlink() and link.readlink() == executable:
            continue
        fresh = folder / f".{secrets.token_hex(4)}"
        fresh.symlink_to(executable)
        fresh.replace(link)


def _version(name: str) -> str:
    own = json.loads(OWN.read_text())
    if name == own["name"]:
        return str(own["version"])
    try:
        return version(VERSIONS_FROM.get(name, f"pulumi-{name}"))
    except PackageNotFoundError:
        return version("pulumi")
