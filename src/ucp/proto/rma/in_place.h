// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ucp/endpoint/endpoint.h"
#include "ucp/mem/remote_memory.h"
#include "ucs/sys/sanitizer.h"
#include "uct/api/mapped_region.h"
#include "uct/base/atomics.h"
#include "uct/base/short_copy.h"

// The shortest way of one-sided operations: on memory of the peer that is mapped here this
// processor does them itself, within the call, and no lane is asked. All that has to be looked at
// each time is here: does the endpoint work, does anything wait that has to come before, may the
// bytes be accessed now, is the program's buffer host memory. The rest is known since the key was
// opened (RemoteMemory::mapped()) and the lanes were chosen (EndpointConfiguration::in_place()).
//
// Each returns false if it is not done so, and nothing has happened then: a request does it, or
// says what is wrong.
namespace ucp::in_place {

// Where the peer's bytes are here; null: not this way.
[[gnu::always_inline]] inline std::byte* find(Endpoint& endpoint, const RemoteMemory& remote,
                                              uct::PeerRights wanted, uint64_t address,
                                              size_t length) {
    const uct::MappedRegion* region = remote.mapped(endpoint.configuration().in_place().domains);
    if (region == nullptr || !endpoint.may_act_in_place() ||
        !region->allows(wanted, address, length))
        return nullptr;
    return region->at(address);
}

// The same for a put or get between them and a buffer of the program. It is not counted: no lane
// would do it sooner.
[[gnu::always_inline]] inline std::byte* find(Endpoint& endpoint, const RemoteMemory& remote,
                                              uct::PeerRights wanted, uint64_t address,
                                              const void* buffer, size_t length, size_t longest) {
    if (length - 1 >= longest) return nullptr;  // or none
    std::byte* const there = find(endpoint, remote, wanted, address, length);
    constexpr uint32_t kNotCounted = 0;
    const bool goes_on = there != nullptr && endpoint.pass_gate(buffer, length, kNotCounted);
    return goes_on ? there : nullptr;
}

[[gnu::always_inline]] inline bool put(Endpoint& endpoint, const void* buffer, size_t length,
                                       uint64_t address, const RemoteMemory& remote) {
    std::byte* const there = find(endpoint, remote, uct::PeerRights::kWrite, address, buffer,
                                  length, endpoint.configuration().in_place().longest_put);
    if (there == nullptr) return false;
    const ucs::IgnoredByThreadSanitizer stands_for_a_peer;
    std::memmove(there, buffer, length);
    return true;
}

// Of few bytes, where no thread or device has to be looked after and no fence waits: what most
// programs put, without a call, so that nothing has to be saved for one. Others go by put().
[[gnu::always_inline]] inline bool put_short(Endpoint& endpoint, const void* buffer, size_t length,
                                             uint64_t address, const RemoteMemory& remote) {
    constexpr uint32_t kWatched = Gate::kThreads | Gate::kDevices;
    if (length - 1 >= uct::kShortCopy || (endpoint.gate().bits() & kWatched) != 0) return false;
    const auto& in_place = endpoint.configuration().in_place();
    const uct::MappedRegion* region = remote.mapped(in_place.domains);
    if (region == nullptr || length > in_place.longest_put || !endpoint.is_unfenced() ||
        !region->allows(uct::PeerRights::kWrite, address, length))
        return false;
    const ucs::IgnoredByThreadSanitizer stands_for_a_peer;
    uct::move_short(region->at(address), buffer, length);
    return true;
}

[[gnu::always_inline]] inline bool get(Endpoint& endpoint, void* buffer, size_t length,
                                       uint64_t address, const RemoteMemory& remote) {
    const std::byte* const there = find(endpoint, remote, uct::PeerRights::kRead, address, buffer,
                                        length, endpoint.configuration().in_place().longest_get);
    if (there == nullptr) return false;
    const ucs::IgnoredByThreadSanitizer stands_for_a_peer;
    std::memmove(buffer, there, length);
    return true;
}

// With the CPU's own atomics, on a word of 4 or 8 bytes.
// @param result  gets the old value; host memory, or null if it is not wanted
template <typename Word>
[[gnu::always_inline]] inline bool atomic(Endpoint& endpoint, uct::AtomicOp op, Word operand,
                                          Word compare, void* result, uint64_t address,
                                          const RemoteMemory& remote) {
    if (!endpoint.configuration().in_place().has_atomics || address % sizeof(Word) != 0)
        return false;
    std::byte* const there = find(endpoint, remote, uct::PeerRights::kAll, address, sizeof(Word));
    if (there == nullptr) return false;
    const Word old = uct::apply_atomic(op, reinterpret_cast<Word*>(there), operand, compare);
    if (result != nullptr) std::memcpy(result, &old, sizeof(old));
    return true;
}

}  // namespace ucp::in_place
