// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "softhca/adapter/fabric.h"

namespace softhca {

// A message as it reaches its responder.
struct RequestMessage {
    uint32_t src_qpn;
    uint32_t dest_qpn;
    uint16_t src_lid;
    uint16_t dest_lid;
    QpKind src_kind;
    uint8_t opcode;  // ibv_wr_opcode
    uint8_t sl;
    bool solicited;
    bool has_grh;
    uint32_t imm;
    uint32_t rkey;
    uint32_t qkey;
    uint64_t remote_addr;
    uint64_t length;
    uint64_t compare_add;
    uint64_t swap;
    uint64_t dc_key;
    // The requester's memory: payload, or where the answer of a READ or an atomic goes.
    iovec* iov;
    int num_iov;
};

enum class Reply : uint8_t {
    kAck,
    kRnr,              // no receive posted
    kAccess,           // wrong key, out of bounds, or a right is missing
    kInvalidRequest,   // too long for the receive, or an operation this QP does not take
    kRemoteOperation,  // the responder's own receive was unusable
    kNotReady,         // the responder is not connected yet: silence on a wire
    kSilence,          // nobody there
};

// Executes a message at its responder, all of it: checks, data, completion, events.
// @param rnr_timer  set with kRnr: the responder's timer code
Reply respond(Fabric& fabric, const RequestMessage& request, uint8_t* rnr_timer);

// Payload that travels inside a CQ because its receiver's memory is not at hand.
struct Carried {
    const RecvSge* sges;
    int num_sge;
    const iovec* data;
    int num_data;
    uint32_t bytes;
};

enum class Push : uint8_t {
    kDone,
    kNoRoom,  // only with `carried`: its payload does not fit; nothing was pushed
    kFailed,  // the CQ is gone or overrun
};

// Appends a completion and tells the CQ's owner as it asked for.
Push push_completion(Fabric& fabric, uint32_t cq, const Cqe& cqe, bool solicited,
                     const Carried* carried = nullptr);

// Moves a QP to ERR and flushes its receive queue. `event` is raised unless negative.
// With the QP's record lock held.
void fail_qp_locked(Fabric& fabric, QpRecord& qp, int event);
void fail_qp(Fabric& fabric, QpRecord& qp, int event);
// Completes all posted receives of a QP's own receive queue with a flush error.
void flush_receive_queue(Fabric& fabric, QpRecord& qp);

void raise_qp_event(Fabric& fabric, QpRecord& qp, ibv_event_type event);

// Translates [addr, addr + length) of the region of `key`.
// @return its address in the owner's memory; 0 if the key, the bounds, a right in `access` (all
//         are needed), the protection domain or the owner does not fit.
// @param qpn  the QP that a peer reaches it through; 0 for local use, which windows are not for
uint64_t translate(Fabric& fabric, uint32_t key, uint64_t addr, uint64_t length, uint32_t access,
                   uint32_t pd, Owner owner, uint32_t qpn = 0);

// Takes the key from the type 2 window that this QP bound. @return whether there is one.
bool invalidate(Fabric& fabric, uint32_t key, uint32_t qpn, uint32_t pd, Owner owner);

// Copies from one list to the other until either ends. @return false: some of it was memory of a
// GPU and is gone
bool copy_iov(const iovec* to, int num_to, const iovec* from, int num_from);

void lock_cq(Fabric& fabric, CqRecord& cq);
void lock_rq(Fabric& fabric, RqRecord& rq);

}  // namespace softhca
