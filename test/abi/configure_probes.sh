#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Installs into a folder of its own and builds, against that, what Open MPI's configure builds when
# it is given --with-ucx=PREFIX: every header, function,
# declaration and constant that it looks for must be found, and what was linked must name UCX's
# libraries, so that it runs over either. Usage: configure_probes.sh BUILD CC
set -euo pipefail
build=$1
cc=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0

env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS make -C "$build" DESTDIR="$folder/root" install-data install-exec >"$folder/log" 2>&1 ||
    { tail -n 20 "$folder/log"; exit 1; }
prefix=$(find "$folder/root" -path '*/include/ucp/api/ucp.h' -printf '%h' -quit)
prefix=${prefix%/include/ucp/api}
libdir=$prefix/lib

say() { echo "configure_probes: $*"; failed=1; }

for library in ucp uct ucm ucs; do
    ls "$libdir/lib$library".* >/dev/null 2>&1 || say "no lib$library.* in lib"
    test -e "$libdir/lib$library.so" || say "no development link lib$library.so"
done

# try NAME MAIN-BODY [HEADER...]: as AC_LINK_IFELSE with configure's flags
try() {
    local name=$1 body=$2
    shift 2
    for header in "$@"; do echo "#include <$header>"; done >"$folder/probe.c"
    printf 'int main(void)\n{\n%s\nreturn 0;\n}\n' "$body" >>"$folder/probe.c"
    $cc -Wall -Werror=implicit-function-declaration -I"$prefix/include" "$folder/probe.c" \
        -o "$folder/probe" -L"$libdir" -Wl,-rpath-link,"$libdir" -Wl,--no-as-needed \
        -lucp -luct -lucm -lucs >"$folder/log" 2>&1 || { say "$name"; head -n 5 "$folder/log"; }
}

for header in uct/api/version.h ucp/api/ucp.h ucp/api/ucp_version.h ucp/api/device/ucp_host.h ucm/api/ucm.h; do
    try "header $header" "" stdint.h "$header"
done
try "ucp_cleanup" "ucp_cleanup(0);" ucp/api/ucp.h
try "ucm_test_events" "return ucm_test_events(UCM_EVENT_VM_UNMAPPED);" ucm/api/ucm.h
for name in ucp_tag_send_nbr ucp_tag_send_nbx ucp_tag_send_sync_nbx ucp_tag_recv_nbx ucp_rkey_ptr \
    ucp_ep_flush_nb ucp_worker_flush_nb ucp_request_check_status ucp_put_nb ucp_get_nb ucp_put_nbx \
    ucp_get_nbx ucp_atomic_op_nbx ucp_ep_flush_nbx ucp_worker_address_query ucp_ep_rkey_unpack; do
    try "declaration $name" "(void)$name;" ucp/api/ucp.h
done
try "declaration ucm_test_events" "(void)ucm_test_events;" ucm/api/ucm.h
for name in UCP_ATOMIC_POST_OP_AND UCP_ATOMIC_POST_OP_OR UCP_ATOMIC_POST_OP_XOR \
    UCP_ATOMIC_FETCH_OP_FAND UCP_ATOMIC_FETCH_OP_FOR UCP_ATOMIC_FETCH_OP_FXOR \
    UCP_PARAM_FIELD_ESTIMATED_NUM_PPN UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK \
    UCP_OP_ATTR_FLAG_MULTI_SEND UCP_MEM_MAP_SYMMETRIC_RKEY; do
    try "constant $name" "int value = (int)$name; (void)value;" ucp/api/ucp.h
done
try "type ucp_request_param_t" "ucp_request_param_t value; (void)value;" ucp/api/ucp.h

# Code for kernels needs nothing but what is installed, and is C++.
echo '#include <ucp/api/device/ucp_device_impl.h>' >"$folder/probe.cc"
${CXX:-c++} -std=c++17 -Wall -Wextra -Werror -I"$prefix/include" -fsyntax-only "$folder/probe.cc" >"$folder/log" 2>&1 ||
    { say "header for kernels"; head -n 5 "$folder/log"; }

# What was linked asks for UCX's names, and meets our libraries or UCX's by the search path alone.
try "versions" "unsigned a, b, c; ucp_get_version(&a, &b, &c); return a != UCP_API_MAJOR;" ucp/api/ucp.h
needed=$(readelf -d "$folder/probe" | sed -n 's/.*(NEEDED).*\[\(libuc.*\)\]/\1/p' | sort | tr '\n' ' ')
[ "$needed" = "libucm.so.0 libucp.so.0 libucs.so.0 libuct.so.0 " ] || say "links $needed"
LD_LIBRARY_PATH=$libdir "$folder/probe" || say "a linked program does not run over these libraries"
if [ -e "$(ldconfig -p | sed -n 's/.*libucp\.so\.0 .*=> //p' | head -n 1)" ]; then
    "$folder/probe" || say "a linked program does not run over UCX"
fi

[ $failed -eq 0 ] && echo "configure_probes: all found"
exit $failed
