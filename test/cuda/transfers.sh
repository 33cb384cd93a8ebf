#!/usr/bin/env bash
# Transfers between memory of all kinds over each transport, on the stand-in for the CUDA driver; with
# SWIFTLANE_TEST_GPU=real on the GPUs of this host. Runs in the build folder.
set -u
[ -x test/cuda/transfer_test ] || exit 77
export UCX_MODULE_DIR=$PWD/test/modules
softhca=$PWD/.libs
status=0
# transport, tests (gtest filter), then further settings
while read -r transport tests settings; do
    echo "--- $transport $settings"
    libraries=${LD_LIBRARY_PATH:-}
    case $transport in *_mlx5 | *_verbs) libraries=$softhca${libraries:+:$libraries} ;; esac
    env LD_LIBRARY_PATH="$libraries" UCX_TLS="$transport" $settings \
        timeout "${TRANSFERS_TIMEOUT:-300}" test/cuda/transfer_test --gtest_brief=1 \
        --gtest_filter="$tests" || status=1
done <<LIST
self *
sm *
tcp *
dc_mlx5 *
rc_mlx5 *
dc_mlx5 ByAdapterTest.Puts* SOFTHCA_GPU=peermem UCX_IB_GPU_DIRECT_RDMA=y
rc_mlx5 TransferTest.*:-*Killed* SOFTHCA_GPU=none
dc_mlx5 *.Puts:*.Gets:*.TagMessages UCX_IB_GPU_DIRECT_RDMA=n
sm *.TagMessages:*.Addresses*:*.ZADevice* UCX_MEM_EVENTS=n
sm *.TagMessages:*.ManyAtATime:*.ZADevice* UCX_CUDA_STREAM_WRITES=n
LIST
# What is compared with: copies by the driver alone, of each size.
echo "--- swiftlane perf copy"
[ -n "${SWIFTLANE_TEST_GPU:-}" ] || export LD_LIBRARY_PATH=$PWD/test/cuda/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
for memory in cuda pinned,cuda cuda,host vmm; do
    rows=$(src/tools/swiftlane perf copy --memory $memory --size 8:64K --iterations 64 | grep -c '^[0-9]')
    [ "$rows" -eq 14 ] || { echo "FAILED $memory: $rows rows"; status=1; }
done
# Both ends begin at once: what one tries out must not touch what the other maps meanwhile.
echo "--- swiftlane perf, two devices of one process"
second=cuda:1
[ "$(nvidia-smi -L 2>/dev/null | wc -l)" -ne 1 ] || second=cuda:0 # all that there is
for operation in put get tag tag put get; do
    rows=$(UCX_TLS=sm,cuda src/tools/swiftlane perf $operation --one-process --memory cuda:0,$second \
        --size 8:64K --iterations 16 --verify | grep -c '^ *[0-9]')
    [ "$rows" -eq 14 ] || { echo "FAILED $operation: $rows rows"; status=1; }
done
echo "--- swiftlane bench --memory"
for memory in cuda vmm; do
    for pattern in mbw_mr alltoall; do
        UCX_TLS=sm,cuda src/tools/swiftlane bench $pattern --ranks 2 --memory $memory --verify --size 8:64K \
            --iterations 3 --warmup 1 --settle 0 >/dev/null || { echo "FAILED $pattern $memory"; status=1; }
    done
done
exit $status
