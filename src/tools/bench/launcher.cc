// SPDX-License-Identifier: BSD-3-Clause

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <stdexcept>
#include <system_error>

#include "tools/bench/job.h"
#include "tools/common/interrupt.h"
#include "tools/common/process.h"
#include "ucs/sys/descriptor.h"

namespace tools {
namespace {

constexpr std::chrono::milliseconds kProgressPeriod{250};

struct Child {
    std::optional<Channel> channel;  // until the rank has ended
    bool done = false;
    size_t samples = 0;
};

class Job {
  public:
    Job(const BenchOptions& options, const LaunchSettings& settings)
        : options_(options),
          settings_(settings),
          page_(SharedPage::create(options.ranks)),
          children_(options.ranks),
          processes_(settings.exec) {}

    RunResult run() {
        for (unsigned rank = 0; rank < options_.ranks; ++rank) start(rank);
        exchange_addresses();
        while (!all_gone() && !Interrupt::is_requested()) serve();
        return std::move(result_);
    }

  private:
    void start(unsigned rank) {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
            throw std::system_error(errno, std::generic_category(), "socketpair");
        }
        children_[rank].channel.emplace(ends[0]);
        const ucs::Descriptor its_end(ends[1]);
        processes_.start({ends[1], page_.fd()});
    }

    void exchange_addresses() {
        std::vector<Json> addresses;
        for (unsigned rank = 0; rank < options_.ranks; ++rank) {
            auto message = children_[rank].channel->receive();
            if (!message) fail(rank);
            addresses.push_back(*std::move(message));
        }
        for (unsigned rank = 0; rank < options_.ranks; ++rank) {
            for (const Json& address : addresses) {
                if (!children_[rank].channel->send(address)) fail(rank);
            }
        }
    }

    bool all_gone() const {
        for (const Child& child : children_) {
            if (child.channel) return false;
        }
        return true;
    }

    void serve() {
        std::vector<pollfd> fds;
        std::vector<unsigned> ranks;
        for (unsigned rank = 0; rank < options_.ranks; ++rank) {
            if (!children_[rank].channel) continue;
            fds.push_back({children_[rank].channel->descriptor(), POLLIN, 0});
            ranks.push_back(rank);
        }
        const int timeout = settings_.on_progress ? static_cast<int>(kProgressPeriod.count()) : -1;
        const int ready = poll(fds.data(), fds.size(), timeout);
        if (ready < 0 && errno != EINTR) {
            throw std::system_error(errno, std::generic_category(), "poll");
        }
        show_progress();
        if (ready <= 0) return;
        for (size_t i = 0; i < fds.size(); ++i) {
            if (fds[i].revents != 0) hear(ranks[i]);
        }
    }

    void hear(unsigned rank) {
        Child& child = children_[rank];
        const auto message = child.channel->receive();
        if (!message) {
            if (processes_.ended(rank) != 0 || !child.done) fail(rank);
            child.channel.reset();
            return;
        }
        if (message->contains("sample")) take_sample(child, message->at("sample"));
        if (message->contains("lane")) take_lane(message->at("lane"));
        if (message->contains("counters")) take_counters(message->at("counters"));
        if (message->contains("memory")) take_memory(message->at("memory"));
        if (message->contains("done")) child.done = true;
    }

    // A row is complete when all ranks have sent their samples of that size.
    void take_sample(Child& child, const Json& json) {
        const size_t index = child.samples++;
        if (index >= samples_.size()) samples_.resize(index + 1);
        samples_[index].push_back({.size = json.at(0),
                                   .messages = json.at(1),
                                   .elapsed = json.at(2),
                                   .rounds = json.at(3)});
        if (samples_[index].size() < options_.ranks) return;
        result_.rows.push_back(combine(samples_[index]));
        if (settings_.on_row) settings_.on_row(result_.rows.back());
    }

    void take_lane(const Json& json) {
        const LaneEntry entry{.rank = json.at("rank"),
                              .peer = json.at("peer"),
                              .lane = json.at("lane"),
                              .state = json.at("state"),
                              .score = json.at("score"),
                              .why = json.at("why")};
        const auto before = [](const LaneEntry& a, const LaneEntry& b) {
            return std::pair(a.rank, a.peer) < std::pair(b.rank, b.peer);
        };
        result_.map.insert(std::upper_bound(result_.map.begin(), result_.map.end(), entry, before),
                           entry);
    }

    void take_counters(const Json& json) {
        LaneCounters counters;
        std::ranges::transform(
            kLaneCounters, counters.values.begin(),
            [&](const LaneCounter& counter) -> uint64_t { return json.at(counter.name); });
        result_.counters += counters;
    }

    void take_memory(const Json& json) {
        result_.memory = result_.memory.larger(
            {.with_worker = json.at("with_worker_bytes"), .at_end = json.at("at_end_bytes")});
    }

    void show_progress() {
        if (!settings_.on_progress) return;
        const auto now = std::chrono::steady_clock::now();
        if (now - shown_ < kProgressPeriod) return;
        uint64_t messages = 0;
        for (unsigned rank = 0; rank < options_.ranks; ++rank) {
            messages += page_.messages(rank).load(std::memory_order_relaxed);
        }
        const double seconds = std::chrono::duration<double>(now - shown_).count();
        settings_.on_progress(static_cast<double>(messages - shown_messages_) / seconds);
        shown_ = now;
        shown_messages_ = messages;
    }

    [[noreturn]] void fail(unsigned rank) {
        rank = processes_.find_culprit(rank);
        const auto status = processes_.ended(rank, WNOHANG);
        throw std::runtime_error(fmt::format("rank {} {}; the other ranks were ended", rank,
                                             status ? describe_exit(*status) : "is gone"));
    }

    const BenchOptions& options_;
    const LaunchSettings& settings_;
    SharedPage page_;
    std::vector<Child> children_;
    Ranks processes_;  // ended before the channels are: a rank would say that its launcher is gone
    std::vector<std::vector<Sample>> samples_;  // by index of the size
    RunResult result_;
    std::chrono::steady_clock::time_point shown_ = std::chrono::steady_clock::now();
    uint64_t shown_messages_ = 0;
};

}  // namespace

RunResult launch(const BenchOptions& options, const LaunchSettings& settings) {
    return Job(options, settings).run();
}

}  // namespace tools
