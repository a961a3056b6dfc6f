#!/bin/sh
# Starts a command that finds the GPU driver's libraries: find_driver.sh COMMAND [ARGUMENT …]
#
# GKE mounts them into a folder that no loader searches, and asks for that folder in LD_LIBRARY_PATH. A pod's variable
# would replace the image's own value, so the folder is added here, behind it. Elsewhere there is no such folder.
driver=/usr/local/nvidia/lib64
if [ -e "$driver/libcuda.so.1" ]; then
  LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$driver
  export LD_LIBRARY_PATH
fi
exec "$@"
