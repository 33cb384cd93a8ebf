// SPDX-License-Identifier: BSD-3-Clause

// What a connection brings, to an interface of the tcp transport over the loopback. The stream
// comes from a peer that has the address, so that the fuzzer gets past the greeting.

#include <sys/socket.h>

#include "fuzz/inputs.h"
#include "fuzz/tcp_victim.h"
#include "uct/tcp/wire/proof.h"

namespace ucp::fuzz {

namespace {

namespace wire = uct::tcp::wire;

// A connection that is past the greeting.
ucs::Descriptor enter(TcpVictim& victim, uint32_t association) {
    ucs::Descriptor made = victim.connect();
    if (!made) return {};
    const wire::Hello hello = victim.hello(7, association);
    wire::Challenge challenge{};
    if (!TcpVictim::put(made.get(), &hello, sizeof(hello)) ||
        !victim.take(made.get(), &challenge)) {
        return {};
    }
    const auto proof =
        wire::client_proof(victim.key_of(victim.listener().secret), hello, challenge);
    if (!TcpVictim::put(made.get(), &proof, sizeof(proof))) return {};
    return made;
}

}  // namespace

void read_tcp_stream(std::span<const uint8_t> input) {
    static TcpVictim victim(false);
    static uint32_t associations = 0;
    if (!victim.works()) return;
    const ucs::Descriptor peer = enter(victim, ++associations);
    if (!peer) return;
    victim.progress();
    const std::vector<uint8_t> bytes = victim.speak_to(input);
    // In two parts, so that frames are cut anywhere.
    const size_t first = bytes.empty() ? 0 : bytes[0] % (bytes.size() + 1);
    for (const auto part : {std::span(bytes).first(first), std::span(bytes).subspan(first)}) {
        [[maybe_unused]] const ssize_t sent =
            send(peer.get(), part.data(), part.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        victim.progress();
    }
}

namespace {

template <typename Body>
void add(Input& input, wire::FrameType type, const Body& body, size_t payload = 0) {
    const wire::FrameHeader frame{static_cast<uint32_t>(sizeof(body) + payload), type, 0,
                                  wire::kMark};
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
