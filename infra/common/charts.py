"""Renders Helm charts (by `helm template`) and manifests into plain objects and CRD digests, cached by a hash
of their inputs.
"""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from infra.common.artifacts import Artifacts
from infra.errors import HostError, InputError, Problem

Manifest = dict[str, Any]

FORMAT = "1"
"""Format version of the rendered files; another version renders them again."""


@dataclass(frozen=True)
class DefinitionFiles:
    """CustomResourceDefinitions by name and digest; their text, megabytes of it, remains in a file."""

    source: Path
    """YAML documents, one definition each."""
    digests: Mapping[str, str]
    """Name of each definition → SHA-256 of its JSON with sorted keys and no spaces."""


@dataclass(frozen=True)
class Rendered:
    """Objects and CustomResourceDefinitions of a rendered chart."""

    objects: tuple[Manifest, ...]
    definitions: DefinitionFiles


@dataclass(frozen=True)
class Renderer:
    """Renders for one version of Kubernetes; the same inputs are rendered once."""

    artifacts: Artifacts
    kubernetes_version: str

    def chart(self, name: str, namespace: str, values: Mapping[str, Any]) -> Rendered:
        """Run `helm template` with CRDs, without hooks and tests.

        Raises HostError where chart or helm is missing, InputError where helm refuses the values.
        """
        chart, helm = self.artifacts.chart(name), _helm()
        options = ["--namespace", namespace, "--include-crds", "--no-hooks", "--skip-tests"]
        options += ["--kube-version", self.kubernetes_version, "--values", "-"]
        text = json.dumps(values, sort_keys=True)
        key = _digest(FORMAT, *_tree(chart), _identity(helm), *options, text)
        return self._cached(
            name, key, lambda: _run(name, [helm, "template", name, str(chart), *options], text)
        )

    def manifest(self, name: str) -> Rendered:
        """Read a plain manifest. Raises HostError where it is missing."""
        path = self.artifacts.chart(name)
        return self._cached(name, _digest(FORMAT, *_tree(path)), path.read_text)

    def _cached(self, name: str, key: str, render: Callable[[], str]) -> Rendered:
        folder = self.artifacts.rendered / f"{name}-{key}"
        if not folder.exists():
            _write(folder, _parse(render()))
        return Rendered(
            tuple(json.loads((folder / "objects.json").read_text())),
            DefinitionFiles(folder / "definitions.yaml", json.loads((folder / "digests.json").read_text())),
        )


def _write(folder: Path, manifests: list[Manifest]) -> None:
    """Write all files, then make them appear under their name at once: another run may do the same."""
    definitions = [each for each in manifests if each["kind"] == "CustomResourceDefinition"]
    texts = {each["metadata"]["name"]: _canonical(each) for each in definitions}
    partial = folder.with_name(f".{folder.name}.{os.getpid()}")
    # A killed process with the same PID may have left one.
    partial.mkdir(parents=True, exist_ok=True)
    objects = [each for each in manifests if each["kind"] != "CustomResourceDefinition"]
    (partial / "objects.json").write_text(json.dumps(objects))
    # JSON is YAML; each document on a separate line.
    (partial / "definitions.yaml").write_text("\n---\n".join(texts.values()) + "\n")
    (partial / "digests.json").write_text(json.dumps({name: _digest(text) for name, text in texts.items()}))
    try:
        partial.rename(folder)
    except OSError:
        shutil.rmtree(partial)


def _parse(text: str) -> list[Manifest]:
    documents = yaml.load_all(text, Loader=yaml.CSafeLoader)
    return [each for each in documents if each]


def _canonical(manifest: Manifest) -> str:
    return json.dumps(manifest, sort_keys=True, separators=(",", ":"))


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _tree(path: Path) -> Iterator[str]:
    """Yield name and digest of each file, in order."""
    files = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
    for file in files:
        yield file.name if file == path else str(file.relative_to(path))
        yield hashlib.sha256(file.read_bytes()).hexdigest()


def _identity(program: str) -> str:
    """Return what changes with a program's version and costs no call of it."""
    status = Path(program).resolve().stat()
    return f"{status.st_size}:{status.st_mtime_ns}"


def _helm() -> str:
    found = shutil.which("helm")
    if found is None:
        fix = "run `trainyard doctor`; for a trial, put helm 3.18 or newer on PATH"
        raise HostError([Problem("helm", "not on PATH", "helm 3.18 or newer", fix)])
    return found


def _run(name: str, command: list[str], values: str) -> str:
    result = subprocess.run(command, input=values, capture_output=True, text=True, check=False)
    if result.returncode:
        got = result.stderr.strip() or f"exit status {result.returncode}"
        fix = "correct the values in infra/platform"
        raise InputError([Problem(f"chart {name}", got, "values that the chart accepts", fix)])
    return result.stdout
