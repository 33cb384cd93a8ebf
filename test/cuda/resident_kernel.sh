#!/usr/bin/env bash
# The library's kernels are loaded when it starts: a program whose own kernel waits for a message hangs
# without that and passes with it.
set -u
[ -x test/cuda/resident_kernel ] || exit 77
export UCX_MODULE_DIR=$PWD/test/modules UCX_TLS=self
test/cuda/resident_kernel
with=$?
UCX_CUDA_PRELOAD=n test/cuda/resident_kernel
without=$?
echo "status with kernels loaded at start: $with (0: passes); without: $without (2: hangs)"
[ $with -eq 0 ] && [ $without -eq 2 ]
