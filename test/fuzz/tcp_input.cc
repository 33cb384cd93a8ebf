// SPDX-License-Identifier: BSD-3-Clause

// What a connection brings, to an interface of the tcp transport over the loopback. The stream
// comes from a peer that has the address, so that the fuzzer gets past the greeting.

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "fuzz/inputs.h"
#include "ucs/sys/random.h"
#include "ucs/sys/time.h"
#include "uct/api/interface.h"
#include "uct/base/am.h"
#include "uct/tcp/component.h"
#include "uct/tcp/interface/tcp_interface.h"
#include "uct/tcp/network/options.h"
#include "uct/tcp/wire/address.h"
#include "uct/tcp/wire/format.h"
#include "uct/tcp/wire/proof.h"

namespace ucp::fuzz {

namespace {

namespace wire = uct::tcp::wire;

/** An interface with a registered region, on a virtual clock. */
class Listener {
  public:
    Listener() : random_(1) {
        uct::drop_all(table_);
        const uct::InterfaceParams params{
            clock_, random_, table_, [](void*, uct::Endpoint*, ucs_status_t) {}, nullptr, 1, 1};
        if (uct::tcp::component().open_domain("lo", &domain_) != UCS_OK ||
            domain_->open_interface("tcp", params, &interface_) != UCS_OK) {
            return;
        }
        domain_->register_memory(memory_, sizeof(memory_), uct::PeerRights::kAll, &handle_);
        std::byte packed[64];
        domain_->pack_remote_key(handle_, {packed, domain_->attributes().remote_key_length});
        domain_->unpack_remote_key({packed, domain_->attributes().remote_key_length}, &key_);
    }
    ~Listener() {
        interface_.reset();
        if (handle_ != nullptr) domain_->deregister_memory(handle_);
    }

    bool works() const { return interface_ != nullptr; }
    void read(std::span<const uint8_t> stream);

  private:
    ucs::Descriptor connect();

    ucs::VirtualClock clock_;
    ucs::Random random_;
    uct::AmTable table_;
    /** Time passes: an interface on which nothing happens rests between looks. */
    void progress() {
        for (int i = 0; i < 8; ++i) {
            clock_.advance(std::chrono::milliseconds(1));
            interface_->progress();
        }
    }

    std::unique_ptr<uct::MemoryDomain> domain_;
    std::unique_ptr<uct::Interface> interface_;
    uct::MemoryHandle* handle_ = nullptr;
    uct::RemoteKey key_ = 0;
    alignas(8) std::byte memory_[256] = {};
    uint32_t next_link_ = 0;
};

ucs::Descriptor Listener::connect() {
    std::vector<std::byte> device(uct::tcp::DeviceAddress::kLength);
    std::vector<std::byte> listener(uct::tcp::ListenerAddress::kLength);
    interface_->get_device_address(device);
    interface_->get_interface_address(listener);
    const auto where = *uct::tcp::ListenerAddress::read(listener);
    const ucs::net::SocketAddress address(uct::tcp::DeviceAddress::read(device)->ip, where.port, 0);
    ucs::Descriptor made(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(made.get(), address.get(), address.length()) != 0) return {};
    const int yes = 1;
    setsockopt(made.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    const linger at_once{1, 0};  // no waiting state for each of a million connections
    setsockopt(made.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    auto& tcp = static_cast<uct::tcp::TcpInterface&>(*interface_);
    wire::Hello hello{};
    hello.magic = wire::kMagic;
    hello.version = wire::kVersion;
    hello.sender = 7;
    hello.oldest = wire::kOldestVersion;
    hello.receiver = where.id;
    hello.max_frame = static_cast<uint32_t>(tcp.max_message());
    hello.association = ++next_link_;
    if (send(made.get(), &hello, sizeof(hello), MSG_NOSIGNAL) != sizeof(hello)) return {};
    wire::Challenge challenge;
    for (int i = 0; i < 100; ++i) {
        progress();
        const ssize_t got = recv(made.get(), &challenge, sizeof(challenge), MSG_DONTWAIT);
        if (got != sizeof(challenge)) continue;
        const auto proof = wire::client_proof(wire::key_of(where.secret, ""), hello, challenge);
        if (send(made.get(), &proof, sizeof(proof), MSG_NOSIGNAL) != sizeof(proof)) break;
        return made;
    }
    return {};
}

/** Words of the stream that begin with k or m become the region's key or an address in it. */
std::vector<uint8_t> speak_tcp(std::span<const uint8_t> stream, uint64_t key, uint64_t memory) {
    std::vector<uint8_t> bytes(stream.begin(), stream.end());
    for (size_t at = 0; at + 8 <= bytes.size(); at += 8) {
        const uint64_t word = bytes[at] == 'k' ? key : memory + bytes[at + 1];
        if (bytes[at] == 'k' || bytes[at] == 'm') std::memcpy(&bytes[at], &word, sizeof(word));
    }
    return bytes;
}

void Listener::read(std::span<const uint8_t> stream) {
    const ucs::Descriptor peer = connect();
    if (!peer) return;
    progress();
    const std::vector<uint8_t> bytes =
        speak_tcp(stream, key_, reinterpret_cast<uintptr_t>(memory_));
    // In two parts, so that frames are cut anywhere.
    const size_t first = bytes.empty() ? 0 : bytes[0] % (bytes.size() + 1);
    for (const auto part : {std::span(bytes).first(first), std::span(bytes).subspan(first)}) {
        [[maybe_unused]] const ssize_t sent =
            send(peer.get(), part.data(), part.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        progress();
    }
}

}  // namespace

void read_tcp_stream(std::span<const uint8_t> input) {
    static Listener listener;
    if (listener.works()) listener.read(input);
}

namespace {

template <typename Body>
void add(Input& input, wire::FrameType type, const Body& body, size_t payload = 0) {
    const wire::Frame frame{static_cast<uint32_t>(sizeof(body) + payload), type, 0, wire::kMark};
    const auto append = [&](const void* data, size_t length) {
        const auto* bytes = static_cast<const uint8_t*>(data);
        input.insert(input.end(), bytes, bytes + length);
    };
    append(&frame, sizeof(frame));
    append(&body, sizeof(body));
    input.resize(input.size() + payload + wire::padding(sizeof(body) + payload), 0);
}

}  // namespace

std::vector<Input> tcp_streams() {
    constexpr uint64_t kKey = 'k', kMemory = 'm';
    Input message, memory, answers;
    add(message, wire::FrameType::kMessage, uint64_t{1}, 13);
    add(message, wire::FrameType::kMessage, uint64_t{2});
    message[5] = 3;
    add(memory, wire::FrameType::kPut, wire::Put{kMemory, kKey, 1, 0}, 21);
    add(memory, wire::FrameType::kGet, wire::Get{kMemory, kKey, 64, 1, 2, 0});
    wire::Atomic atomic{};
    atomic.address = kMemory;
    atomic.key = kKey;
    atomic.code = atomic.wants_reply = 1;
    atomic.size = 8;
    add(memory, wire::FrameType::kAtomic, atomic);
    add(memory, wire::FrameType::kFlush, wire::Reply{5, 0});
    add(answers, wire::FrameType::kRefused, wire::Refused{1, wire::kNoOperation});
    add(answers, wire::FrameType::kFlushReply, wire::Reply{1, 0});
    add(answers, wire::FrameType::kCut, wire::Cut{3, 0});
    add(answers, wire::FrameType::kCutDone, wire::Cut{3, 0});
    add(answers, wire::FrameType::kRoutes, wire::Route{});
    return {message, memory, answers};
}

}  // namespace ucp::fuzz
