"""The stack file's `datasets` section: sources that are staged once to the shared filesystem."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from catalog import Cloud
from infra.stackfile.base import Boolean, Gibibytes, Name, Spec, wrong

SCHEMES: dict[str, Cloud] = {"s3": "aws", "gs": "gcp", "az": "azure"}
"""URL scheme of a source → cloud that the source's region belongs to."""
_ACCOUNTS = r"/subscriptions/[0-9a-f-]{36}/resourceGroups/[^/]+/providers/Microsoft\.Storage/storageAccounts"
DATA_PATH = "data.path"
"""Name of the training package's setting for the path of a job's dataset."""


def _source(value: str) -> str:
    scheme, _, rest = value.partition("://")
    path = f"/{rest}" if rest and scheme in {*SCHEMES, "https"} else value
    parts = path.split("/")
    if re.fullmatch(r"/[^\s?#]+", path) and not {".", ".."} & set(parts) and "" not in parts[1:-1]:
        return value
    raise wrong(
        "source",
        "s3://, gs://, az:// or https://, or a path of the shared filesystem: /imports/pile/",
        "use one of these forms; a folder ends with '/', a file does not",
    )


def _digest(value: str) -> str:
    if re.fullmatch(r"(sha256|etag):[0-9a-f]{64}", value):
        return value
    raise wrong(
        "digest",
        "sha256: or etag:, and 64 hex digits",
        "compute it: python -m trainyard_train.data.stage describe SOURCE",
    )


def _account(value: str) -> str:
    if re.fullmatch(rf"({_ACCOUNTS}/)?[a-z0-9]{{3,24}}", value):
        return value
    raise wrong(
        "azure_account",
        "the name of a storage account, or its ID: /subscriptions/ID/resourceGroups/GROUP/providers/"
        "Microsoft.Storage/storageAccounts/NAME",
        "write the ID that `az storage account show` prints",
    )


class DatasetSpec(Spec):
    """A dataset that is copied to the shared filesystem once, verified, and read by the teams' jobs."""

    name: Name = Field(description="name by which jobs refer to the dataset")
    source: Annotated[str, AfterValidator(_source)] = Field(
        description="URL, or path on the shared filesystem; the path of a folder ends with '/'"
    )
    digest: Annotated[str, AfterValidator(_digest)] = Field(
        description="sha256:… of the contents, or etag:… of the object store's listing"
    )
    size_gib: Gibibytes = Field(
        alias="size", description="its size; the copy is refused if the source is larger"
    )
    region: str | None = Field(
        default=None, description="region of the source in its cloud, for the cost of egress"
    )
    account: Annotated[str, AfterValidator(_account)] | None = Field(
        default=None,
        description="storage account of an az:// source: its resource ID, or its name with `secret` or"
        " `public`; default: the account of the stack's object store",
    )
    residency: tuple[Annotated[str, Field(min_length=1)], ...] | None = Field(
        default=None,
        min_length=1,
        description="regions where the data may be stored: in:eu, in:de or patterns of regions; default: any",
    )
    secret: Name | None = Field(
        default=None,
        description="existing Secret with the source's credentials, in the namespace of the Job that copies"
        " the data",
    )
    teams: tuple[Name, ...] | None = Field(
        default=None, min_length=1, description="teams that may read the dataset; default: all"
    )
    public: Boolean = Field(
        default=False, description="whether the source is public and read without credentials"
    )

    @property
    def cloud(self) -> Cloud | None:
        """The cloud that its source is in; None for one that is in none."""
        return SCHEMES.get(self.source.partition("://")[0])

    def is_read_by(self, team: str) -> bool:
        """Whether a team may read it."""
        return self.teams is None or team in self.teams

    @property
    def uses_identity(self) -> bool:
        """Whether the Job that copies it reads the source as itself: without keys, and not as anybody may.

        Then the source is in the stack's own cloud: a check refuses any other.
        """
        return self.cloud is not None and not self.secret and not self.public

    @property
    def account_name(self) -> str:
        """Name of the storage account; empty if none is set."""
        return (self.account or "").rpartition("/")[2]

    @property
    def folder(self) -> str:
        """Path of the dataset below the folder of datasets: `<name>/sha256-…`."""
        return f"{self.name}/{self.digest.replace(':', '-')}"

    @property
    def path(self) -> str:
        """What jobs read, seen from the folder of datasets; a source of one file is that file."""
        return self.folder if self.source.endswith("/") else f"{self.folder}/{self.source.rpartition('/')[2]}"
