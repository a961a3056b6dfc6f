"""The entry point of `trainyard`: Ctrl-C ends it quietly while the command line is imported."""

import os
import signal
import sys

INTERRUPTED = 130
"""`ExitCode.INTERRUPTED`, which is not imported yet."""

_is_expected = signal.getsignal(signal.SIGINT) is signal.default_int_handler
"""Whether Ctrl-C interrupts; a shell lets programs in the background ignore it."""
if _is_expected:
    # A KeyboardInterrupt within an import may be printed or swallowed, and nothing has begun that must end.
    signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))


def main() -> None:
    """Run the command line, which handles Ctrl-C by itself."""
    words = sys.argv[1:]
    if (
        words in ([], ["--help"]) and "_TRAINYARD_COMPLETE" not in os.environ
    ):  # which a shell sets to complete
        from trainyard.screen import show

        show(words)
        return
    from trainyard import cli

    app = cli.app_of(words)
    if _is_expected:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    cli.main(app)


if __name__ == "__main__":
    main()
