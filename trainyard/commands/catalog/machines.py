from trainyard.commands.catalog.filters import Accelerator, Cloud, Fabric, Region, show
from trainyard.commands.options import ReportOutput
from trainyard.forms import CatalogPart, ReportForm


def machines(
    cloud: Cloud = "",
    accelerator: Accelerator = "",
    fabric: Fabric = "",
    region: Region = "",
    output: ReportOutput = ReportForm.TEXT,
) -> None:
    """List the machines that pools can name.

    [dim]trainyard catalog machines --accelerator h200[/]
    """
    show(CatalogPart.MACHINES, output, cloud=cloud, accelerator=accelerator, fabric=fabric, region=region)
