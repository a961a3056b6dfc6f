#!/bin/bash
# Writes the NCCL variables that the fabric's own script sets to NCCL's configuration file.
@setup@ && env | grep '^NCCL_' > @file@
