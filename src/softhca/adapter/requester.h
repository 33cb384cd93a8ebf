// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "softhca/adapter/responder.h"

// The requester's half of an operation: what a fabric calls around the moment of execution.
// All with the QP's sq_lock held.
namespace softhca {

// The memory of a request's own side.
struct GatherList {
    static constexpr int kMax = 32;
    iovec iov[kMax];
    int count = 0;
    uint64_t length = 0;
};

// Whether the opcode takes data in (READ and atomics) instead of sending it out.
bool takes_data(uint8_t opcode);
// Bytes that travel to the responder.
uint64_t outgoing_bytes(const Wqe& wqe);

// Checks the local side of the request at `position` and lists its memory.
ibv_wc_status prepare(Qp& qp, uint32_t position, GatherList* gather);
// The message that carries it.
RequestMessage make_request(Qp& qp, const Wqe& wqe, const GatherList& gather);
// Requests that concern the adapter itself: binding and invalidating memory windows.
bool is_local(uint8_t opcode);
ibv_wc_status execute_local(Qp& qp, const Wqe& wqe);
// What the requester's completion says after such a reply.
ibv_wc_status status_of(Reply reply);
// Wait of a responder's RNR timer, in nanoseconds.
uint64_t rnr_wait_ns(uint8_t timer);
// Wait for an acknowledgement, in nanoseconds; 0 stands for for ever.
uint64_t ack_wait_ns(uint8_t timeout);

// Completes the oldest request. An error moves the QP to its error state and flushes the rest.
void complete_oldest(Qp& qp, ibv_wc_status status);
// Whether the request's DCI stream is in error: it is to be completed with a flush error.
bool stream_failed(const Qp& qp, const Wqe& wqe);
// Completes everything posted with a flush error. The QP's state is an error state already.
void flush_send_queue(Qp& qp);

}  // namespace softhca
