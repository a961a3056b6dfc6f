"""Finds the artifacts that the program needs: charts, training image and environment, pinned versions."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from infra.errors import HostError, Problem

ROOT = Path(__file__).resolve().parents[2]

LINKS = ROOT / ".trainyard"
"""Folder, per clone, with links to the artifacts and with the program's own cache."""


@cache
def pinned(root: Path = ROOT) -> Mapping[str, Any]:
    """Return what `versions.yaml` pins, as plain data."""
    content: Mapping[str, Any] = yaml.load((root / "versions.yaml").read_bytes(), Loader=yaml.CSafeLoader)
    return content


def kubernetes_version() -> str:
    """Return the version that this release was tested with, and that charts are rendered for."""
    return str(pinned()["kubernetes"])


@dataclass(frozen=True)
class PublishedChart:
    """A vendor's chart, pinned by version and digest; helm installs it when the stack is deployed."""

    name: str
    repository: str
    version: str
    images: Mapping[str, str]
    """Full image references, by the image's purpose in the chart."""
    digest: str = ""
    """SHA-256 of the chart's archive; empty where unknown."""


@dataclass(frozen=True)
class Artifacts:
    """Locations of artifacts: links in `.trainyard/` by `trainyard up`, unless variables override them."""

    charts: Path
    """Folder with `<name>/` (a Helm chart) or `<name>.yaml` (a manifest) per operator."""
    training_image: str
    """Reference of the image that training jobs run in."""
    training_env: Path | None
    """Folder of Python packages that pods on nodes of this host mount read-only; None without such a
    folder."""
    images: Mapping[str, str]
    """Reference of each pinned image, by its name in `versions.yaml`."""
    rendered: Path = LINKS / "rendered"
    """Cache of rendered charts, by content."""
    published: Mapping[str, PublishedChart] = field(default_factory=dict)
    """Charts that helm pulls from their publishers, by name."""
    digests: Mapping[str, str] = field(default_factory=dict)
    """Digest of the publisher's image, by the name of a pinned image, where it is known."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ, root: Path = ROOT) -> "Artifacts":
        """Read `TRAINYARD_CHARTS`, `TRAINYARD_TRAINING_IMAGE` and `TRAINYARD_TRAINING_ENV`.

        Raises HostError, with all that is missing, where neither the variable nor the link exists. The
        training environment (5.9 GB) may be missing: stacks in a cloud never read it.
        """
        links = root / ".trainyard"
        charts = Path(environ.get("TRAINYARD_CHARTS") or links / "charts")
        training_env = Path(environ.get("TRAINYARD_TRAINING_ENV") or links / "training-env")
        image_file = links / "training-image"
        written = image_file.read_text().strip() if image_file.exists() else ""
        image = environ.get("TRAINYARD_TRAINING_IMAGE") or written
        missing = [
            *(_missing("TRAINYARD_CHARTS", charts) if not charts.is_dir() else ()),
            *(_missing("TRAINYARD_TRAINING_IMAGE", image_file) if not image else ()),
        ]
        if missing:
            raise HostError(missing)
        versions = pinned(root)
        images = {name: each["names"][0] for name, each in versions["images"].items()}
        published = {
            name: PublishedChart(name, **each) for name, each in versions.get("published_charts", {}).items()
        }
        made = training_env if training_env.is_dir() else None
        digests = {name: each["digest"] for name, each in versions["images"].items() if "digest" in each}
        return cls(charts, image, made, images, links / "rendered", published, digests)

    def chart(self, name: str) -> Path:
        """Return the folder or manifest of an operator; HostError where there is none."""
        for path in (self.charts / name, self.charts / f"{name}.yaml"):
            if path.exists():
                return path
        raise HostError(_missing("TRAINYARD_CHARTS", self.charts / name))

    def pulled(self, name: str) -> str:
        """Return the reference of a pinned image by its digest, for nodes that pull it from a registry."""
        return "@".join(filter(None, (self.images[name], self.digests.get(name))))

    def mounted_env(self) -> Path:
        """Return the training environment; HostError where there is none."""
        if self.training_env is None:
            raise HostError(_missing("TRAINYARD_TRAINING_ENV", LINKS / "training-env"))
        return self.training_env.resolve()  # into the cache, which all clones share


def _missing(variable: str, path: Path) -> list[Problem]:
    fix = f"run `trainyard doctor`, which lists what is missing, or set {variable}"
    return [Problem(variable, f"nothing at {path}", "an artifact that `trainyard up` has built", fix)]
