// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/engine/path.h"

#include "ucp/bulk/threads/shared_queue.h"
#include "ucp/mem/memory.h"

namespace ucp::bulk {
namespace {

uint32_t chain_capability(Direction direction) {
    return direction == Direction::kPut ? uct::kPutChain : uct::kGetChain;
}

bool serves(DomainPair domains, const Piece& piece) {
    return piece.memory->handle(domains.local) != nullptr &&
           piece.key->find(domains) != uct::kInvalidRemoteKey;
}

}  // namespace

Path::~Path() {
    stop_waiting();
    abandon_probe();
    if (on_thread != nullptr) on_thread->path = nullptr;
}

bool Path::can_take(const Transfer& transfer, const Slice& slice) const {
    if (!may_post() || is_linked()) return false;
    return (attributes().capabilities & chain_capability(transfer.direction)) != 0 &&
           serves(domains, transfer.slices.pieces()[slice.piece]) &&
           slice.length <= longest_slice(transfer.direction);
}

ucs_status_t Path::make_transport() {
    const ucs_status_t status =
        device->create_endpoint({remote_device, remote_interface, {}}, &own);
    if (status == UCS_OK) transport = own.get();
    return status;
}

void Path::wait_for_room() {
    waiting_on = transport;
    if (transport->pending_add(this) != UCS_OK) group.wake();
}

ucs_status_t Path::serve(uct::Pending* self) {
    static_cast<Path*>(self)->group.wake();
    return UCS_OK;
}

void Path::send_probe() {
    probe = std::make_unique<Probe>();
    probe->count = 1;
    probe->callback = [](uct::Completion* self) {
        auto* done = static_cast<Probe*>(self);
        done->is_back = true;
        if (done->is_abandoned) delete done;
    };
    const ucs_status_t status = transport->check(probe.get());
    if (status == UCS_INPROGRESS) return;
    probe->status = status;
    probe->is_back = true;
}

void Path::abandon_probe() {
    if (probe == nullptr) return;
    if (probe->is_back) {
        probe.reset();
    } else {
        probe.release()->is_abandoned = true;
    }
}

}  // namespace ucp::bulk
