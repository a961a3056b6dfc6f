"""Policy: where a residency is declared, containers' environment variables name permitted regions only, by
themselves or in the host name of an endpoint.
"""

import re
from collections.abc import Iterator

import catalog
from policies.policy import Policy, Resource, Violation
from policies.rules import must_be_permitted
from policies.workloads import TYPES, containers, pod_specs

ENDPOINT_VARIABLE = re.compile(catalog.ENDPOINT_VARIABLE)
REGION_IN_HOST = re.compile(catalog.REGION_IN_HOST)


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Regions and endpoints that a container's environment sets."""
    for pod in pod_specs(resource):
        for container in containers(pod):
            for variable in container.blocks("env"):
                name = variable.get("name", "")
                if name in catalog.REGION_VARIABLES and variable.has("value"):
                    yield from must_be_permitted(resource, variable.at("value"), variable.get("value"))
                if ENDPOINT_VARIABLE.match(name) and variable.has("value"):
                    for region in REGION_IN_HOST.findall(variable.get("value").lower()):
                        yield from must_be_permitted(resource, variable.at("value"), region)


POLICY = Policy(
    name="residency-workloads",
    title="Workloads use storage of permitted regions",
    reason="A job with another region in its environment writes there, and no resource of the plan shows it.",
    remedy="Set the variable to a permitted region, or leave it to the node.",
    types=TYPES,
    evaluate=evaluate,
    frameworks=("GDPR Art. 44", "NIST SP 800-53 SA-9(5)"),
)
