#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# UCX's headers and ours in one compilation: every header of UCX that compiles by itself compiles as well
# behind or before each of ours, as C and C++, whichever folder is searched first. What both trees have
# is taken from the first that is met. Usage: both_headers.sh OURS THEIRS CC CXX
set -euo pipefail
ours=$1 theirs=$2
declare -A compiler=([c]=$3 [c++]=$4)
mapfile -t of_ours < <(cd "$ours" && ls ucp/api/{ucp,ucp_compat,ucp_def,ucp_version,ucpx}.h ucp/api/device/ucp_host.h uct/api/version.h ucm/api/ucm.h \
    ucs/type/{cpu_set,status,thread_mode}.h ucs/config/types.h ucs/memory/{memory_type,memtype_cache}.h ucs/sys/{compiler_def,device_code,sys_device}.h)
mapfile -t of_theirs < <(cd "$theirs" && find ucp/api ucs uct ucm -name '*.h' -not -path '*/arch/*' | sort)

# compile LANGUAGE FOLDERS HEADER...
compile() {
    local language=$1 folders=$2
    shift 2
    printf '#include "%s"\n' "$@" | ${compiler[$language]} -x "$language" $folders -w -fsyntax-only - 2>&1
}

failed=0 count=0
# UCX's first headers by themselves: what later ones of its version would add is missing then.
for language in c c++; do
    for folders in "-I$ours -I$theirs" "-I$theirs -isystem$ours"; do
        for header in ucp_def ucp_version ucp_compat ucp; do
            count=$((count + 1))
            compile $language "$folders" "$theirs/ucp/api/$header.h" "$ours/ucp/api/ucp.h" >out.$$ ||
                { echo "UCX's $header.h alone before ucp.h, $language, $folders"; head -n 5 out.$$; failed=1; }
        done
    done
done
for language in c c++; do
    both=()
    for header in "${of_theirs[@]}"; do
        ! compile $language "-I$theirs" "$theirs/$header" >/dev/null || both+=("$theirs/$header")
    done
    [ ${#both[@]} -ge 10 ] || { echo "UCX's headers do not compile as $language"; failed=1; }
    for folders in "-I$ours -I$theirs" "-I$theirs -isystem$ours"; do
        for header in "${of_ours[@]}"; do
            for order in before behind; do
                if [ $order = before ]; then all=("$ours/$header" "${both[@]}"); else all=("${both[@]}" "$ours/$header"); fi
                count=$((count + 1))
                compile $language "$folders" "${all[@]}" >out.$$ ||
                    { echo "$header $order UCX's, $language, $folders"; head -n 5 out.$$; failed=1; }
            done
        done
    done
done
rm -f out.$$
echo "both_headers: $count combinations of ${#of_ours[@]} headers with UCX's ${#of_theirs[@]}"
exit $failed
