// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>
#include <vector>

#include "ucp/base/request.h"
#include "ucp/endpoint/endpoint_table.h"
#include "ucp/proto/match/receive.h"
#include "ucp/proto/rndv/direct.h"
#include "ucp/proto/rndv/rndv_wire.h"
#include "ucp/runtime/request_pool.h"
#include "ucs/memory/detector.h"

namespace ucp {

// The receiver's side of messages between two memories of devices of which no other process opens
// either: in parts, through windows in memory of the receiver's device, which the sender's device
// writes to. No byte passes through the host.
//
//   sender                                       receiver
//   RTS (description without a handle)  ----->   takes windows
//                                       <-----   RTR of a part (description of a window), one for
//   copies the part into the window                each window
//   done                                ----->   ATP: copies the window into the buffer; then the
//                                       <-----   RTR of the next part that has no window yet
//   ends                                <-----   ATS, when all parts are there
//   cannot copy now (no way yet)        ----->   ATP, UCS_ERR_NO_RESOURCE: when no part is under
//                                       <-----   way any more, RTR of what is missing, staged
//
// A sender's messages take their turns at its windows, in their order. It has some as long as it
// has messages here, and shares them with nobody: what it does not fill, since its processor makes
// no progress, keeps nobody else's messages waiting. Who finds no windows is staged. Three keep the
// sender's device busy: while it writes to one, another one is emptied and the third asked for.
//
// A window that a sender may still write to when its endpoint fails is not used again: its memory
// is freed, and stays what the sender has mapped.
// Thread rule: the worker's.
class Relay {
  public:
    // Whose receives they are.
    class Owner {
      public:
        // Bytes are in their place as far as `arrived`; the rest is to be asked for, or, if there
        // is an error, is lost.
        virtual void relayed(Request& receive, size_t arrived, ucs_status_t status) = 0;

      protected:
        ~Owner() = default;
    };

    Relay(RequestPool& requests, EndpointTable& endpoints, DirectPath& direct, Owner& owner)
        : requests_(requests), endpoints_(endpoints), direct_(direct), owner_(owner) {}
    ~Relay();
    Relay(const Relay&) = delete;

    // Fetch an announced message into a buffer of a device.
    // @return false: it does not go this way, or not now
    // @param theirs  what the sender has said of its memory
    bool receive(Request& receive, const ucs::MemoryExport& theirs);
    // Does the request stand for a part that the peer has been asked for?
    static bool is_part(const Request& request);
    // The peer has answered for that.
    void stored(Request& part, ucs_status_t status);

  private:
    static constexpr size_t kLeast = 64 << 10;  // shorter messages are staged
    static constexpr size_t kLeastPart = 1 << 20;
    static constexpr size_t kAlignment = 4096;  // of parts in the message
    static constexpr unsigned kWindows = 3;     // of a sender

    struct RelayWindow {
        std::span<std::byte> bytes;
        ucs::MemoryExport described;
    };
    struct Transit {
        Request* receive = nullptr;
        size_t asked = 0;           // bytes of it for which there have been parts
        size_t arrived = SIZE_MAX;  // all before it; less than its length: a part was refused
        unsigned parts = 0;         // under way
        ucs_status_t status = UCS_OK;

        TagReceive& part() const { return receive->part<TagReceive>(); }
        bool goes_on() const {
            return status == UCS_OK && arrived == SIZE_MAX && asked < part().wanted;
        }
    };
    // What one peer sends.
    struct Inflow {
        ucs::MemoryDetector* device = nullptr;  // whose windows they are
        std::vector<RelayWindow> unused;
        std::list<Transit> transits;
        unsigned parts = 0;       // of all of them
        bool is_refused = false;  // so the last part was
        uint32_t tries = 0;       // since then
    };
    // Of an internal request.
    struct RelayPart {
        static constexpr bool kNeedsNoDestructor = true;

        Relay* relay;
        Inflow* inflow;
        Transit* transit;
        RelayWindow window;
        uint64_t offset;
        uint32_t length;
        bool is_stored;  // the peer does not write there any more
    };

    static size_t part_length(size_t message, size_t window);
    static void part_ended(Request& request);
    bool find_window(Inflow& inflow, const TagReceive& receive);
    static void give_back(Inflow& inflow);
    void begin_part(Inflow& inflow, Transit& transit);
    void go_on(Inflow& inflow);
    void end_part(const Request& request, const RelayPart& part);

    RequestPool& requests_;
    EndpointTable& endpoints_;
    DirectPath& direct_;
    Owner& owner_;
    std::unordered_map<uint64_t, Inflow> inflows_;  // by the sender's uuid
};

}  // namespace ucp
