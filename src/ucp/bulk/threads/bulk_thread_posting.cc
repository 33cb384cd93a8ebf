// SPDX-License-Identifier: BSD-3-Clause

// What a mover takes, posts and gives back, and what becomes of its strands.

#include <algorithm>
#include <array>

#include "ucp/bulk/engine/engine_state.h"
#include "ucp/bulk/threads/bulk_thread.h"
#include "ucs/log.h"

namespace ucp::bulk {
namespace {

/** Under the shard. */
Load* find_load(MoverStrand& strand) {
    bool any = false;
    for (Load& load : strand.crew->loads) {
        if (!load.work.has_next()) continue;
        any = true;
        if (load.is_served_by(strand.domain)) return &load;
    }
    if (!any) strand.crew->has_work.store(false);
    return nullptr;
}

/** Another path to the peer has one. Under the shard. */
bool others_have_link(const MoverStrand& strand) {
    const Crew& crew = *strand.crew;
    return crew.others_have_link ||
           std::ranges::any_of(crew.strands, [&](const MoverStrand* other) {
               return other != &strand && other->link_up;
           });
}

}  // namespace

// --- taking and posting
// ----------------------------------------------------------------------------

bool Mover::pull_all() {
    bool has_posted = false;
    for (size_t count = 0; count < posting_.size(); ++count) {
        MoverStrand& strand = *posting_[(next_ + count) % posting_.size()];
        if (strand.state != MoverStrand::State::kPosting || strand.is_full ||
            strand.failure != UCS_OK || !strand.crew->has_work.load()) {
            continue;
        }
        has_posted = pull(strand) || has_posted;
    }
    ++next_;
    return has_posted;
}

bool Mover::pull(MoverStrand& strand) {
    Crew& crew = *strand.crew;
    const ucs::Time now = clock_.now();
    std::array<uct::ChainPiece, kMaxChain> pieces;
    size_t count = 0;
    Load* load = nullptr;
    Run run;
    {
        std::lock_guard lock(crew.shard.mutex);
        load = find_load(strand);
        if (load == nullptr || !strand.link_up) return false;
        std::array<const Meter*, kMaxPaths> meters;
        size_t paths = 0;
        for (const MoverStrand* each : crew.strands) {
            const bool can_take = each == &strand || (load->is_served_by(each->domain) &&
                                                      each->link_up && !each->is_full);
            if (can_take && paths < meters.size()) meters[paths++] = &each->meter;
        }
        Transfer::Cursor next = load->work.cursor();
        const size_t bytes =
            ucp::bulk::pull(strand.meter, {meters.data(), paths}, next.slice().length,
                            load->work.bytes_waiting(), now, rules_.schedule);
        if (bytes == 0) return false;
        const std::span<const Piece> all = load->work.pieces();
        for (size_t total = 0; !next.is_end() && count < rules_.schedule.chain; ++count) {
            const Slice slice = next.slice();
            if (count != 0 && total + slice.length > bytes) break;
            const Piece& piece = all[slice.piece];
            const Grip& grip = load->grips[strand.domain][slice.piece];
            pieces[count] = {static_cast<std::byte*>(piece.local) + slice.offset, slice.length,
                             grip.memory, piece.remote + slice.offset, grip.key};
            total += slice.length;
            next.advance(slice);
        }
        run = load->work.take(next, static_cast<uint32_t>(count));
        ++load->chains;
        strand.meter.posted(run.bytes, now);
    }
    MoverChain* chain = chains_.create();
    if (chain == nullptr) {
        withdraw(strand, *load, run, true);
        return false;
    }
    chain->callback = chain_done;
    chain->count = 2;  // one for this call: the transport may complete the chain within its own
    chain->mover = this;
    const std::span<const uct::ChainPiece> given(pieces.data(), count);
    const ssize_t taken = load->direction == Direction::kPut
                              ? strand.transport->put_chain(given, chain)
                              : strand.transport->get_chain(given, chain);
    if (taken <= 0) {
        chains_.destroy(chain);
        withdraw(strand, *load, run, true);
        strand.is_full = true;
        if (taken < 0 && strand.failure == UCS_OK) {
            strand.failure = static_cast<ucs_status_t>(taken);
            has_failures_ = true;
        }
        return false;
    }
    if (static_cast<size_t>(taken) < count) {
        Run rest = load->work.split(run, static_cast<uint32_t>(taken));
        withdraw(strand, *load, rest, false);
        strand.is_full = true;
    }
    chain->strand = &strand;
    chain->load = load;
    chain->run = run;
    strand.chains.push_back(*chain);
    counters_.chains.fetch_add(1, std::memory_order_relaxed);
    counters_.bytes.fetch_add(run.bytes, std::memory_order_relaxed);
    chain->complete(UCS_OK);
    return true;
}

/** What was taken and not posted. */
void Mover::withdraw(MoverStrand& strand, Load& load, const Run& rest, bool is_all) {
    std::lock_guard lock(strand.crew->shard.mutex);
    load.work.returned(rest);
    strand.crew->has_work.store(true);
    strand.meter.withdrawn(rest.bytes);
    if (!is_all) return;
    --load.chains;
    strand.crew->end_if_over(load, returns_);
}

// --- completions
// -----------------------------------------------------------------------------------

void Mover::chain_done(uct::Completion* self) {
    auto& chain = *static_cast<MoverChain*>(self);
    Mover& mover = *chain.mover;
    if (chain.strand == nullptr) {
        mover.chains_.destroy(&chain);
        return;
    }
    MoverStrand& strand = *chain.strand;
    if (chain.status != UCS_OK) {
        // Strands are not destroyed within a call of their transport.
        chain.has_failed = true;
        if (strand.failure == UCS_OK) strand.failure = chain.status;
        mover.has_failures_ = true;
        return;
    }
    Load& load = *chain.load;
    Crew& crew = *strand.crew;
    const Run run = chain.run;
    strand.chains.erase(strand.chains.iterator_to(chain));
    mover.chains_.destroy(&chain);
    {
        const ucs::Time now = mover.clock_.now();
        std::lock_guard lock(crew.shard.mutex);
        load.work.completed(run);
        strand.meter.completed(run.bytes, now);
        crew.completed_at = now;
        crew.is_distrusted = false;
        --load.chains;
        crew.end_if_over(load, mover.returns_);
    }
    if (strand.state == MoverStrand::State::kStopping && strand.chains.empty()) {
        mover.has_failures_ = true;  // it is looked at when the transport's call is over
    }
}

// --- strands
// ---------------------------------------------------------------------------------------

std::shared_ptr<MoverStrand> Mover::shared(const MoverStrand& strand) const {
    const auto found =
        std::ranges::find_if(strands_, [&](const auto& each) { return each.get() == &strand; });
    return found == strands_.end() ? nullptr : *found;
}

void Mover::handle_failures() {
    has_failures_ = false;
    for (size_t index = 0; index < strands_.size(); ++index) {
        const std::shared_ptr<MoverStrand> strand = strands_[index];
        if (strand->state == MoverStrand::State::kOver) continue;
        if (strand->failure != UCS_OK) {
            give_up(*strand, strand->failure);
        } else if (strand->state == MoverStrand::State::kStopping && strand->chains.empty()) {
            stopped(*strand);
        }
    }
}

/** Takes no more from now on. */
void Mover::leave(MoverStrand& strand) {
    Crew& crew = *strand.crew;
    std::vector<Mover*> others;
    {
        std::lock_guard lock(crew.shard.mutex);
        std::erase(crew.strands, &strand);
        others = crew.movers();
        crew.end_idle_loads(returns_);
    }
    for (Mover* other : others) other->wake();
}

void Mover::stopped(MoverStrand& strand) {
    strand.state = MoverStrand::State::kIdle;
    strand.crew = nullptr;
    std::erase(posting_, &strand);
    returns_.push({.kind = Return::Kind::kStopped, .strand = shared(strand)});
}

/**
 * Nothing of the strand is written here any more when its runs are offered to others, and the
 * worker hears of the failure before it hears of the end of a load that the strand carried.
 */
void Mover::give_up(MoverStrand& strand, ucs_status_t status) {
    struct Lost {
        Load* load;
        Run run;
        ucs_status_t status;
        bool is_refused;
    };
    std::vector<Lost> lost;
    while (!strand.chains.empty()) {
        MoverChain& chain = strand.chains.front();
        strand.chains.pop_front();
        // What went down with another chain's refusal was not refused itself.
        const bool is_refused = chain.has_failed && is_refusal(chain.status);
        lost.push_back(
            {chain.load, chain.run, chain.has_failed ? chain.status : status, is_refused});
        if (chain.has_failed) {
            chains_.destroy(&chain);
        } else {
            chain.strand = nullptr;
        }
    }
    strand.transport.reset();
    strand.failure = status;
    strand.state = MoverStrand::State::kOver;
    Crew* const crew = std::exchange(strand.crew, nullptr);
    std::erase(posting_, &strand);
    Return entry{.kind = Return::Kind::kFailed, .strand = shared(strand), .status = status};
    if (crew == nullptr) return returns_.push(std::move(entry));

    std::vector<Mover*> others;
    {
        std::lock_guard lock(crew->shard.mutex);
        std::erase(crew->strands, &strand);
        strand.meter.give_up();
        for (const Lost& each : lost) {
            Load& load = *each.load;
            if (each.is_refused || each.run.failures >= rules_.max_retries) {
                load.work.fail(each.status);
            }
            load.work.failed(each.run);
            --load.chains;
            if (load.direction == Direction::kPut) entry.jobs.push_back(&load.job);
        }
        if (!lost.empty()) crew->has_work.store(true);
        returns_.push(std::move(entry));
        crew->end_idle_loads(returns_);
        others = crew->movers();
    }
    for (Mover* other : others) {
        if (other != this) other->wake();
    }
}

// Errors come by themselves; this finds silence and lost links.
void Mover::watch(ucs::Time now) {
    const bool link_up = interface_->is_link_up();
    for (MoverStrand* strand : posting_) {
        strand->is_full = false;
        Crew& crew = *strand->crew;
        std::lock_guard lock(crew.shard.mutex);
        strand->link_up = link_up;
        if (!link_up) crew.end_idle_loads(returns_);
        if (strand->chains.empty() || strand->failure != UCS_OK) continue;
        const ucs::Time since = strand->meter.silent_since();
        const bool others_went_on = std::max(crew.completed_at, crew.others_at) > since;
        if (now - since >= rules_.stall_timeout && others_went_on) {
            strand->failure = UCS_ERR_TIMED_OUT;
        } else if (!link_up && others_have_link(*strand)) {
            strand->failure = UCS_ERR_UNREACHABLE;
        }
        has_failures_ = has_failures_ || strand->failure != UCS_OK;
    }
}

}  // namespace ucp::bulk
