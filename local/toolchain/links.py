"""Links the cached artifacts into `.trainyard`, writes the start scripts of our language host and provider
plugin, and returns the engine's environment variables.
"""

import os
import secrets
import shlex
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from engine import plugins
from engine.paths import START
from engine.settings import FOR_ANY_PULUMI
from local.toolchain.sbom import FILE
from local.toolchain.search import find_on_path

if TYPE_CHECKING:
    from local.toolchain.toolchain import Toolchain

LANGUAGE_HOST = "pulumi-language-python"
PROVIDER = "pulumi-resource-trainyard"
_WRAPPED = {LANGUAGE_HOST: "engine.language_host", PROVIDER: "engine.provider"}


def refresh(toolchain: "Toolchain") -> None:
    """Link what exists, each link replaced by one rename; a dangling link is removed.

    `bin/` for PATH, `charts/`, `training-env`, `training-sbom.cdx.json`, and the file `training-image` with
    the image's reference. An installation from a wheel has no `.venv`: it uses the running environment.
    """
    root = toolchain.paths.bin.parent
    links = {root / _path_of(name): toolchain.find(name) for name in toolchain.names() if _path_of(name)}
    links |= _language_host(toolchain)
    for link, target in links.items():
        if target is not None:
            _link(link, target)
        elif link.is_symlink() and not link.exists():
            link.unlink()
    wrapped = [PROVIDER] if links[toolchain.paths.bin / LANGUAGE_HOST] else [PROVIDER, LANGUAGE_HOST]
    for name in wrapped:
        _write(toolchain.paths.bin / name, _wrapper(toolchain, _WRAPPED[name]), mode=0o755)
    _write(root / "training-image", toolchain.image("training"), mode=0o644)
    if toolchain.paths.is_installed:
        _link(toolchain.paths.venv, Path(sys.prefix))


def engine_environment(toolchain: "Toolchain") -> dict[str, str]:
    """Return the engine's variables: our programs first on PATH, a file backend, its passphrase, a TMPDIR.

    The Kubernetes provider leaves kubeconfigs in TMPDIR, so it is a folder that only its owner can read.
    """
    engine, bin_folder = toolchain.paths.engine, toolchain.paths.bin
    for folder in (engine, engine / "home", engine / "tmp"):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    passphrase = engine / "passphrase"
    if not passphrase.exists():
        _create(passphrase, secrets.token_urlsafe(32))
    plugins.install(engine / "home", bin_folder)
    scripts = toolchain.find("plugin/python-exec")
    ours = {"TRAINYARD_PYTHON_EXEC": str(scripts / "pulumi-language-python-exec")} if scripts else {}
    return {
        **ours,
        **FOR_ANY_PULUMI,
        "PATH": os.pathsep.join(
            [str(bin_folder), str(toolchain.paths.venv / "bin"), os.environ.get("PATH", "")]
        ),
        "PULUMI_HOME": str(engine / "home"),
        "PULUMI_BACKEND_URL": engine.as_uri(),
        "PULUMI_CONFIG_PASSPHRASE_FILE": str(passphrase),
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        "TMPDIR": str(engine / "tmp"),
    }


def _path_of(name: str) -> str:
    """Return the path of an artifact's link below `.trainyard`; empty where it is not linked."""
    kind, rest = name.split("/", 1) if "/" in name else ("", name)
    paths = {
        "binary": f"bin/{rest}",
        "chart": f"charts/{rest}",
        "manifest": f"charts/{rest}.yaml",
        "env": f"{rest}-env",
        "sbom": f"{rest}-{FILE}",
    }
    return paths.get(kind, "")


def _language_host(toolchain: "Toolchain") -> dict[Path, Path | None]:
    """Return links to the official language host, where there is one, and to the SDK's scripts."""
    bin_folder = toolchain.paths.bin
    pulumi = toolchain.find("binary/pulumi")
    beside = pulumi.resolve().parent / LANGUAGE_HOST if pulumi else Path()
    official = beside if beside.is_file() else find_on_path(LANGUAGE_HOST, excluding=bin_folder)
    scripts = toolchain.find("plugin/python-exec")
    names = [f"{LANGUAGE_HOST}-exec", "pulumi-resource-pulumi-python"]
    links = {bin_folder / name: scripts / name if scripts else None for name in names}
    return {bin_folder / LANGUAGE_HOST: official, **links}


def _wrapper(toolchain: "Toolchain", module: str) -> str:
    python = shlex.quote(str(toolchain.paths.venv / "bin" / "python"))
    start = shlex.quote(str(toolchain.paths.repository / START))
    # -P: the engine starts plugins in the program's folder, whose `platform` must not shadow Python's.
    return f'#!/bin/sh\nexec {python} -P {start} {module} "$@"\n'


def _link(link: Path, target: Path) -> None:
    if link.is_symlink() and link.readlink() == target:
        return
    link.parent.mkdir(parents=True, exist_ok=True)
    fresh = link.with_name(f".{link.name}.{secrets.token_hex(4)}")
    fresh.symlink_to(target)
    fresh.replace(link)


def _create(file: Path, text: str) -> None:
    """Create a file that only its owner can read, unless another command has created it meanwhile."""
    fresh = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    _write(fresh, text, mode=0o600)
    with suppress(FileExistsError):
        file.hardlink_to(fresh)
    fresh.unlink()


def _write(file: Path, text: str, *, mode: int) -> None:
    """Write atomically; the file never has wider permissions than `mode`."""
    if not file.is_symlink() and file.exists() and file.read_text() == text:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, fresh = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    with os.fdopen(handle, "w") as stream:
        stream.write(text)
    Path(fresh).chmod(mode)
    Path(fresh).replace(file)
