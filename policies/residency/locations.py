"""Policy: where a residency is declared, every location that a resource's values name is permitted: a region
or zone, one in an ARN, in a path (`/locations/…`), or in a cloud's host name.
"""

import re
from collections.abc import Iterator
from functools import cache

import catalog
from policies.policy import Policy, Resource, Severity, Violation
from policies.region import CLOUDS, canonical, cloud_of, is_everywhere
from policies.rules import must_be_permitted
from policies.unknowns import UNKNOWN, UnknownProperty

LOCATION_KEY = re.compile(r"(^|[^a-z])(region|location|zone|country)|Region|Location|Zone|Country")
REGION_KEY = re.compile(r"[rR]egions?([nN]ame)?$|locationName$")
"""Keys whose value is a location, also one that the catalogue lacks; others may be a DNS zone or a path."""
ELSEWHERE = re.compile(
    r"((?<!multi)[rR]egions?|^locations?)([nN]ame)?$|^destination\w*Arn$|^targetArn$|^peerInstance$"
)
"""Keys whose unknown value is judged in the update."""
SHAPE = re.compile(r"[a-z]{2,}(-[a-z]+)+-?\d+[a-z]?(-[a-z])?")
"""Form of the regions and zones of AWS and Google Cloud."""
IN_ARN = re.compile(r"arn:aws[a-z-]*:(?!acm:|wafv2:)[a-z0-9-]+:([a-z]{2}[a-z-]+-\d):")
"""Region of an ARN; certificates and web ACLs of CloudFront are in us-east-1 only."""
IN_PATH = re.compile(r"/(?:locations|regions|zones)/([a-z0-9-]+)(?=/(\w+)|$)")
PACKAGES = frozenset(catalog.clouds()) | {"aws-native", "azure-native", "eks", "kubernetes", "trainyard"}
"""Packages whose regions the catalogue knows."""
EVERYWHERE = ("global", "default", "all", "auto", "any", "-")
STORES = ("buckets", "keyRings")
"""Kinds of objects in `/locations/global/…` that hold data."""
CLOUD_HOST = re.compile(
    r"(?<!dkr\.ecr)\.[a-z0-9-]+\.amazonaws|com\.amazonaws|\.api\.aws|googleapis\.com|\.run\.app|\.azure\.|\.windows\.net"
)


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Scan all values but those of labels, images and IAM documents, which hold no data."""
    package = resource.type.partition(":")[0]
    if not resource.stack.residency.is_declared or package not in PACKAGES or is_everywhere(resource):
        return
    cloud = cloud_of(resource)
    own = cloud.own if cloud and cloud in CLOUDS else ()
    unknown = ""
    for path, key, value in resource.props.leaves:
        if value is UNKNOWN:
            unknown = unknown or (path if path not in own and ELSEWHERE.search(key) else "")
        elif isinstance(value, str) and path not in own and (key != "country" or package == "trainyard"):
            for location in locations(key, value):
                yield from must_be_permitted(resource, path, location)
    if unknown:
        raise UnknownProperty(unknown)


def locations(key: str, value: str) -> Iterator[str]:
    """Locations that a value names; zones as their regions."""
    if len(value) < 48 and _is_location(key):
        name = region_of(value)
        is_region = name in regions() or REGION_KEY.search(key) or SHAPE.fullmatch(name)
        if is_region and name not in EVERYWHERE and re.fullmatch(r"[a-z][a-z0-9-]+", name):
            yield name
            return
    elif SHAPE.fullmatch(value) and region_of(value) in regions():
        yield region_of(value)
        return
    if "/" in value or ":" in value or "." in value:
        yield from IN_ARN.findall(value)
        for name, kind in IN_PATH.findall(value):
            if name not in EVERYWHERE or kind in STORES:
                yield region_of(name)
        if CLOUD_HOST.search(value):
            labels = re.findall(r"[a-z0-9-]+", value.lower())
            yield from (found for label in labels if (found := _of_label(label)))


@cache
def _is_location(key: str) -> bool:
    return LOCATION_KEY.search(key) is not None


@cache
def _of_label(label: str) -> str:
    """The region that a label of a host name is, or begins with: `us-central1-docker`; empty if none."""
    parts = label.split("-")
    names = ("-".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((name for name in names if name in regions() and len(name) > 4), "")


@cache
def regions() -> frozenset[str]:
    """Regions of the catalogue, in lower case, and their countries."""
    found = [region for cloud in catalog.clouds() for region in catalog.regions(cloud)]
    names = (name for region in found for name in (region.name, region.country))
    return frozenset(name.lower() for name in names if name)


@cache
def region_of(location: str) -> str:
    """A zone of AWS (`eu-west-1a`), Google Cloud (`europe-west4-a`) or AKS (`westeurope-1`) as its region."""
    name = canonical(location)
    if name in regions():
        return name
    if re.fullmatch(r"[a-z0-9]+-\d", name):
        return name[:-2]
    return name[:-1] if re.search(r"-\d[a-z]$", name) else name


POLICY = Policy(
    name="residency-locations",
    title="All locations that a resource names are permitted",
    reason=(
        "Replicas, backup copies, endpoints, peerings, registries, sinks and spot fallbacks name another "
        "region in a property, and data follows."
    ),
    remedy="Name permitted regions and zones only.",
    types=("*",),
    evaluate=evaluate,
    severity=Severity.CRITICAL,
    frameworks=("GDPR Art. 44", "NIST SP 800-53 SA-9(5)", "NIST SP 800-53 CP-9", "CSA CCM DSP-19"),
)  # fmt: skip
