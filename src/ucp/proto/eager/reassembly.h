// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "ucp/base/wire.h"
#include "ucp/runtime/interface_set.h"
#include "ucs/sys/random.h"
#include "ucs/sys/time.h"
#include "ucs/type/status.h"
#include "uct/api/types.h"

namespace ucp {

// Messages of which the first fragment has come and later ones have not.
//
// The first fragment's protocol says what to do with the rest: it gives a sink. Fragments come in
// the order of their bytes, like all that one worker sends to another. Those that do not follow
// what has come, among them any that comes twice, or that belong to no message are dropped: the
// message failed meanwhile, or the peer makes them up.
class Reassembly {
  public:
    struct Sink {
        // Bytes [offset, offset + length) of the message; they lie inside it.
        // @return an error ends the message with it
        ucs_status_t (*store)(void* target, size_t offset, const void* data,
                              size_t length) = nullptr;
        // UCS_OK: all bytes have been stored. An error: no more will come. Called once.
        void (*finish)(void* target, ucs_status_t status) = nullptr;
        void* target = nullptr;
    };

    explicit Reassembly(InterfaceSet& interfaces) : interfaces_(interfaces) {
        interfaces.set_handler(AmId::kFragment, on_fragment, this);
    }
    Reassembly(const Reassembly&) = delete;
    // What never became whole ends with UCS_ERR_CANCELED.
    ~Reassembly() { clear(); }
    void clear();

    // How much room to have for a message of which so many bytes have come: a multiple of those,
    // since the total is only the sender's word.
    static size_t room_for(size_t arrived, size_t total) {
        constexpr size_t kMultiple = 8;
        return arrived >= total / kMultiple ? total : kMultiple * arrived;
    }
    // Charges what a message takes up before it is received, in fragments or not, to who sent it.
    // @param sender  whom the message names
    // @return false: that worker has too much here, and is cut off
    bool charge(HeldBytes& held, uint64_t sender, size_t bytes) {
        if (held.open(interfaces_.peer_memory(), interfaces_.account_of(sender), bytes)) [[likely]]
            return true;
        interfaces_.too_much(sender);
        return false;
    }
    // So much more of the same message.
    bool charge_more(HeldBytes& held, uint64_t sender, size_t bytes);
    // @param arrived  bytes of the first fragment, stored by the caller; below `total`
    void begin(MessageId id, size_t total, size_t arrived, Sink sink);
    // Another taker for the rest: a receive was found for the message.
    void redirect(MessageId id, Sink sink);
    // Nobody wants the rest; finish() is not called.
    void abandon(MessageId id) { messages_.erase(id); }
    // No endpoint leads to the sender any more. What has arrived of it may lie in queues still, and
    // must not be overtaken: its messages end with the error only when nothing has come of it for a
    // second, and for some looks. Throws std::bad_alloc, without effect.
    void sender_failed(uint64_t sender, ucs_status_t status) {
        failed_.insert_or_assign(sender, FailedSender{status, {}, 0});
    }
    // Something of what the sender has sent is lost here: its messages end now.
    void end_all_of(uint64_t sender, ucs_status_t status);
    // Now and then, behind looks at the transports.
    void advance(ucs::Time now) {
        if (!failed_.empty()) [[unlikely]]
            give_up(now);
    }
    // When a sender that failed may be given up; ucs::kNever without any.
    ucs::Time next_deadline() const;

  private:
    struct Message {
        size_t total;
        size_t arrived;
        Sink sink;
    };
    struct FailedSender {
        ucs_status_t status;
        ucs::Time since;  // nothing of it came; set at the first look behind that
        unsigned looks;   // since then
    };
    struct Hash {
        size_t operator()(const MessageId& id) const {
            return ucs::mix64(id.sender ^ ucs::mix64(id.number));
        }
    };
    struct Equal {
        bool operator()(const MessageId& a, const MessageId& b) const {
            return a.sender == b.sender && a.number == b.number;
        }
    };

    static constexpr ucs::Duration kGiveUpAfter = std::chrono::seconds(1);

    static ucs_status_t on_fragment(void* self, void* data, size_t length,
                                    uct::ReceiveDescriptor* descriptor);
    void give_up(ucs::Time now);

    InterfaceSet& interfaces_;
    std::unordered_map<uint64_t, FailedSender> failed_;  // by uuid
    std::unordered_map<MessageId, Message, Hash, Equal> messages_;
};

}  // namespace ucp
