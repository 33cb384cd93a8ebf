// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ucp/base/wire.h"
#include "ucp/mem/packed_key.h"
#include "ucs/memory/detector.h"

// Messages of a rendezvous. Every parser takes bytes from outside: it returns false unless lengths
// and fields are consistent, and the spans that it hands out lie within the message.
namespace ucp {

#pragma pack(push, 1)

// Announces data: kRndvRts and kRndvAmRts. The entries of the remote key, which is to the data
// alone, the description of device memory (ucs::MemoryExport), or where it is in memory described
// before (DescribedBefore), and the user's header follow. With one entry, or the latter, it fits
// into a slot of a queue in shared memory (sm::kInline).
struct RndvRts {
    uint64_t envelope;  // the tag; for active messages an AmHeader
    uint64_t sender;    // uuid
    uint64_t request;   // the sender's, to name in the answer
    uint64_t length;    // bytes of data
    uint64_t address;   // of the data in the sender's memory, for a get
    uint64_t stamp;     // 0, or what the receiver's time is to be told with (kTook)
    uint32_t key_length;
    uint32_t header_length;
    uint32_t export_length;
};

// Where announced data lies in device memory that the sender has described to this receiver in an
// earlier announcement, and that the receiver has read by itself then. A receiver that has
// forgotten the description asks for the data, and the next announcement has it again.
struct DescribedBefore {
    uint64_t buffer;  // as in ucs::MemoryExport
    uint64_t offset;  // from where the allocation begins
};

// Done, from the receiver (kRndvAts) or, after a put or a failure, from the sender (kRndvAtp).
// Behind the receiver's follow the names of further requests of the sender (8 bytes each, at most
// kMostDone in all) that have ended with the same status.
inline constexpr size_t kMostDone = 28;
struct RndvDone {
    uint64_t request;  // the addressee's
    uint64_t from;     // uuid
    int8_t status;
};

// Asks for the bytes [offset, end): kRndvRtr. A remote key follows if they may be put, and the
// description of device memory if the sender's devices may write there. With `address` kPart, and
// no key, they are a part of what will be asked for: the sender's device writes there, or an ATP
// says that it cannot (UCS_ERR_NO_RESOURCE); the send goes on.
struct RndvRtr {
    static constexpr uint64_t kPart = 1;

    uint64_t request;   // the sender's
    uint64_t from;      // the receiver's uuid
    uint64_t receiver;  // the receiver's request, to name in what follows
    uint64_t offset;
    uint64_t end;
    uint64_t address;  // of byte `offset`
    uint32_t key_length;
    uint32_t export_length;
};

// Of device memory that was described, in a message or a remote key: kMemoryNews.
struct MemoryNews {
    enum Event : uint8_t {
        kFreed,  // its owner has freed it: who has mapped it gives it up
        kInUse,  // the sender maps it, and has to be told when it is freed
    };
    uint64_t from;     // uuid
    uint32_t type;     // ucs_memory_type_t
    uint64_t process;  // these three as in ucs::MemoryExport
    uint64_t buffer;
    uint64_t base;
    uint8_t event;
};

// A piece of the data: kRndvData.
struct RndvData {
    uint64_t request;  // the receiver's
    uint64_t from;     // uuid
    uint64_t offset;
};

#pragma pack(pop)

// An announcement that has been checked. Only parsing gives it values: there is one for each
// message, and most have no description.
struct Announcement {
    RndvRts rts;
    bool has_key = false;
    PackedKey key;
    bool has_export = false;
    ucs::MemoryExport exported;         // if there is one: holds at least the announced bytes
    bool is_described_before = false;   // instead
    DescribedBefore described;          // of that
    std::span<const std::byte> header;  // the user's, active messages only
};
bool parse_announcement(std::span<const std::byte> bytes, Announcement* announcement);

// Of device memory that others cannot open, in an announcement: may the sender be asked for parts?
// Older versions may not.
inline bool takes_parts(const ucs::MemoryExport& announced) {
    return announced.has_handle == 0 && announced.handle[0] != 0;
}
inline void set_takes_parts(ucs::MemoryExport& announced) {
    if (announced.has_handle == 0) announced.handle[0] = 1;
}

struct ClearToSend {
    RndvRtr rtr{};
    bool has_key = false;
    PackedKey key;
    bool has_export = false;
    ucs::MemoryExport exported{};  // holds at least the bytes asked for

    bool is_part() const { return has_export && !has_key && rtr.address == RndvRtr::kPart; }
};
bool parse_clear_to_send(std::span<const std::byte> bytes, ClearToSend* message);

// @return false also if the status is no status
bool parse_done(std::span<const std::byte> bytes, RndvDone* done);

}  // namespace ucp
