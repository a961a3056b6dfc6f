#!/bin/sh
# Workers of a PyTorchJob wait for the master's name; training-operator fills in what stands in {{}}.
# shellcheck disable=SC1083,SC2034
for i in $(seq {{.MaxTries}}); do getent hosts {{.MasterAddr}} && exit; sleep 2; done; exit 1
