#!/usr/bin/env bash
# Device memory between two processes, on the stand-in for the CUDA driver; with SWIFTLANE_TEST_GPU=real
# on the GPUs of this host. PROCESSES=plain: over shared memory as it is by default, alone; PROCESSES=rest: all but that.
# Runs in the build folder.
set -u
[ -x test/cuda/process_test ] || exit 77
export UCX_MODULE_DIR=$PWD/test/modules
status=0
# program, transport, tests (gtest filter), then further settings
while read -r program transport tests settings; do
    if [ "$transport$settings" = sm ]; then kind=plain; else kind=rest; fi
    case ${PROCESSES:-all} in all | $kind) ;; *) continue ;; esac
    echo "--- $program $transport $settings"
    env UCX_TLS="$transport" $settings timeout "${TRANSFERS_TIMEOUT:-300}" \
        test/cuda/"$program" --gtest_brief=1 --gtest_filter="$tests" || status=1
done <<LIST
process_test sm *
process_test sm *.Many* UCX_CUDA_STREAM_WRITES=n
process_test sm *.BetweenAll* UCX_CUDA_DIRECT=n
process_test sm *.BetweenAll*:*.PutsAndGets*:*.Many*:*.Resident*:*.ZADevice* UCX_CUDA_RESIDENT=y
process_test tcp *.Many*:*Killed*:*PastTheEnd*:-PeerCopies*.Many*:PeerCopies*PastTheEnd*
process_test sm PeerCopies*.Many*:PeerCopies*.Fences* UCX_DYNAMIC_TL_SWITCH_INTERVAL=2ms UCX_DYNAMIC_TL_MIN_RESIDENCE=0 UCX_DYNAMIC_TL_MIN_SCORE=1
stream_process_test sm *
stream_process_test sm *ToAndFro:*Graphs:*Dies UCX_CUDA_STREAM_WRITES=n
kernel_process_test sm *
kernel_process_test sm *Exchange STAND_IN_CUDA_DEVICES=1 CUDA_VISIBLE_DEVICES=0
kernel_process_test sm *OneMapping UCX_CUDA_MAPPINGS=1
stream_process_test tcp *ToAndFro:*Graphs:*Signal:*Dies
LIST
exit $status
