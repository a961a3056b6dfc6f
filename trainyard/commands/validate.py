from infra.stackfile.source import FLEET_KEY, STACK_KEY, read
from trainyard.commands.options import StackName
from trainyard.stack.session import Session


def validate(stack: StackName = "local") -> None:
    """Check the stack file, and report every problem with its line."""
    from trainyard.stack.state import declared_backend

    session = Session(stack)
    if session.is_fleet:
        workers = ", ".join(f"{worker.name} in {worker.place.name}" for worker in session.fleet.workers)
        session.console.print(f"[green]✓[/] {session.stack_file.name} is valid: {workers}", highlight=False)
        _print_overrides(session, FLEET_KEY)
        return
    pools = ", ".join(f"{pool.name} × {pool.num_nodes}" for pool in session.stack.pools)
    declared_backend(session.stack_file)
    session.console.print(f"[green]✓[/] {session.stack_file.name} is valid: {pools}", highlight=False)
    _print_overrides(session, STACK_KEY)


def _print_overrides(session: Session, key: str) -> None:
    """Print the answers (`trainyard:stack.PATH`) that differ from the section's values."""
    _, source = read(session.stack_file, key)
    for each in source.overrides:
        session.console.print(f"  {each}", highlight=False, markup=False, soft_wrap=True)
