// SPDX-License-Identifier: BSD-3-Clause
#include "uct/cuda/mappings.h"

#include <chrono>
#include <cstdlib>
#include <future>
#include <system_error>

#include "ucs/log/log.h"
#include "ucs/sys/no_signals.h"

namespace uct::cuda {

// --- errands ---

namespace {

// The process has one of each: those whose thread must end before the driver's exit handlers.
Errands* errands_to_stop = nullptr;

}  // namespace

bool Errands::run(std::function<void()> errand) {
    std::lock_guard lock(mutex_);
    if (is_stopped_) return false;
    if (!thread_.joinable()) {
        try {
            const ucs::NoSignals guard;
            thread_ = std::thread(&Errands::loop, this);
        } catch (const std::system_error&) {
            return false;
        }
        if (errands_to_stop == nullptr) {
            errands_to_stop = this;
            (void)std::atexit([] { errands_to_stop->stop(); });
        }
    }
    waiting_.push_back(std::move(errand));
    changed_.notify_one();
    return true;
}

void Errands::stop() {
    {
        std::lock_guard lock(mutex_);
        is_stopped_ = true;
        waiting_.clear();
        changed_.notify_one();
    }
    if (thread_.joinable()) thread_.join();
}

void Errands::loop() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [this] { return is_stopped_ || !waiting_.empty(); });
        if (is_stopped_) return;
        const std::function<void()> errand = std::move(waiting_.front());
        waiting_.pop_front();
        lock.unlock();
        errand();
        lock.lock();
    }
}

// --- mappings ---

namespace {

// Between looks whether streams have gone on.
constexpr std::chrono::milliseconds kPause{1};

}  // namespace

Mapping* Mappings::find(uint64_t process, uint64_t buffer, const CopyContext& context) {
    for (const std::unique_ptr<Mapping>& mapping : mappings_) {
        if (mapping->is_of(process, buffer, context) && mapping->state != Mapping::State::kClosing)
            return mapping.get();
    }
    return nullptr;
}

// With the mutex: the mapping is of no use any more.
void Mappings::retire(Mapping& mapping) {
    mapping.is_unwanted = true;
    if (mapping.users > 0 || mapping.state == Mapping::State::kOpening) return;
    mapping.state = Mapping::State::kClosing;
    if (!errands_.run([this, &mapping] { close(mapping); }))
        ucs::log_debug("a mapping of CUDA memory stays open until the process ends");
}

// With the mutex.
bool Mappings::make_room() {
    if (mappings_.size() < most_) return true;
    Mapping* oldest = nullptr;
    for (const std::unique_ptr<Mapping>& mapping : mappings_) {
        if (mapping->users > 0 || mapping->state == Mapping::State::kOpening ||
            mapping->state == Mapping::State::kClosing)
            continue;
        if (oldest == nullptr || mapping->last_use < oldest->last_use) oldest = mapping.get();
    }
    if (oldest != nullptr) retire(*oldest);
    return false;  // when it is closed
}

ucs_status_t Mappings::take(const ucs::MemoryExport& owner, CopyContext& context,
                            Mapping** mapping) {
    std::lock_guard lock(mutex_);
    if (Mapping* const known = find(owner.process, owner.buffer, context)) {
        known->last_use = ++uses_;
        if (known->state == Mapping::State::kRefused || owner.size != known->owner.size)
            return UCS_ERR_UNSUPPORTED;
        if (known->state != Mapping::State::kOpen || known->is_unwanted) return UCS_ERR_NO_RESOURCE;
        ++known->users;
        *mapping = known;
        return UCS_OK;
    }
    if (freed_.contains({owner.process, owner.buffer})) return UCS_ERR_UNSUPPORTED;
    for (const std::unique_ptr<Mapping>& other : mappings_) {
        if (other->owner.process == owner.process && other->context == &context &&
            !other->is_unwanted && owner.base < other->owner.base + other->owner.size &&
            other->owner.base < owner.base + owner.size)
            retire(*other);
    }
    if (!make_room()) return UCS_ERR_NO_RESOURCE;
    auto made = std::make_unique<Mapping>();
    made->owner = owner;
    made->context = &context;
    made->last_use = ++uses_;
    if (!errands_.run([this, &made = *made] { open(made); })) return UCS_ERR_NO_RESOURCE;
    mappings_.push_back(std::move(made));
    return UCS_ERR_NO_RESOURCE;
}

void Mappings::put(Mapping& mapping) {
    std::lock_guard lock(mutex_);
    if (--mapping.users == 0 && mapping.is_unwanted) retire(mapping);
}

void Mappings::forget(uint64_t process, uint64_t buffer) {
    std::lock_guard lock(mutex_);
    for (const std::unique_ptr<Mapping>& mapping : mappings_) {
        if (mapping->owner.process == process && mapping->owner.buffer == buffer &&
            !mapping->is_unwanted)
            retire(*mapping);
    }
    if (!freed_.insert({process, buffer}).second) return;
    freed_in_order_.push_back({process, buffer});
    if (freed_in_order_.size() <= kMostFreed) return;
    freed_.erase(freed_in_order_.front());
    freed_in_order_.pop_front();
}

void Mappings::try_again(std::function<void()> errand) {
    std::this_thread::sleep_for(kPause);
    (void)errands_.run(std::move(errand));
}

// With the mutex.
void Mappings::remove(const Mapping& mapping) {
    std::erase_if(mappings_,
                  [&](const std::unique_ptr<Mapping>& one) { return one.get() == &mapping; });
}

// An errand.
void Mappings::open(Mapping& mapping) {
    if (!stops_.try_without_stops([&] { open_now(mapping); }))
        try_again([this, &mapping] { open(mapping); });
}

void Mappings::open_now(Mapping& mapping) {
    Import import;
    abi::Result result;
    {
        CurrentContext current(driver_, mapping.context->handle());
        result = current.result();
        if (result == abi::kSuccess)
            result = imports_.open(mapping.owner, mapping.context->device(), &import);
    }
    if (result == abi::kSuccess) {
        ucs::log_info("{} bytes of another process's CUDA memory are mapped", mapping.owner.size);
    } else if (result != abi::kNotReady) {
        ucs::log_info("CUDA memory of another process cannot be mapped ({}): it is staged",
                      driver_.name_of(result));
    }
    std::lock_guard lock(mutex_);
    // Who finds no mapping tries again.
    if (result == abi::kNotReady) return remove(mapping);
    if (result == abi::kSuccess) mapping.import = import;
    mapping.state = result == abi::kSuccess ? Mapping::State::kOpen : Mapping::State::kRefused;
    if (mapping.is_unwanted) retire(mapping);
}

// An errand.
void Mappings::close(Mapping& mapping) {
    if (!stops_.try_without_stops([&] { close_now(mapping); }))
        try_again([this, &mapping] { close(mapping); });
}

void Mappings::close_now(Mapping& mapping) {
    if (mapping.import.address != 0) {
        CurrentContext current(driver_, mapping.context->handle());
        if (current.result() == abi::kSuccess) imports_.close(mapping.import);
    }
    std::lock_guard lock(mutex_);
    remove(mapping);
}

void Mappings::settle() {
    std::promise<void> done;
    if (errands_.run([&done] { done.set_value(); })) done.get_future().wait();
}

// --- devices of this process ---

ucs_status_t Mappings::reach(CopyContext& from, CopyContext& to) {
    std::lock_guard lock(mutex_);
    for (const std::unique_ptr<Peer>& peer : peers_) {
        if (peer->from != &from || peer->to != &to) continue;
        if (peer->state == Mapping::State::kOpen) return UCS_OK;
        return peer->state == Mapping::State::kOpening ? UCS_ERR_NO_RESOURCE : UCS_ERR_UNSUPPORTED;
    }
    auto made = std::make_unique<Peer>(Peer{&from, &to, Mapping::State::kOpening});
    const bool is_begun = errands_.run([this, &made = *made] {
        abi::Result result;
        {
            CurrentContext current(driver_, made.from->handle());
            result = current.result();
            if (result == abi::kSuccess) result = driver_.context_enable_peer(made.to->handle(), 0);
        }
        const bool is_open = result == abi::kSuccess || result == abi::kPeerAccessAlreadyEnabled;
        if (!is_open) {
            ucs::log_info("CUDA device {} does not reach device {} ({}): copies are staged",
                          made.from->device(), made.to->device(), driver_.name_of(result));
        }
        std::lock_guard state_lock(mutex_);
        made.state = is_open ? Mapping::State::kOpen : Mapping::State::kRefused;
    });
    if (is_begun) peers_.push_back(std::move(made));
    return UCS_ERR_NO_RESOURCE;
}

}  // namespace uct::cuda
