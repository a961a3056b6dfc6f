from trainyard.commands.options import ReportOutput, StackName
from trainyard.forms import ReportForm
from trainyard.stack.session import Session


def cost(stack: StackName = "", output: ReportOutput = ReportForm.TEXT) -> None:
    """Show what a stack costs per hour and month, by pool and storage, and how old each price is.

    Prices are the catalogue's, each with source and date. Missing prices, and those older than 90 days, are
    listed; the totals cover everything that has a price.

    [dim]trainyard cost -s aws
    trainyard cost -s aws -o json | jq .usdPerHour[/]
    """
    from trainyard.cost.price import show_price

    session = Session(stack)
    show_price(session.stack, output, session.console)
