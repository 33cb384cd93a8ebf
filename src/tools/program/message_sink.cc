// SPDX-License-Identifier: BSD-3-Clause
#include "tools/program/message_sink.h"

namespace tools {

MessageSink::MessageSink(Rank& rank, const Options& options)
    : rank_(rank),
      options_(options),
      sequences_(rank.count(), SequenceCheck(options.seed, options.stream)) {
    for (unsigned i = 0; i < options.depth; ++i) slots_.emplace_back(rank, options.max_size);
}

void MessageSink::post(Slot& slot) {
    const auto room = slot.buffer.slot(0, options_.max_size);
    slot.batch.receive(make_tag(options_.stream, 0), kAnySender, room.data(), room.size());
}

void MessageSink::check(const Slot& slot) {
    const ucp_tag_recv_info_t& info = slot.batch.received();
    const unsigned sender = tag_sender(info.sender_tag);
    sequences_.at(sender).check(slot.buffer.slot(0, info.length), sender, rank_.index());
}

Task MessageSink::run() {
    for (Slot& slot : slots_) post(slot);
    for (size_t next = 0;; next = (next + 1) % slots_.size()) {
        Slot& slot = slots_[next];
        co_await slot.batch.done();
        if (slot.batch.cancelled()) break;
        if (options_.verify) check(slot);
        if (stopping_) break;
        post(slot);
    }
    for (Slot& slot : slots_) co_await slot.batch.done();
    ended_ = true;
}

Task MessageSink::stop() {
    stopping_ = true;
    for (Slot& slot : slots_) slot.batch.cancel();
    while (!ended_) co_await rank_.yield();
}

}  // namespace tools
