// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ucp/proto/rma/emulation.h"
#include "ucs/memory/detector.h"

namespace ucp {

// Puts into memory of a device that this processor carries out, of which more messages are to come.
// Their bytes are collected in pinned memory and the device takes them while the next are received,
// so that it is waited for once a put and not with every message. They are few, as pinned memory
// is: the one that has heard of its initiator least recently gives way.
class StagedPuts {
  public:
    static constexpr size_t kMost = 8;

    StagedPuts() = default;
    StagedPuts(const StagedPuts&) = delete;
    ~StagedPuts();

    // Whose put it is: its initiator's uuid, and what that calls it.
    struct Name {
        uint64_t from;
        uint64_t request;
        bool operator==(const Name&) const = default;
    };
    struct Put {
        Name name;
        RemoteAccess to;  // where its first message went
        size_t length;    // bytes from there on that messages have gone to
        ucs::StagedCopy* copy;
    };

    // Would the message begin a put, and is there no room for it?
    bool lacks_room(const EmulatedPut& message) const;
    const Put& oldest() const { return puts_.front(); }

    // A message of a put, to memory that its initiator may write to. If it lacks room it is copied
    // by itself.
    // @return UCS_OK: of the last message, that every byte of the put is in its place; or the error
    //         of the device, of any of the put's messages: the put has ended
    ucs_status_t write(ucs::MemoryDetector& device, const EmulatedPut& message,
                       std::span<const std::byte> bytes);
    // The put ends here; no effect if there is none. What it has written is in its place then, or,
    // if its memory may be gone, what the device was not given yet is dropped.
    ucs_status_t end(const Name& name, bool has_memory);

  private:
    using Puts = std::vector<Put>;

    // Where it is from now on: the last. @return the end of the list if there is none
    Puts::iterator find(const Name& name);
    Puts::iterator open(ucs::MemoryDetector& device, const EmulatedPut& message);

    Puts puts_;  // the one that was written to least recently first
};

}  // namespace ucp
