// SPDX-License-Identifier: BSD-3-Clause
#include "tools/perf/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "tools/common/interrupt.h"
#include "tools/common/units.h"
#include "tools/perf/initiator.h"
#include "tools/perf/pair_end.h"

namespace tools::perf {
namespace {

using Peers = std::vector<std::unique_ptr<PairEnd>>;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kWatchPeriod{250};

Peers make_peers(const Context& context, const Options& options, bool is_initiator) {
    Peers peers;
    for (unsigned i = 0; i < options.threads; ++i) {
        peers.push_back(std::make_unique<PairEnd>(context, options, i, is_initiator));
    }
    return peers;
}

// Both processes tell first and listen then.
void connect(Channel& channel, const Peers& peers) {
    Json mine = Json::array();
    for (const auto& peer : peers) mine.push_back(peer->introduction());
    channel.send({{"peers", mine}});
    const Json other = channel.expect();
    for (size_t i = 0; i < peers.size(); ++i) peers[i]->connect(other.at("peers").at(i));
}

std::string lane_of(ucp_ep_h endpoint) {
    std::array<ucpx_lane_t, 8> lanes{};
    ucpx_ep_attr_t attr{};
    attr.field_mask = UCPX_EP_ATTR_FIELD_LANES;
    attr.lanes = {lanes.data(), lanes.size(), sizeof(ucpx_lane_t)};
    if (ucpx_ep_query(endpoint, &attr) != UCS_OK || attr.lanes.num_entries == 0) return "none";
    std::string text;
    for (unsigned i = 0; i < std::min<size_t>(attr.lanes.num_entries, lanes.size()); ++i) {
        if (!text.empty()) text += ", ";
        text += fmt::format("{}/{}", lanes[i].transport_name, lanes[i].device_name);
    }
    return text;
}

// What the benchmark's threads tell the one that watches them.
class Board {
  public:
    Board(const Options& options, size_t measurements)
        : options_(options), measurements_(measurements), samples_(options.threads) {}

    // Of the measurement under way.
    void put(unsigned thread, Sample sample) {
        const std::lock_guard lock(mutex_);
        samples_[thread] = std::move(sample);
    }
    void begin(uint64_t size) {
        const std::lock_guard lock(mutex_);
        row_ = Row{};
        row_.size = size;
    }
    // By the last thread, while the others wait for the next.
    void end(Metric metric, double cpu_initiator, double cpu_target, bool completes_row) {
        const std::lock_guard lock(mutex_);
        if (metric == Metric::kLatency) {
            add_latency(row_, samples_);
        } else {
            add_bandwidth(row_, samples_);
            row_.cpu_initiator = cpu_initiator;
            row_.cpu_target = cpu_target;
        }
        ++measured_;
        began_ = Clock::now();
        if (completes_row) rows_.push_back(row_);
        news_.notify_one();
    }
    void fail(std::exception_ptr failure) {
        const std::lock_guard lock(mutex_);
        if (failure_ == nullptr) failure_ = std::move(failure);
        news_.notify_one();
    }
    void leave() {
        const std::lock_guard lock(mutex_);
        ++left_;
        news_.notify_one();
    }

    // Until something is new, or for a while. Throws what a thread threw.
    // @return whether a thread is still at work
    bool watch(std::vector<Row>& rows) {
        std::unique_lock lock(mutex_);
        news_.wait_for(lock, kWatchPeriod, [&] {
            return failure_ != nullptr || rows_.size() > rows.size() || left_ == options_.threads;
        });
        if (failure_ != nullptr) std::rethrow_exception(failure_);
        rows.insert(rows.end(), rows_.begin() + static_cast<ptrdiff_t>(rows.size()), rows_.end());
        return left_ < options_.threads || rows_.size() > rows.size();
    }

    // A line on what is going on; `operations` of all threads in this measurement, `rate` of late.
    std::string describe(uint64_t operations, double rate) {
        const std::lock_guard lock(mutex_);
        const bool is_batch = options_.operation == Operation::kBatch;
        const double messages = rate * (is_batch ? options_.pieces : 1);
        std::string text = fmt::format("{} bytes, {} of {}: {:.1f} MB/s, {:.0f} messages/s",
                                       row_.size, measured_ + 1, measurements_,
                                       messages * static_cast<double>(row_.size) / 1e6, messages);
        double left = 0;
        if (options_.iterations != 0) {
            if (rate <= 0) return text;
            const double all = static_cast<double>(options_.iterations * options_.threads);
            left = std::max(0.0, all - static_cast<double>(operations)) / rate * 1e9;
            return text + fmt::format(", this one {} more", format_time(left));
        }
        const double here = std::chrono::duration<double, std::nano>(Clock::now() - began_).count();
        const double each = static_cast<double>(options_.time);
        left = std::max(0.0, each - here) +
               each * static_cast<double>(measurements_ - std::min(measurements_, measured_ + 1));
        return text + fmt::format(", {} left", format_time(left));
    }

  private:
    const Options& options_;
    const size_t measurements_;
    std::mutex mutex_;
    std::condition_variable news_;
    std::vector<Sample> samples_;
    std::vector<Row> rows_;
    Row row_;
    unsigned left_ = 0;
    size_t measured_ = 0;
    Clock::time_point began_ = Clock::now();
    std::exception_ptr failure_;
};

// Processors kept busy between two looks at both processes' clocks.
class UsageMeter {
  public:
    explicit UsageMeter(Initiator& initiator) : initiator_(initiator) {}

    // What is used lies within the time that it is a share of: this process may lose its processor
    // between two looks, and the target looks at its clock some time between the question and the
    // answer.
    void begin() {
        asked_ = Clock::now();
        target_ = initiator_.target_usage();
        began_ = Clock::now();
        own_ = process_usage();
    }
    void end() {
        const uint64_t own_used = process_usage() - own_;
        own_share = static_cast<double>(own_used) / since(began_);
        const uint64_t used = initiator_.target_usage() - target_;
        target_share = static_cast<double>(used) / since(asked_);
    }

    double own_share = 0;
    double target_share = 0;

  private:
    static double since(Clock::time_point start) {
        return std::max(1.0,
                        std::chrono::duration<double, std::nano>(Clock::now() - start).count());
    }

    Initiator& initiator_;
    uint64_t own_ = 0;
    uint64_t target_ = 0;
    Clock::time_point asked_;
    Clock::time_point began_;
};

void measure_all(const Options& options, Initiator& initiator, unsigned thread, Board& board,
                 std::barrier<>& together) {
    UsageMeter usage(initiator);
    const std::vector<Metric> metrics = options.metrics();
    for (const uint64_t size : options.sizes()) {
        if (thread == 0) board.begin(size);
        for (const Metric metric : metrics) {
            initiator.warm_up(metric, size);
            if (thread == 0) usage.begin();
            together.arrive_and_wait();
            board.put(thread, initiator.measure(metric, size));
            together.arrive_and_wait();
            if (thread != 0) continue;
            usage.end();
            board.end(metric, usage.own_share, usage.target_share, metric == metrics.back());
        }
    }
    initiator.leave();
}

// What the threads of a process work with. Where one of them or the other process fails, others may
// be at work until the process ends: so a run is deleted after a good end alone.
struct Run {
    Run(const Options& chosen, bool is_initiator)
        : options(chosen),
          context(options, is_initiator),
          peers(make_peers(context, options, is_initiator)) {}

    const Options options;
    const Context context;
    const Peers peers;
};

struct InitiatorRun : Run {
    explicit InitiatorRun(const Options& chosen)
        : Run(chosen, true),
          done(options.threads),
          board(options, options.sizes().size() * options.metrics().size()),
          together(static_cast<ptrdiff_t>(options.threads)) {}

    std::vector<std::atomic<uint64_t>> done;
    Board board;
    std::barrier<> together;
    std::vector<std::jthread> threads;
};

struct TargetRun : Run {
    explicit TargetRun(const Options& chosen) : Run(chosen, false) {}

    std::mutex mutex;
    std::exception_ptr failure;
    std::atomic<bool> initiator_has_left{false};
    std::vector<std::jthread> threads;
};

}  // namespace

std::vector<Row> run_initiator(Channel& channel, const Options& options, const Observer& observer) {
    channel.send({{"perf", SWIFTLANE_VERSION}, {"options", to_json(options)}});
    if (const Json answer = channel.expect(); answer.contains("error")) {
        throw std::runtime_error(answer.at("error").get<std::string>());
    }
    auto* const run = new InitiatorRun(options);
    connect(channel, run->peers);
    for (unsigned i = 0; i < options.threads; ++i) {
        run->threads.emplace_back([run, i] {
            try {
                Initiator initiator(*run->peers[i], run->done[i]);
                measure_all(run->options, initiator, i, run->board, run->together);
                run->board.leave();
            } catch (...) {
                run->board.fail(std::current_exception());
            }
        });
    }

    std::vector<Row> rows;
    uint64_t seen = 0;
    auto looked = Clock::now();
    for (bool at_work = true; at_work;) {
        const size_t told = rows.size();
        at_work = run->board.watch(rows) && !Interrupt::is_requested();
        if (told == 0 && !rows.empty()) observer.on_lane(lane_of(run->peers[0]->endpoint()));
        for (size_t i = told; i < rows.size(); ++i) observer.on_row(rows[i]);
        if (at_work && channel.is_gone()) throw std::runtime_error("the other process is gone");
        if (!observer.on_progress || !at_work) continue;
        uint64_t operations = 0;
        for (const auto& count : run->done) operations += count.load(std::memory_order_relaxed);
        const double seconds = std::chrono::duration<double>(Clock::now() - looked).count();
        if (seconds < std::chrono::duration<double>(kWatchPeriod).count() / 2) continue;
        // Counts begin anew with each measurement.
        const uint64_t news = operations >= seen ? operations - seen : operations;
        observer.on_progress(run->board.describe(operations, static_cast<double>(news) / seconds));
        seen = operations;
        looked = Clock::now();
    }
    if (Interrupt::is_requested()) observer.on_interrupt(rows);
    run->threads.clear();
    channel.send({{"done", true}});
    channel.expect();
    delete run;
    return rows;
}

void run_target(Channel& channel) {
    const Json hello = channel.expect();
    Options options;
    try {
        if (hello.at("perf") != SWIFTLANE_VERSION) {
            throw std::runtime_error(fmt::format("versions differ: {} here", SWIFTLANE_VERSION));
        }
        options = from_json(hello.at("options"));
    } catch (const std::exception& error) {
        channel.send({{"error", error.what()}});
        throw;
    }
    channel.send({{"perf", SWIFTLANE_VERSION}});
    auto* const run = new TargetRun(options);
    connect(channel, run->peers);
    for (const auto& peer : run->peers) {
        run->threads.emplace_back([run, &peer, &channel] {
            try {
                serve(*peer);
                // The initiator waits until its last message is acknowledged, which over ud takes
                // this end's progress.
                while (!run->initiator_has_left) peer->progress();
            } catch (...) {
                const std::lock_guard lock(run->mutex);
                run->failure = std::current_exception();
                channel.shut_down();
            }
        });
    }
    // The channel's end tells that the initiator is gone, and with it all reason to serve.
    const auto message = channel.receive();
    run->initiator_has_left = true;
    {
        const std::lock_guard lock(run->mutex);
        if (run->failure != nullptr) std::rethrow_exception(run->failure);
    }
    if (!message) throw std::runtime_error("the other process is gone");
    delete run;
    channel.send({{"done", true}});
}

}  // namespace tools::perf
