from trainyard.commands.options import StackName
from trainyard.stack.session import Session


def preview(stack: StackName = "") -> None:
    """Show what `up` would change, under all policies; change nothing."""
    from trainyard.stack.change import show_preview

    show_preview(Session(stack))
