from trainyard.commands.options import Context, JobName, StackName, TeamOfJob
from trainyard.stack.session import Session


def pause(name: JobName, team: TeamOfJob = "", stack: StackName = "", context: Context = "") -> None:
    """Let a job save a checkpoint and release its GPUs; `trainyard resume` continues it.

    Its pods get SIGTERM, as in a preemption: the training package commits a checkpoint within the grace
    period; a program that ignores SIGTERM resumes from its last checkpoint.

    [dim]trainyard pause digits --context research[/]
    """
    from trainyard.jobs.pause import pause_job

    pause_job(Session(stack, context=context, team=team), name)
