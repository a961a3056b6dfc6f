#!/usr/bin/env python3
# Waits until the pod's name is in DNS, for a minute at most.
#
# mpirun finds itself in the host file by its address.
import socket, time
name = ".".join(socket.getfqdn().split(".")[:2])
for _ in range(120):
    try:
        socket.getaddrinfo(name, None)
        break
    except OSError:
        time.sleep(0.5)
