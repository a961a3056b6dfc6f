#!/bin/sh
# Installs AMD's kernel driver from AMD's packages into the node's root filesystem at /host, and loads the driver.
#
# Ubuntu's rules give the driver's devices to the group `render`, in which a job's user is not: its number differs by
# node. The rule is AMD's for all users (ROCm documentation, Grant GPU access to all users on the system); only pods that
# request a GPU have its devices.
# Version 30.20.1 of the packages is from Azure's recipe (Azure/aks-rdma-infiniband).
set -eu
if ! grep -qs 'https://repo.radeon.com/amdgpu/30.20.1/ubuntu' /host/etc/apt/sources.list.d/amdgpu.list || ! chroot /host dpkg -s amdgpu-dkms > /dev/null 2>&1; then
  apt-get update
  apt-get install -y --no-install-recommends ca-certificates wget
  mkdir -p /host/etc/apt/keyrings
  wget -O /host/etc/apt/keyrings/rocm.asc https://repo.radeon.com/rocm/rocm.gpg.key
  echo 'deb [arch=amd64 signed-by=/etc/apt/keyrings/rocm.asc] https://repo.radeon.com/amdgpu/30.20.1/ubuntu noble main' \
    > /host/etc/apt/sources.list.d/amdgpu.list
  chroot /host apt-get -o DPkg::Lock::Timeout=600 update
  DEBIAN_FRONTEND=noninteractive chroot /host apt-get -o DPkg::Lock::Timeout=600 install -y amdgpu-dkms
fi
mkdir -p /host/etc/udev/rules.d
printf '%s\n' 'KERNEL=="kfd", MODE="0666"' 'SUBSYSTEM=="drm", KERNEL=="renderD*", MODE="0666"' \
  > /host/etc/udev/rules.d/70-amdgpu.rules
chroot /host udevadm control --reload
chroot /host modprobe amdgpu
chroot /host udevadm trigger --subsystem-match=kfd --subsystem-match=drm --settle
