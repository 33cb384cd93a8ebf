// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "uct/tcp/queues/region_table.h"
#include "uct/tcp/wire/format.h"

namespace uct::tcp {

class TcpConnection;
class Association;

// Where payload goes: registered memory for a put, the caller's pieces for a get reply. While it
// lives the memory stays registered.
class Landing {
  public:
    // @param put  null: the answer to `operation`
    Landing(Association& association, const wire::Put* put, uint32_t operation);
    // Does the put stay inside its region?
    bool covers(uint64_t length);
    // Pieces for the part [offset, offset + length). @return how many; 0: nowhere, drop it
    size_t find(uint64_t offset, uint64_t length, iovec* pieces);

  private:
    Association& association_;
    const wire::Put* put_;
    uint32_t operation_;
    std::optional<RegionTable::Reader> regions_;
};

// What a peer asks for, done and answered on the same connection. Requests that reach outside of
// registered memory are refused and touch nothing.

void answer_get(TcpConnection& connection, Association& association, const wire::Get& get);
void answer_atomic(TcpConnection& connection, Association& association, const wire::Atomic& atomic);
void answer_flush(TcpConnection& connection, const wire::Reply& flush);
// @param endpoint   whose operation broke the rules; kNobody: there is no memory for the answer
// @param operation  kNoOperation, or one that gets no other answer
void refuse(TcpConnection& connection, uint32_t endpoint, uint32_t operation);

// Answers of the peer. False if nobody asked.

bool on_atomic_reply(Association& association, const wire::AtomicReply& reply);
bool on_flush_reply(Association& association, const wire::Reply& reply, unsigned connection);
void on_refused(Association& association, const wire::Refused& refused);

}  // namespace uct::tcp
