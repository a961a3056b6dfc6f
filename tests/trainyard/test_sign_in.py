"""What Kubernetes' client imports of ways to sign in."""

from __future__ import annotations

import subprocess
import sys

LEFT_OUT = ("google.auth", "oauthlib", "requests_oauthlib")
PROGRAM = f"""
import sys
import trainyard.member.run, trainyard.access
print([name for name in {LEFT_OUT} if name in sys.modules])
import google.auth, oauthlib.oauth2, requests_oauthlib
print(callable(google.auth.default), callable(requests_oauthlib.OAuth2Session), bool(oauthlib.oauth2.Client))
"""


def test_a_command_does_not_import_them_and_others_find_them() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "True True True"]
