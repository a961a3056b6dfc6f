#!/bin/sh
# After packages.txt, on the root filesystem of a training image: customize.sh ROOT
# mmdebstrap runs it outside, as root; the Dockerfile inside, with / as ROOT.
set -eu
root=$1

# Ubuntu's images have a user of this number.
for file in passwd shadow group gshadow; do
    if [ -e "$root/etc/$file" ]; then sed -i '/^ubuntu:/d' "$root/etc/$file"; fi
done
rm -rf "$root/home/ubuntu"

echo 'trainyard:x:1000:1000:Trainyard:/home/trainyard:/bin/sh' >>"$root/etc/passwd"
echo 'trainyard:*:20000:0:99999:7:::' >>"$root/etc/shadow"
echo 'trainyard:x:1000:' >>"$root/etc/group"
install -d -o 1000 -g 1000 "$root/home/trainyard"
install -d "$root/opt/trainyard/src" "$root/opt/trainyard/env"

rm -rf "$root"/usr/share/doc/* "$root"/usr/share/man/* "$root"/usr/share/info/* "$root"/usr/share/locale/* \
    "$root"/var/cache/debconf/*-old "$root"/var/log/*.log "$root"/var/log/apt
