// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "uct/cuda/driver.h"
#include "uct/cuda/resident_queue.h"

namespace uct::cuda {

// A kernel of one block that stays on the device and takes short copies from a queue in pinned host
// memory: a copy needs no call of the driver's, of which the launch alone takes longer than it.
//
// It ends when no copy has come for a while, and after some time in any case: so whatever waits for
// all kernels of the device waits for that long at most, and nothing has to be stopped when the
// context or the process ends. The next copy launches it anew, and is itself done otherwise, like
// those that come while it does not run yet: nobody waits for a launch. A copy that it had not
// taken when it ended is never taken (UCS_ERR_CANCELED): no other run begins as long as one is not
// tested. Any thread.
class Resident {
  public:
    // Longer copies gain nothing by it.
    static constexpr size_t kMaxLength = 16 << 10;
    static constexpr uint64_t kIdle = 2'000'000, kLife = 50'000'000;  // [ns]

    // In a context that is current. @return null: there is no such kernel, or no pinned memory
    static std::unique_ptr<Resident> create(const Driver& driver, abi::Context context,
                                            abi::Module module);
    ~Resident();
    Resident(Resident&&) = delete;

    // Addresses as the device sees them. @return false: copy otherwise
    bool begin(void* to, const void* from, size_t length, uint32_t* number);
    // UCS_INPROGRESS, or the end, which is told once; UCS_ERR_CANCELED: it was not done.
    ucs_status_t test(uint32_t number);
    // The same of the driver: also a device that can tell nothing any more.
    ucs_status_t query(uint32_t number);

  private:
    Resident(const Driver& driver, abi::Context context) : driver_(driver), context_(context) {}
    bool prepare(abi::Module module);
    void launch();

    static constexpr unsigned kThreads = 512;

    const Driver& driver_;
    const abi::Context context_;
    abi::Function function_ = nullptr;
    abi::Stream stream_ = nullptr;
    ResidentQueue* queue_ = nullptr;
    abi::DevicePointer device_queue_ = 0;
    std::mutex mutex_;
    uint32_t begun_ = 0;    // the number of the last copy
    uint32_t pending_ = 0;  // copies whose end nobody was told
    uint32_t run_ = 0;
    bool has_failed_ = false;
};

}  // namespace uct::cuda
