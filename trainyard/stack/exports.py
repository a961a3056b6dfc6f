"""`trainyard stack env`: installs what the engine needs, and prints the environment for using pulumi, kubectl
and helm by hand.
"""

import shlex

from engine.engine import config_file
from trainyard.stack.change import engine_parts
from trainyard.stack.session import Session


def exports(session: Session) -> str:
    """Render `export` lines for a shell to evaluate; no secret is among them, only paths of files."""
    if not session.is_fleet:
        session.packages.ensure(session.progress)
    session.toolchain.ensure(*engine_parts(session))
    # `pulumi` writes the salt of secrets into its configuration file, and reformats it: not the user's file.
    values = session.environment() | {"TRAINYARD_CONFIG": str(config_file(session.paths, session.stack_name))}
    if not session.is_fleet and session.kubeconfig.exists():
        values["KUBECONFIG"] = str(session.kubeconfig)
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in values.items())
