// SPDX-License-Identifier: BSD-3-Clause

// Encrypted connections of a tcp interface: the input is somebody on the way between it and a peer
// of its job, who changes, leaves out, repeats and adds what he likes, and the peer itself, which
// may encrypt anything. Either end may be the one that connects.
//
// When both have gone, every operation of the interface must have ended and no connection be left.

#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "fuzz/inputs.h"
#include "fuzz/tcp_victim.h"
#include "uct/tcp/network/tls.h"

namespace ucp::fuzz {

namespace {

namespace wire = uct::tcp::wire;
using uct::tcp::Tls;
using uct::tcp::TlsContext;

enum Step : uint8_t {
    kCall,     // the peer connects, proves itself and encrypts; argument: as in call()
    kTaken,    // the interface has called: the peer admits it and encrypts; argument: answer
    kCarry,    // what both have said goes on its way; argument: Change, a byte: where
    kInject,   // argument: how many bytes follow, which the interface gets as they are
    kSpeak,    // the same, which the peer encrypts
    kWelcome,  // the peer says so in TLS; argument: answer
    kLeave,    // close; argument: bit 7: with a reset
    kPass,     // so many times 400 ms pass
    kWork,     // the interface begins something: TcpWork::What
    kSteps
};
// Of what the peer says.
enum Change : uint8_t { kNone, kFlip, kShorten, kHold, kTwice, kNothing, kChanges };

constexpr const char* kJobKey = "of all of us";
// Few, so that keys are replaced.
constexpr uint64_t kRecordsPerKey = 4;

class Line {
  public:
    explicit Line(bool keeps_sessions) : victim_(keeps_sessions, kJobKey), work_(victim_) {}

    void hold(std::span<const uint8_t> input) {
        if (!work_.works()) return;
        input_ = input;
        while (!input_.empty()) {
            const auto what = static_cast<Step>(next() % kSteps);
            step(what, next());
            victim_.progress(2);
        }
        wire_.reset();
        work_.end();
    }

  private:
    uint8_t next() {
        const auto one = take(1);
        return one.empty() ? uint8_t{0} : one[0];
    }
    std::span<const uint8_t> take(size_t wanted) {
        const std::span<const uint8_t> taken = input_.first(std::min(wanted, input_.size()));
        input_ = input_.subspan(taken.size());
        return taken;
    }

    void step(Step step, uint8_t argument) {
        switch (step) {
            case kCall:
                call(argument);
                break;
            case kTaken:
                admit(argument);
                break;
            case kCarry:
                carry(static_cast<Change>(argument % kChanges), next());
                break;
            case kInject: {
                const auto bytes = take(argument);
                TcpVictim::put(wire_.get(), bytes.data(), bytes.size());
                break;
            }
            case kSpeak: {
                const std::vector<uint8_t> bytes = victim_.speak_to(take(argument));
                encrypt(bytes.data(), bytes.size());
                break;
            }
            case kWelcome: {
                const wire::Welcome welcome = welcome_of(argument);
                encrypt(&welcome, sizeof(welcome));
                if (side_ == Tls::Side::kListens) stands(hello_.association);
                break;
            }
            case kLeave: {
                const linger orderly{0, 0};
                if (wire_ && (argument & 0x80) == 0) {
                    setsockopt(wire_.get(), SOL_SOCKET, SO_LINGER, &orderly, sizeof(orderly));
                }
                wire_.reset();
                break;
            }
            case kPass:
                for (unsigned left = argument % 64; left != 0; --left) {
                    victim_.pass(std::chrono::milliseconds(400));
                    victim_.progress(1);
                }
                break;
            default:
                work_.begin(static_cast<TcpWork::What>(argument % TcpWork::kCount));
        }
    }

    // Bits 0 and 1: which connection; then: of a new association, can carry a session on, does so.
    void call(uint8_t argument) {
        if ((argument & 0x10) != 0) ++association_;
        hello_ = victim_.hello(TcpWork::kPeer, association_);
        hello_.connection = argument & 3;
        hello_.flags = wire::kEncrypts;
        if ((argument & 0x20) != 0) hello_.flags |= wire::kCanResume;
        key_ = victim_.key_of(victim_.listener().secret);
        if ((argument & 0x40) != 0) {
            hello_.flags |= wire::kCanResume | wire::kResumes;
            hello_.peer_association = victims_association_;
            hello_.attempt = ++attempt_;
            hello_.received = received_;
            key_ = session_key_;
        }
        wire_ = victim_.connect();
        wire::Welcome welcome{};
        if (!wire_ || !say(hello_) || !hear(&challenge_)) return;
        if (!say(wire::client_proof(key_, hello_, challenge_)) || !hear(&welcome)) return;
        if (welcome.answer == wire::Answer::kEncrypt) begin(Tls::Side::kConnects);
    }

    void admit(uint8_t argument) {
        ucs::Descriptor accepted = work_.accept();
        if (!accepted) return;
        wire_ = std::move(accepted);
        key_ = victim_.key_of(TcpWork::kPeerSecret);
        challenge_ = {};
        challenge_.magic = wire::kMagic;
        challenge_.version = wire::kVersion;
        challenge_.oldest = wire::kOldestVersion;
        challenge_.answer = wire::Answer::kProve;
        wire::Proof proof;
        if (!hear(&hello_)) return;
        if ((hello_.flags & wire::kResumes) != 0) key_ = session_key_;
        if (!say(challenge_) || !hear(&proof)) return;
        const auto usual = static_cast<uint8_t>(wire::Answer::kEncrypt);
        say(welcome_of(argument == 0 ? usual : argument));
        begin(Tls::Side::kListens);
    }

    wire::Welcome welcome_of(uint8_t answer) const {
        wire::Welcome welcome{};
        welcome.magic = wire::kMagic;
        welcome.version = wire::kVersion;
        welcome.connection = hello_.connection;
        welcome.answer = static_cast<wire::Answer>(answer & 0x1f);
        welcome.max_frame = hello_.max_frame;
        welcome.association = association_;
        welcome.flags = (answer & 0x20) != 0 ? wire::kCanResume : 0;
        welcome.attempt = attempt_;
        welcome.received = received_;
        if ((answer & 0x80) == 0) {
            welcome.seal = wire::server_proof(key_, hello_, challenge_, welcome);
        }
        return welcome;
    }

    template <typename Message>
    bool say(const Message& message) {
        return TcpVictim::put(wire_.get(), &message, sizeof(message));
    }
    template <typename Message>
    bool hear(Message* message) {
        return victim_.take(wire_.get(), message);
    }

    // From here on the peer speaks TLS, with somebody between it and the wire.
    void begin(Tls::Side side) {
        static const auto context = std::make_shared<TlsContext>(kRecordsPerKey);
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0) return;
        tls_.reset();
        peers_end_.reset(pair[0]);
        our_end_.reset(pair[1]);
        held_.clear();
        state_ = Tls::State::kUnderWay;
        tls_ = Tls::begin(context, pair[0], side, wire::encryption_key(key_, hello_, challenge_));
        side_ = side;
        is_welcomed_ = side == Tls::Side::kListens;
        negotiate();
    }
    void negotiate() {
        if (tls_ != nullptr && state_ == Tls::State::kUnderWay) state_ = tls_->negotiate();
    }
    void encrypt(const void* bytes, size_t length) {
        if (tls_ == nullptr || state_ != Tls::State::kStands || length == 0) return;
        const iovec piece{const_cast<void*>(bytes), length};
        tls_->send({&piece, 1}, Tls::BufferOwner::kOurs);
    }

    static std::string all_of(int socket) {
        std::string all;
        char bytes[4096];
        for (ssize_t got; (got = recv(socket, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0;) {
            all.append(bytes, static_cast<size_t>(got));
        }
        return all;
    }
    void carry(Change change, uint8_t where) {
        const std::string heard = all_of(wire_.get());
        if (tls_ != nullptr && !heard.empty()) {
            TcpVictim::put(our_end_.get(), heard.data(), heard.size());
            negotiate();
            if (state_ == Tls::State::kStands) listen();
        }
        std::string words = std::exchange(held_, "") + all_of(our_end_.get());
        if (words.empty()) return;
        const size_t at = where * words.size() / 256;
        switch (change) {
            case kFlip:
                words[at] = static_cast<char>(words[at] ^ (1 << where % 8));
                break;
            case kHold:
                held_ = words.substr(at);
                [[fallthrough]];
            case kShorten:
                words.resize(at);
                break;
            case kTwice:
                words += words.substr(at);
                break;
            case kNothing:
                words.clear();
                break;
            default:
                break;
        }
        TcpVictim::put(wire_.get(), words.data(), words.size());
    }
    // What the interface says in TLS: if it was called, first that it is so.
    void listen() {
        std::byte room[4096];
        const iovec all{room, sizeof(room)}, first{room, sizeof(wire::Welcome)};
        for (;;) {
            const ssize_t got =
                tls_->receive({is_welcomed_ ? &all : &first, 1}, Tls::BufferOwner::kOurs);
            if (got <= 0) return;
            if (is_welcomed_) {
                received_ += static_cast<size_t>(got);
            } else {
                stands(uct::tcp::read_as<wire::Welcome>(room).association);
            }
            is_welcomed_ = true;
        }
    }
    // A session may begin here.
    void stands(uint32_t victims) {
        if (hello_.connection != 0 || (hello_.flags & wire::kResumes) != 0) return;
        victims_association_ = victims;
        session_key_ = wire::session_key(key_, hello_, challenge_);
        received_ = 0;
    }

    TcpVictim victim_;
    TcpWork work_;
    std::span<const uint8_t> input_;
    ucs::Descriptor wire_;  // to the interface
    ucs::Descriptor peers_end_, our_end_;
    std::unique_ptr<Tls> tls_;  // the peer's
    Tls::State state_ = Tls::State::kUnderWay;
    std::string held_;
    Tls::Side side_ = Tls::Side::kConnects;
    bool is_welcomed_ = false;
    uint32_t association_ = 1, victims_association_ = 0, attempt_ = 0;
    uint64_t received_ = 0;  // of the interface's stream
    wire::Hello hello_{};
    wire::Challenge challenge_{};
    wire::Key key_{}, session_key_{};
};

}  // namespace

void read_tls(std::span<const uint8_t> input) {
    constexpr size_t kLongest = 512;
    if (input.empty()) return;
    Line line((input[0] & 1) != 0);
    line.hold(input.subspan(1).first(std::min(input.size() - 1, kLongest)));
}

std::vector<Input> tls_lines() {
    using enum TcpWork::What;
    constexpr uint8_t kWelcomed = static_cast<uint8_t>(wire::Answer::kWelcome);
    constexpr uint8_t kCanResume = 0x20, kResumes = 0x40, kReset = 0x80;
    const auto joined = [](std::initializer_list<Input> parts) {
        Input all;
        for (const Input& part : parts) all.insert(all.end(), part.begin(), part.end());
        return all;
    };
    // Frames as tcp_streams() has them: a message, accesses to memory, answers.
    const std::vector<Input> frames = tcp_streams();
    const auto said = [&](Step how, size_t which) {
        Input step{how, static_cast<uint8_t>(frames[which].size())};
        step.insert(step.end(), frames[which].begin(), frames[which].end());
        return step;
    };
    const Input carried = {kCarry, kNone, 0};
    const Input called = {kCall, 0, kCarry, 0, 0, kCarry, 0, 0};
    const Input calls = {kTaken, 0, kCarry, 0, 0, kCarry, 0, 0};
    const Input welcomed = {kWelcome, kWelcomed, kCarry, 0, 0};
    const Input message = said(kSpeak, 0), in_clear = said(kInject, 0);
    const Input accesses = said(kSpeak, 1), answers = said(kSpeak, 2);
    const Input works = {kWork, kMessage, kWork, kPut, kWork, kGet, kWork, kAtomic, kWork, kFlush};
    std::vector<Input> inputs = {
        // Until keys are replaced.
        joined({{0}, called, message, carried, message, message, message, message, carried}),
        joined({{0}, called, accesses, carried, carried, answers, carried}),
        joined({{0}, works, calls, welcomed, carried, answers, carried, works, carried}),
        joined({{0},
                works,
                calls,
                welcomed,
                {kWork, kForget, kWork, kGet},
                carried,
                accesses,
                carried}),
        // In clear where it is to be encrypted, before and behind the handshake.
        joined({{0}, {kCall, 0}, in_clear}),
        joined({{0}, {kWork, kPut, kTaken, 0}, in_clear}),
        joined({{0}, called, in_clear, carried}),
        joined({{0}, {kWork, kMessage, kTaken, kWelcomed, kPass, 20}}),
        // It falls silent within the handshake, and goes.
        joined({{0}, {kCall, 0, kPass, 20}}),
        joined({{0}, {kWork, kGet, kTaken, 0, kPass, 63, kLeave, 0, kPass, 20}}),
        // Sessions that go on; the peer connects, or the interface does.
        joined({{1},
                {kCall, kCanResume},
                carried,
                carried,
                message,
                carried,
                {kCall, kResumes},
                carried,
                carried,
                message,
                {kCarry, kFlip, 9, kCall, kResumes, kPass, 1, kTaken, 0},
                carried,
                carried}),
        joined({{1},
                works,
                calls,
                {kWelcome, kWelcomed | kCanResume},
                carried,
                carried,
                {kLeave, kReset, kPass, 1, kTaken, 0},
                carried,
                carried,
                {kWelcome, kWelcomed | kCanResume},
                carried,
                carried,
                {kPass, 60}}),
    };
    for (const uint8_t change : {kFlip, kShorten, kHold, kTwice, kNothing}) {
        const auto changed = [&](uint8_t where) { return Input{kCarry, change, where}; };
        inputs.push_back(joined({{0}, {kCall, 0}, changed(100), carried, carried}));
        inputs.push_back(joined({{0}, {kCall, 0}, carried, changed(100), carried}));
        inputs.push_back(
            joined({{0}, {kWork, kGet, kTaken, 0}, changed(100), carried, {kPass, 2}, welcomed}));
        inputs.push_back(joined({{0}, called, message, accesses, changed(200), message, carried}));
        inputs.push_back(
            joined({{0}, works, calls, {kWelcome, kWelcomed}, changed(77), message, carried}));
    }
    return inputs;
}

}  // namespace ucp::fuzz
