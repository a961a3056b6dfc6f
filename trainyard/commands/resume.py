from trainyard.commands.options import Context, JobName, StackName, TeamOfJob
from trainyard.stack.session import Session


def resume(name: JobName, team: TeamOfJob = "", stack: StackName = "", context: Context = "") -> None:
    """Put a paused job back into its queue; it resumes from its newest checkpoint."""
    from trainyard.jobs.pause import resume_job

    resume_job(Session(stack, context=context, team=team), name)
