from trainyard.commands.options import Context, JobName, StackName, TeamOfJob
from trainyard.stack.session import Session


def traces(name: JobName, team: TeamOfJob = "", stack: StackName = "", context: Context = "") -> None:
    """Print the stack of each thread of each rank of a running job.

    Ranks that use trainyard_train print stacks, even while they wait in a library; others are only named.

    [dim]trainyard job traces digits[/]
    """
    from trainyard.jobs.traces import show_traces

    show_traces(Session(stack, context=context, team=team), name)
