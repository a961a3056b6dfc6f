"""Jobs of Kubeflow's training-operator, which the stack has until `test_local_stack` removes it."""

from collections.abc import Iterator

import pytest

from tests.e2e import manifests
from tests.e2e.jobs import logs_of_completed
from tests.e2e.manifests import NAMESPACE
from tests.e2e.stack import LocalStack

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

LAST = "import os, time\nif os.environ['RANK'] == '0': time.sleep(5)\n"
"""The job ends with its master: by then the other ranks have."""
SUM = (
    "import torch, torch.distributed as dist\n"
    "dist.init_process_group('gloo')\n"
    "total = torch.tensor([dist.get_rank() + 1])\n"
    "dist.all_reduce(total)\n"
    "print('sum over', dist.get_world_size(), 'ranks:', total.item())\n"
    "dist.destroy_process_group()\n"  # gloo's threads may else abort the process that ends
    f"{LAST}"
)
PRINT_RANK = f"{LAST}print('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])"


@pytest.fixture(scope="module", autouse=True)
def no_job_remains(stack: LocalStack) -> Iterator[None]:
    """What follows begins with a stack that had no job."""
    yield
    stack.kubectl("delete", "pytorchjobs,xgboostjobs", "--all", "-n", NAMESPACE)


def test_training_operator_comes_without_the_mpi_jobs_that_another_serves(stack: LocalStack) -> None:
    assert "training-operator" in stack.names("deployments", "-n", "kubeflow")
    served = stack.kubectl("get", "crd", "-o", "name")
    assert "pytorchjobs.kubeflow.org" in served
    assert "xgboostjobs.kubeflow.org" in served
    versions = stack.get("crd", "mpijobs.kubeflow.org")["spec"]["versions"]
    assert [version["name"] for version in versions if version["served"]] == ["v2beta1"]


def test_a_pytorch_job_of_two_ranks_runs_through_the_queue(stack: LocalStack) -> None:
    command = ["python3", "-c", SUM]
    body = manifests.legacy_job(
        "PyTorchJob", "old-torch", stack.training_image, container_name="pytorch", command=command
    )
    assert logs_of_completed(stack, body, "Succeeded", num_pods=2).count("sum over 2 ranks: 3") == 2


def test_an_xgboost_job_gets_its_ranks_through_the_queue(stack: LocalStack) -> None:
    """The test covers operator and queue: the image has no XGBoost, so ranks only print their number."""
    command = ["python3", "-c", PRINT_RANK]
    body = manifests.legacy_job(
        "XGBoostJob", "old-xgboost", stack.training_image, container_name="xgboost", command=command
    )
    printed = logs_of_completed(stack, body, "Succeeded", num_pods=2)
    assert sorted(printed.splitlines()) == ["rank 0 of 2", "rank 1 of 2"]
