// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "ucs/memory/held_allocations.h"
#include "ucs/memory/memory_type.h"
#include "uct/cuda/driver.h"
#include "uct/cuda/kernels.h"
#include "uct/cuda/resident.h"

namespace uct::cuda {

// Where copies run on their own; of different directions they overlap. Between devices there are
// two: a copy's end takes 5 us to be told, in which the stream moves nothing.
enum class Direction : uint8_t { kToHost, kToDevice, kWithin, kWithinToo };
inline constexpr size_t kDirections = 4;
static_assert(kDirections <= ListEnd::kLanes);

// A context of the program's, with the streams that copies take in it. See CopyEngine.
class CopyContext {
  public:
    // A copy that was begun: the context's n-th in its direction.
    struct Ticket {
        CopyContext* context = nullptr;
        Direction direction = Direction::kToHost;
        uint32_t number = 0;
    };

    // Makes streams and flags; loads no kernel. @return null if the context does not let us
    static std::unique_ptr<CopyContext> create(const Driver& driver, abi::Context context,
                                               abi::Device device);
    ~CopyContext();

    abi::Context handle() const { return handle_; }
    abi::Device device() const { return device_; }
    // Is this still the context that the handle stood for, and does it still work?
    bool is_alive();
    // Nothing has failed in it so far.
    bool works() const { return error_.load(std::memory_order_relaxed) == UCS_OK; }

    // Begin to copy; addresses of pinned or pageable host memory, or of devices.
    ucs_status_t begin(Direction direction, void* to, const void* from, size_t length,
                       Ticket* ticket);
    // The same for many pieces by one kernel, which reads and writes pinned host memory as well.
    // `pieces` stays as it is until the copy has ended, and lies in pinned memory.
    // @return UCS_ERR_UNSUPPORTED where the kernel is not loaded, or cannot read the list
    ucs_status_t begin_list(Direction direction, std::span<const KernelPiece> pieces,
                            Ticket* ticket);
    // @return UCS_OK if the copy has ended, UCS_INPROGRESS, or the error of the context
    ucs_status_t test(const Ticket& ticket);
    ucs_status_t wait(const Ticket& ticket);
    // The same as test(), of the driver: also a device that can tell nothing any more.
    ucs_status_t query(const Ticket& ticket) { return ask_stream(lane_of(ticket.direction)); }
    // Where the device writes the number of the last copy that has ended; null: it does not.
    const uint32_t* end_word(Direction direction) {
        return writes_values_ ? lane_of(direction).flag : nullptr;
    }

    // Memory of the device, in the order of copies in the direction kOfAllocations: it may be used
    // when one that was begun behind it has ended.
    ucs_status_t allocate(size_t length, abi::DevicePointer* memory);
    // Nobody uses it any more. Waits for nothing, as cuMemFree would for all kernels.
    void free(abi::DevicePointer memory);
    static constexpr Direction kOfAllocations = Direction::kToDevice;

    // Load every kernel. Beside a kernel of the program's that runs for long this may wait for its
    // end: so it is done when the program has just begun, and never within a send.
    void load_kernels();
    // Null unless UCX_CUDA_RESIDENT=y, and until kernels are loaded.
    Resident* resident() const { return resident_.load(std::memory_order_acquire); }
    // Is the kernel for lists loaded? With UCX_CUDA_PRELOAD=n it is now.
    bool takes_lists();

  private:
    static constexpr size_t kEvents = 64;
    static constexpr uint32_t kPollsPerQuery = 1024;

    struct Lane {
        std::mutex mutex;
        abi::Stream stream = nullptr;
        uint32_t* flag = nullptr;  // the number of the last copy that has ended
        abi::DevicePointer device_flag = 0;
        uint32_t begun = 0;
        std::vector<abi::Event> events;  // instead of the flag where the device cannot write it
    };

    bool is_mapped(const void* host) const;
    CopyContext(const Driver& driver, abi::Context handle, abi::Device device)
        : driver_(driver), handle_(handle), device_(device) {}
    bool make_lanes();
    bool make_events(Lane& lane);
    Lane& lane_of(Direction direction) { return lanes_[static_cast<size_t>(direction)]; }
    // With the lane's mutex: mark the end of what was put into its stream.
    abi::Result mark(Lane& lane);
    ucs_status_t failed(abi::Result result, const char* what);
    ucs_status_t ask_stream(Lane& lane);

    const Driver& driver_;
    const abi::Context handle_;
    const abi::Device device_;
    unsigned long long id_ = 0;
    void* flags_ = nullptr;
    bool writes_values_ = false;
    std::atomic<int> error_{0};  // ucs_status_t that every copy gets from now on
    std::atomic<abi::Function> copy_pieces_{nullptr};
    std::mutex kernels_mutex_;
    abi::Module module_ = nullptr;
    std::unique_ptr<Resident> owned_resident_;
    std::atomic<Resident*> resident_{nullptr};
    Lane lanes_[kDirections];
};

// All copies between host memory and the memory of devices. One in the process; any thread.
//
// A copy runs in the context that its memory belongs to, whatever is current on the calling thread,
// on a stream that nobody else uses; its end is a number that the device writes to host memory.
// Streams are made for a context when it is first seen: by prepare(), which the library calls where
// time does not matter, else by the first copy. Nothing of the program's is ever synchronised with.
class CopyEngine {
  public:
    // Null without a driver.
    static CopyEngine* get();

    const Driver& driver() const { return driver_; }

    struct Found {
        ucs_memory_type_t type = UCS_MEMORY_TYPE_HOST;
        abi::Context context = nullptr;  // null: the device's memory belongs to no context
        abi::Device device = -1;
        // The allocation that it lies in, and its number; 0: what is known is a range of addresses
        // that may hold several.
        abi::DevicePointer base = 0;
        size_t length = 0;
        uint64_t number = 0;
        // Bytes from base on that were reserved together: of virtual memory other allocations may
        // follow, so that a buffer may lie in several.
        size_t reserved = 0;
        bool is_virtual = false;

        bool reserves(const void* address, size_t bytes) const {
            return bytes <= reserved - (reinterpret_cast<uintptr_t>(address) - base);
        }
        bool holds(const void* address, size_t bytes) const {
            const uintptr_t place = reinterpret_cast<uintptr_t>(address) - base;
            return place <= length && bytes <= length - place;
        }
        // Nothing else has its number, so that an operation on the allocation holds its addresses.
        // Virtual memory may have several addresses at once, each of which may become another's.
        bool may_be_held() const { return number != 0 && !is_virtual; }
    };
    // What the driver knows of an address; pinned and registered memory is the host's.
    Found look_up(const void* address);
    // The number of the allocation there; 0: none.
    uint64_t number_at(const void* address) const;
    // What operations work on: look_up() asks no driver for that.
    ucs::HeldAllocations& held() const { return held_; }
    // Where to copy such memory; null: no context is known that reaches it.
    CopyContext* context_of(const Found& found);
    // A context of the device of that name, else of any; null: there is none so far.
    CopyContext* context_near(const char (&device)[16]);
    // The registration or pinned allocation that host memory lies in; empty: it is not pinned.
    std::span<std::byte> pinned_range(const void* address) const;
    // Does all of this host memory lie in one?
    bool is_pinned(const void* address, size_t length) const {
        const std::span<std::byte> range = pinned_range(address);
        const auto* const first = static_cast<const std::byte*>(address);
        return !range.empty() && length <= range.size() - static_cast<size_t>(first - range.data());
    }
    // Calls it with each context that copies are ready in, and its device.
    template <typename Visitor>
    void for_each_context(Visitor visit) {
        std::lock_guard lock(mutex_);
        for (const std::unique_ptr<CopyContext>& known : contexts_) {
            if (known->is_alive()) visit(known->handle(), known->device());
        }
    }
    // Get ready in the context that is current and in all primary contexts that are active.
    void prepare();

  private:
    explicit CopyEngine(const Driver& driver) : driver_(driver) {}
    void narrow(abi::DevicePointer address, Found& found);
    CopyContext* find(abi::Context context, abi::Device device);
    CopyContext* find_for_device(abi::Device device);

    const Driver& driver_;
    mutable ucs::HeldAllocations held_;
    std::mutex mutex_;
    std::vector<std::unique_ptr<CopyContext>> contexts_;
    std::vector<std::unique_ptr<CopyContext>> lost_;  // tickets may name them
};

}  // namespace uct::cuda
