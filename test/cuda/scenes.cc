// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/scenes.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "common/leaks_fail.h"
#include "cuda/waiting.h"

extern char** environ;

namespace cuda_test {

namespace abi = uct::cuda::abi;
using Clock = std::chrono::steady_clock;

namespace {

constexpr int kSocket = 100;
constexpr const char* kPeerMark = "--peer";

// @return 0 if the scene goes as it should
int play(const Scene& scene, int socket, int rank) {
    try {
        Side side(socket, rank);
        scene.play(side);
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d of %s: %s\n", rank, scene.name, error.what());
        return 1;
    }
}

}  // namespace

void require(bool is_so, const std::string& what) {
    if (!is_so) throw std::runtime_error(what);
}

void require_ok(ucs_status_t status, const char* what) {
    require(status == UCS_OK, std::string(what) + ": " + ucs_status_string(status));
}

Stream::Stream() {
    require(driver().stream_create(&stream_, abi::kStreamNonBlocking) == 0, "stream");
}

Stream::~Stream() {
    (void)driver().stream_destroy(stream_);
}

void Stream::copy(const Buffer& to, const Buffer& from) const {
    require(
        driver().copy_async(reinterpret_cast<uintptr_t>(to.data()),
                            reinterpret_cast<uintptr_t>(from.data()), from.length(), stream_) == 0,
        "cuMemcpyAsync");
}

Side::Side(int socket, int rank) : rank(rank), socket_(socket) {
    // Each its own device, if there are two.
    use_device(std::min(rank, device_count() - 1));
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_AMO64 | UCP_FEATURE_DEVICE;
    require_ok(ucp_init(&params, nullptr, &context_), "ucp_init");
    const ucp_worker_params_t worker_params{};
    require_ok(ucp_worker_create(context_, &worker_params, &worker), "ucp_worker_create");
    ucp_address_t* address = nullptr;
    Parcel mine;
    require_ok(ucp_worker_get_address(worker, &address, &mine.length), "address");
    std::memcpy(mine.bytes.data(), address, mine.length);
    ucp_worker_release_address(worker, address);
    const Parcel other = exchange(mine);
    ucp_ep_params_t ep_params{};
    ep_params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    ep_params.address = reinterpret_cast<const ucp_address_t*>(other.bytes.data());
    ep_params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    require_ok(ucp_ep_create(worker, &ep_params, &endpoint), "ucp_ep_create");
}

Side::~Side() {
    for (ucp_rkey_h key : keys_) ucp_rkey_destroy(key);
    for (ucp_mem_h memory : exposed_) (void)ucp_mem_unmap(context_, memory);
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = UCP_EP_CLOSE_FLAG_FORCE;
    (void)wait(ucp_ep_close_nbx(endpoint, &params));
    ucp_worker_destroy(worker);
    ucp_cleanup(context_);
}

Parcel Side::exchange(const Parcel& mine) {
    require(write(socket_, &mine, sizeof(mine)) == sizeof(mine), "write");
    Parcel other;
    Waiting waiting(worker);
    for (size_t done = 0; done < sizeof(other);) {
        pollfd descriptor{socket_, POLLIN, 0};
        while (poll(&descriptor, 1, 0) == 0) waiting.progress();
        const ssize_t more =
            read(socket_, reinterpret_cast<char*>(&other) + done, sizeof(other) - done);
        require(more > 0, "the other process has gone");
        done += static_cast<size_t>(more);
    }
    return other;
}

Side::Remote Side::expose(void* address, size_t length) {
    ucp_mem_map_params_t params{};
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    params.address = address;
    params.length = length;
    ucp_mem_h memory = nullptr;
    require_ok(ucp_mem_map(context_, &params, &memory), "ucp_mem_map");
    exposed_.push_back(memory);
    Parcel mine;
    mine.address = reinterpret_cast<uintptr_t>(address);
    void* bytes = nullptr;
    require_ok(ucp_rkey_pack(context_, memory, &bytes, &mine.length), "ucp_rkey_pack");
    std::memcpy(mine.bytes.data(), bytes, mine.length);
    ucp_rkey_buffer_release(bytes);
    const Parcel other = exchange(mine);
    ucp_rkey_h key = nullptr;
    require_ok(ucp_ep_rkey_unpack(endpoint, other.bytes.data(), &key), "ucp_ep_rkey_unpack");
    keys_.push_back(key);
    return {other.address, key};
}

ucs_status_t Side::wait(ucs_status_ptr_t operation) {
    if (!UCS_PTR_IS_PTR(operation)) return UCS_PTR_RAW_STATUS(operation);
    Waiting waiting(worker);
    while (ucp_request_check_status(operation) == UCS_INPROGRESS) waiting.progress();
    const ucs_status_t status = ucp_request_check_status(operation);
    ucp_request_free(operation);
    return status;
}

void Side::run(const Stream& stream) {
    const auto patience = Clock::now() + std::chrono::seconds(60);
    while (!stream.is_done()) {
        progress();
        require(Clock::now() < patience, "the stream hangs");
    }
}

void play_both(const Scene& scene) {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    posix_spawn_file_actions_t actions;
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_adddup2(&actions, ends[1], kSocket);
    char program[] = "/proc/self/exe";
    std::string mark = kPeerMark, name = scene.name;
    char* const arguments[] = {program, mark.data(), name.data(), nullptr};
    pid_t process = 0;
    ASSERT_EQ(posix_spawn(&process, program, &actions, nullptr, arguments, environ), 0);
    (void)posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    EXPECT_EQ(play(scene, ends[0], 0), 0);
    close(ends[0]);
    int status = 0;
    ASSERT_EQ(waitpid(process, &status, 0), process);
    EXPECT_EQ(status == 0, scene.ends_alive) << "of the other process";
}

int run_scenes(int argc, char** argv, std::span<const Scene> scenes) {
    (void)signal(SIGPIPE, SIG_IGN);
    if (std::getenv("UCX_MODULE_DIR") == nullptr) {
        std::puts(
            "run test/cuda/processes.sh in the build folder, which says where the CUDA module is");
        return 77;
    }
    const std::string name =
        argc == 3 && std::strcmp(argv[1], kPeerMark) == 0 ? argv[2] : std::string();
    testing::InitGoogleTest(&argc, argv);
    const ucs::test::LeaksFail log;
    choose_driver();
    for (const Scene& known : scenes) {
        if (known.name == name) return play(known, kSocket, 1);
    }
    return RUN_ALL_TESTS();
}

}  // namespace cuda_test
