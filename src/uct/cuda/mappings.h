// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ucs/memory/detector.h"
#include "ucs/sys/random.h"
#include "uct/cuda/copy_engine.h"
#include "uct/cuda/imports.h"
#include "uct/cuda/stream_stops.h"

namespace uct::cuda {

// A thread for what takes the driver milliseconds: nobody who has a message to move waits for it.
// Begun with the first errand; joined when the process exits. Errands run in order.
class Errands {
  public:
    Errands() = default;
    Errands(Errands&&) = delete;

    // @return false: there is no thread to be had, or the process is about to end
    bool run(std::function<void()> errand);
    // Waits for what was begun; no errand runs afterwards.
    void stop();

  private:
    void loop();

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> waiting_;
    std::thread thread_;
    bool is_stopped_ = false;
};

// What a context of this process sees of an allocation of another process.
struct Mapping {
    enum class State : uint8_t { kOpening, kOpen, kRefused, kClosing };

    ucs::MemoryExport owner;  // as it was described; the offset means nothing
    CopyContext* context;
    State state = State::kOpening;
    Import import;
    unsigned users = 0;  // who has taken it
    uint64_t last_use = 0;
    std::atomic<bool> is_unwanted{false};  // closed when the last user is gone

    bool is_of(uint64_t process, uint64_t buffer, const CopyContext& in) const {
        return owner.buffer == buffer && owner.process == process && context == &in;
    }
};

// The ways from this process's contexts to memory of other processes, and of other devices.
//
// Opening one takes the driver 2 to 10 ms, the first time for a device above 100: so it is an
// errand, and until it is done the way does not exist. Ways are limited in number: those that
// were not used for the longest time are closed. An allocation that its owner has freed is
// recognised by a new one that lies over it, or by forget(). The driver may wait for the device's
// streams meanwhile: so nothing is opened or closed while any of them may stand at a stop.
// Any thread.
class Mappings {
  public:
    Mappings(const Driver& driver, StreamStops& stops, size_t most)
        : driver_(driver), stops_(stops), most_(most), imports_(driver) {}

    // @param mapping  usable until put()
    // @return UCS_ERR_NO_RESOURCE: it is being opened, or there is no room; UCS_ERR_UNSUPPORTED:
    //         the driver refuses
    ucs_status_t take(const ucs::MemoryExport& owner, CopyContext& context, Mapping** mapping);
    void put(Mapping& mapping);
    // The owner has freed the allocation: there is no way to it any more. The driver might open one
    // to what is left of a block that it has cut the allocation from.
    void forget(uint64_t process, uint64_t buffer);

    // Whether a context reaches another one's memory, of this process; as take().
    ucs_status_t reach(CopyContext& from, CopyContext& to);

    // Something else that takes the driver long. @return false as Errands::run()
    bool run(std::function<void()> errand) { return errands_.run(std::move(errand)); }

    // Waits until what is to be opened or closed by now has been, or has been tried.
    void settle();

  private:
    struct Peer {
        CopyContext* from;
        CopyContext* to;
        Mapping::State state;
    };

    // An allocation of another process: the driver numbers those of a process, and no number comes
    // again.
    struct Allocation {
        uint64_t process;
        uint64_t buffer;
        bool operator==(const Allocation&) const = default;
        struct Hash {
            size_t operator()(const Allocation& of) const {
                return ucs::mix64(of.process ^ ucs::mix64(of.buffer));
            }
        };
    };
    // Those that were freed lately: a key of one may be used for as long as the program keeps it.
    static constexpr size_t kMostFreed = 4096;

    Mapping* find(uint64_t process, uint64_t buffer, const CopyContext& context);
    bool make_room();
    void retire(Mapping& mapping);
    void open(Mapping& mapping);
    void open_now(Mapping& mapping);
    void close(Mapping& mapping);
    void close_now(Mapping& mapping);
    // An errand that has to wait until streams have gone on.
    void try_again(std::function<void()> errand);
    void remove(const Mapping& mapping);

    const Driver& driver_;
    StreamStops& stops_;
    const size_t most_;
    Imports imports_;  // of the errands
    std::mutex mutex_;
    std::vector<std::unique_ptr<Mapping>> mappings_;
    std::vector<std::unique_ptr<Peer>> peers_;
    std::unordered_set<Allocation, Allocation::Hash> freed_;
    std::deque<Allocation> freed_in_order_;
    uint64_t uses_ = 0;
    Errands errands_;
};

}  // namespace uct::cuda
