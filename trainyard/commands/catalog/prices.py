from trainyard.commands.catalog.filters import Accelerator, Cloud, Fabric, Region, show
from trainyard.commands.options import ReportOutput
from trainyard.forms import CatalogPart, ReportForm


def prices(
    cloud: Cloud = "",
    accelerator: Accelerator = "",
    fabric: Fabric = "",
    region: Region = "",
    output: ReportOutput = ReportForm.TEXT,
) -> None:
    """List the prices of machines, each with its source and date.

    [dim]trainyard catalog prices --cloud aws --region us-east-2[/]
    """
    show(CatalogPart.PRICES, output, cloud=cloud, accelerator=accelerator, fabric=fabric, region=region)
