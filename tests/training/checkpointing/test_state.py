"""State of model and optimizer, saved by any number of ranks and loaded by any other number."""

import itertools
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load
from torch import nn

from tests.processes import TIMEOUT_SECONDS
from trainyard_train.checkpointing.checkpoint import Checkpoint, DamagedError, Manifest
from trainyard_train.checkpointing.digests import Data
from trainyard_train.checkpointing.folder_store import FolderStore
from trainyard_train.checkpointing.state import PAGE, State, decode
from trainyard_train.checkpointing.tensor_files import file_name
from trainyard_train.parallelism.mesh import Mesh


@dataclass(frozen=True)
class ThreadMesh(Mesh):
    """The mesh of a rank that is a thread, and sends blocks to other ranks through the store."""

    sent: Counter[tuple[int, ...]] = field(default_factory=Counter, compare=False)
    """Bytes that this rank has received as a member of each group of ranks."""
    calls: Counter[tuple[int, ...]] = field(default_factory=Counter, compare=False)

    def share(
        self,
        owner: int,
        ranks: Sequence[int],
        data: torch.Tensor,
        size: int,
        room: torch.Tensor | None = None,
    ) -> torch.Tensor:
        assert self.rank in ranks
        assert owner in ranks
        if len(ranks) == 1:
            return data
        group = (owner, *ranks)
        key = f"sent/{group}/{self.calls[group]}"
        self.calls[group] += 1
        if owner == self.rank:
            assert len(data) == size
            self.store.set(key, data.numpy().tobytes().hex())
            return data
        self.sent[tuple(ranks)] += size
        found = torch.tensor(list(bytes.fromhex(self.store.get(key).decode())), dtype=torch.uint8)
        return found if room is None else room[:size].copy_(found)


def load_all(states: Sequence[State], checkpoint: Checkpoint) -> None:
    """Restore all ranks at once."""
    errors: list[DamagedError] = []

    def load(state: State) -> None:
        try:
            state.restore(checkpoint)
        except DamagedError as error:
            errors.append(error)

    threads = [threading.Thread(target=load, args=[state], name=str(state.mesh.rank)) for state in states]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({str(error) for error in errors}) == bool(errors), "all ranks have the same error"
    assert len(errors) in {0, len(states)}
    for error in errors:
        raise error


def ranks(world_size: int, seed: int) -> list[State]:
    """Make the states of this number of ranks, equal except for their random generators."""
    states = []
    store = dist.HashStore()
    store.set_timeout(timedelta(seconds=TIMEOUT_SECONDS))
    for rank in range(world_size):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.randn(4, 5)).sum().backward()
        optimizer.step()
        mesh = ThreadMesh(rank, world_size, torch.device("cpu"), "node", store)
        states.append(State(model, optimizer, mesh))
    return states


def captured(state: State) -> Data:
    return state.capture(Manifest(1, 1, 1, {}, {}, {})).data


def save(root: Path, captured: Sequence[Data]) -> Checkpoint:
    store = FolderStore(root)
    staged = store.begin(1)
    files = {
        file_name(rank): store.write(staged, file_name(rank), parts) for rank, parts in enumerate(captured)
    }
    manifest = Manifest(
        step=1, samples=1, world_size=len(captured), mesh={}, schedule={}, identity={}, files=files
    )
    store.commit(staged, manifest)
    return store.open(1)


def pieces(state: State) -> list[torch.Tensor]:
    return [values for _, values in decode(memoryview(bytearray(captured(state)))).values()]


@pytest.mark.parametrize("saved_by", [1, 2, 4, 7])
@pytest.mark.parametrize("loaded_by", [1, 2, 4])
def test_any_number_of_ranks_loads_every_parameter_buffer_and_moment(
    tmp_path: Path, saved_by: int, loaded_by: int
) -> None:
    source = ranks(saved_by, seed=1)
    checkpoint = save(tmp_path, [captured(state) for state in source])
    fresh = ranks(loaded_by, seed=2)
    assert fresh[0].weights_sha256() != source[0].weights_sha256()
    load_all(fresh, checkpoint)
    for state in fresh:
        assert state.weights_sha256() == source[0].weights_sha256()
        old, new = source[0].optimizer.state_dict()["state"], state.optimizer.state_dict()["state"]
        for index, slots in old.items():
            for name, value in slots.items():
                assert torch.equal(new[index][name], value), name


def test_the_ranks_share_the_writing_evenly(tmp_path: Path) -> None:
    parts = [sum(part.numel() for part in pieces(state)) for state in ranks(2, seed=1)]
    whole = sum(part.numel() for part in pieces(ranks(1, seed=1)[0]))
    assert max(parts) < 0.75 * whole


def test_what_is_captured_does_not_change_when_training_continues() -> None:
    """A bug of asynchronous saves: they wrote values of later steps (pytorch#144657)."""
    (state,) = ranks(1, seed=1)
    held = captured(state)
    before = bytes(held)
    with torch.no_grad():
        for parameter in state.model.parameters():
            parameter.add_(1)
    state.optimizer.step()
    assert held == before
    assert captured(state) != before


def test_saving_again_takes_no_new_memory_and_one_rank_s_file_is_open_to_the_library() -> None:
    (state,) = ranks(1, seed=1)
    first = captured(state)
    again = captured(state)
    assert np.shares_memory(np.asarray(first), np.asarray(again))
    assert np.asarray(again).ctypes.data % PAGE == 0, "disks take nothing else straight from memory"
    tensors = load(bytes(again))
    for name, parameter in state.model.named_parameters():
        assert torch.equal(tensors[f"model.{name}"], parameter)
    assert tensors["model.1.num_batches_tracked"].dtype == torch.int64


def test_each_rank_gets_its_random_generator_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, expected = [], []
    for state in ranks(2, seed=1):
        torch.manual_seed(100 + state.mesh.rank)
        files.append(captured(state))
        expected.append(torch.get_rng_state())
    checkpoint = save(tmp_path, files)
    found: dict[str, torch.Tensor] = {}

    def keep(states: dict[str, torch.Tensor], device: torch.device) -> None:
        found[threading.current_thread().name[-1]] = states["cpu"]  # threads share one generator

    monkeypatch.setattr("trainyard_train.checkpointing.state._set_generators", keep)
    load_all(ranks(2, seed=2), checkpoint)
    assert all(torch.equal(found[str(rank)], state) for rank, state in enumerate(expected))


def test_a_part_that_no_rank_has_is_named(tmp_path: Path) -> None:
    checkpoint = save(tmp_path, [captured(state) for state in ranks(2, seed=1)][:1])
    with pytest.raises(DamagedError, match=r"step-00000001 lacks parts of model\."):
        load_all(ranks(1, seed=2), checkpoint)


def test_a_load_lets_other_threads_run(tmp_path: Path) -> None:
    """Heartbeats and preemption notices need the interpreter lock during a load.

    Code that holds the lock does so in every load. On a busy host the other thread may lack a processor in
    one load, but not in all.
    """
    torch.manual_seed(0)
    model = nn.Linear(1 << 13, 1 << 13, bias=False)
    mesh = Mesh(0, 1, torch.device("cpu"), "node", dist.HashStore())
    state = State(model, torch.optim.SGD(model.parameters()), mesh)
    checkpoint = save(tmp_path, [captured(state)])
    assert any(longest_pause(state, checkpoint) < 0.07 for _ in range(20))


def longest_pause(state: State, checkpoint: Checkpoint) -> float:
    """Return the longest time in CPU seconds of a load between two runs of another thread."""
    clock = time.pthread_getcpuclockid(threading.get_ident())
    ended = threading.Event()
    times = [time.clock_gettime(clock)]

    def record() -> None:
        while not ended.wait(0.005):
            times.append(time.clock_gettime(clock))

    other = threading.Thread(target=record)
    other.start()
    state.restore(checkpoint, str(time.monotonic()))
    ended.set()
    other.join()
    times.append(time.clock_gettime(clock))
    return max(later - time_before for time_before, later in itertools.pairwise(times))
