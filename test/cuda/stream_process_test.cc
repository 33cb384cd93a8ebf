// SPDX-License-Identifier: BSD-3-Clause

// Operations on streams between two processes of a host. The second one is this program started
// again: both run the same scene, each its part of it.

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/leaks_fail.h"
#include "cuda/device.h"
#include "cuda/graphs.h"
#include "ucp/api/ucpx.h"

extern char** environ;

namespace {

namespace abi = uct::cuda::abi;
using cuda_test::Buffer;
using cuda_test::driver;
using cuda_test::Kind;
using Clock = std::chrono::steady_clock;

constexpr int kSocket = 100;
constexpr const char* kPeerMark = "--peer";

/** What goes wrong ends a scene in either process. */
void require(bool is_so, const std::string& what) {
    if (!is_so) throw std::runtime_error(what);
}
void require_ok(ucs_status_t status, const char* what) {
    require(status == UCS_OK, std::string(what) + ": " + ucs_status_string(status));
}

/** Bytes that go over the socket between the two. */
struct Parcel {
    uint64_t address = 0;
    uint64_t length = 0;
    std::array<char, 2000> bytes{};
};

class Stream {
  public:
    Stream() { require(driver().stream_create(&stream_, abi::kStreamNonBlocking) == 0, "stream"); }
    ~Stream() { (void)driver().stream_destroy(stream_); }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    abi::Stream get() const { return stream_; }
    void copy(const Buffer& to, const Buffer& from) const {
        require(driver().copy_async(reinterpret_cast<uintptr_t>(to.data()),
                                    reinterpret_cast<uintptr_t>(from.data()), from.length(),
                                    stream_) == 0,
                "cuMemcpyAsync");
    }
    bool is_done() const { return driver().stream_query(stream_) == abi::kSuccess; }

  private:
    abi::Stream stream_ = nullptr;
};

/** One of the two processes. */
class Side {
  public:
    Side(int socket, int rank) : rank(rank), socket_(socket) {
        // Each its own device, if there are two.
        cuda_test::use_device(std::min(rank, cuda_test::device_count() - 1));
        ucp_params_t params{};
        params.field_mask = UCP_PARAM_FIELD_FEATURES;
        params.features = UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_AMO64;
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
        ep_params.field_mask =
            UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
        ep_params.address = reinterpret_cast<const ucp_address_t*>(other.bytes.data());
        ep_params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
        require_ok(ucp_ep_create(worker, &ep_params, &endpoint), "ucp_ep_create");
    }
    ~Side() {
        for (ucp_rkey_h key : keys_) ucp_rkey_destroy(key);
        for (ucp_mem_h memory : exposed_) (void)ucp_mem_unmap(context_, memory);
        ucp_request_param_t params{};
        params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        params.flags = UCP_EP_CLOSE_FLAG_FORCE;
        (void)wait(ucp_ep_close_nbx(endpoint, &params));
        ucp_worker_destroy(worker);
        ucp_cleanup(context_);
    }
    Side(const Side&) = delete;
    Side& operator=(const Side&) = delete;

    /** Tells the other process something and hears the same of it. Makes progress. */
    Parcel exchange(const Parcel& mine) {
        require(write(socket_, &mine, sizeof(mine)) == sizeof(mine), "write");
        Parcel other;
        for (size_t done = 0; done < sizeof(other);) {
            pollfd waiting{socket_, POLLIN, 0};
            while (poll(&waiting, 1, 0) == 0) progress();
            const ssize_t more =
                read(socket_, reinterpret_cast<char*>(&other) + done, sizeof(other) - done);
            require(more > 0, "the other process has gone");
            done += static_cast<size_t>(more);
        }
        return other;
    }
    void meet() { (void)exchange({}); }

    /** Both expose memory; what the other exposes. */
    struct Remote {
        uint64_t address;
        ucp_rkey_h key;
    };
    Remote expose(void* address, size_t length) {
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

    void progress() { ucp_worker_progress(worker); }
    ucs_status_t wait(ucs_status_ptr_t operation) {
        if (!UCS_PTR_IS_PTR(operation)) return UCS_PTR_RAW_STATUS(operation);
        while (ucp_request_check_status(operation) == UCS_INPROGRESS) progress();
        const ucs_status_t status = ucp_request_check_status(operation);
        ucp_request_free(operation);
        return status;
    }
    void run(const Stream& stream) {
        const auto patience = Clock::now() + std::chrono::seconds(60);
        while (!stream.is_done()) {
            progress();
            require(Clock::now() < patience, "the stream hangs");
        }
    }

    const int rank;
    ucp_worker_h worker = nullptr;
    ucp_ep_h endpoint = nullptr;

  private:
    const int socket_;
    ucp_context_h context_ = nullptr;
    std::vector<ucp_mem_h> exposed_;
    std::vector<ucp_rkey_h> keys_;
};

void send_on(Side& side, const Stream& stream, const Buffer& from, uint64_t tag,
             ucpx_stream_op_h* op) {
    require_ok(
        ucpx_send_on_stream(side.endpoint, from.data(), from.length(), tag, stream.get(), op),
        "ucpx_send_on_stream");
}
void receive_on(Side& side, const Stream& stream, const Buffer& to, uint64_t tag,
                ucpx_stream_op_h* op) {
    require_ok(ucpx_recv_on_stream(side.worker, side.endpoint, to.data(), to.length(), tag, ~0ul,
                                   stream.get(), op),
               "ucpx_recv_on_stream");
}
ucs_status_t status_of(ucpx_stream_op_h op) {
    ucpx_stream_op_attr_t attributes{};
    attributes.field_mask = UCPX_STREAM_OP_ATTR_FIELD_STATUS;
    require_ok(ucpx_stream_op_query(op, &attributes), "ucpx_stream_op_query");
    return attributes.status;
}
void end(ucpx_stream_op_h op) {
    const ucs_status_t status = status_of(op);
    ucpx_stream_op_release(op);
    require_ok(status, "an operation on a stream");
}

// --- the scenes ---

/** One process's data goes to the other and back, each step behind work of a stream. */
void go_to_and_fro(Side& side) {
    for (const size_t length : {size_t{8}, size_t{5000}, size_t{1000003}}) {
        for (const Kind kind : {Kind::kDevice, Kind::kPool}) {
            const Stream stream;
            const Buffer filled(Kind::kPinned, length), memory(kind, length);
            Buffer result(Kind::kPinned, length);
            for (uint32_t round = 1; round <= 4; ++round) {
                if (side.rank == 0) {
                    const_cast<Buffer&>(filled).fill(round);
                    stream.copy(memory, filled);
                    send_on(side, stream, memory, round, nullptr);
                    stream.copy(memory, result);
                }
                ucpx_stream_op_h op = nullptr;
                receive_on(side, stream, memory, round, &op);
                stream.copy(result, memory);
                if (side.rank == 1) send_on(side, stream, memory, round, nullptr);
                side.run(stream);
                require(bool{result.holds(round)}, "other bytes than were sent");
                end(op);
                result.clear();
            }
            side.meet();
        }
    }
}

void exchange_in_graphs(Side& side) {
    constexpr size_t kLength = 200000;
    const Stream stream;
    Buffer filled(Kind::kPinned, kLength), result(Kind::kPinned, kLength);
    const Buffer out(Kind::kDevice, kLength), in(Kind::kDevice, kLength);
    ucpx_stream_op_h group = nullptr;
    {
        cuda_test::CapturedGraph graph(stream.get());
        stream.copy(out, filled);
        ucpx_stream_part_t parts[2] = {};
        parts[0].kind = UCPX_STREAM_PART_SEND;
        parts[1].kind = UCPX_STREAM_PART_RECV;
        parts[0].buffer = out.data();
        parts[1].buffer = in.data();
        parts[1].tag_mask = ~0ul;
        for (ucpx_stream_part_t& part : parts) {
            part.ep = side.endpoint;
            part.length = kLength;
            part.tag = 4;
        }
        require_ok(
            ucpx_group_on_stream(side.worker, parts, 2, sizeof(parts[0]), stream.get(), &group),
            "ucpx_group_on_stream");
        stream.copy(result, in);
        graph.end();
        for (uint32_t launch = 0; launch < 20; ++launch) {
            filled.fill(2 * launch + static_cast<uint32_t>(side.rank));
            graph.launch();
            side.run(stream);
            require(bool{result.holds(2 * launch + 1 - static_cast<uint32_t>(side.rank))},
                    "other bytes than were sent");
        }
    }
    end(group);
    side.meet();
}

/** Rank 0 puts into rank 1's device memory; a word of the host's tells it. */
void put_and_signal(Side& side) {
    constexpr size_t kLength = 200000;
    constexpr uint32_t kRounds = 20;
    const Stream stream;
    const Buffer memory(Kind::kDevice, kLength);
    Buffer filled(Kind::kPinned, kLength), result(Kind::kPinned, kLength);
    auto word = std::make_unique<uint64_t>(0);
    const Side::Remote data = side.expose(memory.data(), kLength);
    const Side::Remote there = side.expose(word.get(), sizeof(*word));
    ucpx_signal_t signal{};
    signal.field_mask = UCPX_SIGNAL_FIELD_STEP;
    signal.remote_addr = there.address;
    signal.rkey = there.key;
    signal.op = UCPX_SIGNAL_SET;
    signal.value = signal.step = 1;
    ucpx_stream_op_h put = nullptr, wait = nullptr;
    {
        // Each waits for the other's signal: rank 1 for the data, rank 0 until it may go on.
        cuda_test::CapturedGraph graph(stream.get());
        const auto wait_for_signal = [&] {
            require_ok(ucpx_signal_wait_on_stream(side.worker, side.endpoint, word.get(), 1, 1,
                                                  stream.get(), &wait),
                       "ucpx_signal_wait_on_stream");
        };
        const auto put_bytes = [&](size_t length) {
            require_ok(ucpx_put_on_stream(side.endpoint, memory.data(), length, data.address,
                                          data.key, &signal, stream.get(), &put),
                       "ucpx_put_on_stream");
        };
        if (side.rank == 0) {
            stream.copy(memory, filled);
            put_bytes(kLength);
            wait_for_signal();
        } else {
            wait_for_signal();
            stream.copy(result, memory);
            put_bytes(0);
        }
        graph.end();
        for (uint32_t round = 1; round <= kRounds; ++round) {
            filled.fill(round);
            graph.launch();
            side.run(stream);
            if (side.rank == 1) require(bool{result.holds(round)}, "other bytes than were put");
        }
    }
    require(*word == kRounds, "signals");
    end(put);
    end(wait);
    side.meet();
}

void die(Side& side) {
    const Stream receives, sends, waits;
    Buffer small(Kind::kDevice, 100), large(Kind::kDevice, 1 << 20);
    auto word = std::make_unique<uint64_t>(0);
    // They know each other.
    uint32_t number = 0;
    const ucp_request_param_t plain{};
    const ucs_status_ptr_t sent = ucp_tag_send_nbx(side.endpoint, &number, 4, 1, &plain);
    require_ok(side.wait(ucp_tag_recv_nbx(side.worker, &number, 4, 1, ~0ul, &plain)), "receive");
    require_ok(side.wait(sent), "send");
    side.meet();
    if (side.rank == 1) (void)raise(SIGKILL);
    ucpx_stream_op_h ops[3] = {};
    receive_on(side, receives, small, 2, &ops[0]);
    send_on(side, sends, large, 3, &ops[1]);
    require_ok(ucpx_signal_wait_on_stream(side.worker, side.endpoint, word.get(), 1, 0, waits.get(),
                                          &ops[2]),
               "ucpx_signal_wait_on_stream");
    side.run(receives);
    side.run(sends);
    side.run(waits);
    for (ucpx_stream_op_h op : ops) {
        require(UCS_STATUS_IS_ERR(status_of(op)), "a dead peer gives no error");
        ucpx_stream_op_release(op);
    }
}

/** Microseconds one way, with a short copy of the stream's before each send. */
template <typename Step>
double measure(Side& side, unsigned steps, Step step) {
    side.meet();
    const auto begin = Clock::now();
    step();
    const std::chrono::duration<double, std::micro> taken = Clock::now() - begin;
    side.meet();
    return taken.count() / (2.0 * steps);
}

void time_steps(Side& side) {
    const unsigned steps = cuda_test::is_real() ? 200 : 10;
    const ucp_request_param_t plain{};
    for (const size_t length : {size_t{8}, size_t{4096}, size_t{65536}, size_t{1} << 20}) {
        const Stream stream;
        const Buffer out(Kind::kDevice, length), in(Kind::kDevice, length);
        const auto send = [&] {
            stream.copy(out, in);
            while (!stream.is_done()) continue;
            require_ok(side.wait(ucp_tag_send_nbx(side.endpoint, out.data(), length, 1, &plain)),
                       "send");
        };
        const auto receive = [&] {
            require_ok(side.wait(ucp_tag_recv_nbx(side.worker, in.data(), length, 1, ~0ul, &plain)),
                       "receive");
        };
        const auto by_host = [&] {
            for (unsigned i = 0; i < steps; ++i) {
                if (side.rank == 0) send();
                receive();
                if (side.rank == 1) send();
            }
        };
        (void)measure(side, steps, by_host);
        const double host = measure(side, steps, by_host);

        std::vector<ucpx_stream_op_h> ops;
        const auto one_step = [&](bool has_handles) {
            ucpx_stream_op_h sent = nullptr, received = nullptr;
            const auto send_it = [&] {
                stream.copy(out, in);
                send_on(side, stream, out, 1, has_handles ? &sent : nullptr);
            };
            if (side.rank == 0) send_it();
            receive_on(side, stream, in, 1, has_handles ? &received : nullptr);
            if (side.rank == 1) send_it();
            if (has_handles) ops.insert(ops.end(), {sent, received});
        };
        const auto by_stream = [&] {
            for (unsigned i = 0; i < steps; ++i) one_step(false);
            side.run(stream);
        };
        (void)measure(side, steps, by_stream);
        const double streams = measure(side, steps, by_stream);
        double graphs = 0;
        {
            cuda_test::CapturedGraph graph(stream.get());
            for (unsigned i = 0; i < 10; ++i) one_step(true);
            graph.end();
            const auto by_graph = [&] {
                for (unsigned i = 0; i < steps; i += 10) graph.launch();
                side.run(stream);
            };
            (void)measure(side, steps, by_graph);
            graphs = measure(side, steps, by_graph);
        }
        for (ucpx_stream_op_h op : ops) end(op);
        if (side.rank == 0) {
            std::printf(
                "%zu bytes, copy and message one way: host %.2f us, stream %.2f us, "
                "graph %.2f us\n",
                length, host, streams, graphs);
        }
    }
}

struct Scene {
    const char* name;
    void (*play)(Side& side);
    bool ends_alive = true;  //!< the other process
};
constexpr Scene kScenes[] = {
    {"ToAndFro", go_to_and_fro},
    {"ExchangeInGraphs", exchange_in_graphs},
    {"PutAndSignal", put_and_signal},
    {"APeerThatDies", die, false},
    {"Times", time_steps},
};

/** @return 0 if the scene goes as it should */
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

class StreamProcessTest : public ::testing::TestWithParam<Scene> {};

TEST_P(StreamProcessTest, Goes) {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    posix_spawn_file_actions_t actions;
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_adddup2(&actions, ends[1], kSocket);
    char program[] = "/proc/self/exe";
    std::string mark = kPeerMark, name = GetParam().name;
    char* const arguments[] = {program, mark.data(), name.data(), nullptr};
    pid_t process = 0;
    ASSERT_EQ(posix_spawn(&process, program, &actions, nullptr, arguments, environ), 0);
    (void)posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    EXPECT_EQ(play(GetParam(), ends[0], 0), 0);
    close(ends[0]);
    int status = 0;
    ASSERT_EQ(waitpid(process, &status, 0), process);
    EXPECT_EQ(status == 0, GetParam().ends_alive) << "of the other process";
}

INSTANTIATE_TEST_SUITE_P(Scenes, StreamProcessTest, ::testing::ValuesIn(kScenes),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace

// What is thrown ends the program.
int main(int argc, char** argv) {  // NOLINT(bugprone-exception-escape)
    (void)signal(SIGPIPE, SIG_IGN);
    if (std::getenv("UCX_MODULE_DIR") == nullptr) {
        std::puts(
            "run test/cuda/processes.sh in the build folder, which says where the CUDA module is");
        return 77;
    }
    const std::string scene =
        argc == 3 && std::strcmp(argv[1], kPeerMark) == 0 ? argv[2] : std::string();
    testing::InitGoogleTest(&argc, argv);
    const ucs::test::LeaksFail log;
    cuda_test::choose_driver();
    for (const Scene& known : kScenes) {
        if (known.name == scene) return play(known, kSocket, 1);
    }
    return RUN_ALL_TESTS();
}
