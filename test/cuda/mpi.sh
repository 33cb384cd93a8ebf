#!/usr/bin/env bash
# Open MPI, as the distribution has it, passes buffers in device memory through: on the stand-in for the CUDA driver;
# with SWIFTLANE_TEST_GPU=real on the GPUs of this host. Runs in the build folder.
set -u
source=$(cd "$(dirname "$0")" && pwd)/mpi_buffers.c
command -v mpicc.openmpi >/dev/null && command -v mpirun.openmpi >/dev/null || exit 77
export UCX_MODULE_DIR=$PWD/test/modules
program=$(mktemp)
trap 'rm -f "$program"' EXIT
mpicc.openmpi -O1 "$source" -o "$program" -ldl || exit 1
[ -n "${SWIFTLANE_TEST_GPU:-}" ] || export LD_LIBRARY_PATH=$PWD/test/cuda/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
status=0
while read -r ranks transports; do
    echo "--- $ranks ranks, $transports"
    said=$(UCX_TLS=$transports timeout 120 src/tools/swiftlane run -- mpirun.openmpi --oversubscribe -np "$ranks" \
        -x LD_LIBRARY_PATH -x UCX_MODULE_DIR -x UCX_TLS "$program" 2>&1 </dev/null) || status=1
    [ "$said" = passed ] || status=1 # and nothing else: no warning
    echo "$said"
done <<LIST
2 self,sm,cuda
4 self,sm,cuda
2 self,tcp,cuda
LIST
# Open MPI replaces functions that unmap memory by its own. They are followed all the same: else each buffer of the
# host's is asked about.
echo "--- memory events"
said=$(UCX_LOG_LEVEL=info timeout 120 src/tools/swiftlane run -- mpirun.openmpi -np 1 -x LD_LIBRARY_PATH -x UCX_MODULE_DIR \
    -x UCX_LOG_LEVEL "$program" 2>&1 </dev/null) || status=1
case $said in *"no memory events"*) echo "FAILED: no memory events" && status=1 ;; esac
exit $status
