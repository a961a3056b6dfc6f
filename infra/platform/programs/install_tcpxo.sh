#!/bin/sh
# NCCL with its plugin for GPUDirect-TCPXO, onto the node.
set -e
sh /scripts/container_entry.sh install --install-nccl
mkdir -p /usr/local/nvidia/lib64
cp -r /var/lib/tcpxo/lib64/. /usr/local/nvidia/lib64
