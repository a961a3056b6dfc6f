"""Base class of the resources that set the size of a node group, with retries while the group is busy.

A group is created empty and resized afterwards, since the creation of a group with nodes fails where the
cloud has no capacity. Nothing waits for the nodes. Each cloud's module documents how it resizes, and why.
"""

import time
from typing import ClassVar

from engine.provider.resource import Failure, HandlerProgress, Inputs, Outputs, ResourceHandler, wrong_inputs
from infra.errors import Problem, TrainyardError


class ResizeRefusedError(Exception):
    """The cloud refuses to resize the group; `busy`: another operation is in progress, so retry."""

    def __init__(self, message: str, *, busy: bool = False) -> None:
        super().__init__(message)
        self.busy = busy


class GroupSize(ResourceHandler):
    """Desired number of nodes in a node group. Nodes are deleted with their group."""

    GROUP_KIND: ClassVar[str]
    """Cloud's name of such a group, for messages: `node pool`."""
    ALLOWED: ClassVar[str]
    """Description of a group that the cloud would resize, for messages."""
    STRING_INPUTS: ClassVar[tuple[str, ...]]
    """Names of string inputs that identify the group: another value means another group."""
    INTEGER_INPUTS: ClassVar[tuple[str, ...]]
    """Names of integer inputs."""
    BUSY_TIMEOUT_SECONDS: ClassVar[float]
    """Seconds to retry while another operation on the group is running."""
    POLL_SECONDS: ClassVar[float] = 15.0

    def __init_subclass__(cls) -> None:
        cls.REPLACES = frozenset(cls.STRING_INPUTS)

    def resize(self, inputs: Inputs) -> None:
        """Resize the group, without waiting for nodes. Raises ResizeRefusedError."""
        raise NotImplementedError

    def await_idle(self, inputs: Inputs) -> None:
        """Wait before a busy group is tried again. Raises ResizeRefusedError."""
        time.sleep(self.POLL_SECONDS)

    def name(self, inputs: Inputs) -> str:
        """Return the group's name, as messages use it."""
        return self.identify(inputs)

    def show_command(self, inputs: Inputs) -> str:
        """Return the command that shows the group's state."""
        raise NotImplementedError

    def check(self, inputs: Inputs) -> list[Failure]:
        kinds = {**dict.fromkeys(self.STRING_INPUTS, str), **dict.fromkeys(self.INTEGER_INPUTS, int)}
        return wrong_inputs(inputs, kinds, others=["labels"])  # which contain the pool's name

    def create(self, inputs: Inputs, progress: HandlerProgress) -> Outputs:
        """Resize the group once no other operation is in progress. Raises TrainyardError."""
        until = time.monotonic() + self.BUSY_TIMEOUT_SECONDS
        try:
            while not self._try_resize(inputs, until):
                progress.log(f"{self.name(inputs).rpartition('/')[2]}: another operation is in progress")
                self.await_idle(inputs)
        except ResizeRefusedError as error:
            fix = f"see `{self.show_command(inputs)}`, and run `up` again"
            problem = Problem(f"{self.GROUP_KIND} {self.name(inputs)}", str(error), self.ALLOWED, fix)
            raise TrainyardError([problem]) from None
        return {}

    def _try_resize(self, inputs: Inputs, until: float) -> bool:
        """Return whether the group was resized; False if it is busy and there is time left."""
        try:
            self.resize(inputs)
        except ResizeRefusedError as error:
            if error.busy and time.monotonic() < until:
                return False
            raise
        return True

    def update(self, old: Inputs, new: Inputs, progress: HandlerProgress) -> Outputs:
        return self.create(new, progress)

    def delete(self, inputs: Inputs, progress: HandlerProgress) -> None:
        """Do nothing: nodes are deleted with their group."""
