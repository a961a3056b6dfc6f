"""`trainyard stack images`: lists every image and chart of a stack, and checks that they exist, match their
pins, and fit the fabrics.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console

import catalog
from catalog import image_lint
from catalog.image_lint import ImageContents
from engine.progress import Progress, for_stream
from infra.common.artifacts import Artifacts
from infra.errors import Problem, TrainyardError
from infra.stackfile import Stack
from trainyard.forms import Form
from trainyard.images.chart_index import Indexes
from trainyard.images.contents import ImageArchive, LayerRead, LayerStore, UnreadableImageError, read_image
from trainyard.images.registry import MissingArchitectures, NoChartError, Registries
from trainyard.stack.preview import declared, prepared
from trainyard.stack.session import Session

_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")


@dataclass(frozen=True, order=True)
class FetchedChart:
    """A chart that helm fetches when the stack is deployed."""

    name: str
    """Name of the chart; it begins with `oci://` if a mirror has it."""
    version: str
    repository: str = ""
    """URL of the chart's repository; empty if the name is enough."""
    digest: str = ""
    """Pinned SHA-256 of the chart's archive; empty if it is not known."""

    @property
    def reference(self) -> str:
        """Reference of the chart in a registry; empty if an index lists it."""
        name = self.name.removeprefix("oci://")
        return f"{name}:{self.version}" if name != self.name else ""


@dataclass(frozen=True)
class Inventory:
    """Images and charts that the nodes and helm must be able to pull."""

    images: tuple[str, ...]
    charts: tuple[FetchedChart, ...]
    architectures: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Image of jobs and of their helpers → CPU architectures of the nodes that it runs on."""
    fabrics: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Image of ranks → fabric classes of its runtimes that require something in the image."""


def inventory(stack: Stack, artifacts: Artifacts) -> Inventory:
    """Collect the images and charts from a stack's declared resources; makes no request."""
    found = [
        each.inputs
        for each in declared(stack, artifacts)
        if each.type.startswith(("kubernetes:", "trainyard:platform:"))
    ]
    images = {image for each in found for image in _images(each)}
    digests = {chart.name: chart.digest for chart in artifacts.published.values()}
    charts = {chart for each in found for chart in _charts(each, digests)}
    architectures = _architectures(stack, found)
    fabrics = _fabrics(found)
    return Inventory(tuple(sorted(images)), tuple(sorted(charts)), architectures, fabrics)


def _fabrics(declared: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """Return the image of ranks → the fabric classes of its runtimes."""
    known = {fabric.name for fabric in catalog.fabrics() if fabric.image_files}
    found: dict[str, set[str]] = {}
    for each in declared:
        if each.get("kind") == "ClusterTrainingRuntime":
            fabric = each["metadata"]["name"].partition("-")[2]
            for image in _rank_images(each) if fabric in known else ():
                found.setdefault(image, set()).add(fabric)
    return {image: tuple(sorted(names)) for image, names in sorted(found.items())}


def _rank_images(runtime: Mapping[str, Any]) -> Iterator[str]:
    for job in runtime["spec"]["template"]["spec"]["replicatedJobs"]:
        for container in job["template"]["spec"]["template"]["spec"]["containers"]:
            yield container["image"]


def _architectures(stack: Stack, declared: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """Return each image → CPU architectures of the pools that it runs on."""
    found: dict[str, set[str | None]] = {}
    for each in declared:
        if each.get("kind") == "ClusterTrainingRuntime":
            fabric = each["metadata"]["name"].partition("-")[2]
            pools = [pool for pool in stack.pools if pool.accelerator and pool.fabric == fabric]
            for image in _images(each):
                found.setdefault(image, set()).update(pool.architecture for pool in pools)
    system = {pool.architecture for pool in stack.pools if pool.is_system}
    for each in declared:
        for image in _images(each) if each.get("kind") == "Job" else ():
            found.get(image, set()).update(system)
    return {image: tuple(sorted(kind for kind in kinds if kind)) for image, kinds in sorted(found.items())}


def _images(value: Any) -> Iterator[str]:  # noqa: ANN401 -- any part of what was declared
    """Find the images of containers in any pod template, and those of a published chart."""
    if isinstance(value, Mapping):
        if "chart" in value and "images" in value:
            yield from value["images"]
        for key, part in value.items():
            if key in _CONTAINERS:
                yield from (each["image"] for each in part if isinstance(each.get("image"), str))
            yield from _images(part)
    elif isinstance(value, list):
        for each in value:
            yield from _images(each)


def _charts(declared: Mapping[str, Any], digests: Mapping[str, str]) -> Iterator[FetchedChart]:
    source = declared.get("chart")
    if isinstance(source, Mapping):
        repository = source.get("repositoryOpts", {}).get("repo", "")
        digest = digests.get(source["chart"].rpartition("/")[2], "")
        yield FetchedChart(source["chart"], source["version"], repository, digest)


def missing(found: Inventory, registries: Registries, indexes: Indexes | None = None) -> list[Problem]:
    """Ask the registries for each image, and registries and publishers' indexes for each chart."""
    indexes = indexes or Indexes()
    problems = _missing_references(found, registries)
    lacking = {problem.path for problem in problems}
    for chart in found.charts:
        if chart.reference not in lacking:
            problems += _chart_problems(chart, registries, indexes)
    return problems


def _chart_problems(chart: FetchedChart, registries: Registries, indexes: Indexes) -> Iterator[Problem]:
    """Compare a published or mirrored chart with its pinned digest."""
    where = chart.reference or f"{chart.repository}: {chart.name} {chart.version}"
    try:
        got = registries.chart_digest(chart.reference) if chart.reference else indexes.digest(chart)
    except NoChartError as error:
        fix = "check the repository, and proxies or firewalls on the way to it"
        yield Problem(where, str(error), "the chart", fix)
        return
    if chart.digest and got and got != chart.digest:
        fix = "a version must never change: compare the two; on a mirror, copy the publisher's chart again"
        yield Problem(where, f"sha256:{got}", f"sha256:{chart.digest}: the pinned digest", fix)


def _missing_references(found: Inventory, registries: Registries) -> list[Problem]:
    wanted = dict.fromkeys(found.images, "image")
    wanted |= {chart.reference: "chart" for chart in found.charts if chart.reference}
    problems = []
    for reference, what in wanted.items():
        architectures = found.architectures.get(reference, ())
        lack = registries.find_problem(reference, architectures)
        if isinstance(lack, MissingArchitectures):
            allowed = f"the image for {' and '.join(architectures)}"
            fix = "build it for each: docker buildx bake --set '*.platform=linux/amd64,linux/arm64'"
            problems.append(Problem(reference, lack.answer, allowed, fix))
        elif lack:
            fix = "copy it there, or log in to the registry"
            problems.append(Problem(reference, lack.answer, f"the {what}", fix))
    return problems


def unfit(found: Inventory, registries: Registries, progress: Progress) -> list[Problem]:
    """Check that each image of ranks has the files that the fabrics of its runtimes need."""
    problems = []
    for image, fabrics in found.fabrics.items():
        for architecture in found.architectures.get(image) or ("",):
            where = f"{image} ({architecture})" if architecture else image
            problems += _unfit(where, registries.image(image), architecture, fabrics, progress)
    return problems


def unfit_archive(found: Inventory, archive: Path, progress: Progress) -> list[Problem]:
    """Check that an image in an archive has the files that the stack's fabrics need."""
    fabrics = sorted({fabric for names in found.fabrics.values() for fabric in names})
    return _unfit(str(archive), ImageArchive(archive), "", fabrics, progress)


def _unfit(
    where: str, layers: LayerStore, architecture: str, fabrics: Iterable[str], progress: Progress
) -> list[Problem]:
    classes = [catalog.fabric(fabric) for fabric in fabrics]

    def has_all(contents: ImageContents) -> bool:
        return not any(True for fabric in classes for _ in image_lint.faults(contents, fabric))

    try:
        with progress.task(f"reading {where}") as task:

            def on_layer(at: LayerRead) -> None:
                task.advanced(at.layer - 1, at.layers, f"a layer of {at.megabytes} MB")

            contents = read_image(layers, architecture, enough=has_all, on_layer=on_layer)
    except UnreadableImageError as error:
        fix = "its libraries for the fabric cannot be checked; build it as in training/images"
        return [Problem(where, str(error), "an image whose layers can be read", fix)]
    # Classes of one network lack the same files.
    lacks = {fault.path: fault for fabric in classes for fault in image_lint.faults(contents, fabric)}
    return [Problem(where, fault.got, fault.allowed, fault.fix) for fault in lacks.values()]


def show_images(session: Session, form: Form, *, check: bool, archive: Path | None = None) -> None:
    """Print the inventory; raise TrainyardError with missing images, and charts with other digests.

    Args:
        session: session of the stack.
        form: output format.
        check: ask the registries, and look into the images of ranks.
        archive: also check this image.
    """
    stack = session.stack  # wrong input ends here
    found = inventory(stack, prepared(session))
    if form == "json":
        sys.stdout.write(json.dumps(asdict(found), indent=1) + "\n")
    else:
        _show(found, session.console)
    problems: list[Problem] = []
    if check:
        registries = Registries.from_docker_config()
        problems = missing(found, registries)
        absent = {problem.path for problem in problems}
        there = {image: fabrics for image, fabrics in found.fabrics.items() if image not in absent}
        problems += unfit(replace(found, fabrics=there), registries, for_stream())
    if archive:
        problems += unfit_archive(found, archive, for_stream())
    if problems:
        raise TrainyardError(problems)


def _show(found: Inventory, console: Console) -> None:
    for image in found.images:
        console.print(image, highlight=False, soft_wrap=True)
    for chart in found.charts:
        where = f"  from {chart.repository}" if chart.repository else ""
        console.print(f"{chart.name} {chart.version} (chart){where}", highlight=False, soft_wrap=True)
