// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/dc/dci_pool.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "ucs/log/log.h"
#include "ucs/sys/random.h"
#include "uct/base/completion_group.h"
#include "uct/ib/base/operations.h"
#include "uct/ib/dc/dc_endpoint.h"
#include "uct/ib/dc/dc_queue_pair.h"

namespace uct::ib {

Dci::Dci(DciPool& pool, IbInterface& interface, uint16_t number, unsigned moderation)
    : queue(*this, interface.credits(), interface.queue_depth(), moderation),
      index(number),
      pool_(pool) {}

Dci::~Dci() = default;

void Dci::on_completed(SendQueue&) {
    pool_.completed(*this);
}

void Dci::on_failed(SendQueue&, uint32_t failed_index, ucs_status_t status) {
    pool_.failed(*this, failed_index, status);
}

DciPool::DciPool(IbInterface& interface, const DcConfig& config)
    : interface_(interface),
      policy_(config.tx_policy),
      limit_(config.num_dci),
      quota_(config.tx_quota) {
    count_free();
}

DciPool::~DciPool() {
    for (auto& dci : dcis_) {
        if (dci->queue.token() != 0) interface_.remove_queue(dci->queue.token());
        OperationList rest = dci->queue.take_all();
        dci.reset();
        finish_all(rest, UCS_ERR_CANCELED);
    }
}

Dci* DciPool::create() {
    if (dcis_.size() == limit_ ||
        interface_.credits().available <= static_cast<int>(SendQueue::kReserve)) {
        return nullptr;
    }
    // What becomes free finds room in the middle of completions.
    dcis_.reserve(dcis_.size() + 1);
    free_.reserve(dcis_.size() + 1);
    uint32_t max_inline = interface_.max_inline();
    QpPtr qp = create_dci(interface_, &max_inline);
    if (!qp || !bring_up_dci(qp.get(), interface_)) {
        ucs::log_diag("{}: only {} of UCX_DC_MLX5_NUM_DCI={} can be made: {}",
                      interface_.device().name(), dcis_.size(), limit_, std::strerror(errno));
        limit_ = std::max<size_t>(dcis_.size(), 1);
        count_free();
        return nullptr;
    }
    auto dci = std::make_unique<Dci>(*this, interface_, static_cast<uint16_t>(dcis_.size()),
                                     is_shared() ? 1 : interface_.moderation());
    dci->queue.attach(std::move(qp), true, true, interface_.add_queue(dci->queue));
    dcis_.push_back(std::move(dci));
    count_free();
    return dcis_.back().get();
}

uint16_t DciPool::assign() {
    if (!is_shared()) return kNone;
    const size_t drawn = interface_.params().random.below(limit_);
    if (drawn >= dcis_.size()) create();
    if (dcis_.empty()) return kNone;
    return static_cast<uint16_t>(std::min(drawn, dcis_.size() - 1));
}

Dci* DciPool::find_free() {
    if (free_.empty()) {
        if (is_shared()) return nullptr;
        Dci* dci = create();
        if (dci == nullptr) return nullptr;
        put_free(*dci);
    }
    return dcis_[free_.back()].get();
}

void DciPool::take(Dci& dci, DcEndpoint& endpoint) {
    free_.pop_back();  // it is what find_free() showed
    count_free();
    dci.is_free = false;
    dci.owner = &endpoint;
    endpoint.set_dci(dci.index);
}

void DciPool::put_free(Dci& dci) {
    if (is_shared() || dci.is_free) return;
    dci.is_free = true;
    dci.used = 0;
    all_signalled_ = false;
    free_.push_back(dci.index);
    count_free();
}

void DciPool::signal_all() {
    if (all_signalled_) return;
    all_signalled_ = true;
    for (auto& dci : dcis_) dci->queue.signal(dci->last_target);
}

void DciPool::make_ready(Dci& dci) {
    if (dci.is_ready) return;
    dci.is_ready = true;
    ready_.push_back(dci.index);
}

void DciPool::wait(DcEndpoint& endpoint) {
    if (endpoint.dci() == kNone) {
        for_dci_.schedule(endpoint);
        return;
    }
    Dci& dci = at(endpoint.dci());
    dci.waiting.schedule(endpoint);
    make_ready(dci);
}

void DciPool::unwait(DcEndpoint& endpoint, Pending& pending) {
    for_dci_.remove(endpoint, pending);
}

void DciPool::drop_waiting(DcEndpoint& endpoint) {
    for_dci_.drop_all(endpoint);
    std::erase(failing_, &endpoint);
}

void DciPool::completed(Dci& dci) {
    if (is_shared()) {
        if (!dci.waiting.empty()) make_ready(dci);
        return;
    }
    DcEndpoint* const owner = dci.owner;
    const bool is_idle = dci.queue.is_idle();
    if (is_idle) {
        if (owner != nullptr) owner->set_dci(kNone);
        dci.owner = nullptr;
        put_free(dci);
    }
    if (owner != nullptr && !owner->empty()) {
        for_dci_.unschedule(*owner);
        wait(*owner);
    }
}

bool DciPool::serve() {
    const auto has_own_room = [this](PendingQueue::Group& group) {
        const auto& endpoint = static_cast<DcEndpoint&>(group);
        if (endpoint.has_own_room()) return true;
        // It leaves its turn until a completion, so there must be one to come.
        Dci& dci = at(endpoint.dci());
        dci.queue.signal(dci.last_target);
        return false;
    };
    const auto is_stopped = [](PendingQueue::Group& group) {
        return static_cast<DcEndpoint&>(group).waits_for_grant();
    };
    bool has_more = false;
    serving_.swap(ready_);
    for (const uint16_t index : serving_) {
        Dci& dci = at(index);
        dci.is_ready = false;
        has_more |= dci.waiting.dispatch(has_own_room, is_stopped, [&] {
            return is_shared() ? dci.queue.has_room() : interface_.credits().available > 0;
        });
        if (!dci.waiting.empty()) make_ready(dci);
    }
    serving_.clear();
    if (for_dci_.empty()) return has_more;
    has_more |= for_dci_.dispatch(has_own_room, is_stopped, [&] {
        return interface_.credits().available > 0 && find_free() != nullptr;
    });
    if (!for_dci_.empty()) signal_all();
    return has_more;
}

bool DciPool::recover(Dci& dci) {
    if (!bring_up_dci(dci.queue.qp(), interface_)) {
        ucs::log_error("{}: DCI {} cannot be brought up after an error: {}",
                       interface_.device().name(), dci.index, std::strerror(errno));
        return false;
    }
    dci.queue.restart(interface_.add_queue(dci.queue));
    return true;
}

void DciPool::failed(Dci& dci, uint32_t index, ucs_status_t status) {
    interface_.remove_queue(dci.queue.token());
    OperationList done, rest, dead;
    dci.queue.reset(index, &done, &rest);
    const bool alive = recover(dci);
    if (is_shared() && alive) {
        mend_shared(dci, status, rest, &done, &dead);
    } else {
        for (const SendOperation& operation : rest) {
            auto* owner = is_shared() ? static_cast<const DcEndpoint*>(operation.owner) : nullptr;
            if (owner != nullptr) failing_.push_back(const_cast<DcEndpoint*>(owner));
        }
        if (dci.owner != nullptr) {
            failing_.push_back(dci.owner);
            dci.owner->set_dci(kNone);
            dci.owner = nullptr;
        }
        dead.swap(rest);
        if (alive) put_free(dci);
    }
    // Handlers and completions may destroy endpoints, which then leave `failing_`.
    while (!failing_.empty()) {
        DcEndpoint* endpoint = failing_.back();
        failing_.pop_back();
        endpoint->fail(status_of_others(status));
    }
    finish_all(done, UCS_OK);
    finish_failed(dead, status);
}

void DciPool::cancel(Dci& dci) {
    interface_.remove_queue(dci.queue.token());
    OperationList done, rest;
    dci.queue.reset(dci.queue.posted(), &done, &rest);
    if (recover(dci)) put_free(dci);
    finish_all(done, UCS_ERR_CANCELED);
    finish_all(rest, UCS_ERR_CANCELED);
}

// One operation failed on a shared initiator; what followed it was not executed, unless it goes to
// the same target, whose state is then unknown. Others' operations are posted again, in order.
void DciPool::mend_shared(Dci& dci, ucs_status_t status, OperationList& rest, OperationList* done,
                          OperationList* dead) {
    SendOperation& culprit = rest.front();
    const void* const owner = culprit.owner;
    const DcTarget target = culprit.record().target;
    // By the target, which lives.
    const bool is_refused = status_of_others(status) == UCS_ERR_CONNECTION_RESET;
    bool first = true;
    while (!rest.empty()) {
        SendOperation& operation = rest.front();
        rest.pop_front();
        const bool is_same_target = operation.has_request && operation.record().target == target;
        if (first || (owner != nullptr && operation.owner == owner) ||
            (is_same_target && (!is_refused || operation.owner == nullptr))) {
            first = false;
            dead->push_back(operation);
            auto* endpoint = static_cast<DcEndpoint*>(const_cast<void*>(operation.owner));
            if (endpoint != nullptr && !std::ranges::count(failing_, endpoint)) {
                failing_.push_back(endpoint);
            }
            continue;
        }
        if (operation.has_request) {
            if (!dci.queue.post(WorkRequest(operation.record()), &operation)) {
                dead->push_back(operation);
            } else if (operation.owner != nullptr) {
                auto* endpoint = static_cast<DcEndpoint*>(const_cast<void*>(operation.owner));
                endpoint->set_last(dci.queue.posted());
            }
        } else if (dci.queue.is_idle() || !dci.queue.ride(operation, dci.last_target)) {
            done->push_back(operation);
        }
    }
    if (!dci.waiting.empty()) make_ready(dci);
}

ucs_status_t DciPool::flush(Completion* completion) {
    CompletionGroup* gather = CompletionGroup::start(completion);
    for (auto& dci : dcis_) {
        if (dci->queue.is_idle()) continue;
        SendOperation* operation = interface_.operation();
        if (operation == nullptr) {
            gather->abandon();
            return interface_.none_left(interface_.operation_pool());
        }
        operation->pool = &interface_.operation_pool();
        operation->finish = finish::complete;
        operation->completion = gather->add();
        operation->owner = nullptr;
        if (!dci->queue.ride(*operation, dci->last_target)) {
            gather->cancel();
            operation->release();
            gather->abandon();
            return UCS_ERR_NO_RESOURCE;
        }
    }
    return gather->finish();
}

}  // namespace uct::ib
