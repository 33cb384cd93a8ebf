#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# UCX's examples, ucx_info and ucx_perftest run over Swiftlane as the distribution has them (libucx-dev, ucx-utils);
# all of these runs pass over UCX. Usage: clients.sh SWIFTLANE CC
set -uo pipefail
swiftlane=$1 cc=$2
examples=/usr/share/doc/libucx-dev/examples
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
passed=0 failed=0
port=$((10000 + $$ % 20000))  # below those that the system gives out
export UCX_LOG_LEVEL=info UCX_LOG_FILE=$folder/log-%p

# pair NAME OPTIONS -- SERVER... -- CLIENT...: both end well, and have our libucp. The client starts anew until there is a
# server. With serves=on the server never ends by itself.
serves=
pair() {
    local name=$1 options=() server=() client=() turn=1
    shift
    while [ "$1" != -- ]; do options+=("$1"); shift; done
    shift
    while [ "$1" != -- ]; do server+=("$1"); shift; done
    shift
    client=("$@")
    rm -f "$folder"/log-*
    port=$((port + 1))
    timeout 60 "$swiftlane" run "${options[@]}" -- "${server[@]}" -p $port >"$folder/server" 2>&1 &
    local pid=$! status=1
    while [ $turn -le 40 ] && kill -0 $pid 2>/dev/null; do
        timeout 60 "$swiftlane" run "${options[@]}" -- "${client[@]}" -p $port >"$folder/client" 2>&1 && status=0 && break
        turn=$((turn + 1))
        sleep 0.25
    done
    if [ $status -ne 0 ] || [ -n "$serves" ]; then kill $pid 2>/dev/null; fi
    wait $pid || [ -n "$serves" ] || status=1
    judge "$name" $status
}
alone() {
    local name=$1
    shift
    rm -f "$folder"/log-*
    timeout 60 "$swiftlane" run --system-ucs -- "$@" >"$folder/server" 2>&1 </dev/null
    judge "$name" $?
}
judge() {
    if [ "$2" -eq 0 ] && grep -qs 'Swiftlane .* in .*libucp' "$folder"/log-*; then
        passed=$((passed + 1))
        return
    fi
    failed=$((failed + 1))
    echo "FAIL: $1"
    [ "$2" -eq 0 ] && echo "  on another library" || tail -n 5 "$folder/server" "$folder/client" 2>/dev/null | cut -c 1-200
}

found=
if [ -e $examples/ucp_hello_world.c ] && $cc $examples/ucp_hello_world.c -o "$folder/hello" -lucp -lucs 2>"$folder/log" &&
    $cc $examples/ucp_client_server.c -o "$folder/talk" -lucp -lucs 2>>"$folder/log"; then
    found=yes
    for mode in -b -w -f; do
        for size in 16 100000; do
            pair "ucp_hello_world $mode -s $size" -- "$folder/hello" $mode -s $size -- "$folder/hello" $mode -s $size -n 127.0.0.1
        done
    done
    serves=on
    for kind in stream tag am; do
        for vector in 1 3; do
            # The server of active messages keeps one: a second that comes before it looks takes the first's place.
            [ $kind = am ] && iterations=1 || iterations=10
            options="-c $kind -v $vector -s 5000 -i $iterations"
            pair "ucp_client_server $options" -- "$folder/talk" $options -- "$folder/talk" $options -a 127.0.0.1
        done
    done
    serves=
fi
if command -v ucx_perftest >/dev/null; then
    found=yes
    for test in tag_lat tag_bw tag_sync_lat ucp_put_lat ucp_put_bw ucp_get ucp_add ucp_fadd ucp_swap ucp_cswap stream_bw \
        stream_lat ucp_am_lat ucp_am_bw; do
        run=(ucx_perftest -t $test -n 200 -w 10 -s 8)
        pair "ucx_perftest $test" --system-ucs -- "${run[@]}" -- "${run[@]}" 127.0.0.1
    done
    run=(ucx_perftest -t tag_bw -n 20 -w 2 -s 1000000)
    pair "ucx_perftest tag_bw of 1 MB" --system-ucs -- "${run[@]}" -- "${run[@]}" 127.0.0.1
fi
if command -v ucx_info >/dev/null; then
    found=yes
    alone "ucx_info -e" ucx_info -e -u t -D shm
    alone "ucx_info -w" ucx_info -w -u tramw
    alone "ucx_info -p" ucx_info -p -u t
    alone "ucx_info -m" ucx_info -m 1M -u r
fi
[ -n "$found" ] || { echo "neither UCX's examples nor its tools are installed: contrib/install-deps --check"; exit 77; }
echo "clients: $passed passed, $failed failed"
[ $failed -eq 0 ]
