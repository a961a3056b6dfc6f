from typing import Annotated

import typer

from trainyard.commands.options import ReportOutput
from trainyard.forms import CatalogPart, ReportForm


def catalog(
    what: Annotated[CatalogPart, typer.Argument(help="What to list.")] = CatalogPart.MACHINES,
    cloud: Annotated[str, typer.Option(help="Only this cloud, such as aws.")] = "",
    accelerator: Annotated[str, typer.Option(help="Model, such as h200.")] = "",
    fabric: Annotated[str, typer.Option(help="Fabric class, such as efav3.")] = "",
    region: Annotated[
        str, typer.Option(help="Only machines that are known to be offered in this region.")
    ] = "",
    output: ReportOutput = ReportForm.TEXT,
) -> None:
    """List machines, regions, fabrics or prices that stack files can name. Filters are combined.

    [dim]trainyard catalog --accelerator h200
    trainyard catalog prices --cloud aws --region us-east-2
    trainyard catalog regions --cloud gcp -o json[/]
    """
    from rich.console import Console

    from trainyard.cost.catalog import filters_of, show_catalog

    filters = filters_of(cloud=cloud, accelerator=accelerator, fabric=fabric, region=region)
    show_catalog(what, filters, output, Console())
