// SPDX-License-Identifier: BSD-3-Clause

// The thread: its start and end, commands, sleep.
#include "ucp/bulk/threads/bulk_thread.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "ucs/log/log.h"
#include "ucs/sys/no_signals.h"
#include "ucs/sys/processors.h"

namespace ucp::bulk {
namespace {

// Looks without an event until a thread that waits for something sleeps: some microseconds.
constexpr unsigned kLooks = 256;
constexpr ucs::Duration kThreadTick = std::chrono::milliseconds(5);

ucs_status_t drop_message(void*, void*, size_t length, uct::ReceiveDescriptor*) {
    ucs::log_warn("a message of {} bytes on a queue pair for bulk was dropped", length);
    return UCS_OK;
}

}  // namespace

BulkThread::BulkThread(const Params& params)
    : clock_(params.clock),
      events_(params.events),
      rules_(params.rules),
      counters_(params.counters),
      cpus_(params.cpus),
      random_(params.seed) {
    am_table_.entries.fill({drop_message, nullptr});
}

ucs_status_t BulkThread::start(const Params& params, uct::MemoryDomain& domain,
                               const std::string& transport, std::unique_ptr<BulkThread>* thread) {
    std::unique_ptr<BulkThread> made(new BulkThread(params));
    made->wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (made->wake_fd_ < 0) return UCS_ERR_IO_ERROR;
    const uct::InterfaceParams interface {
        made->clock_, made->random_, made->am_table_, on_error,
            made.get(), params.seed, params.estimated_endpoints
    };
    const ucs_status_t status = domain.open_interface(transport, interface, &made->interface_);
    if (status != UCS_OK) return status;
    try {
        const ucs::NoSignals guard;
        made->thread_ = params.spawn([self = made.get()] { self->run(); });
    } catch (const std::system_error& error) {
        ucs::log_debug("no thread for bulk transfers: {}", error.what());
        return UCS_ERR_NO_RESOURCE;
    }
    *thread = std::move(made);
    return UCS_OK;
}

BulkThread::~BulkThread() {
    if (thread_.joinable()) {
        call([this] { is_stopping_ = true; });
        thread_.join();
    }
    queue_pairs_.clear();
    interface_.reset();
    if (wake_fd_ >= 0) ::close(wake_fd_);
}

// --- commands

void BulkThread::call(const std::function<void()>& command) {
    std::unique_lock lock(mutex_);
    command_ = &command;
    has_command_.store(true);
    wake();
    done_.wait(lock, [this] { return command_ == nullptr; });
}

void BulkThread::run_command() {
    std::lock_guard lock(mutex_);
    has_command_.store(false);
    if (command_ == nullptr) return;
    (*command_)();
    command_ = nullptr;
    done_.notify_one();
}

// Whoever has something new for the thread says so before this, and the thread looks again after
// it has said that it sleeps: one of them sees the other.
void BulkThread::wake() {
    if (!is_asleep_.exchange(false)) return;
    const uint64_t one = 1;
    if (write(wake_fd_, &one, sizeof(one)) < 0) {
        // The counter is full only after 2^64 calls.
    }
}

// --- the thread

void BulkThread::run() {
    pthread_setname_np(pthread_self(), "bulk");
    if (const int error = ucs::bind_caller(cpus_); error != 0)
        ucs::log_debug("a thread for bulk transfers is not bound: error {}", error);
    bool has_come = false;  // something, since it slept last: more may follow soon
    for (unsigned looks = 0;;) {
        if (has_command_.load(std::memory_order_relaxed)) {
            run_command();
            if (is_stopping_) return;  // nobody would wake it again
        }
        // Before the look: when silence is judged, what had come until then has been seen.
        const ucs::Time now = clock_.now();
        const unsigned events = interface_->progress();
        if (events != 0) {
            for (ThreadQueuePair* queue_pair : posting_) queue_pair->is_full = false;
        }
        if (has_failures_) handle_failures();
        const bool has_posted = pull_all();
        if (now >= tick_) {
            tick_ = now + kThreadTick;
            watch(now);
        }
        looks = events != 0 || has_posted ? 0 : looks + 1;
        const bool waits = std::ranges::any_of(posting_, [](const ThreadQueuePair* queue_pair) {
            return !queue_pair->chains.empty();
        });
        has_come = has_come || events != 0;
        if (looks > (waits || has_come ? kLooks : 1)) {
            sleep();
            looks = 0;
            has_come = false;
        }
    }
}

void BulkThread::sleep() {
    is_asleep_.store(true);
    const bool can_wait = (interface_->attributes().capabilities & uct::kEventFd) != 0;
    bool has_work = false;  // for somebody: this one may be asked to help later
    bool is_waiting = false, has_link = true;
    for (const ThreadQueuePair* queue_pair : posting_) {
        has_work = has_work || queue_pair->queue->has_work.load();
        is_waiting = is_waiting || !queue_pair->chains.empty();
        has_link = has_link && queue_pair->link_up;
    }
    if (has_command_.load() || (has_work && pull_all()) ||
        (can_wait && interface_->arm() != UCS_OK)) {
        is_asleep_.store(false);
        return;
    }
    if (is_waiting && !can_wait) {
        is_asleep_.store(false);
        sched_yield();
        return;
    }
    pollfd sources[2] = {{wake_fd_, POLLIN, 0}, {interface_->event_fd(), POLLIN, 0}};
    const auto tick = std::chrono::duration_cast<std::chrono::milliseconds>(kThreadTick).count();
    // Nothing is handed over to a queue pair that has no link, until it is seen that it has one
    // again.
    const bool is_idle = !has_work && !is_waiting && has_link;
    poll(sources, can_wait ? 2 : 1, is_idle ? -1 : static_cast<int>(tick));
    is_asleep_.store(false);
    interface_->look_soon();
    uint64_t count;
    if (read(wake_fd_, &count, sizeof(count)) < 0) {
        // Something else woke it up.
    }
}

void BulkThread::on_error(void* self, uct::Endpoint* endpoint, ucs_status_t status) {
    auto& thread = *static_cast<BulkThread*>(self);
    for (const auto& queue_pair : thread.queue_pairs_) {
        if (queue_pair->transport.get() != endpoint || queue_pair->failure != UCS_OK) continue;
        queue_pair->failure = status;
        thread.has_failures_ = true;
    }
}

// --- queue pairs

ucs_status_t BulkThread::make_queue_pair(std::shared_ptr<ThreadQueuePair>* queue_pair) {
    auto made = std::make_shared<ThreadQueuePair>(*this);
    ucs_status_t status = UCS_OK;
    call([&] {
        status = interface_->create_endpoint({}, &made->transport);
        if (status == UCS_OK) queue_pairs_.push_back(made);
    });
    if (status == UCS_OK) *queue_pair = std::move(made);
    return status;
}

void BulkThread::begin(ThreadQueuePair& queue_pair, SharedQueue& queue, unsigned domain,
                       double rate) {
    call([&] {
        if (queue_pair.state != ThreadQueuePair::State::kIdle) return;
        queue_pair.state = ThreadQueuePair::State::kPosting;
        queue_pair.queue = &queue;
        queue_pair.domain = domain;
        posting_.push_back(&queue_pair);
        std::lock_guard lock(queue.shard.mutex);
        queue_pair.meter = Meter(rate);
        queue.queue_pairs.push_back(&queue_pair);
    });
}

void BulkThread::stop(ThreadQueuePair& queue_pair) {
    call([&] {
        if (queue_pair.state != ThreadQueuePair::State::kPosting) return;
        queue_pair.state = ThreadQueuePair::State::kStopping;
        leave(queue_pair);
        if (queue_pair.chains.empty()) stopped(queue_pair);
    });
}

void BulkThread::close(ThreadQueuePair& queue_pair) {
    call([&] {
        if (queue_pair.state != ThreadQueuePair::State::kOver)
            give_up(queue_pair, UCS_ERR_CANCELED);
        std::erase_if(queue_pairs_, [&](const auto& each) { return each.get() == &queue_pair; });
    });
}

QueuePairProxy::QueuePairProxy(std::shared_ptr<ThreadQueuePair> queue_pair)
    : queue_pair_(std::move(queue_pair)) {
    queue_pair_->proxy = this;
}

QueuePairProxy::~QueuePairProxy() {
    queue_pair_->proxy = nullptr;
    queue_pair_->thread.close(*queue_pair_);
}

ucs_status_t QueuePairProxy::get_address(std::span<std::byte> address) const {
    ucs_status_t status = UCS_ERR_CONNECTION_RESET;
    queue_pair_->thread.call([&] {
        if (queue_pair_->transport != nullptr)
            status = queue_pair_->transport->get_address(address);
    });
    return status;
}

ucs_status_t QueuePairProxy::connect(const uct::RemoteAddress& remote) {
    ucs_status_t status = UCS_ERR_CONNECTION_RESET;
    queue_pair_->thread.call([&] {
        if (queue_pair_->transport != nullptr) status = queue_pair_->transport->connect(remote);
    });
    return status;
}

bool QueuePairProxy::is_connected(const uct::RemoteAddress& remote) const {
    bool is_connected = false;
    queue_pair_->thread.call([&] {
        is_connected =
            queue_pair_->transport != nullptr && queue_pair_->transport->is_connected(remote);
    });
    return is_connected;
}

}  // namespace ucp::bulk
