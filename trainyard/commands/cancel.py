from trainyard.commands.options import Context, JobName, StackName, TeamOfJob
from trainyard.stack.session import Session


def cancel(name: JobName, team: TeamOfJob = "", stack: StackName = "", context: Context = "") -> None:
    """Delete a job and its pods. Its checkpoints are retained."""
    from trainyard.jobs.cancel import cancel_job

    cancel_job(Session(stack, context=context, team=team), name)
