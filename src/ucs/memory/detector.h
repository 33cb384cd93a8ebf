// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "ucs/memory/held_allocations.h"
#include "ucs/memory/memory_type.h"
#include "ucs/memory/stream_stop.h"
#include "ucs/runtime/runtime.h"
#include "ucs/sys/descriptor.h"
#include "ucs/type/status.h"

namespace ucs {

struct MemoryPiece {
    void* address;
    size_t length;
};

// Copies between host memory and a buffer that may lie in the memory of a device, in parts and in
// any order: what packing and unpacking of such a buffer is made of. It stages through pinned host
// memory and works ahead, so that a later part often waits for nothing. One thread at a time.
class StagedCopy {
  public:
    // Part of the buffer, by its place in the sequence of all pieces, to host memory.
    virtual ucs_status_t read(size_t offset, void* to, size_t length) = 0;
    // The same the other way: `from` is free again on return; the bytes may land later.
    virtual ucs_status_t write(size_t offset, const void* from, size_t length) = 0;
    // Waits until all is written, and ends the copy. Once, after the last part.
    virtual ucs_status_t finish() = 0;
    // Ends the copy early: drops what the device was not given yet, and waits for what it was.
    virtual void abandon() = 0;

    // Of a buffer in one piece: what it was found to be, which holds until the copy is ended, for
    // the program may not free what an operation works on; host memory: not known.
    MemoryInfo memory;

  protected:
    ~StagedCopy() = default;
};

// Memory of a device as its owner describes it to the other processes of the host, which may then
// copy from it by themselves. It travels between processes as it is.
#pragma pack(push, 1)
struct MemoryExport {
    uint32_t type;        // ucs_memory_type_t: whose detector understands the rest
    uint16_t version;     // kMemoryExportVersion
    uint16_t has_handle;  // 0: other processes cannot open it, its owner reaches it; else how,
                          // which the detector knows
    uint64_t process;     // the owner, a number drawn at its start
    uint64_t buffer;      // the allocation: a number that the owner gives to no other
    uint64_t size;        // bytes of the allocation
    uint64_t offset;      // in it, where the described memory begins
    uint64_t base;        // address of the allocation in the owner
    char device[16];      // the device's unique name
    uint64_t token;       // who knows it may ask the owner for what no bytes can carry
    uint64_t group;       // allocations of one group are opened together; 0: this one is alone
    char handle[64];      // what the driver opens it with
};
#pragma pack(pop)
inline constexpr uint16_t kMemoryExportVersion = 2;

// Memory of a device for other devices of the machine, such as network adapters.
struct DmaBuf {
    Descriptor descriptor;
    uint64_t offset = 0;  // where in it the memory begins
};

// A piece that is copied between described memory and memory here, alone or as one of many.
struct DevicePiece {
    const MemoryExport* there;
    uint64_t offset;  // from where the described memory begins
    void* here;
    size_t length;  // not 0
};

// A copy that goes on by itself.
class AsyncCopy {
  public:
    // UCS_INPROGRESS, or the end of the copy, which is gone then: it is not called again.
    virtual ucs_status_t test() = 0;
    // The same at less cost for a copy that is under way, since most looks are in vain.
    ucs_status_t poll() {
        const uint32_t* const word = word_.load(std::memory_order_acquire);
        if (word == nullptr) return test();
        if (static_cast<int32_t>(number_ - __atomic_load_n(word, __ATOMIC_ACQUIRE)) > 0)
            return ++polls_ % kPollsPerTest != 0 ? UCS_INPROGRESS : test();
        return end();
    }
    // What a copy that is under way waits for, which does so as long as all others that wait for
    // the same. Once it has been begun it waits for nothing else any more.
    struct Awaited {
        const void* what = nullptr;  // null: it waits by itself
        uint64_t number = 0;

        bool operator==(const Awaited&) const = default;
    };
    Awaited awaited() const {
        constexpr uint64_t kBegun = uint64_t{1} << 32;
        const uint32_t* const word = word_.load(std::memory_order_acquire);
        if (word != nullptr) return {word, kBegun | number_};
        return {company_.load(std::memory_order_relaxed)};
    }

  protected:
    // As long as the word is behind, only each so many-th poll() calls test(), which sees failures.
    static constexpr uint32_t kPollsPerTest = 32;

    ~AsyncCopy() = default;
    // The device's word is, or has passed, the number when the copy has ended. Null: only test()
    // knows. Any thread; again null before another word.
    void await(const uint32_t* word, uint32_t number) {
        number_ = number;
        word_.store(word, std::memory_order_release);
    }

    // It waits to be begun, when all others are that say the same; null: it does not. Any thread.
    void wait_with(const void* company) { company_.store(company, std::memory_order_relaxed); }

    // As test(), of a copy that has ended, as its word says.
    virtual ucs_status_t end() { return test(); }

  private:
    std::atomic<const uint32_t*> word_{nullptr};
    std::atomic<const void*> company_{nullptr};
    uint32_t number_ = 0;
    uint32_t polls_ = 0;
};

// What kernels of one context work with: ways to memory, which stay open, and one piece of the
// device's memory that holds what they read. One thread at a time.
class KernelMemory {
  public:
    // Where the kernels find memory that this process or another one of the host has described.
    // Waits some ms, until there is a way. UCS_ERR_NO_RESOURCE: none can be opened now.
    // UCS_ERR_UNSUPPORTED: the device does not reach it. UCS_ERR_INVALID_PARAM: the description is
    // not sound, or of memory that has been freed.
    virtual ucs_status_t find(const MemoryExport& memory, void** address) = 0;
    // The same for memory of this process, which the kernels find at its address, or not at all.
    virtual ucs_status_t check(const void* address, size_t length) = 0;
    // The piece of the device's memory. Once.
    virtual ucs_status_t allocate(size_t length, void** address) = 0;
    // Fills it, and waits until that is done.
    virtual ucs_status_t write(std::span<const std::byte> bytes) = 0;
    // No kernel uses any of it any more. Waits for nothing; the object is gone.
    virtual void close() = 0;

  protected:
    ~KernelMemory() = default;
};

// Recognises memory of one kind, and copies it; modules for accelerators register one. Not owned.
// Any thread may call, whatever device or context is current there.
class MemoryDetector : public RegistryEntry {
  public:
    // Whether [address, address + length) is this detector's memory; fills `info` if it is.
    virtual bool detect(const void* address, size_t length, MemoryInfo& info) const = 0;
    // Bits of ucs_memory_type_t that detect() may find on this machine.
    virtual uint64_t types() const { return 0; }
    // Bits of those that other processes of the host may read by fetch(), as far as they reach it.
    virtual uint64_t readable_types() const { return 0; }
    // False as long as no such memory can exist in this process.
    virtual bool is_in_use() const { return true; }

    // Off the data path: get ready whatever copies will need.
    virtual void prepare() {}
    // Copy now; either side or both may be this detector's memory, the other host memory.
    virtual ucs_status_t copy(void* to, const void* from, size_t length) {
        return UCS_ERR_UNSUPPORTED;
    }
    // Some of the pieces is this detector's memory. A list of several stays valid until the copy is
    // finished, that of a single one for this call.
    // @param known  of a single piece what detect() said; or null
    virtual ucs_status_t open_copy(std::span<const MemoryPiece> pieces, const MemoryInfo* known,
                                   StagedCopy** copy) {
        return UCS_ERR_UNSUPPORTED;
    }
    // Describe memory to other processes. False: it cannot be, or this is not its kind.
    // @param known  as for fetch()
    virtual bool export_memory(const void* address, size_t length, const MemoryInfo* known,
                               MemoryExport& description) {
        return false;
    }
    // May there be dma-bufs of this kind of memory?
    virtual bool has_dma_bufs() const { return false; }
    // UCS_ERR_UNSUPPORTED: of this memory there are none.
    virtual ucs_status_t export_dma_buf(const void* address, size_t length, DmaBuf* buffer) {
        return UCS_ERR_UNSUPPORTED;
    }
    // Begin to copy bytes that another process, or this one, described, to host memory or memory of
    // this detector's. Both sides stay as they are until the copy has ended.
    // @param known  what detect() said of the memory here for the operation that it is copied for,
    //         which lasts as long as the copy; or null
    // UCS_ERR_NO_RESOURCE: this process has no way to that memory yet; one is opened aside, for
    // later copies. UCS_ERR_UNSUPPORTED: there is none. UCS_ERR_INVALID_PARAM: the description is
    // not sound. UCS_ERR_BUSY: there is a way, but what it takes is in use by other copies.
    virtual ucs_status_t fetch(const DevicePiece& piece, const MemoryInfo* known,
                               AsyncCopy** copy) {
        return UCS_ERR_UNSUPPORTED;
    }
    // The same the other way: copy into the described memory out of host memory or memory of this
    // detector's.
    virtual ucs_status_t store(const DevicePiece& piece, const MemoryInfo* known,
                               AsyncCopy** copy) {
        return UCS_ERR_UNSUPPORTED;
    }
    // Begin to copy the first pieces of a list, as many as go together (`begun`), into described
    // memory (store) or out of it. Errors as fetch(); none is begun then.
    virtual ucs_status_t transfer(std::span<const DevicePiece> pieces, bool is_store, size_t* begun,
                                  AsyncCopy** copy) {
        *begun = 0;
        return UCS_ERR_UNSUPPORTED;
    }
    // A piece of memory of the library's own, on the device of memory that others cannot open: they
    // open this one, and bytes pass through it. Until put_window(). Empty: all is in use, or is
    // being made aside, or there is none, or others may want what is left.
    // @param held  pieces that the same peer has already: as many must be left behind this one
    virtual std::span<std::byte> take_window(const void* beside, size_t held) { return {}; }
    // @param is_lost  a peer may still write there: another one takes its place
    virtual void put_window(std::span<std::byte> window, bool is_lost) {}
    // Has the allocation, described by this process, been freed since? Whatever lies there now.
    virtual bool is_freed(uint64_t buffer, uint64_t base) { return false; }
    // The owner says that it freed an allocation: give up the way to it.
    virtual void forget(uint64_t process, uint64_t buffer) {}
    // Make a stream of this kind of device stop behind what it has been given so far. Waits for
    // nothing. UCS_ERR_UNSUPPORTED: streams of this kind cannot. UCS_ERR_INVALID_PARAM: there is no
    // such stream, or it is being captured and `may_be_captured` is false. UCS_ERR_NO_RESOURCE: as
    // many stops as there may be have not been passed yet.
    virtual ucs_status_t insert_stop(void* stream, bool may_be_captured, StreamStop* stop) {
        return UCS_ERR_UNSUPPORTED;
    }
    // The caller looks at it no more, and has opened it: the words are used again, but not before
    // the stream has passed. `is_lost`: a graph may come to it for ever.
    virtual void remove_stop(const StreamStop& stop, bool is_lost) {}
    // For kernels of the context that is current on this thread. UCS_ERR_NO_DEVICE: there is none.
    // UCS_ERR_UNSUPPORTED: kernels of this kind of device are not served.
    virtual ucs_status_t open_for_kernels(KernelMemory** memory) { return UCS_ERR_UNSUPPORTED; }
    // On the device that is current, else on the first that the program uses.
    virtual ucs_status_t allocate(ucs_memory_type_t type, size_t length, void** address) {
        return UCS_ERR_UNSUPPORTED;
    }
    virtual void free(void* address) {}

  protected:
    constexpr MemoryDetector() = default;
    ~MemoryDetector() = default;
};

// For the life of the process; any thread.
void register_memory_detector(MemoryDetector& detector);

// What kind of memory a buffer is: asked for each buffer, never assumed. Host memory if no detector
// knows it; one load where no detector is registered.
MemoryInfo detect_memory(const void* address, size_t length);

// All that are registered, asked together.
class MemoryDetectors {
  public:
    static bool any() { return runtime().memory_detectors.first() != nullptr; }
    static MemoryInfo detect(const void* address, size_t length);
    static uint64_t types();
    // As MemoryDetector::readable_types(), of all.
    static uint64_t readable_types();
    static bool is_in_use();
    static void prepare();
    // As MemoryDetector::export_memory(), of whoever can.
    static bool export_memory(const void* address, size_t length, const MemoryInfo* known,
                              MemoryExport& description);
    // As MemoryDetector::insert_stop(), of whoever is in use and can.
    static ucs_status_t insert_stop(void* stream, bool may_be_captured, StreamStop* stop);
    // The detector that can allocate this type; null: none.
    static MemoryDetector* of_type(ucs_memory_type_t type);
};

}  // namespace ucs
