// SPDX-License-Identifier: BSD-3-Clause
#include "uct/cuda/resident.h"

#include <sys/mman.h>

#include <atomic>

#include "ucs/log/log.h"

namespace uct::cuda {

namespace {

constexpr size_t kQueueBytes = 4096;
static_assert(sizeof(ResidentQueue) <= kQueueBytes);

// A word that the device writes, or reads; what was stored before is there with it.
uint32_t look_at(uint32_t& word) {
    return std::atomic_ref(word).load(std::memory_order_acquire);
}
void set(uint32_t& word, uint32_t value) {
    std::atomic_ref(word).store(value, std::memory_order_release);
}

}  // namespace

std::unique_ptr<Resident> Resident::create(const Driver& driver, abi::Context context,
                                           abi::Module module) {
    std::unique_ptr<Resident> made(new Resident(driver, context));
    if (!made->prepare(module)) {
        ucs::log_warn(
            "no resident kernel in this CUDA context: short copies go to the copy engine");
        return nullptr;
    }
    return made;
}

bool Resident::prepare(abi::Module module) {
    if (driver_.load_function(&function_, module, kResidentKernel, true) != abi::kSuccess)
        return false;
    void* const memory =
        mmap(nullptr, kQueueBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return false;
    queue_ = static_cast<ResidentQueue*>(memory);
    return driver_.pin(memory, kQueueBytes, &device_queue_) &&
           driver_.stream_create(&stream_, abi::kStreamNonBlocking) == abi::kSuccess;
}

Resident::~Resident() {
    if (queue_ == nullptr) return;
    CurrentContext current(driver_, context_);
    if (current.result() == abi::kSuccess && stream_ != nullptr) {
        // The kernel ends by itself soon.
        (void)driver_.stream_synchronize(stream_);
        (void)driver_.stream_destroy(stream_);
    }
    // A context that is gone has taken the registration along.
    if (current.result() == abi::kSuccess) (void)driver_.host_unregister(queue_);
    (void)munmap(queue_, kQueueBytes);
}

// With the mutex, when no copy is pending.
void Resident::launch() {
    unsigned run = run_ + 1, next = begun_ + 1;
    unsigned long long idle = kIdle, life = kLife;
    void* arguments[] = {&device_queue_, &run, &next, &idle, &life};
    CurrentContext current(driver_, context_);
    abi::Result result = current.result();
    if (result == abi::kSuccess)
        result = driver_.launch(function_, 1, 1, 1, kThreads, 1, 1, 0, stream_, arguments, nullptr);
    if (result == abi::kSuccess) {
        run_ = run;
    } else {
        has_failed_ = true;
        ucs::log_info(
            "the resident kernel cannot be launched ({}): short copies go to the copy "
            "engine",
            driver_.name_of(result));
    }
}

bool Resident::begin(void* to, const void* from, size_t length, uint32_t* number) {
    std::lock_guard lock(mutex_);
    if (has_failed_) return false;
    if (run_ == 0 || look_at(queue_->ended) == run_) {
        if (pending_ == 0) launch();
        return false;
    }
    if (look_at(queue_->started) != run_ || pending_ == ResidentQueue::kSlots) return false;
    *number = ++begun_;
    ++pending_;
    ResidentSlot& slot = queue_->slots[begun_ % ResidentQueue::kSlots];
    slot.to = reinterpret_cast<uintptr_t>(to);
    slot.length = static_cast<uint32_t>(length);
    slot.from = reinterpret_cast<uintptr_t>(from);
    set(slot.number, begun_);
    set(slot.number_too, begun_);
    return true;
}

ucs_status_t Resident::test(uint32_t number) {
    // In this order: what the kernel did before it ended is seen.
    const uint32_t ended = look_at(queue_->ended);
    const bool is_done = static_cast<int32_t>(look_at(queue_->done) - number) >= 0;
    std::lock_guard lock(mutex_);
    if (!is_done && ended != run_) return UCS_INPROGRESS;
    --pending_;
    return is_done ? UCS_OK : UCS_ERR_CANCELED;
}

ucs_status_t Resident::query(uint32_t number) {
    const abi::Result result = driver_.stream_query(stream_);
    if (result == abi::kSuccess || result == abi::kNotReady) return test(number);
    std::lock_guard lock(mutex_);
    has_failed_ = true;
    --pending_;
    return to_status(result);
}

}  // namespace uct::cuda
