// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>

#include "uct/ib/ud/receiver.h"
#include "uct/ib/ud/sender.h"

namespace uct::ib::ud {

// One end of the conversation of two interfaces: who the other end is, and both directions.
//
// Pure: packets in, packets out, the time as an argument (docs/design/ud.md has the states). Only
// the address of the other end is somebody else's affair.
class UdConnection {
  public:
    // @param name   of this connection, not 0; other ends put it into their packets
    // @param start  later than that of any former connection of this interface, not 0
    UdConnection(const Settings& settings, uint32_t name, uint64_t start)
        : name_(name), start_(start), sender_(settings) {}

    enum class Match : uint8_t {
        kTaken,     // of this conversation
        kAnew,      // taken, and the other end's stream begins anew: restart the receiver first
        kStale,     // of an earlier one: drop it
        kReplaced,  // the other end gave this connection up and begins another
    };
    // Whose packet is this? Attaches the connection to the other end's when it is the first.
    Match match(const Header& header);

    // The acknowledgement in a packet that is kTaken. @return false if it cannot be true
    bool acknowledged(const Header& header, ucs::Time now, SentList* done);

    // Fill in all but the message of a packet that leaves now.
    void address(Header* header, const Hello& self) const;

    Sender& sender() { return sender_; }
    const Sender& sender() const { return sender_; }
    Receiver& receiver() { return receiver_; }
    const Receiver& receiver() const { return receiver_; }
    uint32_t name() const { return name_; }
    uint64_t start() const { return start_; }
    bool is_attached() const { return remote_start_ != 0; }
    bool is_confirmed() const { return is_confirmed_; }

    ucs::Time deadline() const { return std::min(sender_.deadline(), receiver_.deadline()); }

  private:
    uint32_t name_;
    uint32_t remote_name_ = 0;
    uint64_t start_;
    uint64_t remote_start_ = 0;  // 0: nothing was heard yet
    bool is_confirmed_ = false;  // the other end knows this connection's name
    Sender sender_;
    Receiver receiver_;
};

}  // namespace uct::ib::ud
