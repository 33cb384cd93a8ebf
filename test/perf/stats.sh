#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# What a worker shows of itself (UCX_STATS=y, the default) costs a send nothing: instructions of the same sends of
# ucx_perftest with it and without, counted by callgrind. Usage: stats.sh SWIFTLANE
set -euo pipefail
swiftlane=$1
sends=5100 # 100 of them warm up
command -v valgrind >/dev/null && command -v ucx_perftest >/dev/null || exit 77
# valgrind cannot run what a sanitizer is built into.
! nm -D "$(dirname "$swiftlane")/../ucx/.libs/libucp.so.0" | grep -E '__(asan|tsan)_init' >/dev/null || exit 77
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# Sampling begins and ends by time: without it the same is done each time.
export UCX_DYNAMIC_TL_SWITCH_INTERVAL=inf UCX_TLS=self UCX_LOG_LEVEL=info

# instructions VALUE_OF_UCX_STATS
instructions() {
    UCX_STATS=$1 timeout 300 "$swiftlane" run --system-ucs -- valgrind --tool=callgrind \
        --callgrind-out-file="$folder/$1" --collect-atstart=no --toggle-collect=ucp_tag_send_nbx \
        ucx_perftest -l -t tag_bw -s 8 -n $((sends - 100)) -w 100 >"$folder/log" 2>&1 || { tail "$folder/log" >&2; exit 1; }
    grep -q 'Swiftlane .* in .*libucp' "$folder/log" || { echo "another library runs" >&2; exit 1; }
    sed -n 's/^totals: //p' "$folder/$1"
}
with=$(instructions y)
without=$(instructions n)
echo "stats: $sends sends take $with instructions with UCX_STATS=y, $without without"
# All sends together may differ by what happens once, as the first allocation does.
[ "$without" -gt $((10 * sends)) ] && [ $((with - without)) -lt $((sends / 2)) ]
