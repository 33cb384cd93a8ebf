// SPDX-License-Identifier: BSD-3-Clause
#include "uct/cuda/direct_queue.h"

#include <algorithm>

namespace uct::cuda {

Direction DirectQueue::next_stream() {
    if (direction_ != Direction::kWithin) return direction_;
    return next_.fetch_xor(1, std::memory_order_relaxed) == 0 ? Direction::kWithin
                                                              : Direction::kWithinToo;
}

bool DirectQueue::is_busy() const {
    const Latest latest = latest_.load(std::memory_order_relaxed);
    return context_.test({&context_, latest.stream, latest.number}) == UCS_INPROGRESS;
}

bool DirectQueue::holds_back() const {
    const size_t company = company_.load(std::memory_order_relaxed);
    if (company >= kCompany) return false;
    if (company < kLeastList && context_.resident() != nullptr) return false;
    return is_busy();
}

void DirectQueue::take_waiting() {
    std::lock_guard lock(lock_);
    handed_over_.clear();
    handed_over_.swap(waiting_);
    bytes_ = 0;
    company_.store(0, std::memory_order_relaxed);
}

// Of many, a kernel of many blocks makes less.
void DirectQueue::hand_to(Resident& resident) {
    if (company_.load(std::memory_order_relaxed) >= kLeastList) return;
    take_waiting();
    for (DirectCopy* copy : handed_over_) {
        const DirectCopy::Plan& plan = copy->plan();
        uint32_t number = 0;
        if (plan.length <= Resident::kMaxLength &&
            resident.begin(plan.to, plan.from, plan.length, &number)) {
            copy->handed_over(resident, number);
        } else {
            add(*copy);
        }
    }
}

void DirectQueue::flush() {
    if (holds_back()) return;
    std::lock_guard handing_over(handing_over_);
    if (Resident* const resident = context_.resident()) hand_to(*resident);
    if (company_.load(std::memory_order_relaxed) < kCompany && is_busy()) return;
    take_waiting();
    if (!begin_list()) begin_singles();
}

bool DirectQueue::begin_list() {
    size_t total = 0;
    for (const DirectCopy* copy : handed_over_) total += copy->plan().length;
    const size_t most = direction_ == Direction::kWithin ? kLongPiece : kLongHostPiece;
    if (handed_over_.size() < kLeastList || total / handed_over_.size() > most ||
        !context_.takes_lists())
        return false;
    std::byte* const chunk = staging_.take();
    if (chunk == nullptr) return false;
    const size_t cut = std::max(kLeastCut, (total / kParts + 15) / 16 * 16);
    auto* const list = reinterpret_cast<KernelPiece*>(chunk);
    constexpr size_t kMaxPieces = StagingPool::kChunk / sizeof(KernelPiece);
    size_t count = 0;
    for (const DirectCopy* copy : handed_over_) {
        const DirectCopy::Plan& plan = copy->plan();
        for (size_t at = 0; at < plan.length && count < kMaxPieces; at += cut) {
            list[count++] = {reinterpret_cast<uint64_t>(plan.to + at),
                             reinterpret_cast<uint64_t>(plan.from + at),
                             std::min(cut, plan.length - at)};
        }
    }
    CopyContext::Ticket ticket;
    const bool is_begun =
        count < kMaxPieces && context_.begin_list(direction_, {list, count}, &ticket) == UCS_OK;
    if (!is_begun) {
        staging_.put(chunk);
        return false;
    }
    set_latest(ticket);
    for (DirectCopy* copy : handed_over_)
        copy->handed_over(UCS_OK, ticket, copy == handed_over_.front() ? chunk : nullptr);
    return true;
}

void DirectQueue::begin_singles() {
    for (DirectCopy* copy : handed_over_) {
        const DirectCopy::Plan& plan = copy->plan();
        CopyContext::Ticket ticket;
        const ucs_status_t status =
            context_.begin(next_stream(), plan.to, plan.from, plan.length, &ticket);
        if (status == UCS_OK) set_latest(ticket);
        copy->handed_over(status, ticket, nullptr);
    }
}

}  // namespace uct::cuda
