from trainyard.commands.catalog.filters import Accelerator, Cloud, Region, show
from trainyard.commands.options import ReportOutput
from trainyard.forms import CatalogPart, ReportForm


def fabrics(
    cloud: Cloud = "",
    accelerator: Accelerator = "",
    region: Region = "",
    output: ReportOutput = ReportForm.TEXT,
) -> None:
    """List the fabric classes, with the resources that a pod requests.

    [dim]trainyard catalog fabrics[/]
    """
    show(CatalogPart.FABRICS, output, cloud=cloud, accelerator=accelerator, region=region)
