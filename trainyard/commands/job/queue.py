from trainyard.commands.options import Context, Output, StackName, TeamOfJob, Verbose
from trainyard.forms import Form
from trainyard.stack.session import Session


def queue(
    team: TeamOfJob = "",
    stack: StackName = "",
    context: Context = "",
    output: Output = Form.TEXT,
    verbose: Verbose = False,
) -> None:
    """Show which jobs wait and why, the jobs before them, free GPUs, and estimated start times.

    An estimate is a range, with its basis: time limits of jobs, and run times of the team's ended jobs.

    [dim]trainyard job queue --context research
    trainyard job queue -o json | jq '.waiting[0].start'[/]
    """
    from trainyard.jobs.queue import show_queue

    show_queue(Session(stack, context=context, team=team), output, verbose=verbose)
