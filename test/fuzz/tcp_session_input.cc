// SPDX-License-Identifier: BSD-3-Clause

// A whole conversation between two tcp interfaces that keep sessions: the input is the peer, which
// knows the secrets and says in their name what it likes, in what order it likes. It connects and
// is called, proves itself, carries sessions on with counts of its own, breaks connections, and
// lets time pass; meanwhile the interface sends it messages, reads and writes.
//
// When it has gone, every operation of the interface must have ended and no connection be left.

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "fuzz/inputs.h"
#include "fuzz/tcp_victim.h"
#include "uct/tcp/wire/proof.h"

namespace ucp::fuzz {

namespace {

namespace wire = uct::tcp::wire;

enum Step : uint8_t {
    kKnock,   // connect and greet; argument: connection
    kResume,  // carry the session on; two bytes: what is added to attempt, to bytes received
    kAnswer,  // answer a call of the interface; three bytes: answer, flags, to bytes received
    kFrames,  // argument: connection; a byte: how many bytes follow, which are sent
    kRoutes,  // say where the peer is; argument: connection, how often, bit 7: nowhere
    kRead,    // take what has come; argument: connection
    kLeave,   // close; argument: connection, bit 7: with a reset
    kPass,    // so many times 400 ms pass
    kWork,    // the interface begins something: TcpWork::What
    kSteps
};

class Conversation {
  public:
    Conversation() : victim_(true), work_(victim_) {}

    void hold(std::span<const uint8_t> input) {
        if (!work_.works()) return;
        input_ = input;
        while (!input_.empty()) {
            const auto what = static_cast<Step>(next() % kSteps);
            step(what, next());
            victim_.progress(4);
        }
        end();
    }

  private:
    struct Connection {
        ucs::Descriptor socket;
        bool has_messages = false;  // the session is on it
    };

    uint8_t next() {
        if (input_.empty()) return 0;
        const uint8_t byte = input_[0];
        input_ = input_.subspan(1);
        return byte;
    }

    // What is to be added to a count; negative ones as well.
    uint64_t next_offset() {
        const uint64_t byte = next();
        return byte < 0x80 ? byte : byte - 0x100;
    }

    void step(Step step, uint8_t argument) {
        Connection& connection = connections_[argument % connections_.size()];
        switch (step) {
            case kKnock:
                knock(connection, argument);
                break;
            case kResume:
                resume(connection);
                break;
            case kAnswer:
                answer(connection, argument);
                break;
            case kFrames: {
                const size_t wanted = next();
                const size_t length = std::min(wanted, input_.size());
                const std::vector<uint8_t> bytes = victim_.speak_to(input_.first(length));
                input_ = input_.subspan(length);
                put(connection, bytes.data(), bytes.size());
                break;
            }
            case kRoutes:
                tell_routes(connection, argument);
                break;
            case kRead:
                read(connection);
                break;
            case kLeave:
                leave(connection, (argument & 0x80) != 0);
                break;
            case kPass:
                pass(argument % 64);
                break;
            default:
                work_.begin(static_cast<TcpWork::What>(argument % TcpWork::kCount));
        }
    }

    static bool put(Connection& connection, const void* data, size_t length) {
        return TcpVictim::put(connection.socket.get(), data, length);
    }
    template <typename Message>
    bool take(Connection& connection, Message* message) {
        return victim_.take(connection.socket.get(), message);
    }

    wire::Hello hello(uint8_t argument) {
        wire::Hello hello = victim_.hello(TcpWork::kPeer, association_);
        hello.connection = (argument >> 2) & 3;
        if ((argument & 0x10) != 0) hello.association = ++association_;
        if ((argument & 0x20) != 0) ++hello.bulk_epoch;
        hello.flags = (argument & 0x40) != 0 ? 0 : wire::kCanResume;
        return hello;
    }
    void knock(Connection& connection, uint8_t argument) {
        const wire::Hello said = hello(argument);
        greet(connection, said, victim_.key_of(victim_.listener().secret));
    }
    void resume(Connection& connection) {
        wire::Hello said = victim_.hello(TcpWork::kPeer, association_);
        said.flags = wire::kCanResume | wire::kResumes;
        said.peer_association = victims_association_;
        attempt_ += next();
        said.attempt = attempt_;
        said.received = received_ + next_offset();
        greet(connection, said, session_key_);
    }
    void greet(Connection& connection, const wire::Hello& said, const wire::Key& key) {
        connection.socket = victim_.connect();
        wire::Challenge challenge{};
        if (!connection.socket || !put(connection, &said, sizeof(said)) ||
            !take(connection, &challenge))
            return;
        const wire::Proof proof = wire::client_proof(key, said, challenge);
        wire::Welcome welcome{};
        if (!put(connection, &proof, sizeof(proof)) || !take(connection, &welcome)) return;
        stands(connection, said, wire::session_key(key, said, challenge), welcome.association);
    }

    void stands(Connection& connection, const wire::Hello& said, const wire::Key& session,
                uint32_t victims) {
        connection.has_messages = said.connection == 0;
        if (said.connection != 0 || (said.flags & wire::kResumes) != 0) return;
        received_ = 0;
        victims_association_ = victims;
        session_key_ = session;
    }

    // The interface has connected to the peer.
    void answer(Connection& connection, uint8_t argument) {
        ucs::Descriptor accepted = work_.accept();
        const auto verdict = static_cast<wire::Answer>(next());
        const uint8_t flags = next();
        const auto more = next_offset();
        if (!accepted) return;
        connection.socket = std::move(accepted);
        wire::Hello said{};
        if (!take(connection, &said)) return;
        const bool resumes = (said.flags & wire::kResumes) != 0;
        const wire::Key key = resumes ? session_key_ : victim_.key_of(TcpWork::kPeerSecret);
        wire::Challenge challenge{};
        challenge.magic = wire::kMagic;
        challenge.version = wire::kVersion;
        challenge.oldest = wire::kOldestVersion;
        challenge.answer = wire::Answer::kProve;
        wire::Proof proof;
        if (!put(connection, &challenge, sizeof(challenge)) || !take(connection, &proof)) return;
        wire::Welcome welcome{};
        welcome.magic = wire::kMagic;
        welcome.version = wire::kVersion;
        welcome.connection = said.connection;
        welcome.answer = verdict;
        welcome.max_frame = said.max_frame;
        welcome.association = association_;
        welcome.flags = flags;
        welcome.attempt = attempt_;
        welcome.received = resumes ? received_ + more : 0;
        if ((argument & 0x80) == 0) {
            welcome.seal = wire::server_proof(key, said, challenge, welcome);
        }
        put(connection, &welcome, sizeof(welcome));
        stands(connection, said, wire::session_key(key, said, challenge), said.association);
    }

    void tell_routes(Connection& connection, uint8_t argument) {
        const size_t count = (argument >> 2) % (wire::kMaxRoutes + 1);
        std::vector<std::byte> bytes(sizeof(wire::FrameHeader) + count * sizeof(wire::Route));
        const wire::FrameHeader frame{static_cast<uint32_t>(count * sizeof(wire::Route)),
                                      wire::FrameType::kRoutes, 0, wire::kMark};
        std::memcpy(bytes.data(), &frame, sizeof(frame));
        for (size_t index = 0; index < count; ++index) {
            wire::Route route{};
            if ((argument & 0x80) == 0) victim_.device().write(route.device);
            route.port = work_.port();
            std::memcpy(&bytes[sizeof(frame) + index * sizeof(route)], &route, sizeof(route));
        }
        put(connection, bytes.data(), bytes.size());
    }

    void read(Connection& connection) {
        std::byte bytes[4096];
        for (int round = 0; round < 16; ++round) {
            const ssize_t got = recv(connection.socket.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
            if (got <= 0) return;
            if (connection.has_messages) received_ += static_cast<size_t>(got);
        }
    }

    static void leave(Connection& connection, bool resets) {
        const linger orderly{0, 0};
        if (connection.socket && !resets) {
            setsockopt(connection.socket.get(), SOL_SOCKET, SO_LINGER, &orderly, sizeof(orderly));
        }
        connection.socket.reset();
    }

    void pass(unsigned steps) {
        for (; steps != 0; --steps) {
            victim_.pass(std::chrono::milliseconds(400));
            victim_.progress(1);
        }
    }

    void end() {
        for (Connection& connection : connections_) connection.socket.reset();
        work_.end();
    }

    TcpVictim victim_;
    TcpWork work_;
    std::span<const uint8_t> input_;
    std::array<Connection, 4> connections_;
    uint32_t association_ = 1, victims_association_ = 0, attempt_ = 0;
    uint64_t received_ = 0;  // bytes of the session's stream
    wire::Key session_key_{};
};

}  // namespace

void read_tcp_session(std::span<const uint8_t> input) {
    constexpr size_t kLongest = 512;
    Conversation().hold(input.first(std::min(input.size(), kLongest)));
}

std::vector<Input> tcp_sessions() {
    constexpr uint8_t kWelcome = static_cast<uint8_t>(wire::Answer::kWelcome);
    constexpr uint8_t kOther = 1, kReset = 0x80;
    using enum TcpWork::What;
    constexpr uint8_t kFrame[] = {0, 0,    0,   0, static_cast<uint8_t>(wire::FrameType::kHere),
                                  0, 0x77, 0x6c};
    Input begun = {kKnock, 0, kRoutes, 4, kRead, 0, kWork, kMessage, kWork, kMessage, kRead, 0};
    const auto with = [&](Input more) {
        Input made = begun;
        made.insert(made.end(), more.begin(), more.end());
        return made;
    };
    constexpr uint8_t kCutFrame[] = {
        8, 0, 0, 0, static_cast<uint8_t>(wire::FrameType::kCut), 0, 0x77, 0x6c, 1, 0, 0, 0,
        0, 0, 0, 0};
    Input frames = with({kFrames, 0, sizeof(kFrame)});
    frames.insert(frames.end(), std::begin(kFrame), std::end(kFrame));
    Input cut = with({kKnock, 5, kWork, kPut, kFrames, 0, sizeof(kCutFrame)});
    cut.insert(cut.end(), std::begin(kCutFrame), std::end(kCutFrame));
    return {
        frames,
        cut,
        // The connection ends, and the peer carries the session on; once rightly and once not.
        with({kLeave, kReset, kResume, kOther, 1, 0, kRead, kOther, kWork, kMessage, kPass, 1}),
        with({kLeave, kReset, kResume, kOther, 1, 100, kRead, kOther, kPass, 5}),
        with({kResume, kOther, 1, 0xf0, kRead, kOther, kResume, 2, 1, 0, kResume, 3, 0, 0}),
        // The interface does.
        with({kLeave, 0, kPass, 1, kAnswer, kOther, kWelcome, 5, 0, kWork, kMessage, kRead, 1}),
        with({kLeave, 0, kPass, 1, kAnswer, kOther, 2, 5, 0, kPass, 20, kAnswer, 0, 6, 5, 0}),
        with({kLeave, 0, kPass, 60}),
        // The interface calls, and wants answers.
        {kWork,   kMessage, kAnswer,  0, kWelcome, 1,     0,        kWork, kPut,   kWork, kGet,
         kAnswer, kOther,   kWelcome, 1, 0,        kWork, kAtomic,  kWork, kFlush, kRead, 0,
         kLeave,  0,        kPass,    1, kAnswer,  0,     kWelcome, 5,     0,      kPass, 60},
        // Both at once, a greeting of another time, and cuts.
        {kWork, kMessage, kKnock, 0, kAnswer, kOther, kWelcome, 1, 0, kKnock, 0x10, kKnock, 0x24},
        with({kWork, kPut, kWork, kCut, kWork, kMessage, kKnock, 1, kWork, kForget}),
    };
}

}  // namespace ucp::fuzz
