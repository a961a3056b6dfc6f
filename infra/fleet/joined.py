"""The fleet's component: joins the manager to the workers by service accounts, their tokens
and queues, and builds the fleet's outputs.
"""

from typing import Any

import pulumi

from infra.common.kubernetes_objects import connect
from infra.fleet.manager import Manager
from infra.fleet.stacks import Stacks
from infra.fleet.worker import Worker
from infra.stackfile.fleet import Fleet


class FleetLinks(pulumi.ComponentResource):
    """Accounts on the workers, then their tokens in the manager, then the queues that use them."""

    def __init__(self, fleet: Fleet, opts: pulumi.ResourceOptions | None = None) -> None:
        spec: dict[str, Any] = fleet.model_dump(mode="json", by_alias=True, exclude_none=True)
        super().__init__("trainyard:infra:Fleet", fleet.name, {"fleet": spec}, opts)
        stacks = Stacks(fleet, self)
        workers = {each.name: Worker(fleet, each, stacks, self) for each in fleet.workers}
        access = connect(f"{fleet.name}-hub", stacks.manager.kubeconfig, None, self)
        manager = Manager(fleet, access, workers, self)
        self.outputs = {
            "name": fleet.name,
            "manager": fleet.manager.stack,
            "workers": {
                each.name: {"place": each.place.name, "tokenExpires": manager.expiry[each.name]}
                for each in fleet.workers
            },
            "queues": {
                queue.name: {
                    "teams": list(queue.teams),
                    "workers": [worker.name for worker in fleet.workers_of(queue)],
                }
                for queue in fleet.queues
            },
        }
        self.register_outputs({})
