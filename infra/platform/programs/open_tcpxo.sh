#!/bin/sh
# Opens the node for GPUDirect-TCPXO, in the namespaces of the node's first process.
#
# Container-Optimized OS accepts only known connections, but the GPUs' packets arrive on other interfaces. PCI ID
# 1ae0:0084 is a GPU NIC's memory window, which pods find by its PCI address.
set -e
/sbin/iptables -C INPUT -p tcp -j ACCEPT 2>/dev/null || /sbin/iptables -I INPUT -p tcp -j ACCEPT
modprobe import-helper
for device in /sys/bus/pci/devices/*; do
  [ "$(cat "$device/vendor")$(cat "$device/device")" = 0x1ae00x0084 ] || continue
  window=/dev/aperture_devices/${device##*/}
  mkdir -p "$window"
  umount -R "$window" 2>/dev/null || true
  mount --bind "$(readlink -f "$device")" "$window"
done
chmod -R a+r /dev/aperture_devices
chmod a+rw /dev/aperture_devices/*/resource*
