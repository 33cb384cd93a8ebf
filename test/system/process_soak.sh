#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Eight processes on the host-wide fabric of the emulated adapters, over the built shared libraries:
# SECONDS_OF_SOAK (3) of checked traffic while lanes move; then fewer, with one of them killed, from
# outside or by its adapter within an operation, without DC, over TCP, and on the second port of a
# device. Eight and fewer over shared memory as well.
set -u

# Where the emulated adapter's libibverbs and libmlx5 are.
export LD_LIBRARY_PATH=$PWD/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export UCX_MODULE_DIR=$PWD/modules
export SOFTHCA_FABRIC=soak$$
export UCX_MAX_PRIORITY_EPS=3 UCX_MAX_HOST_LANES=3
export UCX_DYNAMIC_TL_SWITCH_INTERVAL=20ms
export UCX_DYNAMIC_TL_MIN_RESIDENCE=0

seconds=${SECONDS_OF_SOAK:-3}
less=$(((2 * seconds + 2) / 3)) # of each of the others
status=0
soak() {
    timeout $((seconds + 150)) test/system/process_soak "$@" || status=1
}
export UCX_TLS=ib,self
soak --seconds "$seconds"
# Atomic operations that the peers' processors carry out, and gets before them.
UCX_TLS=dc,self soak --processes 4 --seconds "$seconds" --static
soak --processes 4 --seconds "$less" --kill
for operation in 1 200 3000; do
    soak --processes 4 --seconds 1 --die $operation
done
# As on adapters without DC: all peers over one queue pair of datagrams, hot pairs over RC.
UCX_TLS=ud_verbs,rc_verbs,self soak --processes 4 --seconds "$less"
# Without dedicated lanes, and without the adapters.
UCX_TLS=tcp,self soak --processes 4 --seconds "$less" --static
UCX_TLS=tcp,self soak --processes 4 --seconds "$less" --static --kill

# Devices with two ports: both are offered, and the chosen one is used alone.
export SOFTHCA_PORTS=2
offered() {
    src/tools/swiftlane info -d | sed -n 's|^# *resource .*/\(mlx5_0:[0-9]*\)$|\1|p' | sort -u | tr '\n' ' '
}
[ "$(offered)" = "mlx5_0:1 mlx5_0:2 " ] || { echo "FAIL ports offered: $(offered)"; status=1; }
export UCX_NET_DEVICES=mlx5_0:2
[ "$(offered)" = "mlx5_0:2 " ] || { echo "FAIL ports offered of mlx5_0:2: $(offered)"; status=1; }
soak --processes 4 --seconds "$less"
unset SOFTHCA_PORTS UCX_NET_DEVICES
export UCX_TLS=sm,self
soak --seconds "$seconds"
soak --processes 4 --seconds "$less" --kill
UCX_SM_SINGLE_COPY=n UCX_SM_FIFO_SIZE=8 UCX_SM_RING_SIZE=8 UCX_SM_SEG_SIZE=1024 \
    soak --processes 4 --seconds "$less"
segment=/dev/shm/softhca-$(id -u)-$SOFTHCA_FABRIC
if [ -e "$segment" ]; then
    echo "FAIL $segment was left behind"
    status=1
fi
exit $status
