// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstring>

#include "ucs/type/bits.h"
#include "uct/ib/base/send_queue.h"
#include "uct/ib/ud/ud_connection.h"

namespace uct::ib::ud {

// A packet on its way out, with room before its payload for the header, which is written anew at
// each transmission. It goes back to its pool when it is acknowledged and the adapter has let go.
//
// Larger ones are registered: their local key lies behind the object, where the pool wrote it.
class Packet final : public SendOperation, public SentPacket {
  public:
    static size_t key_offset();
    static size_t payload_offset() { return key_offset() + sizeof(uint32_t) + Header::kMaxLength; }

    explicit Packet(ucs::MemoryPool& owner) {
        pool = &owner;
        finish = &Packet::left_adapter;
    }

    std::byte* payload() { return reinterpret_cast<std::byte*>(this) + payload_offset(); }
    uint32_t local_key() const {
        uint32_t key;
        std::memcpy(&key, reinterpret_cast<const std::byte*>(this) + key_offset(), sizeof(key));
        return key;
    }

    // The adapter reads it: it must not change.
    bool is_posted() const { return is_posted_; }
    void set_posted() { is_posted_ = true; }
    // Nobody needs it any more but the adapter, perhaps.
    void drop() {
        is_dropped_ = true;
        if (!is_posted_) release();
    }

    uint32_t size = 0;  // of the payload
    uint8_t id = 0;
    bool is_ping = false;
    bool has_more = false;

  private:
    static void left_adapter(SendOperation& operation, ucs_status_t) {
        auto& packet = static_cast<Packet&>(operation);
        packet.is_posted_ = false;
        if (packet.is_dropped_) packet.release();
    }

    bool is_posted_ = false;
    bool is_dropped_ = false;
};

inline size_t Packet::key_offset() {
    return ucs::align_up(sizeof(Packet), size_t{8});
}

}  // namespace uct::ib::ud
