// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ucp/base/request.h"
#include "ucp/dt/buffer.h"
#include "ucp/endpoint/endpoint_table.h"
#include "ucp/proto/rndv/rndv_wire.h"
#include "ucp/runtime/deferred_work.h"
#include "ucs/memory/detector.h"
#include "ucs/sys/time.h"

namespace ucp {

/**
 * Announced device memory that the receiver's devices read by themselves: the direct way of a
 * rendezvous, within a host.
 *
 *   sender                                  receiver
 *   RTS (description of memory)  ----->     copies from it; no way to it yet: asks for the data
 *                                           as ever, and has the way opened for later messages
 *   done                         <-----     ATS
 *   memory is freed              ----->     MemoryFreed: closes the way
 *
 * Copies under way are looked at in each progress. Thread rule: the worker's.
 */
class DirectPath {
  public:
    /** Shorter messages are announced only where the direct way is known to exist. */
    static constexpr size_t kLeast = 8192;

    DirectPath(DeferredWork& work, EndpointTable& endpoints) : work_(work), endpoints_(endpoints) {}
    DirectPath(const DirectPath&) = delete;
    DirectPath& operator=(const DirectPath&) = delete;

    // --- the sender ---

    /** May the peer's devices reach this buffer? */
    static bool is_near(Endpoint& endpoint, const Buffer& buffer);
    /**
     * Is it worth an announcement? Long buffers are; of short ones, once the peer has read that
     * allocation by itself. Until then the first, second, fourth and so on tries.
     */
    bool pays(Endpoint& endpoint, const Buffer& buffer);
    /**
     * Describe such a buffer for the peer, who is told when the memory has been freed.
     * @return false: it cannot be described
     */
    bool describe(Endpoint& endpoint, const Buffer& buffer, ucs::MemoryExport* description);
    /** The peer has read the described allocation by itself, or asked for the data. */
    void answered(uint64_t allocation, uint64_t peer, bool is_direct);
    /** From time to time: tells peers what has been freed. */
    void advance(ucs::Time now) {
        if (!described_.empty()) [[unlikely]]
            tell_freed(now);
    }

    // --- the receiver ---

    /** Begin to copy announced bytes to a receive's buffer. @return false: there is no way now */
    bool start(Request& receive, const ucs::MemoryExport& from, void* to, size_t length);
    /** Gives the receives whose copies have ended to `ended(Request&, ucs_status_t)`. */
    template <typename Ended>
    unsigned run_deferred(Ended ended) {
        unsigned count = 0;
        // What ends may begin others.
        auto looked_at = std::exchange(copies_, {});
        std::erase_if(looked_at, [&](const Copy& copy) {
            const ucs_status_t status = copy.copy->test();
            if (status == UCS_INPROGRESS) return false;
            ended_.emplace_back(copy.receive, status);
            return true;
        });
        looked_at.insert(looked_at.end(), copies_.begin(), copies_.end());
        copies_ = std::move(looked_at);
        if (!copies_.empty()) work_.notify();
        for (const auto& [receive, status] : std::exchange(ended_, {})) {
            ++count;
            ended(*receive, status);
        }
        return count;
    }
    bool has_copies() const { return !copies_.empty(); }
    /** The worker goes: waits for the devices. Nobody hears of the ends. */
    void wait();

    /** A peer's MemoryFreed. */
    static void forget(const MemoryFreed& freed);

  private:
    static constexpr ucs::Duration kInterval{20'000'000};  //!< between looks for freed memory

    struct Peer {
        uint64_t uuid;
        uint32_t short_messages = 0;
        bool is_direct = false;  //!< so it was the last time
    };
    struct Described {
        uint32_t type = 0;
        bool has_handle = false;
        uint64_t process = 0;
        uint64_t base = 0;
        std::vector<Peer> peers;

        Peer& peer(uint64_t uuid);
    };
    struct Copy {
        Request* receive;
        ucs::AsyncCopy* copy;
    };

    Described& note(const ucs::MemoryExport& description);
    void tell_freed(ucs::Time now);

    DeferredWork& work_;
    EndpointTable& endpoints_;
    std::unordered_map<uint64_t, Described> described_;  //!< by the allocation's number
    ucs::Time next_look_{};
    std::vector<Copy> copies_;
    std::vector<std::pair<Request*, ucs_status_t>> ended_;
};

}  // namespace ucp
