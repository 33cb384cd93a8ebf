// SPDX-License-Identifier: BSD-3-Clause

// Device memory between two processes of a host: the direct way, and how it comes and goes. The
// peer is this program started again; it does what it is told over a socket.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/leaks_fail.h"
#include "cuda/device.h"
#include "cuda/waiting.h"
#include "ucp/api/ucp.h"

extern char** environ;

namespace {

using cuda_test::Buffer;
using cuda_test::Kind;

constexpr int kSocket = 100;
constexpr const char* kPeerMark = "--peer";
// A peer that does not use CUDA.
constexpr const char* kPlainPeerMark = "--plain-peer";
constexpr size_t kMostAddress = 2000;

struct Command {
    enum class What : uint32_t {
        kSend,
        kSendAll,
        kReceive,
        kFree,
        kSendAndDie,
        kSendAndStop,  // makes no progress behind its reply until a byte comes
        kExpose,       // to one-sided operations; a Key follows the reply
        kCheck,        // does it hold the bytes?
        kLook,         // how much memory of devices the process has open
        kUsed,         // bytes of the device in use; on the stand-in by that process
        kCount,        // copies that it has begun; counted on the stand-in
        kCalls,        // of its driver; Calls follow the reply
        kFault,        // what its driver answers from now on: kFaults[seed]
        kEnd,
    };
    What what;
    Kind kind;
    int device;
    uint32_t seed;  // of the bytes; also the tag
    uint64_t length;
    uint32_t id;  // the buffer: made at its first use; kSendAll: how many, all at once
};
constexpr const char* kFaults[] = {"", "run:719", "cuIpcOpenMemHandle:1"};
struct Reply {
    ucs_status_t status;
    uint32_t is_right;
    uint64_t copies = 0;  // that the sender began for its message; counted on the stand-in
};
// Of the driver's functions, by what they are for; counted on the stand-in.
struct Calls {
    uint64_t set_up = 0;     // memory, handles, mappings, streams, events, modules
    uint64_t questions = 0;  // what lies at an address
    uint64_t contexts = 0;   // entered, left and asked for
    uint64_t copies = 0;     // begun, by the copy engine or a kernel

    static Calls now() {
        const auto of = [](std::initializer_list<const char*> functions) {
            uint64_t sum = 0;
            for (const char* function : functions) sum += cuda_test::calls_of(function);
            return sum;
        };
        return {of({"cuMemAlloc",
                    "cuMemFree",
                    "cuMemAllocAsync",
                    "cuMemFreeAsync",
                    "cuMemAllocManaged",
                    "cuMemHostAlloc",
                    "cuMemFreeHost",
                    "cuMemHostRegister",
                    "cuMemHostUnregister",
                    "cuMemGetAddressRange",
                    "cuMemGetHandleForAddressRange",
                    "cuMemAddressReserve",
                    "cuMemAddressFree",
                    "cuMemCreate",
                    "cuMemRelease",
                    "cuMemMap",
                    "cuMemUnmap",
                    "cuMemSetAccess",
                    "cuMemRetainAllocationHandle",
                    "cuMemExportToShareableHandle",
                    "cuMemImportFromShareableHandle",
                    "cuMemPoolCreate",
                    "cuMemPoolDestroy",
                    "cuMemPoolSetAccess",
                    "cuMemPoolExportToShareableHandle",
                    "cuMemPoolImportFromShareableHandle",
                    "cuMemPoolExportPointer",
                    "cuMemPoolImportPointer",
                    "cuIpcGetMemHandle",
                    "cuIpcOpenMemHandle",
                    "cuIpcCloseMemHandle",
                    "cuCtxEnablePeerAccess",
                    "cuStreamCreate",
                    "cuStreamDestroy",
                    "cuEventCreate",
                    "cuEventDestroy",
                    "cuModuleLoadData",
                    "cuModuleGetFunction",
                    "cuFuncLoad"}),
                of({"cuPointerGetAttributes", "one of cuPointerGetAttributes"}),
                of({"cuCtxPushCurrent", "cuCtxPopCurrent", "cuCtxGetCurrent", "cuCtxGetDevice",
                    "cuCtxGetId", "cuDevicePrimaryCtxGetState", "cuDevicePrimaryCtxRetain",
                    "cuDevicePrimaryCtxRelease"}),
                of({"cuMemcpyAsync", "cuLaunchKernel"})};
    }
    Calls operator-(const Calls& before) const {
        return {set_up - before.set_up, questions - before.questions, contexts - before.contexts,
                copies - before.copies};
    }
};
struct Key {
    uint64_t address;
    uint64_t length;
    std::array<char, 1000> bytes;
};
struct Address {
    uint64_t length;
    std::array<char, kMostAddress> bytes;
};

template <typename T>
void write_all(int socket, const T& value) {
    if (write(socket, &value, sizeof(value)) != sizeof(value)) std::perror("write");
}
template <typename T>
bool read_all(int socket, T& value) {
    size_t done = 0;
    while (done < sizeof(value)) {
        const ssize_t more =
            read(socket, reinterpret_cast<char*>(&value) + done, sizeof(value) - done);
        if (more <= 0) return false;
        done += static_cast<size_t>(more);
    }
    return true;
}

uint64_t used_memory() {
    size_t unused = 0, total = 0;
    (void)cuda_test::driver().memory_get_info(&unused, &total);
    return total - unused;
}

// On the stand-in the mappings and descriptors of this process that hold memory of devices, on a
// real device what is in use of it, of all processes.
uint64_t memory_in_use() {
    if (cuda_test::is_real()) return used_memory();
    const std::string name = "stand-in-gpu";
    uint64_t count = 0;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);)
        count += line.find(name) != std::string::npos ? 1 : 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code none;
        const std::string target = std::filesystem::read_symlink(entry.path(), none).string();
        count += target.find(name) != std::string::npos ? 1 : 0;
    }
    return count;
}

// A worker and its endpoint to the other process.
class Side {
  public:
    explicit Side(int socket) : socket_(socket) {
        ucp_params_t params{};
        params.field_mask = UCP_PARAM_FIELD_FEATURES;
        params.features = UCP_FEATURE_TAG | UCP_FEATURE_RMA;
        EXPECT_EQ(ucp_init(&params, nullptr, &context_), UCS_OK);
        const ucp_worker_params_t worker_params{};
        EXPECT_EQ(ucp_worker_create(context_, &worker_params, &worker_), UCS_OK);
        ucp_address_t* bytes = nullptr;
        size_t length = 0;
        EXPECT_EQ(ucp_worker_get_address(worker_, &bytes, &length), UCS_OK);
        Address mine{length, {}};
        std::memcpy(mine.bytes.data(), bytes, length);
        ucp_worker_release_address(worker_, bytes);
        write_all(socket_, mine);
        Address other{};
        EXPECT_TRUE(read_all(socket_, other));
        ucp_ep_params_t ep_params{};
        ep_params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                               UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                               UCP_EP_PARAM_FIELD_ERR_HANDLER;
        ep_params.address = reinterpret_cast<const ucp_address_t*>(other.bytes.data());
        ep_params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
        ep_params.err_handler.cb = [](void* arg, ucp_ep_h, ucs_status_t) {
            static_cast<Side*>(arg)->has_failed_ = true;
        };
        ep_params.err_handler.arg = this;
        EXPECT_EQ(ucp_ep_create(worker_, &ep_params, &endpoint_), UCS_OK);
    }
    ~Side() {
        for (ucp_mem_h memory : exposed_) (void)ucp_mem_unmap(context_, memory);
        if (endpoint_ != nullptr) (void)wait(close(UCP_EP_CLOSE_FLAG_FORCE));
        ucp_worker_destroy(worker_);
        ucp_cleanup(context_);
    }
    Side(const Side&) = delete;
    Side& operator=(const Side&) = delete;

    ucs_status_ptr_t send(const Buffer& buffer, size_t length, uint32_t tag) {
        return send(buffer.data(), length, tag);
    }
    ucs_status_ptr_t send(const void* buffer, size_t length, uint32_t tag) {
        return ucp_tag_send_nbx(endpoint_, buffer, length, tag, &plain_);
    }
    ucs_status_ptr_t receive(Buffer& buffer, size_t length, uint32_t tag) {
        return receive(buffer.data(), length, tag);
    }
    ucs_status_ptr_t receive(void* buffer, size_t length, uint32_t tag) {
        return ucp_tag_recv_nbx(worker_, buffer, length, tag, ~0ul, &plain_);
    }
    // Let the peer read and write a buffer, as long as this side lives.
    Key expose(const Buffer& buffer) {
        ucp_mem_map_params_t params{};
        params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
        params.address = buffer.data();
        params.length = buffer.length();
        ucp_mem_h memory = nullptr;
        EXPECT_EQ(ucp_mem_map(context_, &params, &memory), UCS_OK);
        exposed_.push_back(memory);
        Key key{reinterpret_cast<uintptr_t>(buffer.data()), 0, {}};
        void* bytes = nullptr;
        EXPECT_EQ(ucp_rkey_pack(context_, memory, &bytes, &key.length), UCS_OK);
        std::memcpy(key.bytes.data(), bytes, key.length);
        ucp_rkey_buffer_release(bytes);
        return key;
    }
    ucp_rkey_h unpack(const Key& key) {
        ucp_rkey_h unpacked = nullptr;
        EXPECT_EQ(ucp_ep_rkey_unpack(endpoint_, key.bytes.data(), &unpacked), UCS_OK);
        return unpacked;
    }
    ucs_status_t put(const Buffer& from, size_t length, const Key& key, ucp_rkey_h unpacked) {
        return wait(ucp_put_nbx(endpoint_, from.data(), length, key.address, unpacked, &plain_));
    }
    ucs_status_t put(const Buffer& from, size_t length, const Key& key, ucp_rkey_h unpacked,
                     ucs_memory_type_t declared) {
        ucp_request_param_t params{};
        params.op_attr_mask = UCP_OP_ATTR_FIELD_MEMORY_TYPE;
        params.memory_type = declared;
        return wait(ucp_put_nbx(endpoint_, from.data(), length, key.address, unpacked, &params));
    }
    ucs_status_ptr_t begin_put(const Buffer& from, size_t offset, size_t length, uint64_t address,
                               ucp_rkey_h unpacked) {
        return ucp_put_nbx(endpoint_, from.data() + offset, length, address, unpacked, &plain_);
    }
    // Counts its end, and nobody waits for it.
    void begin_put(const Buffer& from, const Key& key, ucp_rkey_h unpacked, unsigned* ended) {
        ucp_request_param_t params{};
        params.op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
        params.cb.send = [](void* request, ucs_status_t, void* count) {
            ++*static_cast<unsigned*>(count);
            ucp_request_free(request);
        };
        params.user_data = ended;
        ASSERT_TRUE(UCS_PTR_IS_PTR(
            ucp_put_nbx(endpoint_, from.data(), from.length(), key.address, unpacked, &params)));
    }
    ucs_status_ptr_t begin_get(Buffer& to, size_t offset, size_t length, uint64_t address,
                               ucp_rkey_h unpacked) {
        return ucp_get_nbx(endpoint_, to.data() + offset, length, address, unpacked, &plain_);
    }
    ucs_status_t get(Buffer& to, size_t length, const Key& key, ucp_rkey_h unpacked) {
        return wait(ucp_get_nbx(endpoint_, to.data(), length, key.address, unpacked, &plain_));
    }
    // Without handles for the memory here.
    ucs_status_t put_list(const std::vector<void*>& from, const std::vector<size_t>& lengths,
                          const std::vector<uint64_t>& to, ucp_rkey_h unpacked) {
        std::vector<ucp_rkey_h> keys(from.size(), unpacked);
        ucp_dt_local_sgl_t local{};
        local.field_mask = UCP_DT_LOCAL_SGL_FIELD_BUFFERS | UCP_DT_LOCAL_SGL_FIELD_LENGTHS;
        local.buffers = const_cast<void**>(from.data());
        local.lengths = const_cast<size_t*>(lengths.data());
        ucp_dt_remote_sgl_t remote{};
        remote.field_mask = UCP_DT_REMOTE_SGL_FIELD_REMOTE_ADDRS | UCP_DT_REMOTE_SGL_FIELD_RKEYS;
        remote.remote_addrs = const_cast<uint64_t*>(to.data());
        remote.rkeys = keys.data();
        ucp_request_param_t params{};
        params.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REMOTE_DATATYPE |
                              UCP_OP_ATTR_FIELD_REMOTE;
        params.datatype = ucp_dt_make_sgl();
        params.remote_datatype = ucp_dt_make_sgl();
        params.remote = &remote;
        return wait(ucp_put_nbx(endpoint_, &local, from.size(), 0, nullptr, &params));
    }
    ucs_status_t flush() {
        ucp_request_param_t params{};
        return wait(ucp_ep_flush_nbx(endpoint_, &params));
    }
    void fence() { EXPECT_EQ(ucp_worker_fence(worker_), UCS_OK); }
    ucp_worker_h worker() { return worker_; }
    void progress() { ucp_worker_progress(worker_); }
    ucs_status_t wait(ucs_status_ptr_t operation) {
        if (!UCS_PTR_IS_PTR(operation)) return UCS_PTR_RAW_STATUS(operation);
        cuda_test::Waiting waiting(worker_);
        while (ucp_request_check_status(operation) == UCS_INPROGRESS) waiting.progress();
        const ucs_status_t status = ucp_request_check_status(operation);
        ucp_request_free(operation);
        return status;
    }
    ucs_status_ptr_t close(unsigned flags) {
        ucp_request_param_t params{};
        params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        params.flags = flags;
        return ucp_ep_close_nbx(std::exchange(endpoint_, nullptr), &params);
    }
    void cancel(ucs_status_ptr_t operation) { ucp_request_cancel(worker_, operation); }
    // The worker is to go with its endpoint open.
    void keep_open() { endpoint_ = nullptr; }
    bool has_failed() const { return has_failed_; }
    // Progress until the other process has said something.
    template <typename T>
    bool hear(T& value) {
        pollfd descriptor{socket_, POLLIN, 0};
        cuda_test::Waiting waiting(worker_);
        while (poll(&descriptor, 1, 0) == 0) waiting.progress();
        return read_all(socket_, value);
    }

  private:
    const int socket_;
    const ucp_request_param_t plain_{};
    ucp_context_h context_ = nullptr;
    ucp_worker_h worker_ = nullptr;
    ucp_ep_h endpoint_ = nullptr;
    bool has_failed_ = false;
    std::vector<ucp_mem_h> exposed_;
};

// Message i has i bytes more and the seed and tag i more.
void send_all(Side& side, const Command& command) {
    std::vector<std::unique_ptr<Buffer>> buffers;
    std::vector<ucs_status_ptr_t> sends;
    for (uint32_t i = 0; i < command.id; ++i) {
        buffers.push_back(std::make_unique<Buffer>(command.kind, command.length + i));
        buffers.back()->fill(command.seed + i);
    }
    // Once more when it is told to: by then their memory is mapped.
    Reply reply{UCS_OK, 1};
    for (uint32_t i = 0; i < command.id; ++i)
        sends.push_back(side.send(*buffers[i], command.length + i, command.seed + i));
    for (ucs_status_ptr_t send : sends) {
        const ucs_status_t status = side.wait(send);
        if (status != UCS_OK) reply.status = status;
    }
    sends.clear();
    write_all(kSocket, reply);
    Command again{};
    (void)side.hear(again);
    for (uint32_t i = 0; i < command.id; ++i)
        sends.push_back(side.send(*buffers[i], command.length + i, command.seed + i));
    for (ucs_status_ptr_t send : sends) {
        const ucs_status_t status = side.wait(send);
        if (status != UCS_OK) reply.status = status;
    }
    write_all(kSocket, reply);
}

// What the other process does.
int serve(bool has_device) {
    if (has_device) cuda_test::use_device(0);
    std::map<uint32_t, std::unique_ptr<Buffer>> buffers;
    Side side(kSocket);  // unmaps what is exposed before it is freed
    Command command{};
    uint64_t checks = 0;
    while (side.hear(command) && command.what != Command::What::kEnd) {
        std::unique_ptr<Buffer>& buffer = buffers[command.id];
        if (command.what == Command::What::kFree) {
            buffer.reset();
            write_all(kSocket, Reply{UCS_OK, 1});
            continue;
        }
        if (has_device) cuda_test::use_device(command.device);
        if (command.what == Command::What::kCount) {
            write_all(kSocket, Reply{UCS_OK, 1, cuda_test::calls_of("cuMemcpyAsync")});
            continue;
        }
        if (command.what == Command::What::kCalls) {
            write_all(kSocket, Reply{UCS_OK, 1});
            write_all(kSocket, Calls::now());
            continue;
        }
        if (command.what == Command::What::kFault) {
            cuda_test::set_faults(kFaults[command.seed]);
            write_all(kSocket, Reply{UCS_OK, 1});
            continue;
        }
        if (command.what == Command::What::kLook) {
            write_all(kSocket, Reply{UCS_OK, 1, memory_in_use()});
            continue;
        }
        if (command.what == Command::What::kUsed) {
            write_all(kSocket, Reply{UCS_OK, 1, used_memory()});
            continue;
        }
        if (command.what == Command::What::kSendAll) {
            send_all(side, command);
            continue;
        }
        if (buffer == nullptr) buffer = std::make_unique<Buffer>(command.kind, command.length);
        Reply reply{UCS_OK, 1};
        if (command.what == Command::What::kReceive) {
            buffer->clear();
            reply.status = side.wait(side.receive(*buffer, command.length, command.seed));
            reply.is_right = buffer->holds(command.seed, 0, command.length) ? 1 : 0;
        } else if (command.what == Command::What::kExpose) {
            buffer->fill(command.seed);
            write_all(kSocket, reply);
            write_all(kSocket, side.expose(*buffer));
            continue;
        } else if (command.what == Command::What::kCheck) {
            // Looking copies as well.
            reply.copies = cuda_test::calls_of("cuMemcpyAsync") - checks++;
            reply.is_right = buffer->holds(command.seed, 0, command.length) ? 1 : 0;
        } else {
            buffer->fill(command.seed);
            const uint64_t before = cuda_test::calls_of("cuMemcpyAsync");
            const ucs_status_ptr_t sent = side.send(*buffer, command.length, command.seed);
            if (command.what == Command::What::kSendAndDie) (void)raise(SIGKILL);
            if (command.what == Command::What::kSendAndStop) {
                write_all(kSocket, reply);
                char byte = 0;
                (void)read_all(kSocket, byte);
            }
            reply.status = side.wait(sent);
            reply.copies = cuda_test::calls_of("cuMemcpyAsync") - before;
        }
        write_all(kSocket, reply);
    }
    return 0;
}

class Peer {
  public:
    explicit Peer(const char* kind = kPeerMark) {
        int ends[2];
        EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
        posix_spawn_file_actions_t actions;
        (void)posix_spawn_file_actions_init(&actions);
        (void)posix_spawn_file_actions_adddup2(&actions, ends[1], kSocket);
        char program[] = "/proc/self/exe";
        std::string mark = kind;
        char* const arguments[] = {program, mark.data(), nullptr};
        EXPECT_EQ(posix_spawn(&process_, program, &actions, nullptr, arguments, environ), 0);
        (void)posix_spawn_file_actions_destroy(&actions);
        close(ends[1]);
        socket_ = ends[0];
        side_ = std::make_unique<Side>(socket_);
    }
    ~Peer() {
        (void)!write(socket_, &kEnd, sizeof(kEnd));
        int status = 0;
        if (side_ == nullptr) {
            kill();
            (void)waitpid(process_, &status, 0);
        } else {
            cuda_test::Waiting waiting(side_->worker());
            while (waitpid(process_, &status, WNOHANG) == 0) waiting.progress();
            side_.reset();
        }
        close(socket_);
    }
    Peer(const Peer&) = delete;
    Peer& operator=(const Peer&) = delete;

    Side& side() { return *side_; }
    void tell(const Command& command) { write_all(socket_, command); }
    Reply answer() {
        Reply reply{UCS_ERR_IO_ERROR, 0};
        (void)side_->hear(reply);
        return reply;
    }

    // The peer sends buffer `id`; what arrives in `target`.
    void send_here(Buffer& target, const Command& command, uint64_t* copies = nullptr) {
        tell(command);
        target.clear();
        ASSERT_EQ(side_->wait(side_->receive(target, command.length, command.seed)), UCS_OK);
        const Reply reply = answer();
        ASSERT_EQ(reply.status, UCS_OK);
        if (copies != nullptr) *copies = reply.copies;
        ASSERT_TRUE(target.holds(command.seed, 0, command.length));
    }
    Key expose(Kind kind, uint32_t seed, size_t length, uint32_t id) {
        tell({Command::What::kExpose, kind, 0, seed, length, id});
        (void)answer();
        Key key{};
        EXPECT_TRUE(side_->hear(key));
        return key;
    }
    Reply check(Kind kind, uint32_t seed, size_t length, uint32_t id) {
        tell({Command::What::kCheck, kind, 0, seed, length, id});
        return answer();
    }
    uint64_t memory_in_use() {
        tell({Command::What::kLook, Kind::kHeap, 0, 0, 0, 0});
        return answer().copies;
    }
    uint64_t copies() {
        tell({Command::What::kCount, Kind::kHeap, 0, 0, 0, 0});
        return answer().copies;
    }
    uint64_t used() {
        tell({Command::What::kUsed, Kind::kHeap, 0, 0, 0, 0});
        return answer().copies;
    }
    Calls calls() {
        tell({Command::What::kCalls, Kind::kHeap, 0, 0, 0, 0});
        (void)answer();
        Calls calls;
        EXPECT_TRUE(side_->hear(calls));
        return calls;
    }
    void set_faults(uint32_t which) {
        tell({Command::What::kFault, Kind::kHeap, 0, which, 0, 0});
        (void)answer();
    }
    // After kSendAndStop.
    void go_on() { write_all(socket_, char{}); }
    void kill() const { (void)::kill(process_, SIGKILL); }
    // That on this side, whatever is under way.
    void destroy_worker() {
        side_->keep_open();
        side_.reset();
    }
    void free(uint32_t id) {
        tell({Command::What::kFree, Kind::kDevice, 0, 0, 0, id});
        (void)answer();
    }

  private:
    static constexpr Command kEnd{Command::What::kEnd, Kind::kHeap, 0, 0, 0, 0};
    pid_t process_ = 0;
    int socket_ = -1;
    std::unique_ptr<Side> side_;
};

constexpr auto kSend = Command::What::kSend;
constexpr size_t kLong = 1 << 20;

class ProcessTest : public ::testing::Test {
  protected:
    void SetUp() override {
        cuda_test::use_device(0);
        peer = std::make_unique<Peer>();
    }

    // Opening a way takes time: messages go until the sender has no part in one.
    void send_until_direct(Buffer& target, Command command) {
        uint64_t copies = 1;
        for (int tries = 0; copies != 0; ++tries) {
            ASSERT_LT(tries, 1000) << "the direct way is not taken";
            ++command.seed;
            ASSERT_NO_FATAL_FAILURE(peer->send_here(target, command, &copies));
        }
    }

    // The peer sends many messages at once; all are waited for together.
    void receive_many_together(Kind from, Kind to) {
        constexpr uint32_t kMessages = 64;
        constexpr size_t kLength = 40000;
        std::vector<std::unique_ptr<Buffer>> targets;
        for (uint32_t i = 0; i < kMessages; ++i)
            targets.push_back(std::make_unique<Buffer>(to, kLength + i));
        const Command command{Command::What::kSendAll, from, 0, 50, kLength, kMessages};
        for (int round = 0; round < 2; ++round) {
            peer->tell(command);
            std::vector<ucs_status_ptr_t> receives;
            for (uint32_t i = 0; i < kMessages; ++i) {
                targets[i]->clear();
                receives.push_back(peer->side().receive(*targets[i], kLength + i, 50 + i));
            }
            for (ucs_status_ptr_t receive : receives) ASSERT_EQ(peer->side().wait(receive), UCS_OK);
            ASSERT_EQ(peer->answer().status, UCS_OK);
            for (uint32_t i = 0; i < kMessages; ++i)
                ASSERT_TRUE(targets[i]->holds(50 + i, 0, kLength + i)) << i;
        }
    }

    std::unique_ptr<Peer> peer;
    uint32_t seed = 0;
};

TEST_F(ProcessTest, BetweenAllKindsOfMemory) {
    for (const size_t length : {size_t{8}, size_t{100003}}) {
        for (const Kind from : cuda_test::kAllKinds) {
            for (const Kind to : cuda_test::kAllKinds) {
                SCOPED_TRACE(std::string(cuda_test::name_of(from)) + " to " +
                             cuda_test::name_of(to) + ", " + std::to_string(length));
                Buffer here(to, length);
                const auto id = static_cast<uint32_t>(from) + 100;
                // Staged at first, then by the way that was opened.
                for (int round = 0; round < 3; ++round) {
                    ASSERT_NO_FATAL_FAILURE(
                        peer->send_here(here, {kSend, from, 0, ++seed, length, id}));
                }
                here.fill(++seed);
                peer->tell({Command::What::kReceive, from, 0, seed, length, id});
                ASSERT_EQ(peer->side().wait(peer->side().send(here, length, seed)), UCS_OK);
                const Reply reply = peer->answer();
                ASSERT_EQ(reply.status, UCS_OK);
                ASSERT_EQ(reply.is_right, 1u);
            }
        }
        for (const Kind kind : cuda_test::kAllKinds) peer->free(static_cast<uint32_t>(kind) + 100);
    }
}

TEST_F(ProcessTest, BetweenDevicesWhateverIsCurrent) {
    const int devices = std::min(cuda_test::device_count(), 2);
    for (int from = 0; from < devices; ++from) {
        for (int to = 0; to < devices; ++to) {
            for (int current = -1; current < devices; ++current) {
                SCOPED_TRACE("device " + std::to_string(from) + " to " + std::to_string(to) +
                             ", current " + std::to_string(current));
                cuda_test::use_device(to);
                Buffer here(Kind::kDevice, kLong);
                const auto id = static_cast<uint32_t>(from);
                for (int round = 0; round < 3; ++round) {
                    const Command command{kSend, Kind::kDevice, from, ++seed, kLong, id};
                    peer->tell(command);
                    if (current < 0) {
                        (void)cuda_test::driver().context_set(nullptr);
                    } else {
                        cuda_test::use_device(current);
                    }
                    ASSERT_EQ(peer->side().wait(peer->side().receive(here, kLong, seed)), UCS_OK);
                    cuda_test::use_device(to);
                    ASSERT_EQ(peer->answer().status, UCS_OK);
                    ASSERT_TRUE(here.holds(seed));
                }
            }
        }
    }
}

TEST_F(ProcessTest, ManyThatAreReadyTogether) {
    receive_many_together(Kind::kDevice, Kind::kDevice);
}

// What lies at an address may be another allocation than the one that was mapped.
TEST_F(ProcessTest, MemoryThatIsFreedAndAllocatedAnew) {
    Buffer here(Kind::kDevice, kLong);
    for (uint32_t round = 0; round < 20; ++round) {
        for (int message = 0; message < 3; ++message) {
            ASSERT_NO_FATAL_FAILURE(
                peer->send_here(here, {kSend, Kind::kDevice, 0, ++seed, kLong, 1}));
        }
        peer->free(1);
    }
}

TEST_F(ProcessTest, AMappingIsUsedAndClosedWhenItsMemoryIsFreed) {
    if (cuda_test::is_real()) GTEST_SKIP() << "calls are counted on the stand-in only";
    Buffer here(Kind::kDevice, kLong);
    const uint64_t closed = cuda_test::calls_of("cuIpcCloseMemHandle");
    ASSERT_NO_FATAL_FAILURE(send_until_direct(here, {kSend, Kind::kDevice, 0, 1000, kLong, 1}));
    // Each is one copy here from now on, and none there.
    const uint64_t before = cuda_test::calls_of("cuMemcpyAsync");
    peer->tell({kSend, Kind::kDevice, 0, 7, kLong, 1});
    ASSERT_EQ(peer->side().wait(peer->side().receive(here, kLong, 7)), UCS_OK);
    EXPECT_EQ(cuda_test::calls_of("cuMemcpyAsync"), before + 1);
    EXPECT_EQ(peer->answer().copies, 0u);
    EXPECT_TRUE(here.holds(7));
    peer->free(1);
    while (cuda_test::calls_of("cuIpcCloseMemHandle") == closed) peer->side().progress();
}

// Each question takes the driver 0.1 us or more.
TEST_F(ProcessTest, TheDriverIsAskedSeldom) {
    if (cuda_test::is_real()) GTEST_SKIP() << "calls are counted on the stand-in only";
    constexpr uint64_t kOperations = 50;
    const auto questions = [] { return cuda_test::calls_of("one of cuPointerGetAttributes"); };
    // While the worker makes progress it also looks for what was freed, every 20 ms.
    uint64_t before = 0;
    std::chrono::steady_clock::time_point start;
    const auto begin = [&] {
        before = questions();
        start = std::chrono::steady_clock::now();
    };
    const auto expect_at_most = [&](uint64_t each) {
        const auto looks =
            (std::chrono::steady_clock::now() - start) / std::chrono::milliseconds(20);
        EXPECT_LE(questions() - before,
                  kOperations * each + 5 * (static_cast<uint64_t>(looks) + 1));
    };
    Buffer here(Kind::kDevice, kLong);
    ASSERT_NO_FATAL_FAILURE(send_until_direct(here, {kSend, Kind::kDevice, 0, 1000, kLong, 1}));
    begin();
    for (uint64_t i = 0; i < kOperations; ++i) {
        peer->tell({kSend, Kind::kDevice, 0, 7, kLong, 1});
        ASSERT_EQ(peer->side().wait(peer->side().receive(here, kLong, 7)), UCS_OK);
        EXPECT_EQ(peer->answer().copies, 0u);
    }
    expect_at_most(1);

    begin();
    for (uint64_t i = 0; i < kOperations; ++i) {
        peer->tell({Command::What::kReceive, Kind::kDevice, 0, 7, kLong, 2});
        ASSERT_EQ(peer->side().wait(peer->side().send(here, kLong, 7)), UCS_OK);
        (void)peer->answer();
    }
    expect_at_most(1);

    const Key key = peer->expose(Kind::kDevice, ++seed, kLong, 3);
    ucp_rkey_h unpacked = peer->side().unpack(key);
    for (int i = 0; i < 100; ++i) ASSERT_EQ(peer->side().put(here, kLong, key, unpacked), UCS_OK);
    begin();
    for (uint64_t i = 0; i < kOperations; ++i)
        ASSERT_EQ(peer->side().put(here, kLong, key, unpacked), UCS_OK);
    expect_at_most(1);

    // Not at all while another operation works on the allocation.
    Buffer pieces(Kind::kDevice, kOperations * kLong);
    ASSERT_EQ(peer->side().put(pieces, kLong, key, unpacked), UCS_OK);
    begin();
    std::vector<void*> puts;
    for (uint64_t i = 0; i < kOperations; ++i) {
        puts.push_back(peer->side().begin_put(pieces, i * kLong, kLong, key.address, unpacked));
    }
    EXPECT_EQ(questions() - before, 1u);
    for (void* put : puts) ASSERT_EQ(peer->side().wait(put), UCS_OK);
    ucp_rkey_destroy(unpacked);
}

// What a device still does for a worker that is destroyed: it waits for that, and the request ends.
TEST_F(ProcessTest, PutsEndWithTheirWorker) {
    constexpr size_t kLength = 16 << 20;
    Buffer here(Kind::kDevice, kLength);
    const Key key = peer->expose(Kind::kDevice, ++seed, kLength, 1);
    ucp_rkey_h unpacked = peer->side().unpack(key);
    for (int i = 0; i < 100; ++i) ASSERT_EQ(peer->side().put(here, 8, key, unpacked), UCS_OK);
    here.fill(++seed);
    unsigned ended = 0;
    peer->side().begin_put(here, key, unpacked, &ended);
    ucp_rkey_destroy(unpacked);
    EXPECT_EQ(ended, 0u);
    peer->destroy_worker();
    EXPECT_EQ(ended, 1u);
}

// Between two memories of which no other process opens either: through windows of the receiver's
// device, which the sender's writes to.
class RelayTest : public ProcessTest {
  protected:
    void SetUp() override {
        ProcessTest::SetUp();
        if (cuda_test::is_real()) GTEST_SKIP() << "copies are counted on the stand-in only";
        const char* const transports = std::getenv("UCX_TLS");
        if (transports == nullptr || std::string(transports).find("sm") == std::string::npos)
            GTEST_SKIP() << "devices reach each other within a host";
    }
    // A message of the peer's. @return the copies that both have begun for it
    uint64_t copies_of(Buffer& here, const Command& command) {
        const uint64_t before = cuda_test::calls_of("cuMemcpyAsync") + 2;  // clears and looks
        uint64_t there = 0;
        peer->send_here(here, command, &there);
        return cuda_test::calls_of("cuMemcpyAsync") - before + there;
    }
    // There is memory to write to, and a way to it.
    void send_until_relayed(Buffer& here, Command command) {
        for (int tries = 0; tries < 1000; ++tries) {
            ++command.seed;
            const uint64_t copies = copies_of(here, command);
            if (HasFatalFailure()) return;
            if (copies == copies_when_relayed(command.length)) return;
        }
        FAIL() << "messages do not go by windows";
    }
    // Of each part two, into the window and out of it. No four wait together, which would go by one
    // kernel: a sender has three windows.
    static uint64_t copies_when_relayed(size_t length) {
        const size_t windows = (length + kWindow - 1) / kWindow;
        return 2 * std::max(windows, std::clamp<size_t>(length >> 20, 1, 3));
    }
    static constexpr size_t kWindow = 4 << 20;
};

TEST_F(RelayTest, NoByteOfMemoryThatOthersCannotOpenIsStaged) {
    const auto relay = [&](Kind from, Kind to, size_t length) {
        SCOPED_TRACE(std::string(cuda_test::name_of(from)) + " to " + cuda_test::name_of(to) +
                     ", " + std::to_string(length));
        Buffer here(to, length);
        const Command command{kSend, from, 0, seed += 1000, length, 1};
        ASSERT_NO_FATAL_FAILURE(send_until_relayed(here, command));
        EXPECT_EQ(copies_of(here, command), copies_when_relayed(length));
        peer->free(1);
    };
    constexpr Kind kKinds[] = {Kind::kPool, Kind::kVirtual, Kind::kManaged};
    for (const Kind from : kKinds) {
        for (const Kind to : kKinds) ASSERT_NO_FATAL_FAILURE(relay(from, to, 4'000'001));
    }
    ASSERT_NO_FATAL_FAILURE(relay(Kind::kPool, Kind::kPool, 100'000));
    ASSERT_NO_FATAL_FAILURE(relay(Kind::kPool, Kind::kPool, kLong));
    ASSERT_NO_FATAL_FAILURE(relay(Kind::kPool, Kind::kPool, 40'000'000));
}

// Windows, and whatever else: docs/gpu.md names the sum.
TEST_F(RelayTest, AtMost32MiBOfADeviceAreTaken) {
    Buffer here(Kind::kPool, 4'000'000);
    const auto send = [&] {
        here.fill(++seed);
        peer->tell({Command::What::kReceive, Kind::kPool, 0, seed, here.length(), 1});
        ASSERT_EQ(peer->side().wait(peer->side().send(here, here.length(), seed)), UCS_OK);
        ASSERT_EQ(peer->answer().is_right, 1u);
    };
    peer->tell({Command::What::kReceive, Kind::kPool, 0, seed, here.length(), 1});
    ASSERT_EQ(peer->side().wait(peer->side().send(here, 8, seed)), UCS_OK);
    (void)peer->answer();
    const uint64_t before = peer->used();
    while (peer->used() == before) ASSERT_NO_FATAL_FAILURE(send());
    for (int i = 0; i < 5; ++i) ASSERT_NO_FATAL_FAILURE(send());
    EXPECT_LE(peer->used() - before, uint64_t{32} << 20);
}

TEST_F(RelayTest, TruncatedMessagesAndUnexpectedOnes) {
    constexpr size_t kLength = 3'000'000;
    Buffer here(Kind::kPool, kLength);
    const Command command{kSend, Kind::kPool, 0, seed += 1000, kLength, 1};
    ASSERT_NO_FATAL_FAILURE(send_until_relayed(here, command));
    here.clear();
    peer->tell({kSend, Kind::kPool, 0, 1, kLength, 1});
    EXPECT_EQ(peer->side().wait(peer->side().receive(here, 2'000'000, 1)),
              UCS_ERR_MESSAGE_TRUNCATED);
    EXPECT_EQ(peer->answer().status, UCS_OK);
    peer->tell({kSend, Kind::kPool, 0, 2, kLength, 1});
    for (int i = 0; i < 1000; ++i) peer->side().progress();
    EXPECT_EQ(peer->side().wait(peer->side().receive(here, kLength, 2)), UCS_OK);
    EXPECT_EQ(peer->answer().status, UCS_OK);
    EXPECT_TRUE(here.holds(2));
}

// They take turns at the sender's windows.
TEST_F(RelayTest, ManyAtATime) {
    Buffer here(Kind::kPool, kLong);
    ASSERT_NO_FATAL_FAILURE(
        send_until_relayed(here, {kSend, Kind::kPool, 0, seed += 1000, kLong, 1}));
    for (const size_t length : {size_t{100'000}, size_t{5'000'000}}) {
        constexpr uint32_t kMessages = 20;
        std::vector<std::unique_ptr<Buffer>> targets;
        for (uint32_t i = 0; i < kMessages; ++i)
            targets.push_back(std::make_unique<Buffer>(Kind::kPool, length + i));
        peer->tell({Command::What::kSendAll, Kind::kPool, 0, 50, length, kMessages});
        for (int round = 0; round < 2; ++round) {
            std::vector<ucs_status_ptr_t> receives;
            for (uint32_t i = 0; i < kMessages; ++i)
                receives.push_back(peer->side().receive(*targets[i], length + i, 50 + i));
            const uint64_t before =
                cuda_test::calls_of("cuMemcpyAsync") + cuda_test::calls_of("cuLaunchKernel");
            for (ucs_status_ptr_t receive : receives) ASSERT_EQ(peer->side().wait(receive), UCS_OK);
            // In the first round the sender may have no way yet to windows that it has not used.
            if (round == 1) {
                EXPECT_LE(
                    cuda_test::calls_of("cuMemcpyAsync") + cuda_test::calls_of("cuLaunchKernel"),
                    before + kMessages * copies_when_relayed(length + kMessages) / 2);
            }
            ASSERT_EQ(peer->answer().status, UCS_OK);
            for (uint32_t i = 0; i < kMessages; ++i) {
                ASSERT_TRUE(targets[i]->holds(50 + i)) << i;
                targets[i]->clear();
            }
            if (round == 0) peer->tell({kSend, Kind::kPool, 0, 0, 8, 2});
        }
    }
}

// One peer fills no windows, as it makes no progress: another one's messages go on.
TEST_F(RelayTest, APeerThatWaitsKeepsNobodyWaiting) {
    Peer other;
    Buffer here(Kind::kPool, 3'000'000), there(Kind::kPool, 3'000'000);
    ASSERT_NO_FATAL_FAILURE(
        send_until_relayed(here, {kSend, Kind::kPool, 0, seed += 1000, here.length(), 1}));
    other.tell({Command::What::kSendAndStop, Kind::kPool, 0, 5, here.length(), 1});
    (void)other.answer();
    ucs_status_ptr_t waits = other.side().receive(there, there.length(), 5);
    for (int i = 0; i < 20; ++i) {
        other.side().progress();
        ASSERT_NO_FATAL_FAILURE(
            peer->send_here(here, {kSend, Kind::kPool, 0, seed += 3, 1'000'000, 2}));
    }
    other.go_on();
    EXPECT_EQ(other.side().wait(waits), UCS_OK);
    EXPECT_TRUE(there.holds(5));
    EXPECT_EQ(other.answer().status, UCS_OK);
}

// Who has windows leaves as many to others: three that fill none of theirs do not keep a fourth
// one's messages from going that way.
TEST_F(RelayTest, ManySendersShareTheWindows) {
    constexpr size_t kLength = 4'000'000;
    Buffer here(Kind::kPool, kLength);
    ASSERT_NO_FATAL_FAILURE(
        send_until_relayed(here, {kSend, Kind::kPool, 0, seed += 1000, kLong, 1}));
    std::array<Peer, 3> others;
    std::vector<std::unique_ptr<Buffer>> targets;
    std::vector<ucs_status_ptr_t> receives;
    for (Peer& other : others) {
        ASSERT_NO_FATAL_FAILURE(other.send_here(here, {kSend, Kind::kPool, 0, 1, kLength, 1}));
        other.tell({Command::What::kSendAndStop, Kind::kPool, 0, 5, kLength, 1});
        (void)other.answer();
        targets.push_back(std::make_unique<Buffer>(Kind::kPool, kLength));
        receives.push_back(other.side().receive(*targets.back(), kLength, 5));
        for (int i = 0; i < 1000; ++i) other.side().progress();
    }
    const Command command{kSend, Kind::kPool, 0, seed += 1000, kLong, 1};
    ASSERT_NO_FATAL_FAILURE(send_until_relayed(here, command));
    EXPECT_EQ(copies_of(here, command), copies_when_relayed(kLong));
    for (size_t i = 0; i < others.size(); ++i) {
        others[i].go_on();
        EXPECT_EQ(others[i].side().wait(receives[i]), UCS_OK);
        EXPECT_TRUE(targets[i]->holds(5));
        EXPECT_EQ(others[i].answer().status, UCS_OK);
    }
}

// What the sender's device cannot do comes staged.
TEST_F(RelayTest, WhatCannotBeWrittenIsStaged) {
    Buffer here(Kind::kPool, 3'000'000);
    peer->set_faults(2);  // no way is opened
    for (int i = 0; i < 20; ++i) {
        ASSERT_NO_FATAL_FAILURE(
            peer->send_here(here, {kSend, Kind::kPool, 0, ++seed, here.length(), 1}));
    }
    peer->set_faults(0);
}

// Before it has written anything, at its first parts, at the last ones: the receive ends, and what
// was lent to the sender is used no more.
TEST_F(RelayTest, SendersThatDie) {
    constexpr size_t kLength = 4'000'000;
    for (uint64_t round = 0; round < 4; ++round) {
        SCOPED_TRACE(round);
        Buffer here(Kind::kPool, kLength);
        ASSERT_NO_FATAL_FAILURE(
            send_until_relayed(here, {kSend, Kind::kPool, 0, seed += 1000, kLength, 1}));
        const auto what = round == 0 ? Command::What::kSendAndStop : kSend;
        peer->tell({what, Kind::kPool, 0, 5, kLength, 1});
        if (round == 0) (void)peer->answer();
        ucs_status_ptr_t receive = peer->side().receive(here, kLength, 5);
        const uint64_t before = cuda_test::calls_of("cuMemcpyAsync");
        while (cuda_test::calls_of("cuMemcpyAsync") < before + round) peer->side().progress();
        for (int i = 0; i < 100; ++i) peer->side().progress();
        peer->kill();
        const ucs_status_t status = peer->side().wait(receive);
        EXPECT_TRUE(status == UCS_OK || peer->side().has_failed()) << ucs_status_string(status);
        peer = std::make_unique<Peer>();
    }
}

// Windows that are written and emptied while the worker is destroyed: others get them again.
TEST_F(RelayTest, WorkersThatAreDestroyedLoseNoWindows) {
    constexpr size_t kLength = 8'000'000;
    Buffer here(Kind::kPool, kLength);
    for (int round = 0; round < 9; ++round) {
        SCOPED_TRACE(round);
        ASSERT_NO_FATAL_FAILURE(
            send_until_relayed(here, {kSend, Kind::kPool, 0, seed += 1000, kLength, 1}));
        peer->tell({kSend, Kind::kPool, 0, 5, kLength, 1});
        ucs_status_ptr_t receive = peer->side().receive(here, kLength, 5);
        const uint64_t before = cuda_test::calls_of("cuMemcpyAsync");
        while (cuda_test::calls_of("cuMemcpyAsync") < before + 1) peer->side().progress();
        ucp_request_free(receive);
        peer->destroy_worker();
        peer = std::make_unique<Peer>();
    }
}

// Whatever kind of memory it is: when it is known, nothing is made, opened or registered for a
// message. Prints what the driver is asked for each.
TEST_F(ProcessTest, KnownMemoryIsSetUpOnce) {
    if (cuda_test::is_real()) GTEST_SKIP() << "calls are counted on the stand-in only";
    constexpr uint64_t kMessages = 50;
    const auto print = [](const char* operation, Kind kind, const char* end, const Calls& calls) {
        const auto each = [](uint64_t count) {
            return static_cast<double>(count) / static_cast<double>(kMessages);
        };
        std::printf("%-4s %-14s %-9s %6.2f questions %6.2f contexts %6.2f copies %6.2f set up\n",
                    operation, cuda_test::name_of(kind), end, each(calls.questions),
                    each(calls.contexts), each(calls.copies), each(calls.set_up));
    };
    for (const Kind kind : cuda_test::kAllKinds) {
        if (kind == Kind::kHeap || kind == Kind::kRegistered) continue;
        SCOPED_TRACE(cuda_test::name_of(kind));
        Buffer here(kind, kLong);
        const auto id = static_cast<uint32_t>(kind) + 200;
        const auto tag = [&] {
            peer->tell({kSend, kind, 0, ++seed, kLong, id});
            ASSERT_EQ(peer->side().wait(peer->side().receive(here, kLong, seed)), UCS_OK);
            ASSERT_EQ(peer->answer().status, UCS_OK);
        };
        const Key key = peer->expose(kind, ++seed, kLong, id + 100);
        ucp_rkey_h unpacked = peer->side().unpack(key);
        const auto put = [&] {
            ASSERT_EQ(peer->side().put(here, kLong, key, unpacked), UCS_OK);
            ASSERT_EQ(peer->side().flush(), UCS_OK);
        };
        const auto expect_nothing_set_up = [&](const char* operation, const auto& message) {
            for (int i = 0; i < 50; ++i) ASSERT_NO_FATAL_FAILURE(message());
            const Calls mine = Calls::now(), its = peer->calls();
            for (uint64_t i = 0; i < kMessages; ++i) ASSERT_NO_FATAL_FAILURE(message());
            const Calls here_now = Calls::now() - mine, there_now = peer->calls() - its;
            print(operation, kind, "here", here_now);
            print(operation, kind, "there", there_now);
            EXPECT_EQ(here_now.set_up, 0u) << operation;
            EXPECT_EQ(there_now.set_up, 0u) << operation;
        };
        ASSERT_NO_FATAL_FAILURE(expect_nothing_set_up("tag", tag));
        ASSERT_NO_FATAL_FAILURE(expect_nothing_set_up("put", put));
        ucp_rkey_destroy(unpacked);
        peer->free(id);
        peer->free(id + 100);
    }
}

// Virtual memory and pools that were made to be shared.
TEST_F(ProcessTest, SharedMemoryIsMappedAndClosedWhenItIsFreed) {
    if (cuda_test::is_real()) GTEST_SKIP() << "calls are counted on the stand-in only";
    struct Case {
        Kind kind;
        const char* close;
    };
    constexpr Case kCases[] = {{Kind::kSharedVirtual, "cuMemUnmap"},
                               {Kind::kSharedPool, "cuMemFreeAsync"}};
    Buffer here(Kind::kDevice, kLong);
    for (const auto [kind, close] : kCases) {
        SCOPED_TRACE(cuda_test::name_of(kind));
        const auto id = static_cast<uint32_t>(kind);
        seed += 1000;
        const uint64_t closed = cuda_test::calls_of(close);
        ASSERT_NO_FATAL_FAILURE(send_until_direct(here, {kSend, kind, 0, seed, kLong, id}));
        seed += 1000;
        const uint64_t before = cuda_test::calls_of("cuMemcpyAsync");
        peer->tell({kSend, kind, 0, ++seed, kLong, id});
        ASSERT_EQ(peer->side().wait(peer->side().receive(here, kLong, seed)), UCS_OK);
        EXPECT_EQ(cuda_test::calls_of("cuMemcpyAsync"), before + 1);
        EXPECT_EQ(peer->answer().copies, 0u);
        EXPECT_TRUE(here.holds(seed));
        EXPECT_EQ(cuda_test::calls_of(close), closed);
        peer->free(id);
        while (cuda_test::calls_of(close) == closed) peer->side().progress();
    }
}

TEST_F(ProcessTest, SharedMemoryThatIsFreedComesBack) {
    const bool is_real = cuda_test::is_real();
    const size_t length = is_real ? 4 << 20 : 65536;
    Buffer here(Kind::kDevice, length);
    for (const Kind kind : {Kind::kDevice, Kind::kSharedVirtual, Kind::kSharedPool}) {
        SCOPED_TRACE(cuda_test::name_of(kind));
        const auto round = [&] {
            for (int message = 0; message < 4; ++message) {
                ASSERT_NO_FATAL_FAILURE(peer->send_here(here, {kSend, kind, 0, ++seed, length, 1}));
            }
            peer->free(1);
        };
        ASSERT_NO_FATAL_FAILURE(round());
        const uint64_t mine = memory_in_use(), theirs = peer->memory_in_use();
        for (int i = 0; i < 30; ++i) ASSERT_NO_FATAL_FAILURE(round());
        // A mapping or two may still be on its way to be closed; those of 30 rounds are not.
        const uint64_t most = is_real ? 2 * length : 12;
        for (int tries = 0; memory_in_use() > mine + most; ++tries) {
            ASSERT_LT(tries, 10000) << memory_in_use() << " in use, before " << mine;
            peer->side().progress();
        }
        for (int tries = 0; peer->memory_in_use() > theirs + most; ++tries)
            ASSERT_LT(tries, 10000) << peer->memory_in_use() << " in use, before " << theirs;
    }
}

// A mapping takes the driver the longer the larger the allocation is: no message waits for it.
TEST_F(ProcessTest, TheFirstMessagesOfALargeAllocationWaitForNoMapping) {
    using Clock = std::chrono::steady_clock;
    constexpr size_t kMessage = 8192;
    constexpr int kAllocations = 5;
    const size_t size = cuda_test::is_real() ? size_t{16} << 30 : kLong;
    const auto& driver = cuda_test::driver();
    // What the pair of processes needs by itself.
    Buffer small(Kind::kDevice, kMessage);
    const Command send{kSend, Kind::kDevice, 0, 7, kMessage, 1};
    for (int i = 0; i < 4; ++i) ASSERT_NO_FATAL_FAILURE(peer->send_here(small, send));
    std::vector<double> in, out;
    for (int i = 0; i < kAllocations; ++i) {
        uct::cuda::abi::DevicePointer memory = 0;
        ASSERT_EQ(driver.memory_allocate(&memory, size), uct::cuda::abi::kSuccess);
        const auto time = [&](const auto& message) {
            const auto start = Clock::now();
            message();
            return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
        };
        auto* const place = reinterpret_cast<void*>(memory + size - kMessage);
        in.push_back(time([&] {
            peer->tell(send);
            ASSERT_EQ(peer->side().wait(peer->side().receive(place, kMessage, 7)), UCS_OK);
        }));
        ASSERT_EQ(peer->answer().status, UCS_OK);
        peer->tell({Command::What::kReceive, Kind::kDevice, 0, 7, kMessage, 1});
        out.push_back(time(
            [&] { ASSERT_EQ(peer->side().wait(peer->side().send(place, kMessage, 7)), UCS_OK); }));
        ASSERT_EQ(peer->answer().is_right, 1u);
        ASSERT_EQ(driver.memory_free(memory), uct::cuda::abi::kSuccess);
    }
    std::ranges::sort(in);
    std::ranges::sort(out);
    std::printf("first message of an allocation of %zu MiB: into it %.0f us, out of it %.0f us\n",
                size >> 20, in[kAllocations / 2], out[kAllocations / 2]);
    constexpr double kMaxTime = 1000;
    EXPECT_TRUE(!cuda_test::is_real() || in[kAllocations / 2] < kMaxTime);
    EXPECT_TRUE(!cuda_test::is_real() || out[kAllocations / 2] < kMaxTime);
}

TEST_F(ProcessTest, SharedMemoryThatCannotBeOpenedIsStaged) {
    if (cuda_test::is_real()) GTEST_SKIP() << "faults are injected on the stand-in only";
    Buffer here(Kind::kDevice, kLong);
    for (const char* fault : {"cuMemImportFromShareableHandle:999", "cuMemAddressReserve:2",
                              "cuMemSetAccess:1", "cuMemPoolImportFromShareableHandle:999",
                              "cuMemPoolSetAccess:1", "cuMemPoolImportPointer:1"}) {
        SCOPED_TRACE(fault);
        cuda_test::set_faults(fault);
        for (const Kind kind : {Kind::kSharedVirtual, Kind::kSharedPool}) {
            const auto id = static_cast<uint32_t>(kind);
            for (int message = 0; message < 4; ++message)
                ASSERT_NO_FATAL_FAILURE(peer->send_here(here, {kSend, kind, 0, ++seed, kLong, id}));
            peer->free(id);
        }
    }
    cuda_test::set_faults("cuMemRetainAllocationHandle:1,cuMemPoolExportPointer:1");
    for (const Kind kind : {Kind::kSharedVirtual, Kind::kSharedPool}) {
        Buffer mine(kind, kLong);
        mine.fill(++seed);
        peer->tell({Command::What::kReceive, Kind::kHeap, 0, seed, kLong, 1});
        ASSERT_EQ(peer->side().wait(peer->side().send(mine, kLong, seed)), UCS_OK);
        ASSERT_EQ(peer->answer().is_right, 1u);
    }
    cuda_test::set_faults("");
}

// Other threads free what they have while handles are made of what the program hands over.
TEST_F(ProcessTest, SharedMemoryBesideFreesOfOtherThreads) {
    std::atomic<bool> is_over = false;
    std::thread other([&] {
        cuda_test::use_device(0);
        while (!is_over) {
            const Buffer one(Kind::kSharedVirtual, 100), two(Kind::kDevice, 100);
            const Buffer three(Kind::kSharedPool, 100);
        }
    });
    for (int i = 0; i < 50; ++i) {
        for (const Kind kind : {Kind::kSharedVirtual, Kind::kSharedPool}) {
            Buffer mine(kind, 10000);
            mine.fill(++seed);
            peer->tell({Command::What::kReceive, Kind::kDevice, 0, seed, 10000, 1});
            EXPECT_EQ(peer->side().wait(peer->side().send(mine, 10000, seed)), UCS_OK);
            EXPECT_EQ(peer->answer().is_right, 1u);
        }
    }
    is_over = true;
    other.join();
}

// With UCX_CUDA_RESIDENT=y.
TEST_F(ProcessTest, ResidentCopiesTakeNoCallOfTheDriver) {
    const char* const wish = std::getenv("UCX_CUDA_RESIDENT");
    if (cuda_test::is_real() || wish == nullptr || *wish != 'y')
        GTEST_SKIP() << "calls are counted on the stand-in only, with UCX_CUDA_RESIDENT=y";
    Buffer here(Kind::kDevice, 8000);
    ASSERT_NO_FATAL_FAILURE(send_until_direct(here, {kSend, Kind::kDevice, 0, 1000, 8000, 1}));
    uint64_t calls = 1;
    for (int tries = 0; calls != 0; ++tries) {
        ASSERT_LT(tries, 1000) << "no copy goes to the resident kernel";
        const auto count = [] {
            return cuda_test::calls_of("cuMemcpyAsync") + cuda_test::calls_of("cuLaunchKernel");
        };
        peer->tell({kSend, Kind::kDevice, 0, ++seed, 8000, 1});
        const uint64_t before = count();
        ASSERT_EQ(peer->side().wait(peer->side().receive(here, 8000, seed)), UCS_OK);
        calls = count() - before;
        EXPECT_EQ(peer->answer().copies, 0u);
        EXPECT_TRUE(here.holds(seed));
    }
    // What the kernel has not taken is copied otherwise.
    cuda_test::set_faults("resident:1");
    for (int message = 0; message < 10; ++message)
        ASSERT_NO_FATAL_FAILURE(peer->send_here(here, {kSend, Kind::kDevice, 0, ++seed, 8000, 1}));
    cuda_test::set_faults("");
}

TEST_F(ProcessTest, ShortMessagesGoDirectlyOnceTheirMemoryIsMapped) {
    if (cuda_test::is_real()) GTEST_SKIP() << "calls are counted on the stand-in only";
    Buffer here(Kind::kDevice, 100);
    ASSERT_NO_FATAL_FAILURE(send_until_direct(here, {kSend, Kind::kDevice, 0, 2000, 100, 1}));
    uint64_t copies = 1;
    ASSERT_NO_FATAL_FAILURE(
        peer->send_here(here, {kSend, Kind::kDevice, 0, ++seed, 100, 1}, &copies));
    EXPECT_EQ(copies, 0u);
}

// What cannot be read by the receiver's device is written by the sender's, in so many copies.
TEST_F(ProcessTest, MemoryThatNobodyCanOpenIsWrittenByItsOwnersDevice) {
    if (cuda_test::is_real()) GTEST_SKIP() << "calls are counted on the stand-in only";
    struct Case {
        Kind kind;
        uint64_t copies;
    };
    constexpr Case kCases[] = {
        {Kind::kPinned, 1}, {Kind::kRegistered, 1}, {Kind::kHeap, 4}, {Kind::kPool, 1}};
    Buffer here(Kind::kDevice, kLong);
    for (const auto [kind, copies] : kCases) {
        SCOPED_TRACE(cuda_test::name_of(kind));
        const auto id = static_cast<uint32_t>(kind);
        uint64_t here_copies = 1, there_copies = 0;
        for (int tries = 0; here_copies != 0; ++tries) {
            ASSERT_LT(tries, 1000) << "the receiver's memory is not written";
            const Command command{kSend, kind, 0, ++seed, kLong, id};
            peer->tell(command);
            here.clear();
            const uint64_t before = cuda_test::calls_of("cuMemcpyAsync");
            ASSERT_EQ(peer->side().wait(peer->side().receive(here, kLong, seed)), UCS_OK);
            here_copies = cuda_test::calls_of("cuMemcpyAsync") - before;
            const Reply reply = peer->answer();
            ASSERT_EQ(reply.status, UCS_OK);
            there_copies = reply.copies;
            ASSERT_TRUE(here.holds(seed));
        }
        EXPECT_EQ(there_copies, copies);
    }
}

TEST_F(ProcessTest, PutsAndGetsOfAllKindsOfMemory) {
    constexpr size_t kLength = 100003;
    for (const Kind there : cuda_test::kAllKinds) {
        const auto id = static_cast<uint32_t>(there);
        const Key key = peer->expose(there, ++seed, kLength, id);
        ucp_rkey_h unpacked = peer->side().unpack(key);
        for (const Kind kind : cuda_test::kAllKinds) {
            SCOPED_TRACE(std::string(cuda_test::name_of(kind)) + " and there " +
                         cuda_test::name_of(there));
            Buffer here(kind, kLength);
            for (int round = 0; round < 3; ++round) {
                here.fill(++seed);
                ASSERT_EQ(peer->side().put(here, kLength, key, unpacked), UCS_OK);
                ASSERT_EQ(peer->side().flush(), UCS_OK);
                ASSERT_EQ(peer->check(there, seed, kLength, id).is_right, 1u);
                here.clear();
                ASSERT_EQ(peer->side().get(here, kLength, key, unpacked), UCS_OK);
                ASSERT_TRUE(here.holds(seed));
            }
        }
        ucp_rkey_destroy(unpacked);
    }
}

TEST_F(ProcessTest, PutsAndGetsAreDevicesCopiesOnceMemoryIsMapped) {
    if (cuda_test::is_real()) GTEST_SKIP() << "calls are counted on the stand-in only";
    const Key key = peer->expose(Kind::kDevice, ++seed, kLong, 1);
    ucp_rkey_h unpacked = peer->side().unpack(key);
    Buffer here(Kind::kDevice, kLong);
    here.fill(++seed);
    uint64_t theirs = 1;
    for (int tries = 0; theirs != 0; ++tries) {
        ASSERT_LT(tries, 1000) << "the direct way is not taken";
        const uint64_t before = peer->check(Kind::kDevice, seed, kLong, 1).copies;
        ASSERT_EQ(peer->side().put(here, kLong, key, unpacked), UCS_OK);
        const Reply reply = peer->check(Kind::kDevice, seed, kLong, 1);
        ASSERT_EQ(reply.is_right, 1u);
        theirs = reply.copies - before;
    }
    const uint64_t before = cuda_test::calls_of("cuMemcpyAsync");
    const uint64_t questions = cuda_test::calls_of("cuPointerGetAttributes");
    ASSERT_EQ(peer->side().put(here, kLong, key, unpacked), UCS_OK);
    EXPECT_EQ(cuda_test::calls_of("cuMemcpyAsync"), before + 1);
    EXPECT_EQ(cuda_test::calls_of("cuPointerGetAttributes"), questions)
        << "all is asked again of memory that is known";
    ASSERT_EQ(peer->side().get(here, kLong, key, unpacked), UCS_OK);
    EXPECT_EQ(cuda_test::calls_of("cuMemcpyAsync"), before + 2);
    EXPECT_TRUE(here.holds(seed));

    // Many pieces take a kernel for each part of the list, of 1024, 2048, 4096 and then 8192 of
    // them, and one copy for each long piece.
    constexpr size_t kPieces = 20000;
    constexpr size_t kPiece = 50, kEnd = kPieces * kPiece;
    here.fill(++seed);
    std::vector<void*> from;
    std::vector<size_t> lengths;
    std::vector<uint64_t> to;
    for (size_t i = 0; i < kPieces; ++i) {
        from.push_back(here.data() + i * kPiece);
        lengths.push_back(kPiece);
        to.push_back(key.address + i * kPiece);
    }
    from.push_back(here.data() + kEnd);
    lengths.push_back(kLong - kEnd);
    to.push_back(key.address + kEnd);
    const uint64_t copies = cuda_test::calls_of("cuMemcpyAsync");
    const uint64_t kernels = cuda_test::calls_of("cuLaunchKernel");
    ASSERT_EQ(peer->side().put_list(from, lengths, to, unpacked), UCS_OK);
    EXPECT_EQ(cuda_test::calls_of("cuMemcpyAsync"), copies);
    EXPECT_EQ(cuda_test::calls_of("cuLaunchKernel"), kernels + 5);
    EXPECT_EQ(peer->check(Kind::kDevice, seed, kLong, 1).is_right, 1u);

    // An empty one, and one that a device does not copy by itself, may stand among them.
    Buffer heap(Kind::kHeap, kLong);
    here.fill(++seed);
    heap.fill(seed);
    from[7] = heap.data() + 7 * kPiece;
    from.insert(from.begin() + 100, here.data());
    lengths.insert(lengths.begin() + 100, 0);
    to.insert(to.begin() + 100, key.address);
    ASSERT_EQ(peer->side().put_list(from, lengths, to, unpacked), UCS_OK);
    EXPECT_EQ(peer->check(Kind::kDevice, seed, kLong, 1).is_right, 1u);

    // The owner knows that the memory is mapped: it is told of the end.
    const uint64_t closed = cuda_test::calls_of("cuIpcCloseMemHandle");
    ucp_rkey_destroy(unpacked);
    peer->free(1);
    while (cuda_test::calls_of("cuIpcCloseMemHandle") == closed) peer->side().progress();
}

TEST_F(ProcessTest, AnEndpointThatIsClosedWhileDevicesCopy) {
    for (const unsigned flags : {0u, unsigned{UCP_EP_CLOSE_FLAG_FORCE}}) {
        peer = std::make_unique<Peer>();
        const Key key = peer->expose(Kind::kDevice, ++seed, kLong, 1);
        ucp_rkey_h unpacked = peer->side().unpack(key);
        Buffer here(Kind::kDevice, kLong);
        here.fill(++seed);
        for (int i = 0; i < 100; ++i)
            ASSERT_EQ(peer->side().put(here, kLong, key, unpacked), UCS_OK);
        std::vector<ucs_status_ptr_t> operations;
        for (int each = 0; each < 40; ++each) {
            operations.push_back(
                each % 2 == 0 ? peer->side().begin_put(here, 0, kLong, key.address, unpacked)
                              : peer->side().begin_get(here, 0, kLong, key.address, unpacked));
        }
        ucp_rkey_destroy(unpacked);
        EXPECT_EQ(peer->side().wait(peer->side().close(flags)), UCS_OK);
        peer->side().progress();
        for (ucs_status_ptr_t each : operations) {
            const bool has_ended =
                !UCS_PTR_IS_PTR(each) || ucp_request_check_status(each) != UCS_INPROGRESS;
            EXPECT_TRUE(has_ended) << flags;
            const ucs_status_t status = peer->side().wait(each);
            EXPECT_TRUE(status == UCS_OK || flags != 0) << ucs_status_string(status);
        }
        EXPECT_EQ(peer->check(Kind::kDevice, seed, kLong, 1).is_right, 1u);
    }
}

// What a program says of its memory is checked on each way.
TEST_F(ProcessTest, PutsWithADeclaredType) {
    const Key key = peer->expose(Kind::kDevice, ++seed, kLong, 1);
    ucp_rkey_h unpacked = peer->side().unpack(key);
    Buffer here(Kind::kDevice, kLong);
    here.fill(++seed);
    for (int i = 0; i < 100; ++i) {
        ASSERT_EQ(peer->side().put(here, kLong, key, unpacked, UCS_MEMORY_TYPE_CUDA), UCS_OK);
        ASSERT_EQ(peer->side().put(here, kLong, key, unpacked, UCS_MEMORY_TYPE_HOST),
                  UCS_ERR_INVALID_PARAM);
    }
    EXPECT_EQ(peer->check(Kind::kDevice, seed, kLong, 1).is_right, 1u);
    ucp_rkey_destroy(unpacked);
}

// The peer lives on, and says so.
TEST_F(ProcessTest, AKeyOfMemoryThatWasFreedIsRefused) {
    const auto opened = [] {
        return cuda_test::is_real() ? 0 : cuda_test::calls_of("cuIpcOpenMemHandle");
    };
    const uint64_t before = opened();
    const Key key = peer->expose(Kind::kDevice, ++seed, kLong, 1);
    ucp_rkey_h unpacked = peer->side().unpack(key);
    Buffer here(Kind::kDevice, kLong);
    here.fill(++seed);
    ASSERT_EQ(peer->side().put(here, kLong, key, unpacked), UCS_OK);
    while (!cuda_test::is_real() && opened() == before) peer->side().progress();
    const uint64_t once = opened();
    peer->free(1);
    // A way that is still open closes when the owner's news is here.
    ucs_status_t status = UCS_OK;
    for (int tries = 0; status == UCS_OK && tries < 10000; ++tries)
        status = peer->side().put(here, kLong, key, unpacked);
    EXPECT_NE(status, UCS_OK);
    EXPECT_EQ(opened(), once) << "and no other one is opened";
    ucp_rkey_destroy(unpacked);
    EXPECT_EQ(peer->check(Kind::kHeap, 0, 0, 2).is_right, 1u);
}

TEST_F(ProcessTest, AnAccessPastTheEndOfAKeyIsRefused) {
    Key key = peer->expose(Kind::kDevice, ++seed, kLong, 1);
    ucp_rkey_h unpacked = peer->side().unpack(key);
    Buffer here(Kind::kDevice, kLong);
    here.clear();
    ++key.address;
    EXPECT_NE(peer->side().put(here, kLong, key, unpacked), UCS_OK);
    ucp_rkey_destroy(unpacked);
    EXPECT_EQ(peer->check(Kind::kDevice, seed, kLong, 1).is_right, 1u);
}

// --- puts and gets that the target's devices copy ---

// Between memory of a device here and what the peer has, which no device here reaches.
class PeerCopiesTest : public ProcessTest {
  protected:
    static constexpr size_t kMost = 3 << 20;

    // The peer has something of that kind, and a key is here.
    void expose(Kind kind, size_t length = kMost) {
        there = kind;
        key = peer->expose(kind, ++seed, length, 1);
        unpacked = peer->side().unpack(key);
    }
    void hide() {
        if (unpacked != nullptr) ucp_rkey_destroy(unpacked);
        unpacked = nullptr;
        peer->free(1);
    }
    void TearDown() override {
        if (unpacked != nullptr) ucp_rkey_destroy(unpacked);
    }
    void put_checked(Buffer& here, size_t length) {
        here.fill(++seed);
        ASSERT_EQ(peer->side().put(here, length, key, unpacked), UCS_OK);
        ASSERT_EQ(peer->check(there, seed, length, 1).is_right, 1u);
    }
    void get_checked(Buffer& here, size_t length) {
        here.clear();
        ASSERT_EQ(peer->side().get(here, length, key, unpacked), UCS_OK);
        ASSERT_TRUE(here.holds(seed, 0, length));
    }
    // Until the peer has a way to what is here.
    void put_until_copied_there(Buffer& here) {
        for (int tries = 0;; ++tries) {
            // Nobody counts on a real device: after so many it has a way.
            if (tries == 1000 && cuda_test::is_real()) return;
            ASSERT_LT(tries, 1000) << "the target does not copy";
            const uint64_t before = peer->copies();
            ASSERT_EQ(peer->side().put(here, kLong, key, unpacked), UCS_OK);
            if (peer->copies() != before) return;
        }
    }
    static uint64_t own_copies() { return cuda_test::calls_of("cuMemcpyAsync"); }

    Kind there = Kind::kPinned;
    Key key{};
    ucp_rkey_h unpacked = nullptr;
};

TEST_F(PeerCopiesTest, BetweenDevicesAndHostMemoryAreTheTargetsCopies) {
    if (cuda_test::is_real()) GTEST_SKIP() << "calls are counted on the stand-in only";
    constexpr size_t kChunk = 256 << 10;  // of memory that is not pinned
    for (const Kind host : {Kind::kPinned, Kind::kRegistered, Kind::kHeap, Kind::kPool}) {
        expose(host);
        for (const Kind kind : {Kind::kDevice, Kind::kSharedVirtual, Kind::kSharedPool}) {
            SCOPED_TRACE(std::string(cuda_test::name_of(kind)) + " and there " +
                         cuda_test::name_of(host));
            Buffer here(kind, kMost);
            ASSERT_NO_FATAL_FAILURE(put_until_copied_there(here));
            for (const size_t length : {size_t{20000}, size_t{100003}, kLong, kMost}) {
                const uint64_t copies = host == Kind::kHeap ? (length + kChunk - 1) / kChunk : 1;
                here.fill(++seed);
                const uint64_t mine = own_copies(), theirs = peer->copies();
                ASSERT_EQ(peer->side().put(here, length, key, unpacked), UCS_OK);
                EXPECT_EQ(peer->copies(), theirs + copies) << "put of " << length;
                EXPECT_EQ(own_copies(), mine) << "put of " << length;
                ASSERT_EQ(peer->check(host, seed, length, 1).is_right, 1u);
                here.clear();
                const uint64_t again = own_copies(), before = peer->copies();
                ASSERT_EQ(peer->side().get(here, length, key, unpacked), UCS_OK);
                EXPECT_EQ(peer->copies(), before + copies) << "get of " << length;
                EXPECT_EQ(own_copies(), again) << "get of " << length;
                ASSERT_TRUE(here.holds(seed, 0, length));
            }
        }
        hide();
    }
}

// More at a time than there is memory to stage them through.
TEST_F(PeerCopiesTest, ManyAtATime) {
    constexpr size_t kPart = 300000, kParts = 64;
    Buffer here(Kind::kDevice, kPart * kParts);
    for (const Kind host : {Kind::kPinned, Kind::kHeap}) {
        SCOPED_TRACE(cuda_test::name_of(host));
        expose(host, kPart * kParts);
        ASSERT_NO_FATAL_FAILURE(put_until_copied_there(here));
        for (int round = 0; round < 3; ++round) {
            here.fill(++seed);
            const uint64_t mine = own_copies();
            std::vector<ucs_status_ptr_t> operations;
            for (size_t at = 0; at < here.length(); at += kPart) {
                operations.push_back(
                    peer->side().begin_put(here, at, kPart, key.address + at, unpacked));
            }
            ASSERT_EQ(peer->side().flush(), UCS_OK);
            EXPECT_EQ(own_copies(), mine);
            ASSERT_EQ(peer->check(host, seed, here.length(), 1).is_right, 1u);
            for (ucs_status_ptr_t each : operations) EXPECT_EQ(peer->side().wait(each), UCS_OK);
            here.clear();
            operations.clear();
            const uint64_t again = own_copies();
            for (size_t at = 0; at < here.length(); at += kPart) {
                operations.push_back(
                    peer->side().begin_get(here, at, kPart, key.address + at, unpacked));
            }
            for (ucs_status_ptr_t each : operations) EXPECT_EQ(peer->side().wait(each), UCS_OK);
            EXPECT_EQ(own_copies(), again);
            ASSERT_TRUE(here.holds(seed));
        }
        hide();
    }
}

// The first of them, put and get, are staged, whatever comes behind a fence.
TEST_F(PeerCopiesTest, FencesHoldBeforeThereIsAWay) {
    for (int round = 0; round < 10; ++round) {
        Buffer here(Kind::kDevice, kLong), later(Kind::kDevice, kLong);
        expose(Kind::kPinned, kLong);
        here.fill(seed + 1);
        later.fill(seed + 2);
        seed += 2;
        std::vector<ucs_status_ptr_t> puts;
        for (int again = 0; again < 3; ++again) {
            puts.push_back(peer->side().begin_put(here, 0, kLong, key.address, unpacked));
            peer->side().fence();
            puts.push_back(peer->side().begin_put(later, 0, kLong, key.address, unpacked));
            peer->side().fence();
        }
        ASSERT_EQ(peer->side().flush(), UCS_OK);
        EXPECT_EQ(peer->check(Kind::kPinned, seed, kLong, 1).is_right, 1u);
        for (ucs_status_ptr_t each : puts) EXPECT_EQ(peer->side().wait(each), UCS_OK);
        hide();
    }
}

TEST_F(PeerCopiesTest, APeerWithoutCudaIsServedByMessages) {
    peer = std::make_unique<Peer>(kPlainPeerMark);
    Buffer here(Kind::kDevice, kMost);
    expose(Kind::kHeap);
    for (int round = 0; round < 6; ++round) {
        ASSERT_NO_FATAL_FAILURE(put_checked(here, kMost));
        ASSERT_NO_FATAL_FAILURE(get_checked(here, kMost));
    }
}

TEST_F(PeerCopiesTest, MemoryThatThePeerCannotOpenIsStaged) {
    if (cuda_test::is_real()) GTEST_SKIP() << "faults are injected on the stand-in only";
    peer->set_faults(2);
    Buffer here(Kind::kDevice, kLong);
    expose(Kind::kPinned, kLong);
    for (int round = 0; round < 6; ++round) {
        ASSERT_NO_FATAL_FAILURE(put_checked(here, kLong));
        ASSERT_NO_FATAL_FAILURE(get_checked(here, kLong));
    }
    peer->set_faults(0);
    Buffer pool(Kind::kPool, kLong);
    ASSERT_NO_FATAL_FAILURE(put_checked(pool, kLong));
    ASSERT_NO_FATAL_FAILURE(get_checked(pool, kLong));
}

TEST_F(PeerCopiesTest, MemoryThatIsFreedAndAllocatedAnew) {
    expose(Kind::kPinned, kLong);
    for (int round = 0; round < 20; ++round) {
        Buffer here(Kind::kDevice, kLong);
        for (int again = 0; again < 3; ++again) {
            ASSERT_NO_FATAL_FAILURE(put_checked(here, kLong));
            ASSERT_NO_FATAL_FAILURE(get_checked(here, kLong));
        }
    }
}

// The peer is told of the end of what it has mapped.
TEST_F(PeerCopiesTest, MemoryThatIsFreedComesBack) {
    if (cuda_test::is_real()) GTEST_SKIP() << "mappings are counted on the stand-in only";
    expose(Kind::kPinned, kLong);
    const auto round = [&] {
        Buffer here(Kind::kDevice, kLong);
        ASSERT_NO_FATAL_FAILURE(put_until_copied_there(here));
    };
    ASSERT_NO_FATAL_FAILURE(round());
    const uint64_t mine = memory_in_use(), theirs = peer->memory_in_use();
    for (int i = 0; i < 30; ++i) ASSERT_NO_FATAL_FAILURE(round());
    constexpr uint64_t kOnTheirWay = 12;
    for (int tries = 0; peer->memory_in_use() > theirs + kOnTheirWay; ++tries)
        ASSERT_LT(tries, 10000) << peer->memory_in_use() << " in use, before " << theirs;
    EXPECT_LE(memory_in_use(), mine + kOnTheirWay);
}

TEST_F(PeerCopiesTest, AnAccessPastTheEndOfTheKeyIsRefused) {
    Buffer here(Kind::kDevice, kLong);
    expose(Kind::kPinned, kLong);
    ASSERT_NO_FATAL_FAILURE(put_until_copied_there(here));
    ASSERT_NO_FATAL_FAILURE(put_checked(here, kLong));
    here.clear();
    ++key.address;
    EXPECT_NE(peer->side().put(here, kLong, key, unpacked), UCS_OK);
    EXPECT_EQ(peer->check(Kind::kPinned, seed, kLong, 1).is_right, 1u);
}

TEST_F(PeerCopiesTest, ADeviceOfThePeerThatIsLostEndsPuts) {
    if (cuda_test::is_real()) GTEST_SKIP() << "faults are injected on the stand-in only";
    Buffer here(Kind::kDevice, kLong);
    expose(Kind::kPinned, kLong);
    ASSERT_NO_FATAL_FAILURE(put_until_copied_there(here));
    peer->set_faults(1);
    EXPECT_NE(peer->side().put(here, kLong, key, unpacked), UCS_OK);
}

// At some point of the copies, this process goes on.
TEST_F(PeerCopiesTest, APeerThatIsKilledInTheMiddle) {
    for (int round = 0; round < 8; ++round) {
        peer = std::make_unique<Peer>();
        Buffer here(Kind::kDevice, kMost);
        expose(round % 2 == 0 ? Kind::kPinned : Kind::kHeap);
        for (int again = 0; again < 5; ++again) {
            ASSERT_NO_FATAL_FAILURE(put_checked(here, kMost));
            ASSERT_NO_FATAL_FAILURE(get_checked(here, kMost));
        }
        std::vector<ucs_status_ptr_t> operations;
        for (int each = 0; each < 20; ++each) {
            operations.push_back(
                each % 2 == 0 ? peer->side().begin_put(here, 0, kMost, key.address, unpacked)
                              : peer->side().begin_get(here, 0, kMost, key.address, unpacked));
        }
        for (int steps = 0; steps < 100 * round; ++steps) peer->side().progress();
        peer->kill();
        for (ucs_status_ptr_t each : operations) (void)peer->side().wait(each);
        ucp_rkey_destroy(unpacked);
        unpacked = nullptr;
    }
}

TEST_F(PeerCopiesTest, AnEndpointThatIsClosedWhileTheyAreUnderWay) {
    for (const unsigned flags : {0u, unsigned{UCP_EP_CLOSE_FLAG_FORCE}}) {
        peer = std::make_unique<Peer>();
        Buffer here(Kind::kDevice, kMost);
        expose(Kind::kPinned);
        for (int again = 0; again < 5; ++again) ASSERT_NO_FATAL_FAILURE(put_checked(here, kMost));
        here.fill(++seed);
        std::vector<ucs_status_ptr_t> operations;
        for (int each = 0; each < 20; ++each)
            operations.push_back(peer->side().begin_put(here, 0, kMost, key.address, unpacked));
        ucp_rkey_destroy(std::exchange(unpacked, nullptr));
        const ucs_status_t closed = peer->side().wait(peer->side().close(flags));
        for (ucs_status_ptr_t each : operations) {
            const ucs_status_t status = peer->side().wait(each);
            EXPECT_TRUE(status == UCS_OK || flags != 0) << ucs_status_string(status);
        }
        if (flags == 0) {
            EXPECT_EQ(closed, UCS_OK);
            EXPECT_EQ(peer->check(Kind::kPinned, seed, kMost, 1).is_right, 1u);
        }
    }
}

TEST_F(ProcessTest, PinnedMemoryIsWrittenByTheReceiversDevice) {
    if (cuda_test::is_real()) GTEST_SKIP() << "calls are counted on the stand-in only";
    Buffer here(Kind::kPinned, kLong);
    ASSERT_NO_FATAL_FAILURE(send_until_direct(here, {kSend, Kind::kDevice, 0, 3000, kLong, 1}));
    peer->tell({kSend, Kind::kDevice, 0, 8, kLong, 1});
    const uint64_t before = cuda_test::calls_of("cuMemcpyAsync");
    ASSERT_EQ(peer->side().wait(peer->side().receive(here, kLong, 8)), UCS_OK);
    EXPECT_EQ(cuda_test::calls_of("cuMemcpyAsync"), before + 1);
    EXPECT_EQ(peer->answer().copies, 0u);
    EXPECT_TRUE(here.holds(8));
}

TEST_F(ProcessTest, ManyToHostMemoryThatAreReadyTogether) {
    ASSERT_NO_FATAL_FAILURE(receive_many_together(Kind::kDevice, Kind::kPinned));
    receive_many_together(Kind::kPinned, Kind::kDevice);
}

TEST_F(ProcessTest, MappingsAreLimitedInNumber) {
    if (cuda_test::is_real()) GTEST_SKIP() << "calls are counted on the stand-in only";
    const uint64_t opened = cuda_test::calls_of("cuIpcOpenMemHandle");
    const uint64_t closed = cuda_test::calls_of("cuIpcCloseMemHandle");
    Buffer here(Kind::kDevice, 10000);
    for (uint32_t id = 0; id < 300; ++id) {
        ASSERT_NO_FATAL_FAILURE(
            peer->send_here(here, {kSend, Kind::kDevice, 0, ++seed, 10000, id}));
    }
    const auto open = static_cast<int64_t>((cuda_test::calls_of("cuIpcOpenMemHandle") - opened) -
                                           (cuda_test::calls_of("cuIpcCloseMemHandle") - closed));
    EXPECT_LE(open, 256);
}

TEST_F(ProcessTest, APeerThatIsKilledInTheMiddle) {
    Buffer here(Kind::kDevice, kLong);
    for (int message = 0; message < 3; ++message)
        ASSERT_NO_FATAL_FAILURE(peer->send_here(here, {kSend, Kind::kDevice, 0, ++seed, kLong, 1}));
    ucs_status_ptr_t receive = peer->side().receive(here, kLong, ++seed);
    peer->tell({Command::What::kSendAndDie, Kind::kDevice, 0, seed, kLong, 1});
    // It ends, or its message never came and the endpoint fails.
    while (!peer->side().has_failed() && ucp_request_check_status(receive) == UCS_INPROGRESS)
        peer->side().progress();
    if (ucp_request_check_status(receive) == UCS_INPROGRESS) peer->side().cancel(receive);
    (void)peer->side().wait(receive);
    // This process goes on with others.
    peer = std::make_unique<Peer>();
    ASSERT_NO_FATAL_FAILURE(peer->send_here(here, {kSend, Kind::kDevice, 0, ++seed, kLong, 1}));
}

// Its context serves nobody any more: the last test of the process.
class LostDeviceTest : public ProcessTest {};

TEST_F(LostDeviceTest, ZADeviceThatIsLostEndsPuts) {
    if (cuda_test::is_real()) GTEST_SKIP() << "faults are injected on the stand-in only";
    const Key key = peer->expose(Kind::kDevice, ++seed, kLong, 1);
    ucp_rkey_h unpacked = peer->side().unpack(key);
    Buffer here(Kind::kDevice, kLong);
    here.fill(++seed);
    for (int round = 0; round < 20; ++round)
        ASSERT_EQ(peer->side().put(here, kLong, key, unpacked), UCS_OK);
    cuda_test::set_faults("run:700");
    EXPECT_NE(peer->side().put(here, kLong, key, unpacked), UCS_OK);
    cuda_test::set_faults("");
    ucp_rkey_destroy(unpacked);
}

}  // namespace

// What is thrown ends the program.
int main(int argc, char** argv) {  // NOLINT(bugprone-exception-escape)
    (void)signal(SIGPIPE, SIG_IGN);
    if (std::getenv("UCX_MODULE_DIR") == nullptr) {
        std::puts(
            "run test/cuda/processes.sh in the build folder, which says where the CUDA module is");
        return 77;
    }
    const bool is_plain = argc == 2 && std::strcmp(argv[1], kPlainPeerMark) == 0;
    const bool is_peer = is_plain || (argc == 2 && std::strcmp(argv[1], kPeerMark) == 0);
    testing::InitGoogleTest(&argc, argv);
    const ucs::test::LeaksFail log;
    cuda_test::choose_driver();
    return is_peer ? serve(!is_plain) : RUN_ALL_TESTS();
}
