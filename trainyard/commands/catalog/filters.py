"""Options of the catalogue's commands, and how each prints its part."""

from typing import Annotated

import typer

from trainyard.forms import CatalogPart, ReportForm

Cloud = Annotated[str, typer.Option(help="Only this cloud, such as aws.")]
Accelerator = Annotated[str, typer.Option(help="Only with this model, such as h200.")]
Fabric = Annotated[str, typer.Option(help="Only with this fabric class, such as efav3.")]
Region = Annotated[str, typer.Option(help="Only what is known to be offered in this region.")]


def show(part: CatalogPart, output: ReportForm, **filters: str) -> None:
    """Print a part of the catalogue."""
    from rich.console import Console

    from trainyard.cost.catalog import filters_of, show_catalog

    show_catalog(part, filters_of(**filters), output, Console())
