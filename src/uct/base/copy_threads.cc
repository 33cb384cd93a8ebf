// SPDX-License-Identifier: BSD-3-Clause
#include "uct/base/copy_threads.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>

#include "ucs/log/log.h"
#include "ucs/sys/no_signals.h"
#include "ucs/sys/processors.h"

namespace uct {

CopyThreads::CopyThreads(unsigned threads) : wanted_(threads), cpus_(ucs::allowed_cpus()) {}

CopyThreads::~CopyThreads() {
    {
        const std::lock_guard lock(mutex_);
        is_stopping_ = true;
    }
    work_.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

bool CopyThreads::start() {
    if (has_started_) return !threads_.empty();
    has_started_ = true;
    cpus_ = ucs::beside_caller(cpus_);
    try {
        const ucs::NoSignals guard;
        while (threads_.size() < wanted_) threads_.push_back(spawn_([this] { run(); }));
    } catch (const std::system_error& error) {
        ucs::log_warn("{} threads for copies within the host instead of {}: {}", threads_.size(),
                      wanted_, error.what());
    }
    return !threads_.empty();
}

std::vector<std::thread::native_handle_type> CopyThreads::handles() {
    std::vector<std::thread::native_handle_type> all;
    for (std::thread& thread : threads_) all.push_back(thread.native_handle());
    return all;
}

// --- the owner

bool CopyThreads::share(Copy& copy, Owner& owner) {
    if (!start()) return false;
    const bool is_for_several = copy.copy.left() > kPiece;
    {
        const std::lock_guard lock(mutex_);
        copy.owner = &owner;
        copy.state = Copy::State::kWaiting;
        waiting_.push_back(copy);
    }
    is_for_several ? work_.notify_all() : work_.notify_one();
    return true;
}

bool CopyThreads::take(const Owner& owner, size_t most, Piece* piece) {
    const std::lock_guard lock(mutex_);
    const auto own = std::ranges::find(waiting_, &owner, &Copy::owner);
    if (own == waiting_.end()) return false;
    cut(*own, most, piece);
    return true;
}

void CopyThreads::give_back(const Piece& piece, ucs_status_t status) {
    const std::lock_guard lock(mutex_);
    end_piece(piece, status);
}

CopyThreads::Copy* CopyThreads::next_done(Owner& owner) {
    const std::lock_guard lock(mutex_);
    owner.is_asleep = false;
    if (owner.done.empty()) return nullptr;
    Copy& copy = owner.done.front();
    owner.done.pop_front();
    copy.state = Copy::State::kOwned;
    return &copy;
}

void CopyThreads::withdraw(Copy& copy) {
    std::unique_lock lock(mutex_);
    if (copy.state == Copy::State::kWaiting) {
        waiting_.erase(waiting_.iterator_to(copy));
        copy.state = Copy::State::kTaken;
    }
    ended_.wait(lock, [&copy] { return copy.pieces == 0; });
    if (copy.state == Copy::State::kDone)
        copy.owner->done.erase(copy.owner->done.iterator_to(copy));
    copy.state = Copy::State::kOwned;
}

bool CopyThreads::sleep(Owner& owner) {
    const std::lock_guard lock(mutex_);
    owner.is_asleep = owner.done.empty();
    return owner.is_asleep;
}

// --- under the lock

// Several share by bytes: who has had a piece is the last.
void CopyThreads::cut(Copy& copy, size_t most, Piece* piece) {
    LocalCopy& rest = copy.copy;
    *piece = {&copy, rest.next(std::min(most, rest.left())), rest.remote(), rest.direction(),
              rest.key()};
    rest.advance(piece->here.length);
    ++copy.pieces;
    waiting_.erase(waiting_.iterator_to(copy));
    if (rest.left() == 0) {
        copy.state = Copy::State::kTaken;
    } else {
        waiting_.push_back(copy);
    }
}

void CopyThreads::end_piece(const Piece& piece, ucs_status_t status) {
    Copy& copy = *piece.copy;
    --copy.pieces;
    if (status != UCS_OK) {
        if (copy.status == UCS_OK) copy.status = status;
        if (copy.state == Copy::State::kWaiting) {
            waiting_.erase(waiting_.iterator_to(copy));
            copy.state = Copy::State::kTaken;
        }
    }
    if (copy.pieces != 0 || copy.state != Copy::State::kTaken) return;
    Owner& owner = *copy.owner;
    copy.state = Copy::State::kDone;
    owner.done.push_back(copy);
    ended_.notify_all();
    if (!owner.is_asleep) return;
    owner.is_asleep = false;
    const char byte = 0;
    if (write(owner.wake_descriptor, &byte, 1) < 0) {
        // A full pipe wakes as well.
    }
}

// --- a thread

void CopyThreads::run() {
    pthread_setname_np(pthread_self(), "copy");
    (void)ucs::bind_caller(cpus_);
    std::unique_lock lock(mutex_);
    for (;;) {
        work_.wait(lock, [this] { return is_stopping_ || !waiting_.empty(); });
        if (is_stopping_) return;
        Piece piece;
        cut(waiting_.front(), kPiece, &piece);
        const Move move = piece.copy->owner->move;
        lock.unlock();
        const ucs_status_t status = move(piece.direction, piece.here, piece.remote, piece.key);
        bytes_.fetch_add(piece.here.length, std::memory_order_relaxed);
        lock.lock();
        end_piece(piece, status);
    }
}

}  // namespace uct
