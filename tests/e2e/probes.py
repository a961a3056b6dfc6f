"""What a pod reaches: a program that serves, and tries to connect."""

from __future__ import annotations

import json
from collections.abc import Mapping

PORT = 8080
_TRY = """
import concurrent.futures, json, socket, sys
def tried(place):
    host, _, port = place.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=2.5).close()
    except ConnectionRefusedError:
        return "open"  # somebody answers there, if only to say no
    except OSError:
        return "closed"
    return "open"
def all_of(places):
    with concurrent.futures.ThreadPoolExecutor(max(1, len(places))) as pool:
        return dict(zip(places, pool.map(tried, places.values())))
"""
_SERVE = f"""
print("FIRST", json.dumps(all_of(json.loads(sys.argv[1]))), flush=True)
import http.server
http.server.HTTPServer(("", {PORT}), http.server.SimpleHTTPRequestHandler).serve_forever()
"""


def serving(first: Mapping[str, str]) -> list[str]:
    """Return the command of a container that tries these places before all else, and then serves."""
    return ["python3", "-c", _TRY + _SERVE, json.dumps(dict(first))]


def trying(places: Mapping[str, str]) -> list[str]:
    """Return a command that prints `open` or `closed` for each place, `host:port` by its name."""
    program = "print(json.dumps(all_of(json.loads(sys.argv[1]))))"
    return ["python3", "-c", _TRY + program, json.dumps(dict(places))]
