#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Every name that the system's rdma-core exports by default is exported by the emulated adapter's
# libraries under the same version, so that whatever binds to the one binds to the other. Skipped
# (77) where rdma-core or readelf is missing.
set -u

libs=${SOFTHCA_LIBS:-$PWD/.libs}
command -v readelf > /dev/null || exit 77

names() {
    readelf -Ws --dyn-syms "$1" | awk '$7 != "UND" && $8 ~ /@@/ && $4 != "NOTYPE" {print $8}' |
        grep -E '@@(IBVERBS|MLX5)_' | awk -F'@@' '$1 != $2' | sort -u
}

failures=0
compared=0
for lib in libibverbs.so.1 libmlx5.so.1; do
    system=$(env -u LD_LIBRARY_PATH ldconfig -p | awk -v l="$lib" '$1 == l {print $NF; exit}')
    [ -n "$system" ] || { echo "SKIP $lib: not installed"; continue; }
    compared=$((compared + 1))
    missing=$(comm -23 <(names "$system") <(names "$libs/$lib"))
    # Names that rdma-core got after the version that this library emulates are told, not required.
    if [ -n "$missing" ]; then
        required=$(grep -oE '^ +[a-z_0-9]+;' "${srcdir:-.}/src/softhca/${lib%.so.1}.map" |
                   tr -d ' ;' | sort -u)
        while read -r name; do
            if grep -qx "${name%%@@*}" <<< "$required"; then
                echo "FAIL $lib lacks $name"
                failures=$((failures + 1))
            else
                echo "note $lib is older than $name"
            fi
        done <<< "$missing"
    fi
    readelf -d "$libs/$lib" | grep -q "soname: \[$lib\]" ||
        { echo "FAIL $lib has another soname"; failures=$((failures + 1)); }
    # Only C names of the two interfaces, and the one table between the two libraries.
    extra=$(readelf -Ws --dyn-syms "$libs/$lib" | awk '$1 ~ /^[0-9]+:/ && $7 != "UND" && $5 != "LOCAL" {print $8}' |
            sed 's/@.*//' | grep -vE '^(_?ibv_|_?mlx5dv_|_?verbs_|__verbs_log|__ioctl|execute_ioctl|mult_to|mbps_to|softhca_get|IBVERBS_|MLX5_|SOFTHCA_|$)')
    [ -z "$extra" ] || { echo "FAIL $lib exports $extra"; failures=$((failures + 1)); }
done
[ $compared -gt 0 ] || exit 77
[ $failures -eq 0 ] && echo "ok   names and versions of $compared libraries"
exit $((failures > 0))
