from trainyard.commands.options import Context, JobName, StackName, TeamOfJob
from trainyard.stack.session import Session


def stacks(name: JobName, team: TeamOfJob = "", stack: StackName = "local", context: Context = "") -> None:
    """Print the stack of each thread of each rank of a running job.

    Ranks that use trainyard_train print stacks, even while they wait in a library; others are only named.

    [dim]trainyard stacks digits[/]
    """
    from trainyard.jobs.stacks import show_stacks

    show_stacks(Session(stack, context=context, team=team), name)
