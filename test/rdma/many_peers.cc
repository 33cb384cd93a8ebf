// SPDX-License-Identifier: BSD-3-Clause

// many_peers [--peers N]
//
// What an interface's N endpoints cost on the first adapter of this host, over ud_verbs (all on one
// queue pair) and over rc_verbs (a queue pair each): bytes of heap and of the machine's memory for
// each, time to make them, time until the first message to each is acknowledged. For ud_verbs the
// other ends are N interfaces; for rc_verbs as many endpoints of one other interface.

#include <fmt/format.h>
#include <malloc.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>

#include "ucs/config/source.h"
#include "ucs/sys/random.h"
#include "uct/api/interface.h"
#include "uct/ib/component.h"

namespace uct {
namespace {

using SteadyClock = std::chrono::steady_clock;
using Milliseconds = std::chrono::duration<double, std::milli>;

constexpr auto kLimit = std::chrono::seconds(120);

[[noreturn]] void give_up(std::string_view what, ucs_status_t status) {
    fmt::print(stderr, "{}: {}\n", what, ucs_status_string(status));
    std::exit(1);
}

void require(ucs_status_t status, std::string_view what) {
    if (status != UCS_OK) give_up(what, status);
}

size_t heap_in_use() {
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

// Bytes that the machine could still give away: what the kernel keeps for us is gone from it.
int64_t available() {
    std::ifstream file("/proc/meminfo");
    std::string name;
    int64_t kilobytes = 0;
    while (file >> name >> kilobytes) {
        if (name == "MemAvailable:") return kilobytes * 1024;
        file.ignore(64, '\n');
    }
    return 0;
}

// Interfaces of one domain, all with the same handlers.
class Bench {
  public:
    explicit Bench(const char* transport) : transport_(transport) {
        for (AmTable::Entry& entry : table_.entries) entry = {&Bench::handle, this};
    }

    std::unique_ptr<Interface> open(bool is_small) {
        ucs::config::Source source;
        std::string error;
        const std::pair<const char*, const char*> settings[] = {{"UD_RX_QUEUE_LEN", "16"},
                                                                {"UD_RX_QUEUE_INITIAL", "16"},
                                                                {"UD_TX_QUEUE_LEN", "16"},
                                                                {"RC_TIMEOUT", "500ms"}};
        for (const auto& [name, value] : settings) {
            if (!is_small && std::string_view(name).starts_with("UD_")) continue;
            require(source.modify(name, value, error), error);
        }
        const InterfaceParams params{clock_,
                                     random_,
                                     table_,
                                     [](void*, Endpoint*, ucs_status_t status) {
                                         give_up("an endpoint failed", status); },
                                     this,
                                     1,
                                     peers,
                                     &source};
        if (opened_++ % kInterfacesOfADomain == 0) open_domain();
        std::unique_ptr<Interface> interface;
        require(domains_.back()->open_interface(transport_, params, &interface), "interface");
        return interface;
    }

    size_t peers = 1000;
    size_t arrived = 0;

  private:
    // All watch one descriptor of the adapter; Linux allows it some hundred watchers.
    static constexpr unsigned kInterfacesOfADomain = 250;

    void open_domain() {
        for (const Resource& resource : ib::component().resources()) {
            if (resource.transport != transport_) continue;
            require(ib::component().open_domain(resource.device, &domains_.emplace_back()),
                    "domain");
            return;
        }
        give_up(transport_, UCS_ERR_NO_DEVICE);
    }
    static ucs_status_t handle(void* arg, void*, size_t, ReceiveDescriptor*) {
        ++static_cast<Bench*>(arg)->arrived;
        return UCS_OK;
    }

    const char* transport_;
    std::vector<std::unique_ptr<MemoryDomain>> domains_;
    unsigned opened_ = 0;
    AmTable table_{};
    ucs::WallClock clock_;
    ucs::Random random_{1};
};

using Bytes = std::vector<std::byte>;
using Interfaces = std::vector<std::unique_ptr<Interface>>;
using Endpoints = std::vector<std::unique_ptr<Endpoint>>;

struct Addresses {
    Bytes device, interface;
};

Addresses addresses_of(const Interface& interface) {
    Addresses result{Bytes(interface.attributes().device_address_length),
                     Bytes(interface.attributes().interface_address_length)};
    require(interface.get_device_address(result.device), "device address");
    if (!result.interface.empty()) {
        require(interface.get_interface_address(result.interface), "interface address");
    }
    return result;
}

// Time and memory since it was made.
class Meter {
  public:
    void stop(size_t count) {
        milliseconds = Milliseconds(SteadyClock::now() - start_).count();
        heap = (heap_in_use() - heap_) / count;
        machine = (available_ - available()) / static_cast<int64_t>(count);
    }
    double milliseconds = 0;
    size_t heap = 0;
    int64_t machine = 0;

  private:
    const int64_t available_ = available();
    const size_t heap_ = heap_in_use();
    const SteadyClock::time_point start_ = SteadyClock::now();
};

// A message on each endpoint. @return milliseconds until all are acknowledged
double first_messages(Bench& bench, Interface& hub, const Endpoints& endpoints,
                      const Interfaces& others) {
    const auto start = SteadyClock::now();
    const auto progress = [&] {
        unsigned events = hub.progress();
        for (const auto& other : others) events += other->progress();
        if (events == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
        if (SteadyClock::now() - start > kLimit) give_up("first messages", UCS_ERR_TIMED_OUT);
    };
    for (const auto& endpoint : endpoints) {
        ucs_status_t status;
        while ((status = endpoint->am_short(1, 0, nullptr, 0)) == UCS_ERR_NO_RESOURCE) progress();
        require(status, "send");
    }
    while (bench.arrived < endpoints.size()) progress();
    for (const auto& endpoint : endpoints) {
        while (endpoint->flush(nullptr) == UCS_INPROGRESS) progress();
    }
    return Milliseconds(SteadyClock::now() - start).count();
}

void report(const char* transport, size_t count, const Meter& meter, double first) {
    fmt::print(
        "figure: {}: {} endpoints in {:.0f} ms; each {} bytes of heap, {} bytes of the "
        "machine; first message to all acknowledged after {:.0f} ms\n",
        transport, count, meter.milliseconds, meter.heap, meter.machine, first);
}

void measure_datagrams(size_t peers) {
    Bench bench("ud_verbs");
    bench.peers = peers;
    Interfaces others;
    std::vector<Addresses> addresses;
    for (size_t i = 0; i < peers; ++i) {
        others.push_back(bench.open(true));
        addresses.push_back(addresses_of(*others.back()));
    }
    const auto hub = bench.open(false);
    Endpoints endpoints(peers);
    Meter meter;
    for (size_t i = 0; i < peers; ++i) {
        const RemoteAddress remote{addresses[i].device, addresses[i].interface, {}};
        require(hub->create_endpoint(remote, &endpoints[i]), "endpoint");
    }
    meter.stop(peers);
    report("ud_verbs", peers, meter, first_messages(bench, *hub, endpoints, others));
    endpoints.clear();
}

void measure_connections(size_t peers) {
    Bench bench("rc_verbs");
    bench.peers = peers;
    Interfaces others;
    others.push_back(bench.open(false));
    const auto hub = bench.open(false);
    const Addresses there = addresses_of(*others[0]), here = addresses_of(*hub);
    const size_t length = hub->attributes().endpoint_address_length;
    Endpoints far(peers), near(peers);
    std::vector<Bytes> far_names(peers, Bytes(length));
    for (size_t i = 0; i < peers; ++i) {
        require(others[0]->create_endpoint({}, &far[i]), "endpoint");
        require(far[i]->get_address(far_names[i]), "address");
    }
    Meter meter;
    for (size_t i = 0; i < peers; ++i) {
        require(hub->create_endpoint({}, &near[i]), "endpoint");
        require(near[i]->connect({there.device, {}, far_names[i]}), "connect");
    }
    meter.stop(peers);
    for (size_t i = 0; i < peers; ++i) {
        Bytes name(length);
        require(near[i]->get_address(name), "address");
        require(far[i]->connect({here.device, {}, name}), "connect");
    }
    report("rc_verbs", peers, meter, first_messages(bench, *hub, near, others));
    near.clear();
    far.clear();
}

}  // namespace
}  // namespace uct

int main(int argc, char** argv) {
    size_t peers = 1000;
    if (argc == 3 && std::string_view(argv[1]) == "--peers") {
        peers = std::strtoull(argv[2], nullptr, 10);
    }
    if (peers == 0) return 2;
    uct::measure_datagrams(peers);
    uct::measure_connections(peers);
    return 0;
}
