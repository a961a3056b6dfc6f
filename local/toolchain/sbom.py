"""Lists the packages of a root filesystem and of a lock file, and writes them as the CycloneDX bill of
materials (SBOM) of the training image, or of a distribution.
"""

import json
import platform
import re
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from packaging.requirements import Requirement

FILE = "sbom.cdx.json"
STATUS = "var/lib/dpkg/status"
RELEASE = "etc/os-release"


@dataclass(frozen=True)
class SbomPackage:
    """One package, as a package URL names it."""

    kind: str
    """Type in the package URL: `deb` or `pypi`."""
    name: str
    version: str
    namespace: str | None = None
    qualifiers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RootContents:
    """Packages of a root filesystem."""

    packages: tuple[SbomPackage, ...]

    @property
    def python(self) -> str:
        """The version of its Python, such as `3.11`; scanners distinguish wheels by it."""
        version = next(each.version for each in self.packages if each.name == "python3")
        found = re.match(r"(?:\d+:)?(\d+\.\d+)", version)
        assert found, version
        return found[1]

    @classmethod
    def of(cls, layer: Path) -> "RootContents":
        """Read the tar of a root filesystem of Debian or Ubuntu."""
        texts: dict[str, str] = {}
        with tarfile.open(layer) as tar:
            for member in tar:
                name = member.name.removeprefix("./")
                if name == STATUS or name.endswith("/os-release"):  # /etc/os-release is a link
                    stream = tar.extractfile(member) if member.isfile() else None
                    texts[name] = stream.read().decode() if stream else ""
        release = next(text for name, text in texts.items() if name != STATUS and text)
        values = dict(re.findall(r'(?m)^(ID|VERSION_CODENAME)="?([^"\n]*)', release))
        return cls(tuple(_debian(texts[STATUS], values["ID"], values.get("VERSION_CODENAME", ""))))


def _debian(status: str, distribution: str, suite: str) -> Iterator[SbomPackage]:
    for paragraph in status.split("\n\n"):
        fields = dict(re.findall(r"(?m)^(\S+): (.*)$", paragraph))
        if fields.get("Status", "").endswith(" installed"):
            qualifiers = {"arch": fields["Architecture"], "distro": suite}
            yield SbomPackage("deb", fields["Package"], fields["Version"], distribution, qualifiers)


def locked(lock: str, python: str = "") -> Iterator[SbomPackage]:
    """Yield the packages that a lock file installs for that Python on a Linux host like this one; without a
    Python, all that it has.
    """
    machine = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": platform.machine(),
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }
    for line in lock.splitlines():
        if not line[:1].isalnum():
            continue
        requirement = Requirement(line.partition(" --hash")[0].rstrip(" \\"))
        if not python or requirement.marker is None or requirement.marker.evaluate(machine):
            (pin,) = requirement.specifier
            yield SbomPackage("pypi", requirement.name, pin.version)


def bill_of_materials(
    name: str, version: str, packages: Iterable[SbomPackage], kind: str = "container"
) -> bytes:
    """CycloneDX 1.6 as JSON; the same packages give the same bytes.

    Args:
        name: of the image or distribution.
        version: its tag or version.
        packages: all that is in it, and that it is used with.
        kind: CycloneDX's type of component.
    """
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.output.json import JsonV1Dot6
    from packageurl import PackageURL

    whole = Component(type=ComponentType(kind), name=name, version=version, bom_ref=f"{name}:{version}")
    parts = []
    for each in packages:
        url = PackageURL(each.kind, each.namespace, each.name, each.version, dict(each.qualifiers))
        parts.append(
            Component(
                type=ComponentType.LIBRARY, name=each.name, version=each.version, purl=url, bom_ref=str(url)
            )
        )
    bom = Bom(components=parts, serial_number=uuid5(NAMESPACE_URL, f"{name}:{version}"))
    bom.metadata.component = whole
    bom.metadata.timestamp = None  # type: ignore[assignment]
    bom.register_dependency(whole, parts)
    text = json.loads(JsonV1Dot6(bom).output_as_string())
    return json.dumps(text, indent=1, sort_keys=True).encode() + b"\n"
