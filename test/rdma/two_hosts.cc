// SPDX-License-Identifier: BSD-3-Clause

// two_hosts [--seconds S] [--link FILE [--away S]] [--switch no]
//
// One of two ends, on hosts with NODE (0 or 1) and PEER (the other's name or address) in the
// environment: checked traffic of every kind to the other while the pair's lane is switched all the
// time (or when the library thinks fit). With --link the port loses its link half way, for a second
// or as many as --away says; 0: for good, which must end as an error of the endpoint. The file asks
// the runner of guests for that ("down", "up").

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>

#include "system/traffic.h"

namespace ucp::test {

struct Options {
    unsigned seconds = 10;
    const char* link = nullptr;
    unsigned away = 1;  // seconds; 0: for good
    bool switches = true;
};

namespace {

using Clock = std::chrono::steady_clock;
constexpr uint16_t kPort = 7471;
constexpr auto kStart = std::chrono::seconds(60);
// Between wishes for another lane: agreeing takes some round trips of an emulated machine.
constexpr auto kWishes = std::chrono::milliseconds(300);

[[noreturn]] void give_up(const char* what) {
    std::perror(what);
    std::exit(1);
}

in_addr address_of(const char* host) {
    addrinfo hints{};
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (const int code = getaddrinfo(host, nullptr, &hints, &found); code != 0) {
        fmt::print(stderr, "{}: {}\n", host, gai_strerror(code));
        std::exit(1);
    }
    const in_addr address = reinterpret_cast<const sockaddr_in*>(found->ai_addr)->sin_addr;
    freeaddrinfo(found);
    return address;
}

// A connection for what must be known before the library can reach the other end.
int meet(bool listens, const char* peer) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(kPort);
    const auto limit = Clock::now() + kStart;
    if (listens) {
        const int listener = socket(AF_INET, SOCK_STREAM, 0);
        address.sin_addr.s_addr = INADDR_ANY;
        const int yes = 1;  // the port may still be marked by an earlier run
        setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
        if (bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
            listen(listener, 1) != 0) {
            give_up("listen");
        }
        pollfd descriptor{listener, POLLIN, 0};
        if (poll(&descriptor, 1, 60000) != 1) give_up("the other end does not come");
        return accept(listener, nullptr, nullptr);
    }
    address.sin_addr = address_of(peer);
    for (;;) {
        const int connection = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(connection, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) {
            return connection;
        }
        close(connection);
        if (Clock::now() > limit) give_up("connect");
        poll(nullptr, 0, 100);
    }
}

void put(int connection, std::string_view bytes) {
    const uint64_t length = bytes.size();
    if (write(connection, &length, sizeof(length)) != sizeof(length) ||
        write(connection, bytes.data(), length) != static_cast<ssize_t>(length)) {
        give_up("write");
    }
}

std::string get(int connection) {
    uint64_t length = 0;
    if (recv(connection, &length, sizeof(length), MSG_WAITALL) != sizeof(length)) give_up("read");
    std::string bytes(length, '\0');
    if (recv(connection, bytes.data(), length, MSG_WAITALL) != static_cast<ssize_t>(length)) {
        give_up("read");
    }
    return bytes;
}

int run(size_t me, const char* peer_host, const Options& chosen) {
    const bool is_lost = chosen.link != nullptr && chosen.away == 0;
    const size_t peer = 1 - me;
    const int connection = meet(me == 0, peer_host);
    ucp_context_h context = nullptr;
    ucp_worker_h worker = nullptr;
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features =
        UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_RMA | UCP_FEATURE_AMO32 | UCP_FEATURE_AMO64;
    ucp_worker_params_t worker_params{};
    ucp_address_t* address = nullptr;
    size_t length = 0;
    if (ucp_init(&params, nullptr, &context) != UCS_OK ||
        ucp_worker_create(context, &worker_params, &worker) != UCS_OK ||
        ucp_worker_get_address(worker, &address, &length) != UCS_OK) {
        give_up("library");
    }
    TrafficOptions options;
    options.operations = ~0u;
    options.max_length = size_t{256} << 10;
    options.slots = 2;
    options.slot_bytes = size_t{64} << 10;
    auto party = std::make_unique<Party>(options, me, context, worker);
    const TrafficRegion region = party->region_for(peer);
    put(connection, {reinterpret_cast<char*>(address), length});
    put(connection, region.key);
    put(connection, std::to_string(region.address));
    ucp_worker_release_address(worker, address);
    const std::string remote = get(connection);
    const std::string key = get(connection);
    const uint64_t remote_address = std::stoull(get(connection));

    unsigned failures = 0;
    ucp_ep_params_t endpoint_params{};
    endpoint_params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                 UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                 UCP_EP_PARAM_FIELD_ERR_HANDLER;
    endpoint_params.address = reinterpret_cast<const ucp_address_t*>(remote.data());
    endpoint_params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    endpoint_params.err_handler = {[](void* arg, ucp_ep_h, ucs_status_t status) {
                                       fmt::print(stderr, "endpoint failed: {}\n",
                                                  ucs_status_string(status));
                                       ++*static_cast<unsigned*>(arg);
                                   },
                                   &failures};
    ucp_ep_h endpoint = nullptr;
    if (ucp_ep_create(worker, &endpoint_params, &endpoint) != UCS_OK) give_up("endpoint");
    party->connect(peer, endpoint, {remote_address, key});

    const auto start = Clock::now();
    const auto end = start + std::chrono::seconds(chosen.seconds);
    const auto limit = end + std::chrono::seconds(60);
    const char* wanted = "up";
    auto next_wish = start;
    const auto turn = [&] {
        party->step();
        if (chosen.switches && Clock::now() >= next_wish) {
            party->force_switch();
            next_wish += kWishes;
        }
        if (ucp_worker_progress(worker) == 0) poll(nullptr, 0, 0);
    };
    const auto healthy = [&] { return failures == 0 && party->errors().empty(); };
    while (Clock::now() < end && healthy()) {
        turn();
        const auto since = Clock::now() - (start + (end - start) / 2);
        const bool is_away = since > Clock::duration::zero() &&
                             (is_lost || since < std::chrono::seconds(chosen.away));
        const char* now = is_away ? "down" : "up";
        if (chosen.link != nullptr && now != wanted) std::ofstream(chosen.link) << (wanted = now);
    }
    if (is_lost) {
        while (failures == 0 && Clock::now() < limit) turn();
        const bool is_right = failures == 1 && wanted == std::string_view("down");
        fmt::print("figure: end {}: {}\n", me,
                   is_right ? "the endpoint failed after the link was lost for good"
                            : "the lost link is no error, or there was one before");
        party->forgive(peer);
        party->abandon();
        ucp_worker_destroy(worker);
        party.reset();
        ucp_cleanup(context);
        return is_right ? 0 : 1;
    }
    party->stop();
    while (!party->is_done() && healthy() && Clock::now() < limit) turn();
    const bool right = party->is_done() && healthy();
    for (const std::string& error : party->errors()) fmt::print(stderr, "{}\n", error);
    if (!party->is_done()) fmt::print(stderr, "not done:\n{}\n", party->describe());

    // The other end may still need answers, and its messages somebody who receives them.
    put(connection, "done");
    pollfd descriptor{connection, POLLIN, 0};
    while (poll(&descriptor, 1, 0) == 0 && Clock::now() < limit) turn();
    for (int count = 0; count < 1000; ++count) ucp_worker_progress(worker);
    ucpx_worker_attr_t attr{};
    attr.field_mask = UCPX_WORKER_ATTR_FIELD_SLOTS | UCPX_WORKER_ATTR_FIELD_SWITCHES;
    ucpx_worker_query(worker, &attr);
    fmt::print("figure: end {}: {} promotions, {} demotions, {} messages, {} bytes\n", me,
               attr.promotions, attr.demotions, party->totals().messages, party->totals().bytes);
    party->abandon();
    for (int count = 0; count < 100; ++count) ucp_worker_progress(worker);
    ucp_worker_destroy(worker);
    party.reset();
    ucp_cleanup(context);
    const bool busy = !chosen.switches || (attr.promotions > 0 && attr.demotions > 0);
    return right && busy && attr.dedicated_peak <= attr.cap ? 0 : 1;
}

}  // namespace
}  // namespace ucp::test

int main(int argc, char** argv) {
    ucp::test::Options options;
    for (int index = 1; index + 1 < argc; index += 2) {
        const std::string_view name = argv[index];
        const char* value = argv[index + 1];
        if (name == "--seconds") options.seconds = static_cast<unsigned>(std::atoi(value));
        if (name == "--link") options.link = value;
        if (name == "--away") options.away = static_cast<unsigned>(std::atoi(value));
        if (name == "--switch") options.switches = value != std::string_view("no");
    }
    const char* node = std::getenv("NODE");
    const char* peer = std::getenv("PEER");
    if (node == nullptr || peer == nullptr) return 2;
    return ucp::test::run(static_cast<size_t>(std::atoi(node)), peer, options);
}
