"""Network probes of pods: a program that tries to connect to addresses, and one that also serves."""

import json
from collections.abc import Mapping

PORT = 8080
_TRY = """
import concurrent.futures, json, socket, sys
def tried(address):
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=2.5).close()
    except ConnectionRefusedError:
        return "open"  # the address is reached, although nothing listens
    except OSError:
        return "closed"
    return "open"
def all_of(addresses):
    with concurrent.futures.ThreadPoolExecutor(max(1, len(addresses))) as pool:
        return dict(zip(addresses, pool.map(tried, addresses.values())))
"""
_SERVE = f"""
print("FIRST", json.dumps(all_of(json.loads(sys.argv[1]))), flush=True)
import http.server
http.server.HTTPServer(("", {PORT}), http.server.SimpleHTTPRequestHandler).serve_forever()
"""


_FLOOD = """
sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(30)]
for each in sockets:  # a socket has room for some 250 packets that are held
    each.setblocking(False)
    for last in range(1, 151):
        try:
            each.sendto(b"", (sys.argv[2] % last, 9))
        except OSError:
            pass
"""


def flooding(addresses: str, places: Mapping[str, str]) -> list[str]:
    """Return a command that sends 4500 packets to `addresses` (10.0.0.%d), and then tries the places."""
    program = "print(json.dumps(all_of(json.loads(sys.argv[1]))))"
    return ["python3", "-c", _TRY + _FLOOD + program, json.dumps(dict(places)), addresses]


def serving(first: Mapping[str, str]) -> list[str]:
    """Return the command of a container that first tries these addresses, and then serves."""
    return ["python3", "-c", _TRY + _SERVE, json.dumps(dict(first))]


def trying(addresses: Mapping[str, str]) -> list[str]:
    """Return a command that prints `open` or `closed` for each named address, `host:port`."""
    program = "print(json.dumps(all_of(json.loads(sys.argv[1]))))"
    return ["python3", "-c", _TRY + program, json.dumps(dict(addresses))]
