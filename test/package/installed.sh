#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Installs into a prefix and moves it: the command works, programs of others find the library by pkg-config, CMake
# and -lucp, and run on it although the system has a UCX of its own. Usage: installed.sh BUILD CC
set -euo pipefail
build=$1 cc=$2
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0
say() { echo "installed: $*"; failed=1; }
unset LD_LIBRARY_PATH PKG_CONFIG_PATH CMAKE_PREFIX_PATH UCX_MODULE_DIR

env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS make -C "$build" DESTDIR="$folder/root" install >"$folder/log" 2>&1 ||
    { tail -n 20 "$folder/log"; exit 1; }
header=$(find "$folder/root" -path '*/include/ucp/api/ucp.h' -print -quit)
mv "${header%/include/ucp/api/ucp.h}" "$folder/moved"
rm -rf "$folder/root"
prefix=$folder/moved
swiftlane=$prefix/bin/swiftlane

[ -z "$(find "$prefix" -name '*.la')" ] || say ".la files are installed"
paths=$(find "$prefix" -type f \( -name '*.so*' -o -perm -u+x \) -exec readelf -d {} + 2>/dev/null |
    sed -n 's/.*R.*PATH).*\[\(.*\)\]/\1/p' | tr : '\n' | grep -v '^$ORIGIN' || true)
[ -z "$paths" ] || say "paths of the build or prefix in libraries: $paths"
[ -e "$prefix/share/doc/swiftlane/LICENSE" ] || say "no licence"
[ -e "$prefix/share/doc/swiftlane/docs/architecture.md" ] || say "no documents"
[ -e "$prefix/share/doc/swiftlane/docs/design/lanes.md" ] || say "no pages on the design"

for page in man1/swiftlane.1 man1/swiftlane-perf.1 man7/swiftlane-variables.7; do
    [ -s "$prefix/share/man/$page" ] || say "no manual page $page"
done

# --- the command
"$swiftlane" info -v >"$folder/out" || say "info -v fails"
[ "$(sed -n 's/.*Library: //p' "$folder/out")" -ef "$prefix/lib/swiftlane/ucx/libucp.so.0" ] || say "info -v: $(cat "$folder/out")"
"$swiftlane" info -d >"$folder/out" || say "info -d fails"
"$swiftlane" info --soft -d >"$folder/out" || say "info --soft -d fails"
grep -q dc_mlx5 "$folder/out" || say "the ib module is not found"
mkdir "$folder/other"
cp "$prefix/lib/swiftlane/ucx/libucp.so.0" "$folder/other"
if LD_LIBRARY_PATH="$folder/other:$prefix/lib" "$swiftlane" info -v >"$folder/out" 2>&1; then
    say "the command takes another libucp"
fi
grep -q "in place of $prefix/lib/swiftlane/ucx/libucp.so.0" "$folder/out" || say "says: $(cat "$folder/out")"

# --- programs: runs_on_ours PROGRAM
runs_on_ours() {
    local libraries
    libraries=$(ldd "$1")
    # Not by a pipe: ldd would fail when grep has seen enough.
    case $libraries in
        *"libucp.so.0 => $prefix/lib"*) ;;
        *) say "$1: $libraries" ;;
    esac
    [ "$("$1")" = "hello $version" ] || say "$1 does not run"
}
version=$(PKG_CONFIG_PATH=$prefix/lib/pkgconfig pkg-config --modversion ucx)
for package in ucx swiftlane; do
    flags=$(PKG_CONFIG_PATH=$prefix/lib/pkgconfig pkg-config --cflags --libs $package)
    $cc "$here/program.c" -o "$folder/by-$package" $flags || say "does not build by $package.pc"
    runs_on_ours "$folder/by-$package"
done
$cc "$here/program.c" -o "$folder/by-hand" -I"$prefix/include" -L"$prefix/lib" -Wl,-rpath,"$prefix/lib" -lucp ||
    say "-lucp alone is not enough"
runs_on_ours "$folder/by-hand"
if command -v cmake >/dev/null; then
    for package in ucx Swiftlane; do
        cmake -S "$here" -B "$folder/cmake-$package" -DPACKAGE=$package -DCMAKE_PREFIX_PATH="$prefix" \
            -DCMAKE_C_COMPILER="${cc##* }" -DCMAKE_INSTALL_PREFIX="$folder/cmake-$package/prefix" >"$folder/log" 2>&1 &&
            cmake --build "$folder/cmake-$package" --target install >>"$folder/log" 2>&1 ||
            { say "does not build by CMake's $package"; tail -n 20 "$folder/log"; continue; }
        runs_on_ours "$folder/cmake-$package/program"
        runs_on_ours "$folder/cmake-$package/prefix/bin/program"
    done
fi
# Linked with nothing said of where to look: the command brings it here.
$cc "$here/program.c" -o "$folder/bare" -I"$prefix/include" -L"$prefix/lib" -lucp
[ "$("$swiftlane" run -- "$folder/bare")" = "hello $version" ] || say "swiftlane run: other library"

# --- the examples, as docs/start.md has them
for example in hello client_server; do
    $cc "$here/../../examples/$example.c" -o "$folder/$example" \
        $(PKG_CONFIG_PATH=$prefix/lib/pkgconfig pkg-config --cflags --libs ucx) || say "examples/$example.c does not build"
done
timeout 60 "$folder/hello" >"$folder/heard" || say "examples/hello.c fails: $?"
[ "$(grep -c '^process [0-9]* hears: hello$' "$folder/heard")" -eq 2 ] || say "examples/hello.c: $(cat "$folder/heard")"
# Two processes say it, each in parts that may mix.
UCX_TLS=none timeout 60 "$folder/hello" >"$folder/heard" 2>&1 && say "examples/hello.c says nothing of an error"
grep -q '^hello: .*No such device' "$folder/heard" || say "examples/hello.c, without a transport: $(cat "$folder/heard")"
port=$((10000 + $$ % 10000))
timeout 60 "$folder/client_server" $port >"$folder/heard" &
for _ in 1 2 3 4 5 6 7 8 9 10; do
    timeout 60 "$folder/client_server" $port 127.0.0.1 && break
    sleep 0.5
done
wait $! || say "examples/client_server.c: the listener fails"
grep -q '^the caller says: hello$' "$folder/heard" || say "examples/client_server.c: nothing was heard"

# --- Open MPI without the command, as README.md and docs/mpi.md have it
by_hand() {
    sed -e ':a' -e '/\\$/N; s/\\\n *//; ta' "$here/../../$1" | sed -n 's/^    \(export LD_LIBRARY_PATH=.*\|mpirun -x LD_.*\)/\1/p'
}
lines=$(by_hand docs/mpi.md)
[ "$(by_hand README.md)" = "$(echo "$lines" | sed "s|PREFIX|\$PWD/build/prefix|")" ] || say "README.md and docs/mpi.md differ: $lines"
if command -v mpirun.openmpi >/dev/null && mpicc.openmpi "$here/../mpi/programs/ring.c" -o "$folder/program" 2>"$folder/log"; then
    lines=$(echo "$lines" | sed "s|PREFIX|$prefix|; s|^mpirun|timeout 120 mpirun.openmpi|")
    (cd "$folder" && export UCX_LOG_LEVEL=info OMPI_MCA_rmaps_base_oversubscribe=1 &&
        export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 && eval "$lines") >"$folder/out" 2>&1 ||
        { say "docs/mpi.md, by hand: fails"; tail -n 20 "$folder/out"; }
    [ "$(grep -c "Swiftlane .* in $prefix/lib/swiftlane/ucx/libucp" "$folder/out")" -eq 4 ] || say "docs/mpi.md, by hand: on another library"
fi

# --- beside the system's UCX, in one process
$cc -I"$prefix/include" "$here/two_libraries.c" -o "$folder/two" -ldl
ours=$prefix/lib/swiftlane/ucx/libucp.so.0
system=$(ldconfig -p | sed -n 's/.*libucp\.so\.0 .*=> //p' | head -n 1)
if [ -n "$system" ]; then
    "$folder/two" "$ours" "$system" >"$folder/out" || say "the system's UCX behind ours does not load"
    "$folder/two" "$system" "$ours" >>"$folder/out" || say "ours behind the system's UCX does not load"
fi

# --- our libucp with the system's libucs, libuct and libucm
system_ucs=$(ldconfig -p | sed -n 's/.*libucs\.so\.0 .*=> //p' | head -n 1)
if [ -n "$system" ] && [ -n "$system_ucs" ]; then
    $cc -I"$prefix/include" "$here/system_ucs.c" -o "$folder/mixed" "$system" "$system_ucs" -ldl
    files=$("$swiftlane" run --system-ucs -- "$folder/mixed") || say "run --system-ucs: status $?"
    [ "$(readlink -f ${files% *})" = "$(readlink -f "$ours")" ] || say "run --system-ucs: ucp of ${files% *}"
    [ "$(readlink -f ${files#* })" = "$(readlink -f "$system_ucs")" ] || say "run --system-ucs: ucs of ${files#* }"
fi
if [ -n "$system" ] && command -v ucx_perftest >/dev/null && command -v ucx_info >/dev/null; then
    port=$((20000 + $$ % 10000))
    "$swiftlane" run --system-ucs -- ucx_perftest -p $port -t tag_lat -n 1000 >"$folder/server" 2>&1 &
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        "$swiftlane" run --system-ucs -- ucx_perftest -p $port -t tag_lat -n 1000 127.0.0.1 >"$folder/client" 2>&1 && break
        sleep 0.5
    done
    wait $! || say "ucx_perftest: the server fails: $(tail -n 3 "$folder/server")"
    grep -q '^Final:' "$folder/client" || say "ucx_perftest: the client fails: $(tail -n 3 "$folder/client")"
    "$swiftlane" run --system-ucs -- ucx_info -e -u t -D shm >"$folder/info" 2>&1 || say "ucx_info fails: $(tail -n 3 "$folder/info")"
fi

[ $failed -eq 0 ] && echo "installed: all as it should be"
exit $failed
