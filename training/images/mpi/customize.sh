#!/bin/sh
# After packages.txt, on top of torch/customize.sh: customize.sh ROOT
set -eu
root=$1
recipe=$(dirname "$0")

install -d -o 1000 -g 1000 -m 0700 "$root/home/trainyard/.ssh"
install -m 0644 "$recipe/sshd_config" "$root/home/trainyard/.sshd_config"
install -m 0644 "$recipe/ssh_config" "$root/etc/ssh/ssh_config.d/trainyard.conf"
install -d "$root/run/sshd"

# A key that is in an image is nobody's secret.
rm -f "$root"/etc/ssh/ssh_host_*
