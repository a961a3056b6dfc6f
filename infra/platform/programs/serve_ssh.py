#!/usr/bin/env python3
# Runs sshd in a worker of an MPI job; its sessions get the environment variables that the arguments name.
#
# sshd passes none of its environment to sessions. On SIGTERM it exits with EX_TEMPFAIL: with 0, Kueue would count the
# pod as finished, and would reserve no quota for it when all pods restart.
import os, signal, subprocess, sys
variables = " ".join(f'{name}="{os.environ[name]}"' for name in sys.argv[1:] if name in os.environ)
sshd = subprocess.Popen(["/usr/sbin/sshd", "-De", "-f", "/home/trainyard/.sshd_config", "-o", f"SetEnv={variables}"])
signal.signal(signal.SIGTERM, lambda *_: (sshd.terminate(), os._exit(75)))
sys.exit(sshd.wait())
