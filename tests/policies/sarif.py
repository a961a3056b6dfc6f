"""A model of the part of SARIF 2.1.0 that the reports use, for validation.

No package that could be pinned has OASIS's schema. On 2026-11-22 a report was validated with it by hand
(`sarif-schema-2.1.0.json` of oasis-tcs/sarif-spec).
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class _Object(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel)


def _are_different(texts: list[str]) -> list[str]:
    if len(set(texts)) < len(texts):
        raise ValueError("the items must be unique")
    return texts


class Message(_Object):
    text: str


class SarifProperties(_Object):
    """A property bag: the keys that code scanning reads, and tags."""

    security_severity: str = Field(alias="security-severity", pattern=r"^(10|\d)\.\d$")
    tags: Annotated[list[str], AfterValidator(_are_different)]


class SarifRule(_Object):
    id: str
    short_description: Message
    full_description: Message
    help: Message
    properties: SarifProperties


class Driver(_Object):
    name: str
    version: str
    rules: Annotated[list[SarifRule], Field(min_length=1)]


class SarifTool(_Object):
    driver: Driver


class ArtifactLocation(_Object):
    uri: str


class PhysicalLocation(_Object):
    artifact_location: ArtifactLocation


class LogicalLocation(_Object):
    fully_qualified_name: str
    name: str
    kind: str


class SarifLocation(_Object):
    physical_location: PhysicalLocation
    logical_locations: Annotated[list[LogicalLocation], Field(min_length=1)]


class Suppression(_Object):
    kind: Literal["inSource", "external"]
    status: Literal["accepted", "underReview", "rejected"]
    justification: str


class SarifResult(_Object):
    rule_id: str
    level: Literal["none", "note", "warning", "error"]
    message: Message
    locations: list[SarifLocation]
    partial_fingerprints: dict[str, str]
    suppressions: list[Suppression] = []


class Details(_Object):
    id: str


class SarifRun(_Object):
    tool: SarifTool
    automation_details: Details
    results: list[SarifResult]


class Log(_Object):
    schema_: str = Field(alias="$schema")
    version: Literal["2.1.0"]
    runs: Annotated[list[SarifRun], Field(min_length=1)]
