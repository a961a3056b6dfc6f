#!/bin/bash
# Lustre over EFA: LNet on the node's EFA devices, with TCP beside it for what is not reached so.
set -o errexit -o nounset -o pipefail

interface=$(ip -o route show default | awk '{print $5; exit}')
dnf install --quiet --assumeyes lustre-client

modprobe lnet
modprobe kefalnd ipif_name="$interface"
modprobe ksocklnd
lnetctl lnet configure
lnetctl net del --net tcp 2>/dev/null || true
lnetctl net add --net tcp --if "$interface"

# One device per PCI bus carries what a filesystem gives; the others are left to the ranks.
mapfile -t devices < <(ls /sys/class/infiniband)
step=$(((${#devices[@]} + 7) / 8))
for ((index = 0; index < ${#devices[@]}; index += step)); do
    lnetctl net add --net efa --if "${devices[index]}" --peer-credits 32
done
lnetctl set discovery 1
lnetctl udsp add --src efa --priority 0
modprobe lustre
