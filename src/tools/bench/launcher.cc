// SPDX-License-Identifier: BSD-3-Clause

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <system_error>

#include "tools/bench/job.h"
#include "tools/common/interrupt.h"
#include "tools/common/process.h"

namespace tools {
namespace {

constexpr std::chrono::milliseconds kProgressPeriod{250};

struct Child {
    pid_t pid = -1;  // -1: has been waited for
    int socket = -1;
    bool done = false;
    size_t samples = 0;
    std::optional<int> exit_status;
};

class Job {
  public:
    Job(const BenchOptions& options, const LaunchSettings& settings)
        : options_(options),
          settings_(settings),
          page_(SharedPage::create(options.ranks)),
          children_(options.ranks) {}

    // Whatever happens, no rank outlives its launcher.
    ~Job() {
        for (const Child& child : children_) {
            if (child.pid > 0) kill(child.pid, SIGKILL);
        }
        for (Child& child : children_) {
            if (child.pid > 0) waitpid(child.pid, nullptr, 0);
            if (child.socket >= 0) close(child.socket);
        }
    }

    RunResult run() {
        for (unsigned rank = 0; rank < options_.ranks; ++rank) start(rank);
        exchange_addresses();
        while (!all_gone() && !Interrupt::is_requested()) serve();
        return std::move(result_);
    }

  private:
    void start(unsigned rank) {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
            throw std::system_error(errno, std::generic_category(), "socketpair");
        }
        const pid_t launcher = getpid();
        const pid_t pid = fork();
        if (pid < 0) throw std::system_error(errno, std::generic_category(), "fork");
        if (pid == 0) {
            const JobPlace place{rank, ends[1], page_.fd()};
            setenv(JobPlace::kVariable, place.to_string().c_str(), 1);
            become_rank(settings_.exec, rank, launcher, {ends[1], page_.fd()});
        }
        close(ends[1]);
        children_[rank].pid = pid;
        children_[rank].socket = ends[0];
    }

    void exchange_addresses() {
        std::vector<Json> addresses;
        for (unsigned rank = 0; rank < options_.ranks; ++rank) {
            auto message = receive_message(children_[rank].socket);
            if (!message) fail(rank);
            addresses.push_back(*std::move(message));
        }
        for (unsigned rank = 0; rank < options_.ranks; ++rank) {
            for (const Json& address : addresses) {
                if (!send_message(children_[rank].socket, address)) fail(rank);
            }
        }
    }

    bool all_gone() const {
        for (const Child& child : children_) {
            if (child.socket >= 0) return false;
        }
        return true;
    }

    void serve() {
        std::vector<pollfd> fds;
        std::vector<unsigned> ranks;
        for (unsigned rank = 0; rank < options_.ranks; ++rank) {
            if (children_[rank].socket < 0) continue;
            fds.push_back({children_[rank].socket, POLLIN, 0});
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
        const auto message = receive_message(child.socket);
        if (!message) {
            reap(rank);
            if (!child.done || child.exit_status != 0) fail(rank);
            close(std::exchange(child.socket, -1));
            return;
        }
        if (message->contains("sample")) take_sample(child, message->at("sample"));
        if (message->contains("lane")) take_lane(message->at("lane"));
        if (message->contains("counters")) take_counters(message->at("counters"));
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

    void reap(unsigned rank, int flags = 0) {
        Child& child = children_[rank];
        int status = 0;
        if (child.pid <= 0 || waitpid(child.pid, &status, flags) != child.pid) return;
        child.pid = -1;
        child.exit_status = status;
    }

    // The first rank seen to fail may only have noticed another one's death: name that one.
    [[noreturn]] void fail(unsigned rank) {
        reap(rank);
        is_soon([&] {
            for (unsigned other = 0; other < options_.ranks; ++other) {
                reap(other, WNOHANG);
                const auto status = children_[other].exit_status;
                if (!status || !WIFSIGNALED(*status)) continue;
                rank = other;
                return true;
            }
            return false;
        });
        const auto status = children_[rank].exit_status;
        throw std::runtime_error(fmt::format("rank {} {}; the other ranks were ended", rank,
                                             status ? describe_exit(*status) : "is gone"));
    }

    const BenchOptions& options_;
    const LaunchSettings& settings_;
    SharedPage page_;
    std::vector<Child> children_;
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
