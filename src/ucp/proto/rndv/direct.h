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
#include "ucp/runtime/request_pool.h"
#include "ucs/memory/detector.h"
#include "ucs/sys/random.h"
#include "ucs/sys/time.h"

namespace ucp {

// Device memory of one side of a rendezvous that the other side's devices read or write by
// themselves: the direct way, within a host.
//
//   sender                                  receiver
//   RTS (description of memory)  ----->     copies from it; no way to it yet: asks for the data
//                                           as ever, and has the way opened for later messages
//   done                         <-----     ATS
//   RTS (where in that memory)   ----->     copies from it by the description that it has
//   done, of all that ended      <-----     ATS
//   memory is freed              ----->     MemoryNews: closes the way
//
// What is not in device memory, or not in memory that others can open, is written instead:
//
//   RTS                          ----->
//   copies into it; no way yet:  <-----     RTR (description of memory)
//   sends the data as ever
//   done                         ----->     ATP
//                                <-----     memory is freed: MemoryNews
//
// One-sided operations find the description in the remote key, and tell its owner that they use it.
// Those between a device's memory here and memory of the peer that no device here reaches describe
// what is here, and the peer's devices copy (PeerCopies, proto/rma).
//
// Copies under way are looked at in each progress. Thread rule: the worker's.
class DirectPath {
  public:
    DirectPath(RequestPool& requests, EndpointTable& endpoints)
        : requests_(requests), endpoints_(endpoints) {}
    DirectPath(const DirectPath&) = delete;
    DirectPath& operator=(const DirectPath&) = delete;

    // --- the sender ---

    // Has the peer read the buffer's allocation by itself? Until it has, yes at the first, second,
    // fourth and so on time, so that it comes to know of it.
    bool is_mapped(Endpoint& endpoint, const Buffer& buffer);
    // Describe device memory for the peer, who is told when it has been freed.
    // @return false: it cannot be described
    // @param known  what the memory was found to be, by the operation; or null
    bool describe(Endpoint& endpoint, std::span<const std::byte> bytes,
                  const ucs::MemoryInfo* known, ucs::MemoryExport* description);
    // Where the buffer is in memory that has been described to the peer, which has read it by
    // itself the last time. @return false: there is no such memory
    bool refer(const Endpoint& endpoint, std::span<const std::byte> bytes,
               const ucs::MemoryInfo* known, DescribedBefore* where);
    // Describe device memory in a request that the peer's devices copy from it or to it.
    // @return false: it cannot be described, or the peer does not reach it, as far as it is known:
    //         the peer is asked again at the first, second, fourth and so on time
    bool describe_in_request(Endpoint& endpoint, std::span<const std::byte> bytes,
                             const ucs::MemoryInfo* known, ucs::MemoryExport* description);
    // What the peer said to that. @param is_refused  it cannot, now or later
    void request_answered(uint64_t allocation, uint64_t peer, bool is_refused);
    // The peer has read the described allocation by itself, or asked for the data.
    void answered(uint64_t allocation, uint64_t peer, bool is_direct);
    // From time to time: tells peers what has been freed.
    void advance(ucs::Time now) {
        if (!described_.empty()) [[unlikely]]
            tell_freed(now);
    }

    // --- who copies ---

    // What a sender describes is known of later announcements, which say where in it their data is.
    void remember(uint64_t sender, const ucs::MemoryExport& description);
    // @return null: that sender has described no such memory, or it has been forgotten
    const ucs::MemoryExport* recall(uint64_t sender, uint64_t buffer);
    // Begin to copy described bytes to a request's buffer, or the buffer's into described memory.
    // @param known  what the buffer was found to be; or null
    // @return false: there is no way now
    bool copy(Request& request, const ucs::DevicePiece& piece, const ucs::MemoryInfo* known,
              bool is_store);
    // Where a list for transfer() may be made; the next call's takes its place.
    std::span<ucs::DevicePiece> room_for(size_t pieces) {
        if (pieces_.size() < pieces) pieces_.resize(pieces);
        return pieces_;
    }
    // The same of the first of many pieces. @return how many
    // @param is_store  into described memory
    size_t transfer(Request& request, std::span<const ucs::DevicePiece> pieces, bool is_store);
    // Memory that a remote key describes is used: its owner is to say when it is freed.
    static void tell_in_use(Endpoint& endpoint, const ucs::MemoryExport& description);
    // The endpoint has failed: ends its requests that copies are under way for, when the devices
    // have done with them. Those with names have ended.
    void abort(const Endpoint& endpoint, ucs_status_t status);
    // If the request has a copy under way: waits for its end. Nobody hears of it.
    void wait_for(Request& request);
    // A request whose copy has ended.
    struct Ended {
        Request* request;
        ucs_status_t status;
    };
    // Gives those that have ended since to `end(std::span<const Ended>)`.
    template <typename End>
    unsigned run_deferred(End end) {
        auto left = copies_.begin();
        ucs::AsyncCopy::Awaited before{this};  // no copy waits for that
        for (Copy& copy : copies_) {
            if (copy.awaited != before) {
                const ucs_status_t status = copy.copy->poll();
                if (status != UCS_INPROGRESS) {
                    ended_.push_back({copy.request, status});
                    continue;
                }
                copy.awaited = copy.copy->awaited();
                if (copy.awaited.what != nullptr) before = copy.awaited;
            }
            if (&*left != &copy) *left = copy;
            ++left;
        }
        copies_.erase(left, copies_.end());
        if (!copies_.empty()) requests_.run_soon();
        if (ended_.empty()) return 0;
        // What ends may begin others, or look at them.
        std::vector<Ended> now;
        now.swap(ended_);
        end(std::span<const Ended>(now));
        const auto count = static_cast<unsigned>(now.size());
        now.clear();
        if (ended_.capacity() == 0) ended_.swap(now);  // its memory is used again
        return count;
    }
    bool has_copies() const { return !copies_.empty(); }
    // The worker goes: waits for the devices. Nobody hears of the ends.
    void wait();

    // What a peer says of memory of its own, or of this process.
    void hear(const MemoryNews& news);

  private:
    static constexpr ucs::Duration kInterval{20'000'000};  // between looks for freed memory

    struct Peer {
        uint64_t uuid;
        uint32_t short_messages = 0;
        bool is_direct = false;   // so it was the last time
        bool is_refused = false;  // a request that the peer's devices copy
        uint32_t requests = 0;    // since then, that were made or not
    };
    struct Described {
        uint32_t type = 0;
        bool has_handle = false;
        uint64_t process = 0;
        uint64_t base = 0;
        uint64_t size = 0;
        std::vector<Peer> peers;

        Peer& peer(uint64_t uuid);
    };
    // Memory that a sender has described.
    struct HeardOf {
        uint64_t sender;  // uuid
        uint64_t buffer;
        bool operator==(const HeardOf&) const = default;
        struct Hash {
            size_t operator()(const HeardOf& of) const {
                return ucs::mix64(of.sender ^ ucs::mix64(of.buffer));
            }
        };
    };
    // More are forgotten.
    static constexpr size_t kMostHeardOf = 4096;
    struct Copy {
        Request* request;
        ucs::AsyncCopy* copy;
        ucs::AsyncCopy::Awaited awaited;  // as of the last look
    };

    // For one more copy, which nothing may keep from being looked at once it has begun.
    void make_room() {
        if (copies_.size() == copies_.capacity()) [[unlikely]]
            copies_.reserve(2 * copies_.size() + 8);
    }
    void add(Request& request, ucs::AsyncCopy* copy) {
        copies_.push_back({&request, copy, copy->awaited()});
        requests_.run_soon();
    }
    Described* find(uint64_t allocation);
    Described& note(const ucs::MemoryExport& description);
    void tell_freed(ucs::Time now);

    RequestPool& requests_;
    EndpointTable& endpoints_;
    std::unordered_map<uint64_t, Described> described_;               // by the allocation's number
    std::pair<const uint64_t, Described>* last_described_ = nullptr;  // that find() has found
    ucs::Time next_look_{};
    std::vector<Copy> copies_;
    std::vector<ucs::DevicePiece> pieces_;
    std::vector<Ended> ended_;
    std::unordered_map<HeardOf, ucs::MemoryExport, HeardOf::Hash> heard_;
    const std::pair<const HeardOf, ucs::MemoryExport>* last_heard_ = nullptr;  // of recall()
};

}  // namespace ucp
