// SPDX-License-Identifier: BSD-3-Clause
// The connections of a link that carry chains alone, and may be cut while messages go on.
#include <algorithm>
#include <utility>

#include "uct/tcp/frames.h"
#include "uct/tcp/link.h"
#include "uct/tcp/tcp_interface.h"

namespace uct::tcp {

bool Link::has_bulk() const {
    const auto carries = [](const auto& channel) {
        return channel != nullptr && channel->index() > 0 &&
               (channel->state() != Channel::State::kIdle || channel->has_one_sided());
    };
    return std::ranges::any_of(channels_, carries);
}

void Link::drop_output(Channel& channel) {
    OutputList items;
    channel.take_output(items);
    complete_all(interface_.output_pools(), items, UCS_ERR_UNREACHABLE);
}

void Link::send_cut(wire::FrameType type, uint32_t epoch) {
    const auto head = head_of(type, wire::Cut{epoch, 0}, 0);
    const iovec piece{const_cast<Head<wire::Cut>*>(&head), sizeof(head)};
    channel(0).send({&piece, 1}, sizeof(head));
}

void Link::drop_bulk(bool always) {
    if (is_failed() || (!always && !has_bulk())) return;
    end_bulk(bulk_epoch_ + 1);
    if (!is_failed()) send_cut(wire::FrameType::kCut, bulk_epoch_);
}

void Link::end_bulk(uint32_t epoch) {
    const auto has_plain = [](const auto& channel) {
        return channel != nullptr && channel->index() > 0 && channel->has_plain();
    };
    if (std::ranges::any_of(channels_, has_plain)) {
        if (channels_[0] != nullptr) channels_[0]->drain();
        fail(UCS_ERR_CONNECTION_RESET);
        return;
    }
    bulk_epoch_ = epoch;
    OutputList items;
    for (auto& channel : channels_) {
        if (channel == nullptr || channel->index() == 0) continue;
        channel->abort();
        channel->take_output(items);
        channel->acknowledged = channel->one_sided;
    }
    // Nothing is written here any more, so gets are over. Of puts the peer may have something.
    std::vector<RemoteOperation*> over;
    for (RemoteOperation* operation : operations_) {
        if (operation == nullptr || operation->is_cut) continue;
        if (operation->chained && operation->channel > 0) {
            if (operation->kind == RemoteOperation::Kind::kFlush) {
                operation->is_cut = true;
                operation->epoch = epoch;
            } else {
                over.push_back(operation);
            }
        } else if (operation->kind == RemoteOperation::Kind::kFlush &&
                   (operation->waiting & ~1u) != 0) {
            operation->waiting &= 1u;
            if (operation->waiting == 0) over.push_back(operation);
        }
    }
    finish_all(over);
    complete_all(interface_.output_pools(), items, UCS_ERR_UNREACHABLE);
    room_made();
}

void Link::end_cut_chains(uint32_t epoch) {
    std::vector<RemoteOperation*> over;
    for (RemoteOperation* operation : operations_) {
        if (operation != nullptr && operation->is_cut && operation->epoch <= epoch) {
            over.push_back(operation);
        }
    }
    finish_all(over);
}

/** Completions may do what they like, but for the list: nothing of it is released twice. */
void Link::finish_all(const std::vector<RemoteOperation*>& over) {
    std::vector<std::pair<Completion*, ucs_status_t>> ended;
    for (RemoteOperation* operation : over) {
        const ucs_status_t status = operation->chained ? UCS_ERR_UNREACHABLE : UCS_OK;
        if (!operation->abandoned && operation->completion != nullptr) {
            ended.emplace_back(operation->completion, status);
        }
        release(*operation);
    }
    for (const auto& [completion, status] : ended) completion->complete(status);
}

void Link::on_cut(uint32_t epoch) {
    if (epoch > bulk_epoch_) end_bulk(epoch);
    if (is_failed()) return;
    end_cut_chains(epoch);
    if (!is_failed()) send_cut(wire::FrameType::kCutDone, epoch);
}

void Link::on_cut_done(uint32_t epoch) {
    if (epoch <= bulk_epoch_) end_cut_chains(epoch);
}

}  // namespace uct::tcp
