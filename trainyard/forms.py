"""Choices of commands' options: output formats, and parts of the catalogue."""

from enum import StrEnum


class Form(StrEnum):
    """How a result is written to stdout; progress is always written to stderr."""

    TEXT = "text"
    """Text for a terminal."""
    JSON = "json"
    """JSON for programs."""


class ReportForm(StrEnum):
    """Output formats of a report, which may also be a comment on a pull request."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"


class SchemaForm(StrEnum):
    """What is printed of the stack files' schema."""

    JSON = "json"
    """JSON Schema, for editors."""
    MARKDOWN = "markdown"
    """The reference page."""
    PACKAGE = "package"
    """The schema of the component package."""


class CatalogPart(StrEnum):
    """Part of the catalogue that can be listed."""

    MACHINES = "machines"
    REGIONS = "regions"
    FABRICS = "fabrics"
    PRICES = "prices"
