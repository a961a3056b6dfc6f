"""The Kubernetes layer of every target: operators, queues, runtimes, volumes, admission policies.

It imports nothing by itself: the commands of a team's member read the programs below it, without Pulumi.
"""

if __name__ == "platform":
    # The engine starts programs and plugins in `infra/`. Where PYTHONPATH has a relative entry, Python finds
    # this folder before the standard library's `platform`: load that module instead.
    import os
    import sys
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec
    from pathlib import Path

    _spec = PathFinder.find_spec("platform", [str(Path(os.__file__).parent)])
    assert _spec is not None and _spec.loader is not None
    sys.modules["platform"] = module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules["platform"])
