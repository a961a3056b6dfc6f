#!/bin/sh
# Installs AMD's kernel driver from AMD's packages into the node's root filesystem at /host, and loads the driver.
#
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
chroot /host modprobe amdgpu
