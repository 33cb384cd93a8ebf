#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Eight processes with checked traffic while lanes move, one of which is stopped for STOPPED (60) seconds, and
# another one killed; over the emulated adapters, shared memory and TCP in turn, the last with a link that goes
# for less than OUTAGE (5) seconds and comes, with sessions and without. Again and again with other seeds, for
# SECONDS_OF_HARDSHIP (3600). Nobody may hang, and nothing be lost between those who live.
set -u

# In a network of its own, where the link may go; without the right to that the link stays.
if [ -z "${HARDSHIP_NETWORK:-}" ] && unshare -rn true 2>/dev/null; then
    exec env HARDSHIP_NETWORK=own unshare -rn "$0" "$@"
fi
[ "${HARDSHIP_NETWORK:-}" = own ] && ip link set lo up

# Where the emulated adapter's libibverbs and libmlx5 are.
export LD_LIBRARY_PATH=$PWD/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export UCX_MODULE_DIR=$PWD/modules
export SOFTHCA_FABRIC=hardship$$
export UCX_MAX_PRIORITY_EPS=3 UCX_MAX_HOST_LANES=3
export UCX_DYNAMIC_TL_SWITCH_INTERVAL=20ms
export UCX_DYNAMIC_TL_MIN_RESIDENCE=0

stopped=${STOPPED:-60}
outage=${OUTAGE:-5}
seconds=$((stopped + stopped / 2 + 4))
end=$((SECONDS + ${SECONDS_OF_HARDSHIP:-3600}))
seed=${SEED:-$RANDOM}
rounds=0
failed=0

round() {
    local what=$1
    shift
    seed=$((seed + 1))
    rounds=$((rounds + 1))
    echo "$what, seed $seed:"
    timeout $((seconds + 300)) test/system/process_soak --seconds $seconds --patience 60 --seed $seed \
        --stop "$stopped" --kill "$@" && return
    failed=$((failed + 1))
    echo "FAIL $what, seed $seed"
}
while [ $SECONDS -lt $end ]; do
    UCX_TLS=sm,self round "shared memory"
    [ $SECONDS -lt $end ] || break
    UCX_TLS=ib,self round "emulated adapters"
    [ $SECONDS -lt $end ] || break
    UCX_TLS=tcp,self round "TCP" --static
    [ $SECONDS -lt $end ] || break
    [ "${HARDSHIP_NETWORK:-}" = own ] || continue
    UCX_TLS=tcp,self UCX_TCP_FAILOVER=y round "TCP with sessions, a link that goes" --static --shake "$outage"
    ip link set lo up
    [ $SECONDS -lt $end ] || break
    UCX_TLS=tcp,self round "TCP, a link that goes" --static --shake "$outage"
    ip link set lo up
done
echo "$rounds rounds, $failed failed"
[ $failed -eq 0 ]
