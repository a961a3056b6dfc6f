from trainyard.commands.catalog.filters import Cloud, show
from trainyard.commands.options import ReportOutput
from trainyard.forms import CatalogPart, ReportForm


def regions(cloud: Cloud = "", output: ReportOutput = ReportForm.TEXT) -> None:
    """List the regions of the clouds, with their countries.

    [dim]trainyard catalog regions --cloud gcp -o json[/]
    """
    show(CatalogPart.REGIONS, output, cloud=cloud)
