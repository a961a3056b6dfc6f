#!/bin/sh
# Installs NCCL with the plugin for GPUDirect-TCPXO on the node.
set -e
sh /scripts/container_entry.sh install --install-nccl
mkdir -p /usr/local/nvidia/lib64
cp -r /var/lib/tcpxo/lib64/. /usr/local/nvidia/lib64
