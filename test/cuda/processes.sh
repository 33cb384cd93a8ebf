#!/usr/bin/env bash
# Device memory between two processes, on the stand-in for the CUDA driver; with SWIFTLANE_TEST_GPU=real
# on the GPUs of this host. Runs in the build folder.
set -u
[ -x test/cuda/process_test ] || exit 77
export UCX_MODULE_DIR=$PWD/test/modules
status=0
# transport, tests (gtest filter), then further settings
while read -r transport tests settings; do
    echo "--- $transport $settings"
    env UCX_TLS="$transport" $settings timeout "${TRANSFERS_TIMEOUT:-300}" \
        test/cuda/process_test --gtest_brief=1 --gtest_filter="$tests" || status=1
done <<LIST
sm *
sm *.Many* UCX_CUDA_STREAM_WRITES=n
sm *.BetweenAll* UCX_CUDA_DIRECT=n
tcp *.Many*:*Killed*
LIST
exit $status
