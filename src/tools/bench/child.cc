// SPDX-License-Identifier: BSD-3-Clause

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include "tools/bench/job.h"
#include "tools/common/device_memory.h"
#include "tools/program/worker.h"
#include "tools/report/result.h"

namespace tools {
namespace {

class ProcessHost final : public Host {
  public:
    ProcessHost(const JobPlace& place, unsigned ranks)
        : rank_(place.rank),
          ranks_(ranks),
          channel_(place.inherited[0]),
          shared_(SharedPage::open(place.inherited[1], ranks)) {}

    int64_t now() override {
        return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch())
            .count();
    }
    void barrier_enter(uint64_t ticket) override {
        shared_.counters().barriers_entered.fetch_add(1, std::memory_order_acq_rel);
    }
    bool barrier_open(uint64_t ticket) override {
        return shared_.counters().barriers_entered.load(std::memory_order_acquire) >=
               ticket * ranks_;
    }
    void report(const Sample& sample) override {
        tell({{"sample", {sample.size, sample.messages, sample.elapsed, sample.rounds}}});
    }
    void compute(int64_t nanoseconds) override {
        std::this_thread::sleep_for(std::chrono::nanoseconds(nanoseconds));
    }
    void completed(int64_t) override {}
    void progressed(uint64_t messages) override {
        auto& counter = shared_.messages(rank_);
        counter.store(counter.load(std::memory_order_relaxed) + messages,
                      std::memory_order_relaxed);
    }

    void tell(const Json& message) {
        if (!channel_.send(message)) throw std::runtime_error("the launcher is gone");
    }
    Json hear() { return channel_.expect(); }

  private:
    const unsigned rank_, ranks_;
    Channel channel_;
    SharedPage shared_;
};

// Several ranks may share a core: one that finds nothing to do lets others run.
void drive(Rank& rank, bool share_cores) {
    constexpr unsigned kStepsToYield = 100;
    unsigned idle = 0;
    while (!rank.finished()) {
        idle = rank.step() ? 0 : idle + 1;
        if (share_cores && idle > kStepsToYield) sched_yield();
    }
}

// Memory that this process has of its own and shares with others, in bytes.
uint64_t resident_bytes() {
    std::ifstream status("/proc/self/status");
    uint64_t kibibytes = 0;
    for (std::string line; std::getline(status, line);) {
        if (line.starts_with("RssAnon:") || line.starts_with("RssShmem:"))
            kibibytes += std::stoull(line.substr(line.find(':') + 1));
    }
    return kibibytes * 1024;
}

// Without a number in the words, ranks take the devices in turn.
MemoryPlace in_turn(MemoryPlace place, unsigned rank) {
    int count = 0;
    check_cuda(cuda_driver().device_get_count(&count), "cuDeviceGetCount");
    if (place.device < 0 && count > 0)
        place.device = static_cast<int>(rank % static_cast<unsigned>(count));
    return place;
}

}  // namespace

void run_child(const JobPlace& place, const Pattern<BenchOptions>& pattern, BenchOptions options,
               const std::string& memory) {
    std::unique_ptr<CudaDevice> device;
    const MemoryPlace where = MemoryPlace::parse(memory);
    // Before the library starts: it gets ready in the contexts that there are.
    if (where.is_device) device = std::make_unique<CudaDevice>(in_turn(where, place.rank), true);
    options.device = device.get();
    ProcessHost host(place, options.ranks);
    const uint64_t before = resident_bytes();
    const auto grown = [before] { return std::max(resident_bytes(), before) - before; };
    RankMemory taken;
    Context context(options.ranks);
    Worker worker(context.handle());
    taken.with_worker = grown();
    host.tell({{"address", to_hex(worker.address())}});
    std::vector<std::string> addresses;
    for (unsigned peer = 0; peer < options.ranks; ++peer) {
        addresses.push_back(from_hex(host.hear().at("address")));
    }

    Rank rank(place.rank, worker.handle(), std::move(addresses), host);
    const bool share_cores = options.ranks > std::thread::hardware_concurrency();
    rank.spawn(pattern.program(rank, options));
    drive(rank, share_cores);
    taken.at_end = grown();
    for (const LaneEntry& entry : query_lanes(rank)) host.tell({{"lane", to_json(entry)}});
    host.tell({{"counters", to_json(query_counters(rank))}});
    host.tell({{"memory", to_json(taken)}});
    rank.spawn(rank.leave());
    drive(rank, share_cores);
    host.tell({{"done", true}});
}

}  // namespace tools
