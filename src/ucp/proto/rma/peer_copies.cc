// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/proto/rma/peer_copies.h"

#include <sched.h>

#include <algorithm>
#include <new>

#include "ucs/log/log.h"

namespace ucp {

PeerCopies::PeerCopies(RequestPool& pool, EndpointTable& table, DomainSet& set)
    : requests_(pool), endpoints_(table), domains_(set) {
    const DomainLock lock(domains_);
    domains_.regions().add_user(*this);
}

PeerCopies::~PeerCopies() {
    const DomainLock lock(domains_);
    domains_.regions().remove_user(*this);
    for (Copy& copy : copies_) end(copy);
}

// Under a DomainLock, as what follows.
void PeerCopies::end(Copy& copy) {
    if (copy.copy == nullptr) return;
    while ((copy.status = copy.copy->test()) == UCS_INPROGRESS) sched_yield();
    copy.copy = nullptr;
}

void PeerCopies::let_go(uint64_t region) {
    for (Copy& copy : copies_) {
        if (copy.access.source.region != region) continue;
        end(copy);
        if (copy.status == UCS_INPROGRESS) copy.status = UCS_ERR_INVALID_ADDR;
    }
}

bool PeerCopies::has_begun() const {
    return std::ranges::any_of(copies_, [](const Copy& copy) { return copy.copy != nullptr; });
}

// What is there is looked at anew each time: the program may have unmapped it.
ucs_status_t PeerCopies::begin(Copy& copy) {
    const bool is_put = copy.request.direction == CopyRequest::kPut;
    const RemoteAccess& access = copy.access.source;
    void* const here = domains_.regions().access(
        access.identity, access.region, access.address, copy.access.length,
        is_put ? UCP_MEM_MAP_PROT_REMOTE_WRITE : UCP_MEM_MAP_PROT_REMOTE_READ);
    if (here == nullptr) return UCS_ERR_INVALID_ADDR;
    const ucs::MemoryExport& there = copy.request.there;
    ucs::MemoryDetector* const device =
        there.type < UCS_MEMORY_TYPE_LAST
            ? ucs::MemoryDetectors::of_type(static_cast<ucs_memory_type_t>(there.type))
            : nullptr;
    // let_go() tells apart what goes by names.
    if (device == nullptr || access.region == 0) return UCS_ERR_UNSUPPORTED;
    const ucs::DevicePiece piece{&there, 0, here, copy.access.length};
    return is_put ? device->fetch(piece, nullptr, &copy.copy)
                  : device->store(piece, nullptr, &copy.copy);
}

void PeerCopies::answer(const Ended& ended) {
    if (ended.status != UCS_OK && ended.status != UCS_ERR_UNSUPPORTED &&
        ended.status != UCS_ERR_NO_RESOURCE) {
        ucs::log_warn("a copy that worker {:016x} asked for failed: {}", ended.from,
                      ucs_status_string(ended.status));
    }
    answer_operation(endpoints_, ended.from, ended.request, ended.status);
}

void PeerCopies::serve(const EmulatedGet& access, const CopyRequest& request) {
    if (request.direction > CopyRequest::kGet || access.length == 0) {
        ucs::log_warn("malformed request for a copy dropped");
        return;
    }
    Copy copy{access, request};
    {
        const DomainLock lock(domains_);
        try {
            if (copies_.size() == copies_.capacity()) copies_.reserve(2 * copies_.size() + 8);
            ended_.reserve(copies_.capacity());
        } catch (const std::bad_alloc&) {
            return answer({access.from, access.request, UCS_ERR_NO_RESOURCE});
        }
        copy.status = begin(copy);
        // What is in use comes back when others end.
        if (copy.status == UCS_ERR_BUSY) {
            const bool may_wait = has_begun() && copies_.size() < kMostWaiting;
            copy.status = may_wait ? UCS_OK : UCS_ERR_NO_RESOURCE;
        }
        if (copy.status == UCS_OK) {
            copy.status = UCS_INPROGRESS;
            copies_.push_back(copy);
        }
    }
    if (copy.status != UCS_INPROGRESS) return answer({access.from, access.request, copy.status});
    requests_.run_soon();
}

unsigned PeerCopies::run_deferred() {
    if (copies_.empty()) return 0;
    {
        const DomainLock lock(domains_);
        for (Copy& copy : copies_) {
            if (copy.copy == nullptr) continue;
            copy.status = copy.copy->poll();
            if (copy.status != UCS_INPROGRESS) copy.copy = nullptr;
        }
        for (Copy& copy : copies_) {
            if (copy.copy != nullptr || copy.status != UCS_INPROGRESS) continue;
            const ucs_status_t status = begin(copy);
            if (status == UCS_ERR_BUSY && has_begun()) break;
            if (status != UCS_OK)
                copy.status = status == UCS_ERR_BUSY ? UCS_ERR_NO_RESOURCE : status;
        }
        std::erase_if(copies_, [this](const Copy& copy) {
            if (copy.status == UCS_INPROGRESS) return false;
            ended_.push_back({copy.access.from, copy.access.request, copy.status});
            return true;
        });
    }
    for (const Ended& ended : ended_) answer(ended);
    const auto count = static_cast<unsigned>(ended_.size());
    ended_.clear();
    if (!copies_.empty()) requests_.run_soon();
    return count;
}

}  // namespace ucp
