#!/bin/sh
# Installs NCCL's plugin for Google Cloud's RoCE (gIB) on the node.
set -e
/scripts/container_entry.sh install
cp -r /var/lib/gib/lib64/. /host/home/kubernetes/bin/nvidia/lib64
cp -r /var/lib/gib/. /host/home/kubernetes/bin/gib
