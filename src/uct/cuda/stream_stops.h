// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "ucs/memory/stream_stop.h"
#include "ucs/type/status.h"
#include "uct/cuda/copy_engine.h"

namespace uct::cuda {

// The words of all stops in the streams of one context. With the mutex of StreamStops.
class StopWords {
  public:
    // @return null if the context does not let us, or can do without neither words nor kernels
    static std::unique_ptr<StopWords> create(const Driver& driver, abi::Context context,
                                             abi::Device device);
    ~StopWords();
    StopWords(StopWords&&) = delete;

    abi::Context context() const { return context_; }
    bool is_alive() const { return driver_.is_alive(context_, id_); }

    // @return false: all are in use
    bool take(ucs::StreamStop* stop);
    // Nobody has been told of it.
    void give_back(const ucs::StreamStop& stop) { free_.push_back(index_of(stop)); }
    // Does any stream stand at one, or may it come to one?
    bool any() const;
    // It is used again once its stream has passed.
    void retire(const ucs::StreamStop& stop) { retired_.push_back(index_of(stop)); }
    // It is open for good, and never used again.
    void lose() { ++lost_; }
    // Put the stop into a stream, or into the graph that captures it. In the context.
    abi::Result enqueue(abi::Stream stream, const ucs::StreamStop& stop) const;

  private:
    StopWords(const Driver& driver, abi::Context context) : driver_(driver), context_(context) {}
    bool make(abi::Device device);
    bool can_wait() const;
    bool load_kernel();
    uint32_t index_of(const ucs::StreamStop& stop) const {
        return static_cast<uint32_t>(stop.reached - words_);
    }
    abi::DevicePointer on_device(const uint32_t* word) const {
        return device_words_ + static_cast<size_t>(word - words_) * sizeof(uint32_t);
    }

    const Driver& driver_;
    const abi::Context context_;
    unsigned long long id_ = 0;
    uint32_t count_ = 0;
    size_t bytes_ = 0;
    uint32_t* words_ = nullptr;  // all `reached`, then all `go`
    abi::DevicePointer device_words_ = 0;
    abi::Module module_ = nullptr;
    abi::Function kernel_ = nullptr;  // null: the device waits for words by itself
    std::vector<uint32_t> free_;
    std::vector<uint32_t> retired_;
    size_t lost_ = 0;
};

// Stops in the program's streams (ucs::StreamStop), in every context of the process. Nothing is
// allocated or registered once a context is prepared, and nothing ever waits. Any thread.
class StreamStops {
  public:
    explicit StreamStops(CopyEngine& engine) : engine_(engine) {}

    // Get ready in each context that copies are ready in.
    void prepare();
    // As ucs::MemoryDetector::insert_stop().
    ucs_status_t insert(void* stream, bool may_be_captured, ucs::StreamStop* stop);
    // As ucs::MemoryDetector::remove_stop().
    void remove(const ucs::StreamStop& stop, bool is_lost);

    // For calls of the driver's that wait for the device's streams, and have others of this process
    // wait meanwhile: would such a stream stand at a stop, nobody could let it go on.
    // @return false: there are stops, and the call was not made
    template <typename Call>
    bool try_without_stops(Call call) {
        std::lock_guard lock(mutex_);
        for (const std::unique_ptr<StopWords>& words : words_) {
            if (words->is_alive() && words->any()) return false;
        }
        call();
        return true;
    }

  private:
    // With the mutex. Null: the context cannot.
    StopWords* find(abi::Context context, abi::Device device);

    CopyEngine& engine_;
    std::mutex mutex_;
    std::vector<std::unique_ptr<StopWords>> words_;
    std::vector<std::unique_ptr<StopWords>> lost_;  // stops may name them
};

}  // namespace uct::cuda
