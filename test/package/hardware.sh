#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# contrib/check-hardware gathers what two hosts need and judges what they do: here both are names of this host, reached
# by a shell, and what needs an adapter is left to guests (RDMA_TESTS=hardware make check-rdma).
# Usage: hardware.sh BUILD
set -u
build=$1
here=$(cd "$(dirname "$0")" && pwd)
command -v mpicc.openmpi >/dev/null || { echo "Open MPI is not installed"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
unset LD_LIBRARY_PATH UCX_MODULE_DIR
printf '#!/bin/sh\nshift\nexec sh -c "$*"\n' >"$folder/shell"
chmod +x "$folder/shell"
[ -e "$build/GNUmakefile" ] || export UNITS=no # built anew otherwise
export BUILD="$build" FOLDER="$folder/gathered" MPICC=mpicc.openmpi MPIRUN=mpirun.openmpi SSH="$folder/shell"
env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS "$here/../../contrib/check-hardware" --gather >"$folder/log" 2>&1 ||
    { tail -n 20 "$folder/log"; exit 1; }

# What it is started by there has nothing but the folder.
export RANKS=1 BIND=none LARGEST=512 EFFORT=0.02 ONLY='^host|^MPI, .*(dynamic|ucx)$'
cd / || exit 1
"$FOLDER/check-hardware" 127.0.0.1 localhost >"$folder/log" 2>&1 || { cat "$folder/log" "$FOLDER/report.txt"; exit 1; }
failed=0
say() { echo "hardware: $*"; failed=1; }
for line in 'PASS: host 127.0.0.1' 'PASS: host localhost' 'PASS: MPI, rate, dynamic' 'PASS: MPI, alltoall, dynamic'; do
    grep -qxF "$line" "$folder/log" || say "no line '$line'"
done
grep -qE '^[45] passed|^6 passed' "$folder/log" || say "$(tail -n 2 "$folder/log")"
grep -q '^=== PASS: MPI, rate, dynamic$' "$FOLDER/report.txt" || say "the report lacks a check"
for size in 8 32 128 512; do
    [ "$(grep -cE "^ +$size +- +[0-9.]+ +- +" "$FOLDER/report.txt")" -eq 2 ] || say "no figures of $size bytes in both tables"
done

# A program that fails is told, and fails the whole.
printf '#!/bin/sh\nexit 3\n' >"$FOLDER/collective"
ONLY='alltoall, dynamic' "$FOLDER/check-hardware" 127.0.0.1 localhost >"$folder/log" 2>&1 && say "a failure is taken for none"
grep -q '^0 passed, 1 failed, 0 left out$' "$folder/log" || say "of a failure: $(cat "$folder/log")"
[ $failed -eq 0 ] || cat "$FOLDER/report.txt"
exit $failed
