#!/bin/sh
# Init container of a PyTorchJob's workers: waits for the master's DNS name. training-operator fills in {{…}}.
# shellcheck disable=SC1083,SC2034
for i in $(seq {{.MaxTries}}); do getent hosts {{.MasterAddr}} && exit; sleep 2; done; exit 1
