"""Constructs one component for the engine: request on stdin, response or status on stdout."""

import os
import sys


def main() -> int:
    """Return 0 with a response on stdout, 2 with a status; anything else is a fault, reported on stderr."""
    # As in infra/__main__.py: no search of packages for pydantic's plugins.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    answer = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # a library's output must not mix with the response
    from trainyard.component.construct import construct

    code, content = construct(sys.stdin.buffer.read(), sys.argv[1])
    answer.write(content)
    answer.close()
    return code


exit_code = main()
# At once: Python would spend 0.2 to 0.5 s on freeing all objects, while the engine waits.
for stream in (sys.stdout, sys.stderr):
    stream.flush()
os._exit(exit_code)
