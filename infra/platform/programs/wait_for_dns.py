#!/usr/bin/env python3
# Waits for at most a minute until DNS has the pod's name.
#
# mpirun resolves the names in its host file, and recognises its own host by address.
import socket, time
name = ".".join(socket.getfqdn().split(".")[:2])
for _ in range(120):
    try:
        socket.getaddrinfo(name, None)
        break
    except OSError:
        time.sleep(0.5)
