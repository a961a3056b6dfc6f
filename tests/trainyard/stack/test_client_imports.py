"""Commands start without the slow imports of Kubernetes' client, which other programs can still make."""

from __future__ import annotations

import subprocess
import sys

LEFT_OUT = ("google.auth", "oauthlib", "requests_oauthlib", "requests")
PROGRAM = f"""
import sys
import trainyard.commands.run, trainyard.stack.access
print([name for name in {LEFT_OUT} if name in sys.modules], "pydoc" in sys.modules)
import google.auth, oauthlib.oauth2, requests_oauthlib
print(callable(google.auth.default), callable(requests_oauthlib.OAuth2Session), bool(oauthlib.oauth2.Client))
import kubernetes
print(kubernetes.watch.Watch.__name__, kubernetes.dynamic.DynamicClient.__name__)
from kubernetes.stream.ws_client import should_bypass_proxies
print([should_bypass_proxies("https://a.example", each) for each in ("a.example", "b.example")])
"""


def test_commands_do_not_import_them_and_they_can_still_be_imported() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "[] False",
        "True True True",
        "Watch DynamicClient",
        "[True, False]",
    ]
