// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/engine/transfer_table.h"

#include <algorithm>

#include "ucp/base/request.h"
#include "ucp/bulk/engine/path.h"
#include "ucp/endpoint/endpoint.h"
#include "ucp/trace/probe.h"
#include "ucp/trace/trace.h"

namespace ucp::bulk {

void TransferTable::requeue(Transfer& transfer) {
    if (!transfer.slices.has_next() || transfer.is_waiting()) return;
    transfer.group->waiting.push_front(transfer);
}

void TransferTable::suspend(Transfer& transfer, Path& path) {
    if (transfer.direction == Direction::kGet) return;
    if (std::ranges::find(path.suspended, &transfer) != path.suspended.end()) return;
    path.suspended.push_back(&transfer);
    ++transfer.unrevoked_paths;
}

void TransferTable::release_suspended(Path& path) {
    for (Transfer* transfer : path.suspended) {
        --transfer->unrevoked_paths;
        finish_if_over(*transfer);
    }
    path.suspended.clear();
}

void TransferTable::finish_if_over(Transfer& transfer) {
    if (!transfer.is_over()) return;
    if (transfer.group == nullptr) {
        orphans_.erase(orphans_.iterator_to(transfer));
        finished_.push_back(transfer);
        deliver(transfer);
        return;
    }
    PathGroup& group = *transfer.group;
    if (transfer.is_waiting()) group.waiting.erase(group.waiting.iterator_to(transfer));
    group.transfers.erase(group.transfers.iterator_to(transfer));
    finished_.push_back(transfer);
    run_queue_.run_later();
}
void TransferTable::deliver(Transfer& transfer) {
    finished_.erase(finished_.iterator_to(transfer));
    Request& request = *transfer.request;
    Endpoint* endpoint = transfer.group == nullptr ? nullptr : &transfer.group->endpoint;
    const ucs_status_t status = transfer.slices.status();
    const uint32_t number = transfer.number;
    SWIFTLANE_PROBE(transfer_end, &transfer, status);
    if (Trace* trace = Trace::active()) {
        trace->end("bulk", "bulk", endpoint == nullptr ? 0 : endpoint->local_uuid(), &transfer,
                   {{"status", ucs_status_string(status)}});
    }
    pool_.destroy(&transfer);
    request.complete(status);
    if (endpoint != nullptr) endpoint->remote_operation_finished(number);
}

void TransferTable::orphan(PathGroup& group) {
    while (!group.transfers.empty()) {
        Transfer& transfer = group.transfers.front();
        group.transfers.pop_front();
        transfer.group = nullptr;
        orphans_.push_back(transfer);
        // Its end is nothing to the endpoint any more.
        group.endpoint.remote_operation_finished(transfer.number);
    }
}

}  // namespace ucp::bulk
