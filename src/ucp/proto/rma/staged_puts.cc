// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/proto/rma/staged_puts.h"

#include <algorithm>
#include <new>

namespace ucp {

namespace {

void* place_of(const RemoteAccess& to) {
    return reinterpret_cast<void*>(to.address);
}

}  // namespace

StagedPuts::~StagedPuts() {
    for (const Put& put : puts_) put.copy->abandon();
}

bool StagedPuts::lacks_room(const EmulatedPut& message) const {
    const Name name{message.from, message.request};
    return puts_.size() == kMost && !message.is_last &&
           std::ranges::find(puts_, name, &Put::name) == puts_.end();
}

StagedPuts::Puts::iterator StagedPuts::find(const Name& name) {
    const auto found = std::ranges::find(puts_, name, &Put::name);
    if (found == puts_.end()) return found;
    std::rotate(found, found + 1, puts_.end());
    return puts_.end() - 1;
}

// @return the end of the list if it cannot be
StagedPuts::Puts::iterator StagedPuts::open(ucs::MemoryDetector& device,
                                            const EmulatedPut& message) {
    if (puts_.size() == kMost) return puts_.end();
    try {
        puts_.reserve(kMost);
    } catch (const std::bad_alloc&) {
        return puts_.end();
    }
    // How long the put is its last message will say.
    const ucs::MemoryPiece piece{place_of(message.to), SIZE_MAX / 2};
    ucs::StagedCopy* copy = nullptr;
    if (device.open_copy({&piece, 1}, nullptr, &copy) != UCS_OK) return puts_.end();
    return puts_.insert(puts_.end(), {{message.from, message.request}, message.to, 0, copy});
}

ucs_status_t StagedPuts::write(ucs::MemoryDetector& device, const EmulatedPut& message,
                               std::span<const std::byte> bytes) {
    auto put = find({message.from, message.request});
    if (put == puts_.end() && !message.is_last) put = open(device, message);
    if (put == puts_.end()) return device.copy(place_of(message.to), bytes.data(), bytes.size());
    ucs_status_t status = UCS_ERR_INVALID_ADDR;
    if (message.to.address >= put->to.address) {
        const size_t offset = message.to.address - put->to.address;
        put->length = std::max(put->length, offset + bytes.size());
        status = put->copy->write(offset, bytes.data(), bytes.size());
    }
    if (status == UCS_OK && !message.is_last) return UCS_OK;
    const ucs_status_t ended = end(put->name, status == UCS_OK);
    return status == UCS_OK ? ended : status;
}

ucs_status_t StagedPuts::end(const Name& name, bool has_memory) {
    const auto put = find(name);
    if (put == puts_.end()) return UCS_OK;
    ucs_status_t status = UCS_OK;
    if (has_memory) {
        status = put->copy->finish();
    } else {
        put->copy->abandon();
    }
    puts_.erase(put);
    return status;
}

}  // namespace ucp
