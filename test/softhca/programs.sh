#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Other people's verbs programs, unmodified, over the emulated adapter's libraries: rdma-core's
# examples and perftest. Skipped (77) where they are not installed.
set -u

libs=${SOFTHCA_LIBS:-$PWD/.libs}
export LD_LIBRARY_PATH=$libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export SOFTHCA_FABRIC=programs$$
segment=/dev/shm/softhca-$(id -u)-$SOFTHCA_FABRIC
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT
failures=0
ran=0
port=$((10000 + $$ % 20000)) # below those that the kernel gives to clients

have() {
    command -v "$1" > /dev/null || { echo "SKIP $1: not installed"; return 1; }
}

report() {  # status, what
    ran=$((ran + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok   $2"
    else
        failures=$((failures + 1))
        echo "FAIL $2"
        sed 's/^/     /' "$log"/server "$log"/client 2> /dev/null
    fi
}

# Runs a program twice, as server and as client, on other ports where somebody else listens.
pair() {
    have "$1" || return 0
    local status attempt
    for attempt in 1 2 3 4 5; do
        run_pair "$@"
        status=$?
        grep -qi "couldn.t listen" "$log/server" || break
    done
    report $status "$*"
}

# The client is tried until the server listens.
run_pair() {
    port=$((port + 1))
    timeout 60 "$@" -p $port > "$log/server" 2>&1 &
    local server=$! status=1 try
    for try in $(seq 100); do
        timeout 60 "$@" -p $port 127.0.0.1 > "$log/client" 2>&1
        status=$?
        [ $status -eq 0 ] && break
        grep -qiE "couldn.t connect|unable to|connection refused|failed to exchange" \
            "$log/client" || break
        kill -0 $server 2> /dev/null || break
        sleep 0.05
    done
    wait $server || status=1
    return $status
}

if have ibv_devinfo; then
    : > "$log/client"
    SOFTHCA_DEVICES=2 timeout 20 ibv_devinfo -v > "$log/server" 2>&1
    status=$?
    [ "$(grep -c 'hca_id:.*mlx5_' "$log/server")" -eq 2 ] || status=1
    grep -q 'PORT_ACTIVE' "$log/server" || status=1
    report $status "ibv_devinfo"
    SOFTHCA_LINK_LAYER=ethernet timeout 20 ibv_devinfo -v > "$log/server" 2>&1
    status=$?
    grep -q 'RoCE v2' "$log/server" || status=1
    report $status "ibv_devinfo (RoCE)"
    # The segment is 64 GiB elsewhere.
    (ulimit -v $((8 << 20)) && exec timeout 20 ibv_devinfo -v) > "$log/server" 2>&1
    status=$?
    grep -q 'PORT_ACTIVE' "$log/server" || status=1
    report $status "ibv_devinfo (8 GiB of address space)"
fi

pair ibv_rc_pingpong -n 100
pair ibv_rc_pingpong -n 100 -e
pair ibv_uc_pingpong -n 100
pair ibv_ud_pingpong -n 100
pair ibv_srq_pingpong -n 100
SOFTHCA_NO_CMA=1 pair ibv_rc_pingpong -n 100
pair ib_write_bw -c RC -n 50
pair ib_read_lat -c RC -n 50
pair ib_send_bw -c RC -n 50
pair ib_send_bw -c RC -n 50 -e
pair ib_atomic_lat -c RC -n 50
pair ib_write_bw -c DC -n 50
pair ib_send_lat -c DC -n 50
pair ib_send_lat -c UD -n 50

if [ -e "$segment" ]; then
    echo "FAIL $segment was left behind"
    rm -f "$segment"
    failures=$((failures + 1))
fi
[ $ran -gt 0 ] || exit 77
exit $((failures > 0))
