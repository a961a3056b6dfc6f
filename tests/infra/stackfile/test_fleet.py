"""Fleet files: queues, their workers, and the locations of workers."""

import pytest

from infra.errors import InputError
from infra.stackfile import Fleet, load_fleet, parse_fleet
from tests.infra.plan import stack_file


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return load_fleet(stack_file("hybrid"))


def test_a_queue_has_the_workers_where_its_data_may_be(fleet: Fleet) -> None:
    burst, personal = fleet.queues
    assert [worker.name for worker in fleet.workers_of(burst)] == ["ohio"]
    assert [worker.name for worker in fleet.workers_of(personal)] == ["amsterdam"]
    anywhere = burst.model_copy(update={"workers": None})
    assert [worker.name for worker in fleet.workers_of(anywhere)] == ["ohio", "amsterdam"]


def test_a_worker_has_the_queues_that_send_jobs_to_it(fleet: Fleet) -> None:
    on = {worker.name: [queue.name for queue in fleet.queues_on(worker)] for worker in fleet.workers}
    assert on == {"ohio": ["burst"], "amsterdam": ["personal"]}


def test_a_worker_outside_of_clouds_has_a_country_as_its_location(fleet: Fleet) -> None:
    data = fleet.model_dump(mode="json", by_alias=True, exclude_none=True)
    data["workers"][0]["place"] = {"country": "DE"}
    worker = parse_fleet(data).workers[0]
    assert worker.place.name == "de"
    assert worker.place.is_within("in:eu")
    assert not worker.place.is_within("in:us")
    assert not worker.place.is_within("de*"), "a country matches only jurisdictions"


def test_a_fleet_survives_a_round_trip(fleet: Fleet) -> None:
    assert parse_fleet(fleet.model_dump(mode="json", by_alias=True, exclude_none=True)) == fleet


def test_a_file_without_a_fleet_is_refused_with_an_example() -> None:
    with pytest.raises(InputError, match=r"begin with a copy of stacks/Pulumi\.hybrid\.yaml"):
        load_fleet(stack_file("local"))
