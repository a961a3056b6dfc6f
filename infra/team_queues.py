"""The stack output `queues`: builds each team's entry (namespace and queues), and reads the output back with
camel-case or snake-case keys.
"""

from collections.abc import Mapping
from typing import Any

from infra.common import names
from infra.stackfile.queue import TeamSpec

KEYS: Mapping[str, str] = {
    "local_queue": "localQueue",
    "cluster_queue": "clusterQueue",
    "more_local_queues": "moreLocalQueues",
}
"""Keys of the output as Python programs have them: Pulumi's Python SDK exports keys in snake case."""


def exported(team: TeamSpec) -> dict[str, Any]:
    """Return a team's entry in the output `queues`."""
    others = {queue: team.local_queue(queue) for queue in team.more_queues}
    return {
        "namespace": names.team_namespace(team.name),
        "localQueue": team.local_queue(),
        "clusterQueue": team.queue,
        **({"moreLocalQueues": others} if others else {}),
    }


def read(queues: Any) -> Any:  # noqa: ANN401 -- whatever the user wrote
    """Return the output `queues` with camel-case keys; anything but a mapping unchanged."""
    if not isinstance(queues, Mapping):
        return queues
    return {team: _camel_cased(each) if isinstance(each, Mapping) else each for team, each in queues.items()}


def _camel_cased(team: Mapping[str, Any]) -> dict[str, Any]:
    return {KEYS.get(key, key): value for key, value in team.items()}
