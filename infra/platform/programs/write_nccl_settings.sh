#!/bin/bash
# Leave to NCCL what the fabric's own script sets.
@setup@ && env | grep '^NCCL_' > @file@
