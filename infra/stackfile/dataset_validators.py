"""Checks of datasets against the rest of the stack (regions, credentials, size, teams), and of the
bucket's lifecycle.
"""

from collections.abc import Iterator

import catalog
from infra.stackfile.dataset import SCHEMES, DatasetSpec
from infra.stackfile.finding import Checks, Finding, unknown
from infra.stackfile.queue import TeamSpec
from infra.stackfile.storage import StorageSpec
from infra.stackfile.target import TargetSpec

Datasets = tuple[DatasetSpec, ...]


def names_of_datasets_are_unique(datasets: Datasets) -> Iterator[Finding]:
    """Jobs request datasets by name, and a new version of one replaces the old one."""
    seen: set[str] = set()
    for index, dataset in enumerate(datasets):
        if dataset.name in seen:
            fix = "rename or remove one of them"
            yield ("datasets", index, "name"), repr(dataset.name), "a unique name", fix
        seen.add(dataset.name)


def data_are_where_they_may_be(target: TargetSpec, datasets: Datasets) -> Iterator[Finding]:
    """A copy is data too: the cluster must be in a region that the dataset permits; an unknown one is not."""
    for index, dataset in enumerate(datasets):
        for position, pattern in enumerate(dataset.residency or ()):
            try:
                catalog.is_country_within("", pattern)
            except catalog.UnknownNameError as error:
                path = ("datasets", index, "residency", position)
                yield path, repr(pattern), error.allowed, error.fix
                break
        else:
            if dataset.residency is not None and not _is_permitted(target, dataset.residency):
                got = f"a cluster in {target.location or 'an unknown location'}"
                fix = "use a stack in a permitted region, or other data"
                if not target.location and hasattr(target, "country"):
                    fix = "set target.country: the country that the nodes are in"
                yield ("datasets", index, "residency"), got, ", ".join(dataset.residency), fix


def sources_are_in_regions_of_their_cloud(datasets: Datasets) -> Iterator[Finding]:
    """The source's region determines the price of egress."""
    for index, dataset in enumerate(datasets):
        path = ("datasets", index, "region")
        if dataset.region is not None and dataset.cloud is None:
            yield path, repr(dataset.region), "nothing: its source is not in a cloud", "remove the key"
        elif dataset.region is not None and dataset.cloud is not None:
            known = [region.name for region in catalog.regions(dataset.cloud)]
            if dataset.region not in known:
                yield unknown(path, dataset.region, known, f"a region of {dataset.cloud}")


def sources_are_reached_in_one_way(datasets: Datasets) -> Iterator[Finding]:
    """Keys, or none; and a path of the cluster's own needs neither."""
    for index, dataset in enumerate(datasets):
        if dataset.secret and dataset.public:
            yield ("datasets", index, "public"), "true, with a secret", "one of the two", "remove one of them"
        if dataset.cloud is None and (dataset.secret or dataset.public):
            key = "secret" if dataset.secret else "public"
            allowed = "nothing: only s3://, gs:// and az:// sources have keys"
            yield ("datasets", index, key), repr(getattr(dataset, key)), allowed, "remove the key"
        if dataset.cloud is None and dataset.digest.startswith("etag:"):
            fix = "write its sha256: python -m trainyard_train.data.stage describe SOURCE"
            yield ("datasets", index, "digest"), "an etag", "sha256: only object stores have etags", fix


def stores_of_other_clouds_are_asked_with_keys(target: TargetSpec, datasets: Datasets) -> Iterator[Finding]:
    """The Job that copies has an identity in the stack's own cloud, and none in another."""
    own = "".join(f"{scheme}://, " for scheme, cloud in SCHEMES.items() if cloud == target.kind)
    for index, dataset in enumerate(datasets):
        if dataset.uses_identity and dataset.cloud != target.kind:
            got = f"{dataset.source!r}, with neither `secret` nor `public`"
            allowed = f"{own}https:// or a path; any other with its store's keys, or public"
            fix = "name a Secret with the store's keys (`secret: NAME`), or set `public: true`"
            yield ("datasets", index, "source"), got, allowed, fix


def accounts_are_azures(datasets: Datasets) -> Iterator[Finding]:
    """A bucket's name is globally unique; a container's is not."""
    for index, dataset in enumerate(datasets):
        if dataset.account is not None and not dataset.source.startswith("az://"):
            path = ("datasets", index, "account")
            yield path, repr(dataset.account_name), "nothing: its source is not az://", "remove the key"


def datasets_fit(
    target: TargetSpec, datasets: Datasets, storage: StorageSpec, teams: tuple[TeamSpec, ...]
) -> Iterator[Finding]:
    """Datasets must fit beside the teams' claims; a filesystem of no stated size grows by itself."""
    filesystem = getattr(target, "filesystem", None)
    tebibytes = getattr(filesystem, "capacity_tib", None)
    capacity = tebibytes * 1024 if tebibytes else getattr(filesystem, "capacity_gib", None)
    claimed = storage.checkpoints.size_gib * len(teams)
    total = sum(dataset.size_gib for dataset in datasets)
    if capacity is not None and claimed <= capacity < claimed + total:
        got = f"{total}Gi, besides {claimed}Gi for the teams"
        fix = "lower the teams' claims, or buy a larger filesystem"
        yield ("datasets",), got, f"{capacity}Gi in total: the filesystem's capacity", fix


def readers_are_teams_of_the_stack(datasets: Datasets, teams: tuple[TeamSpec, ...]) -> Iterator[Finding]:
    """A name that no team has grants nothing, so it is a mistake."""
    known = [team.name for team in teams]
    for index, dataset in enumerate(datasets):
        for position, name in enumerate(dataset.teams or ()):
            path = ("datasets", index, "teams", position)
            if name not in known:
                yield unknown(path, name, known, "a team of this stack")
            elif name in (dataset.teams or ())[:position]:
                yield path, repr(name), "each team once", "remove one of the two"


def the_lifecycle_is_of_a_bucket_of_the_stack(target: TargetSpec, storage: StorageSpec) -> Iterator[Finding]:
    """A bucket that exists already has its owner's rules."""
    if storage.object_store.lifecycle is not None and getattr(target, "existing_bucket", True):
        path = ("storage", "object_store", "lifecycle")
        allowed = "nothing: the rules are for buckets that the stack creates in a cloud"
        yield path, "rules", allowed, "remove the section, and set the rules on the bucket itself"


CHECKS = Checks(__name__)


def _is_permitted(target: TargetSpec, patterns: tuple[str, ...]) -> bool:
    if target.kind in catalog.clouds():
        cloud = target.kind
        known = {region.name for region in catalog.regions(cloud)}
        # An unknown region is a separate problem, reported by the target's validator.
        return target.price_region not in known or any(
            catalog.matches(cloud, target.price_region, pattern) for pattern in patterns
        )
    return any(catalog.is_country_within(target.location, pattern) for pattern in patterns)
