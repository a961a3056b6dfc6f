#!/bin/sh
# Last step on the root filesystem of the training image; mmdebstrap runs it outside, as root: customize.sh ROOT
set -eu
root=$1
recipe=$(dirname "$0")

echo 'trainyard:x:1000:1000:Trainyard:/home/trainyard:/bin/sh' >>"$root/etc/passwd"
echo 'trainyard:*:20000:0:99999:7:::' >>"$root/etc/shadow"
echo 'trainyard:x:1000:' >>"$root/etc/group"
install -d -o 1000 -g 1000 "$root/home/trainyard"
install -d -o 1000 -g 1000 -m 0700 "$root/home/trainyard/.ssh"
install -m 0644 "$recipe/sshd_config" "$root/home/trainyard/.sshd_config"
install -m 0644 "$recipe/ssh_config" "$root/etc/ssh/ssh_config.d/trainyard.conf"
install -d "$root/run/sshd" "$root/opt/trainyard/src" "$root/opt/trainyard/env"

# A key that is in an image is nobody's secret.
rm -f "$root"/etc/ssh/ssh_host_*
rm -rf "$root"/usr/share/doc/* "$root"/usr/share/man/* "$root"/usr/share/info/* "$root"/usr/share/locale/* \
    "$root"/var/cache/debconf/*-old "$root"/var/log/*.log "$root"/var/log/apt
