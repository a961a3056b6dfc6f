"""Rendezvous of all ranks: checks the launcher's variables, waits until each rank has joined, and returns
their store, without the keys of earlier attempts.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import torch.distributed as dist

from trainyard_train.config_base import ConfigError

_LOOK_SECONDS: Final = 0.02
_FIRST_LOOK_SECONDS: Final = 0.001
"""First polling interval: ranks that start together agree within it; later polls are rarer."""


class AbsentRankError(TimeoutError):
    """Not all ranks came in time."""


def check_environment(environment: Mapping[str, str]) -> None:
    """Check that a launcher has set rank, world size and rendezvous address.

    Raises:
        ConfigError: variables are missing or wrong; the message has all of them.
    """
    given = {name: environment.get(name, "") for name in ("RANK", "WORLD_SIZE", "MASTER_PORT")}
    given["LOCAL_RANK"] = environment.get("LOCAL_RANK", "0")
    problems = [
        f"{name}: got {value!r}; allowed: a whole number"
        for name, value in given.items()
        if not value.isdecimal()
    ]
    if not environment.get("MASTER_ADDR"):
        problems.append("MASTER_ADDR: got ''; allowed: the host of rank 0")
    if not problems and int(given["RANK"]) >= int(given["WORLD_SIZE"]):
        most = int(given["WORLD_SIZE"]) - 1
        problems.append(f"RANK: got {given['RANK']}; allowed: 0 to {most}, one less than WORLD_SIZE")
    if problems:
        raise ConfigError([f"{each}; start it by torchrun, mpirun or a Trainer" for each in problems])


def rendezvous(seconds: float, environment: Mapping[str, str] = os.environ) -> tuple[dist.Store, int, int]:
    """Wait for all ranks; returns the store that they share, this one's rank, and how many they are.

    Raises:
        AbsentRankError: not all came within so many seconds.
        dist.DistError: the process with the store ended before that.
    """
    timeout = timedelta(seconds=seconds)
    deadline = time.monotonic() + seconds
    try:
        store, rank, world_size = next(dist.rendezvous("env://", timeout=timeout))
        store.set_timeout(timeout)
        if world_size > 1:
            store = own_round(store, rank, world_size, seconds)
    except (dist.DistError, TimeoutError) as error:
        if isinstance(error, dist.DistError) and time.monotonic() < deadline:
            raise
        raise AbsentRankError(
            f"not all {environment['WORLD_SIZE']} ranks arrived within {seconds:g} s at"
            f" {environment['MASTER_ADDR']}:{environment['MASTER_PORT']}: see the other ranks' logs, or raise"
            " timeouts.rendezvous"
        ) from error
    return store, rank, world_size


def own_round(store: dist.Store, rank: int, world_size: int, seconds: float) -> dist.Store:
    """A part of the store that is new to these ranks.

    torchrun (PyTorch 2.15) gives one store to the workers of one round after the other, with all that dead
    ones left there, and a rank that was restarted in place may come before rank 0 has ended, whose store
    it is; a group that finds a dead rank's address waits for it until its timeout. So each rank sets a random
    token. Rank 0 publishes all tokens, a rank that finds its token among them agrees, and where all agree the
    tokens are of this round; until then rank 0 looks again.

    Raises:
        TimeoutError: not all agreed within so many seconds.
        dist.DistError: a rank never set its token, or the store is unreachable.
    """
    own = secrets.token_hex(8)
    store.set(f"round/token/{rank}", own)
    find = _gather_tokens if rank == 0 else _find_token
    deadline, pause = time.monotonic() + seconds, _FIRST_LOOK_SECONDS
    while time.monotonic() < deadline:
        if name := find(store, rank, world_size, own):
            return dist.PrefixStore(f"round/{name}", store)
        time.sleep(pause)
        pause = min(2 * pause, _LOOK_SECONDS)
    raise TimeoutError


def _gather_tokens(store: dist.Store, _rank: int, world_size: int, _own: str) -> str:
    """Publish the tokens of all ranks; returns the round's name once they have agreed."""
    tokens = store.multi_get([f"round/token/{rank}" for rank in range(world_size)])
    text = json.dumps([token.decode() for token in tokens])
    name = _name_of(text)
    store.set("round/tokens", text)
    agreed = [f"round/{name}/agrees/{rank}" for rank in range(1, world_size)]
    if agreed and not store.check(agreed):
        return ""
    store.set(f"round/{name}/agreed", "")
    return name


def _find_token(store: dist.Store, rank: int, _world_size: int, own: str) -> str:
    """Agree to what rank 0 published, if this rank's token is in it; returns the name once all agree."""
    text = store.get("round/tokens").decode()
    tokens = json.loads(text)
    if rank >= len(tokens) or tokens[rank] != own:
        return ""
    name = _name_of(text)
    store.set(f"round/{name}/agrees/{rank}", "")
    return name if store.check([f"round/{name}/agreed"]) else ""


def _name_of(tokens: str) -> str:
    return hashlib.sha256(tokens.encode()).hexdigest()[:16]
