// SPDX-License-Identifier: BSD-3-Clause

// The handshake of clients and listeners (src/ucp/wireup), from either end: the input is the other
// one. It calls or answers, proves itself where there is a key, introduces itself with addresses of
// its making, and goes. With a key the workers are joined by mock transports and everybody is
// believed; without one by tcp, and callers are guests.
//
// When all have gone, nothing of them may be left but what the program holds.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>

#include "common/mock_transport.h"
#include "fuzz/inputs.h"
#include "ucp/api/ucp.h"
#include "ucp/base/handles.h"
#include "ucp/context/context.h"
#include "ucp/wireup/handshake.h"
#include "ucp/worker/worker.h"
#include "ucs/config/source.h"
#include "ucs/log/log.h"
#include "ucs/net/socket.h"
#include "ucs/sys/descriptor.h"
#include "ucs/sys/time.h"
#include "uct/tcp/component.h"

namespace ucp::fuzz {

namespace {

constexpr char kJobKey[] = "a job's key";

enum Step : uint8_t {
    kMeet,    // call the listener, or be called; argument: connection
    kCall,    // the first words; a byte changes them, see changed()
    kFrame,   // a frame: kind, client id or not, address (see address()); argument: connection
    kBytes,   // argument: connection; a byte: how many bytes follow, which are sent
    kHangUp,  // argument: connection
    kPass,    // so many seconds pass
    kWork,    // the worker sends on its endpoints, or closes them
    kSteps
};

// Bytes of an input, one after the other.
class Bytes {
  public:
    explicit Bytes(std::span<const uint8_t> input) : input_(input) {}
    bool empty() const { return input_.empty(); }
    uint8_t next() {
        if (input_.empty()) return 0;
        const uint8_t byte = input_[0];
        input_ = input_.subspan(1);
        return byte;
    }
    std::vector<std::byte> take(size_t length) {
        const auto part = std::as_bytes(input_.first(std::min(length, input_.size())));
        input_ = input_.subspan(part.size());
        return {part.begin(), part.end()};
    }

  private:
    std::span<const uint8_t> input_;
};

// A worker, and one more whose address is a good one.
class World {
  public:
    explicit World(bool has_key) : has_key_(has_key) {
        ucs::config::Source source;
        std::string error;
        source.modify("NET_DEVICES", has_key ? "all" : "lo", error);
        Config config;
        kConfigTable.load(source, config, error);
        ContextSeams seams;
        seams.clock = &clock_;
        seams.virtual_time = true;
        seams.components = std::span<uct::Component* const>(&component_, 1);
        for (Side& side : sides_) {
            seams.seed = seams.seed.value_or(0) + 1;
            ucp_params_t params{};
            params.field_mask = UCP_PARAM_FIELD_FEATURES;
            params.features = UCP_FEATURE_TAG | UCP_FEATURE_AM;
            if (Context::create(params, config, seams, &side.context) != UCS_OK ||
                Worker::create(*side.context, ucp_worker_params_t{}, &side.worker) != UCS_OK)
                ucs::log_fatal("the fuzzed worker cannot be made");
        }
        // A worker looks for the key when it first needs it.
        if (has_key) setenv("UCX_TCP_JOB_KEY", kJobKey, 1);
        wireup::ConnectionManager* manager = nullptr;
        worker().connections(&manager);
        unsetenv("UCX_TCP_JOB_KEY");
    }
    World(const World&) = delete;

    Worker& worker() { return *sides_[0].worker; }
    // The good one lives on, and what it greets with may come late.
    bool is_answer(const Endpoint& endpoint) const {
        return !endpoint.is_users() && endpoint.remote_uuid() == sides_[1].worker->uuid();
    }
    std::string_view key() const { return has_key_ ? kJobKey : ""; }
    void progress(unsigned rounds) {
        for (; rounds != 0; --rounds) {
            clock_.advance(std::chrono::milliseconds(1));
            for (Side& side : sides_) side.worker->progress();
        }
    }
    void pass(unsigned seconds) {
        for (; seconds != 0; --seconds) {
            clock_.advance(std::chrono::seconds(1));
            progress(1);
        }
    }
    // Kind 0: the good one; 1: the worker's own; 2: the good one, changed; 3: anything.
    std::vector<std::byte> address(Bytes& input) {
        const uint8_t kind = input.next() & 3;
        if (kind == 3) return input.take(input.next());
        std::vector<std::byte> bytes = sides_[kind == 1 ? 0 : 1].worker->address();
        if (kind != 2) return bytes;
        for (unsigned changes = 1 + input.next() % 4; changes != 0; --changes) {
            const size_t at = input.next() | (input.next() & 1) << 8;
            bytes[at % bytes.size()] = std::byte{input.next()};
        }
        repair_address(bytes);
        return bytes;
    }

  private:
    struct Side {
        std::unique_ptr<Context> context;
        std::unique_ptr<Worker> worker;
    };

    const bool has_key_;
    ucs::VirtualClock clock_;
    uct::mock::Fabric fabric_;
    uct::Component* component_ = has_key_ ? &fabric_.component() : &uct::tcp::component();
    std::array<Side, 2> sides_;
};

// Some free port of the loopback.
ucs::net::SocketAddress a_port() {
    sockaddr_in loopback{};
    loopback.sin_family = AF_INET;
    loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return *ucs::net::SocketAddress::from(
        {reinterpret_cast<const sockaddr*>(&loopback), sizeof(loopback)});
}

// The other end of a socket of the worker's.
struct Line {
    ucs::Descriptor socket;
    std::optional<wireup::FrameSeal> seal;
    wireup::Call call{};

    void say(std::span<const std::byte> bytes) const {
        [[maybe_unused]] const ssize_t sent =
            send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    template <typename Message>
    void say_words(const Message& message) const {
        say(std::as_bytes(std::span(&message, 1)));
    }
};

class Talk {
  public:
    Talk(uint8_t mode, Bytes input) : world_((mode & 1) != 0), input_(input), mode_(mode) {}
    virtual ~Talk() = default;

    void hold() {
        begin();
        while (!input_.empty()) {
            const auto what = static_cast<Step>(input_.next() % kSteps);
            step(what, input_.next());
            world_.progress(4);
        }
        for (Line& line : lines_) line.socket.reset();
        stop();
        world_.pass(60);
        close_all();
        world_.pass(60);
        world_.worker().endpoints().for_each([this](const Endpoint& endpoint) {
            if (!world_.is_answer(endpoint)) std::abort();
        });
    }

  protected:
    virtual void begin() = 0;
    virtual void stop() = 0;
    virtual void meet(Line& line) = 0;
    // Say the first words, those of the library with a change.
    virtual void call(Line& line, uint8_t change) = 0;

    ucp_ep_params_t endpoint_params() {
        ucp_ep_params_t params{};
        params.field_mask = UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
        params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
        return params;
    }
    // The next message of the worker's, if it comes.
    template <typename Message>
    bool take(Line& line, Message* message) {
        for (int round = 0; round < 20; ++round) {
            const ssize_t got = recv(line.socket.get(), message, sizeof(*message), MSG_DONTWAIT);
            if (got == ssize_t{sizeof(*message)}) return true;
            world_.progress(1);
        }
        return false;
    }
    // Bit by bit: another magic, versions, reserved words, key or none.
    template <typename Message>
    static Message changed(Message message, uint8_t change) {
        if ((change & 1) != 0) message.magic ^= 0x1e;
        if ((change & 2) != 0) message.version = change;
        if ((change & 4) != 0) message.oldest = change;
        if ((change & 8) != 0) message.capabilities = ~0u;
        return message;
    }

    World world_;
    Bytes input_;
    const uint8_t mode_;
    std::array<Line, 4> lines_;
    std::vector<ucp_ep_h> endpoints_;

  private:
    void step(Step step, uint8_t argument) {
        Line& line = lines_[argument % lines_.size()];
        switch (step) {
            case kMeet:
                meet(line);
                break;
            case kCall:
                call(line, input_.next());
                break;
            case kFrame:
                line.say(frame(line));
                break;
            case kBytes:
                line.say(input_.take(input_.next()));
                break;
            case kHangUp:
                line.socket.reset();
                break;
            case kPass:
                world_.pass(argument % 16);
                break;
            default:
                work(argument);
        }
    }
    std::vector<std::byte> frame(Line& line) {
        wireup::Frame frame;
        frame.kind = static_cast<wireup::FrameKind>(input_.next() % 6);
        const uint8_t flags = input_.next();
        frame.has_client_id = (flags & 1) != 0;
        frame.stream = flags >> 1;
        if ((flags & 0x80) == 0) frame.address = world_.address(input_);
        std::vector<std::byte> bytes = wireup::pack_frame(frame);
        if (line.seal) line.seal->append(bytes);
        return bytes;
    }
    void work(uint8_t argument) {
        if (argument >= 0x80) return close_all();
        static const uint64_t number = 5;
        for (const ucp_ep_h endpoint : endpoints_) {
            const ucp_request_param_t none{};
            const ucs_status_ptr_t sending =
                ucp_tag_send_nbx(endpoint, &number, sizeof(number), 1, &none);
            if (UCS_PTR_IS_PTR(sending)) ucp_request_free(sending);
        }
    }
    void close_all() {
        for (const ucp_ep_h endpoint : endpoints_) {
            ucp_request_param_t force{};
            force.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
            force.flags = UCP_EP_CLOSE_FLAG_FORCE;
            const ucs_status_ptr_t closing = ucp_ep_close_nbx(endpoint, &force);
            if (UCS_PTR_IS_PTR(closing)) ucp_request_free(closing);
        }
        endpoints_.clear();
    }
};

// The input calls a listener. Mode, bit 1: its program accepts some and rejects others.
class Callers final : public Talk {
  public:
    using Talk::Talk;

  private:
    void begin() override {
        const ucs::net::SocketAddress any = a_port();
        ucp_listener_params_t params{};
        params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR;
        params.sockaddr = {any.get(), any.length()};
        if ((mode_ & 2) != 0) {
            params.field_mask |= UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
            params.conn_handler = {&Callers::decide, this};
        } else {
            params.field_mask |= UCP_LISTENER_PARAM_FIELD_ACCEPT_HANDLER;
            params.accept_handler = {
                [](ucp_ep_h endpoint, void* self) {
                    static_cast<Callers*>(self)->endpoints_.push_back(endpoint);
                },
                this};
        }
        if (ucp_listener_create(wrap(&world_.worker()), &params, &listener_) != UCS_OK) return;
        ucp_listener_attr_t attr{};
        attr.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
        ucp_listener_query(listener_, &attr);
        where_ = ucs::net::SocketAddress::from(
            {reinterpret_cast<const sockaddr*>(&attr.sockaddr), sizeof(attr.sockaddr)});
    }
    void stop() override {
        if (listener_ != nullptr) ucp_listener_destroy(std::exchange(listener_, nullptr));
    }
    static void decide(ucp_conn_request_h request, void* arg) {
        auto& self = *static_cast<Callers*>(arg);
        if (++self.decisions_ % 3 == 0) {
            ucp_listener_reject(self.listener_, request);
            return;
        }
        ucp_ep_params_t params = self.endpoint_params();
        params.field_mask |= UCP_EP_PARAM_FIELD_CONN_REQUEST;
        params.conn_request = request;
        ucp_ep_h endpoint = nullptr;
        if (ucp_ep_create(wrap(&self.world_.worker()), &params, &endpoint) == UCS_OK) {
            self.endpoints_.push_back(endpoint);
        }
    }
    void meet(Line& line) override {
        line = {};
        if (!where_) return;
        line.socket.reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (connect(line.socket.get(), where_->get(), where_->length()) != 0) line.socket.reset();
        const linger at_once{1, 0};
        setsockopt(line.socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    }
    void call(Line& line, uint8_t change) override {
        line.call = changed(wireup::new_call(world_.key()), change);
        if ((change & 16) != 0) line.call.has_key ^= 1;
        line.say_words(line.call);
        wireup::CallAnswer answer{};
        if (!take(line, &answer)) return;
        line.seal.emplace(wireup::FrameSeal::End::kClient, world_.key(), line.call, answer);
    }

    ucp_listener_h listener_ = nullptr;
    std::optional<ucs::net::SocketAddress> where_;
    unsigned decisions_ = 0;
};

// The worker calls, and the input answers.
class Answerer final : public Talk {
  public:
    using Talk::Talk;

  private:
    void begin() override {
        const ucs::net::SocketAddress any = a_port();
        if (ucs::net::Socket::open(AF_INET, &listener_) != UCS_OK ||
            listener_.bind(any) != UCS_OK || listener_.listen() != UCS_OK)
            listener_.close();
    }
    void stop() override { listener_.close(); }
    void meet(Line& line) override {
        line = {};
        if (!listener_) return;
        const ucs::net::SocketAddress where = listener_.local();
        ucp_ep_params_t params = endpoint_params();
        params.field_mask |= UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR;
        params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
        params.sockaddr = {where.get(), where.length()};
        ucp_ep_h endpoint = nullptr;
        if (ucp_ep_create(wrap(&world_.worker()), &params, &endpoint) != UCS_OK) return;
        endpoints_.push_back(endpoint);
        ucs::net::Socket accepted;
        for (int round = 0; round < 20 && listener_.accept(&accepted) != UCS_OK; ++round) {
            world_.progress(1);
        }
        if (accepted) line.socket.reset(dup(accepted.descriptor()));
    }
    void call(Line& line, uint8_t change) override {
        if (!take(line, &line.call)) return;
        wireup::CallAnswer answer = changed(wireup::answer_to(line.call, world_.key()), change);
        if ((change & 16) != 0) answer.verdict = static_cast<wireup::Verdict>(input_.next());
        line.say_words(answer);
        line.seal.emplace(wireup::FrameSeal::End::kServer, world_.key(), line.call, answer);
    }

    ucs::net::Socket listener_;
};

template <typename Kind>
void hold(std::span<const uint8_t> input) {
    constexpr size_t kLongest = 512;
    Bytes bytes(input.first(std::min(input.size(), kLongest)));
    const uint8_t mode = bytes.next();
    Kind(mode, bytes).hold();
}

}  // namespace

void read_callers(std::span<const uint8_t> input) {
    hold<Callers>(input);
}

void read_answers(std::span<const uint8_t> input) {
    hold<Answerer>(input);
}

namespace {

enum : uint8_t { kGood, kOwn, kChanged, kAny };

// The same talk in all modes.
std::vector<Input> in_modes(uint8_t modes, std::initializer_list<Input> talks) {
    std::vector<Input> inputs;
    for (uint8_t mode = 0; mode < modes; ++mode) {
        for (const Input& talk : talks) {
            inputs.push_back({mode});
            inputs.back().insert(inputs.back().end(), talk.begin(), talk.end());
        }
    }
    return inputs;
}

}  // namespace

std::vector<Input> callers() {
    constexpr uint8_t kConnect = 1, kBye = 4, kNoAddress = 0x80;
    return in_modes(
        4, {
               {kMeet, 0, kCall,  0, 0,    kFrame,     0,       kConnect, 3,     kGood,
                kWork, 0, kFrame, 0, kBye, kNoAddress, kHangUp, 0,        kPass, 1},
               {kMeet,  0, kCall,    0, 0,     kFrame, 0, kConnect, 2, kGood, kMeet, 1, kCall, 1, 0,
                kFrame, 1, kConnect, 2, kGood, kWork,  0, kHangUp,  0, kWork, 0x80},
               {kMeet, 0, kCall, 0, 0, kFrame, 0, kConnect, 2, kOwn, kWork, 0},
               {kMeet, 0, kCall, 0, 0, kFrame, 0, kConnect, 2, kChanged, 1, 40, 0, 1, kWork, 0},
               {kMeet, 0, kCall, 0, 0, kFrame, 0, kConnect, 2, kAny, 3, 1, 2, 3},
               {kMeet, 0, kMeet, 1, kMeet, 2, kCall, 0, 16, kCall, 1, 2, kCall, 2, 1, kPass, 15},
               {kMeet, 3, kBytes, 3, 4, 'S', 'L', 'C', 'M'},
           });
}

std::vector<Input> answers() {
    constexpr uint8_t kAccept = 2, kReject = 3, kBye = 4, kNoAddress = 0x80;
    return in_modes(
        2, {
               {kMeet, 0,     kWork, 0, kCall,  0, 0,    kFrame,     0,     kAccept,
                2,     kGood, kWork, 0, kFrame, 0, kBye, kNoAddress, kPass, 1},
               {kMeet, 0, kCall, 0, 0, kFrame, 0, kReject, kNoAddress, kPass, 1},
               {kMeet,  0, kCall,   0, 0,     kFrame, 0, kAccept, 2, kGood, kMeet, 1, kCall, 1, 0,
                kFrame, 1, kAccept, 2, kGood, kWork,  0, kHangUp, 1, kWork, 0x80},
               {kMeet, 0, kCall, 0, 0, kFrame, 0, kAccept, 2, kOwn, kWork, 0},
               {kMeet, 0, kCall, 0, 16, 3, kMeet, 1, kCall, 1, 2, kMeet, 2, kCall, 2, 1},
               {kMeet, 0, kWork, 0, kWork, 0x80, kMeet, 1, kHangUp, 1},
           });
}

}  // namespace ucp::fuzz
