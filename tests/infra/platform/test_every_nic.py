"""Every NIC of the fabric, or not at all: one table of faulty pods of jobs of two nodes, each refused by the
lint, by the API server and by the hook that runs in the pod, and the providers' own pods, which none refuses.
"""

import copy
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import catalog
from catalog import fabric_lint
from catalog.fabric_lint import GKE_INTERFACES, claims, networks
from infra.common import names
from infra.platform.admission.jobs import JOB_KINDS
from infra.platform.admission.parameters import LISTS, containers_of, fabric_lists
from infra.platform.admission.policies import StackRules, manifests
from infra.platform.base import RESTRICTED_CONTAINER, RESTRICTED_POD
from infra.platform.fabric import environment, needs, pod_annotations, resources, with_fabric
from tests.infra.api_server import BareServer, Manifest, api_server
from tests.infra.platform.programs.test_check_fabric import ContainerRoot
from tests.processes import wait_for
from tests.tables import table

FABRICS = [each.name for each in catalog.fabrics() if needs(each.name)]
Template = dict[str, Any]
Change = Callable[[Template], object]
NAMESPACE = "team-research"
EXAMPLES: Mapping[str, Any] = table(__file__)["sound"]


def template(fabric: str) -> Template:
    """Return the pod template of a job, as the platform's runtimes have it."""
    found = catalog.fabric(fabric)
    container = {
        "name": "node",
        "image": "registry.example.com/mine:1",
        "imagePullPolicy": "IfNotPresent",
        "env": [{"name": name, "value": value} for name, value in environment(fabric).items()],
        "resources": {"requests": {"memory": "8Gi"}, "limits": {**resources(fabric, 8), "memory": "64Gi"}},
        "securityContext": RESTRICTED_CONTAINER,
        "volumeMounts": [],
    }
    pod = {
        "restartPolicy": "Never",
        "securityContext": RESTRICTED_POD,
        "volumes": [],
        "containers": [container],
    }
    selector = {"nodeSelector": {fabric_lint.FABRIC_LABEL: found.name}}
    return {
        "metadata": {"annotations": pod_annotations(fabric)},
        "spec": {**with_fabric(pod, fabric), **selector},
    }


def node(pod: Template) -> Template:
    (found,) = [each for each in pod["spec"]["containers"] if each["name"] == "node"]
    return dict(found)


def with_limit(name: str, value: object) -> Change:
    return lambda pod: node(pod)["resources"]["limits"].update({name: value})


def without(part: Callable[[Template], Any], key: str) -> Change:
    return lambda pod: part(pod).pop(key)


def with_variable(setting: str) -> Change:
    name, negated, value = re.split("(!?)=", setting)
    return lambda pod: node(pod)["env"].append({"name": name, "value": "tcp" if negated else value})


def over_tcp(pod: Template) -> None:
    node(pod)["env"][:] = [each for each in node(pod)["env"] if each["name"] != "NCCL_NET"]
    node(pod)["env"].append({"name": "NCCL_NET", "value": "Socket"})


def without_interface(annotation: str) -> Change:
    pattern = r',?\{[^{}]*"[a-z]*-?7"\}|,?\{[^{}]*"vpc8"\}' if annotation == GKE_INTERFACES else r",[^,]*$"

    def change(pod: Template) -> None:
        annotations = pod["metadata"]["annotations"]
        annotations[annotation] = re.sub(pattern, "", annotations[annotation])

    return change


def with_claim(name: str, template_name: str) -> Change:
    def change(pod: Template) -> None:
        (claim,) = [each for each in pod["spec"]["resourceClaims"] if each["name"] == name]
        claim["resourceClaimTemplateName"] = template_name

    return change


def faults(fabric: str) -> Iterator[tuple[str, Change]]:
    """Yield what makes a sound pod of the class leave its fabric, or use a part of it."""
    found = catalog.fabric(fabric)
    for name, number in found.resources.items():
        for value in {number - 1, "0", "0k"}:
            yield f"{name}: {value}", with_limit(name, value)
        yield f"no {name}", without(lambda pod: node(pod)["resources"]["limits"], name)
    for setting in found.refused:
        yield setting, with_variable(setting)
    for annotation in networks(fabric):
        yield f"one less in {annotation}", without_interface(annotation)
        yield f"no {annotation}", without(lambda pod: pod["metadata"]["annotations"], annotation)
    for name in claims(fabric):
        yield f"a foreign claim to {name}", with_claim(name, "of-another")
        yield f"no claim to {name}", lambda pod: node(pod)["resources"].pop("claims")
    if found.daemon:
        yield "no daemon", lambda pod: pod["spec"]["initContainers"].clear()


def broken(fabric: str) -> Iterator[tuple[str, Template]]:
    for name, change in faults(fabric):
        pod = copy.deepcopy(template(fabric))
        change(pod)
        assert pod != template(fabric), name
        yield name, pod


@pytest.mark.parametrize("fabric", FABRICS)
def test_the_lint_refuses_each_and_passes_the_platforms_own(fabric: str) -> None:
    sound = template(fabric)
    assert [*fabric_lint.pod(sound["spec"], 2, fabric, sound)] == []
    passed = [name for name, pod in broken(fabric) if not [*fabric_lint.pod(pod["spec"], 2, fabric, pod)]]
    assert passed == []
    for name, pod in broken(fabric):
        over_tcp(pod)
        assert [*fabric_lint.pod(pod["spec"], 2, fabric, pod)] == [], f"{name}, but TCP is meant"


@pytest.mark.parametrize("fabric", FABRICS)
def test_the_hook_refuses_a_node_that_gives_less_and_each_setting(fabric: str, tmp_path: Path) -> None:
    """A device, an interface or a claim less is a file less; the daemon's container the hook does not see."""
    root, found = ContainerRoot(tmp_path / "root", "dash"), catalog.fabric(fabric)
    root.fill(fabric)
    assert root.check(fabric).returncode == 0
    given = dict(re.findall(r"(/(?:dev|sys)/\S+)=(\d+)", needs(fabric)))
    assert given, "what the node gives"
    for pattern, number in given.items():
        last = root.folder / pattern.strip("/").replace("*", str(int(number) - 1))
        last.unlink()
        assert (
            f"{pattern}: missing; the node provides {int(number) - 1} of {number}"
            in root.check(fabric).stderr
        )
        last.touch()
    pairs = [re.split("(!?)=", setting) for setting in found.refused]
    for ordered in (pairs, pairs[::-1]):  # of two values of NCCL_NET_GDR_LEVEL each is the last once
        variables = {name: "tcp" if negated else value for name, negated, value in ordered}
        done = root.check(fabric, **variables)
        assert [name for name, value in variables.items() if f"{name}={value}: " not in done.stderr] == []
        assert done.returncode == 1


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareServer]:
    """An API server with the policy for Jobs, and a team that has a queue of each fabric class."""
    fabrics = {each: catalog.fabric(each) for each in FABRICS}
    entries: dict[str, list[str]] = defaultdict(list, fabric_lists(fabrics))
    entries |= {"queues": FABRICS, "priorities": ["normal"], "job_pods": ["64"]}
    entries["node_labels"] = [fabric_lint.FABRIC_LABEL]
    for name, found in fabrics.items():
        entries["accelerators"].append(found.accelerator_resource)
        entries["annotations"] += [f"{key}={value}" for key, value in pod_annotations(name).items()]
        entries["claim_templates"] += claims(name).values()
        entries["daemons"] += containers_of(found.daemon, str) if found.daemon else []
    about = {"name": "teams", "namespace": names.ADMISSION_NAMESPACE}
    data = {f"research.{name}": ", ".join(dict.fromkeys(entries[name])) for name in LISTS}
    spaces = {names.ADMISSION_NAMESPACE: {}, NAMESPACE: {names.TEAM_LABEL: "research"}}
    rules = StackRules({"grace_seconds": ["420"], "runtimes": [], "topology_levels": []})
    with api_server(tmp_path_factory.mktemp("api-server")) as server:
        for name, labels in spaces.items():
            server.apply(
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
            )
        server.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": data})
        for each in manifests(JOB_KINDS[:1], rules):
            server.apply(each)
        wait_for(lambda: "kueue.x-k8s.io/queue-name" in server.refusal(job("none", template("ib-ndr"))))
        yield server


def job(queue: str, pod: Template, num_nodes: int = 2) -> Manifest:
    about = {"name": "trial", "namespace": NAMESPACE, "labels": {"kueue.x-k8s.io/queue-name": queue}}
    spec = {"parallelism": num_nodes, "completions": num_nodes, "suspend": True, "template": pod}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": about, "spec": spec}


@pytest.mark.parametrize("fabric", FABRICS)
def test_the_api_server_refuses_each_and_passes_the_platforms_own(server: BareServer, fabric: str) -> None:
    """A claim or an interface of others is refused by further rules, of one node too."""
    assert server.refusal(job(fabric, template(fabric))) == ""
    for name, pod in broken(fabric):
        assert "ValidatingAdmissionPolicy" in server.refusal(job(fabric, pod)), name
        if not name.startswith(("a foreign", "one less")):
            assert "to use TCP on purpose" in server.refusal(job(fabric, pod)), name
            assert "to use TCP on purpose" not in server.refusal(job(fabric, pod, num_nodes=1)), name
        over_tcp(pod)
        assert "to use TCP on purpose" not in server.refusal(job(fabric, pod)), f"{name}, but TCP is meant"


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_lint_passes_the_shapes_of_the_providers_own_examples(name: str) -> None:
    pod = copy.deepcopy(EXAMPLES[name])
    fabric, spec = pod["fabric"], pod["spec"]
    assert [*fabric_lint.pod(spec, 2, fabric, pod)] == []
    spec["containers"][-1]["resources"]["limits"] = {"nvidia.com/gpu": 8}
    assert [*fabric_lint.pod(spec, 2, fabric, {})] != []
