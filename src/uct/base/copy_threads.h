// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include <boost/intrusive/list.hpp>

#include "uct/base/local_copy.h"

namespace uct {

// Threads of a worker that do its long copies within the host while the program computes
// (docs/design/shared-memory.md, "Threads"). They are started when there is the first one.
//
// A shared copy is cut into pieces, which threads and its owner take in turn. A thread holds
// nothing but the piece that it copies, and never waits for a worker: the worker may wait for it.
class CopyThreads {
  public:
    // Copies contiguous bytes of this process to those of a peer, or from there, at once.
    using Move = ucs_status_t (*)(CopyDirection direction, const Iov& piece, uint64_t remote,
                                  RemoteKey key);
    struct Owner;

    // A copy that is shared, or may be.
    struct Copy : boost::intrusive::list_base_hook<> {
        enum class State : uint8_t {
            kOwned,    // by who made it
            kWaiting,  // has pieces to be taken
            kTaken,    // has none, the last ones are under way
            kDone,     // waits for its owner
        };
        explicit Copy(const LocalCopy& its_copy) : copy(its_copy) {}

        LocalCopy copy;
        ucs_status_t status = UCS_OK;  // its first error

        // --- under the lock while it is shared ---
        State state = State::kOwned;
        unsigned pieces = 0;  // under way
        Owner* owner = nullptr;
    };
    using Copies = boost::intrusive::list<Copy, boost::intrusive::constant_time_size<false>>;

    // Who shares copies, with one thread at a time.
    struct Owner {
        explicit Owner(Move function) : move(function) {}

        const Move move;
        int wake_descriptor = -1;  // written to when a copy is done while the owner sleeps

        // --- under the lock ---
        Copies done{};
        bool is_asleep = false;
    };

    struct Piece {
        Copy* copy;
        Iov here;
        uint64_t remote;
        CopyDirection direction;
        RemoteKey key;
    };

    // Of a thread: so many bytes cost the calls of the system nothing worth mention, and who gives
    // an endpoint up waits for no longer.
    static constexpr size_t kPiece = 512 * 1024;

    // They may run where the calling thread may now, less what who shares the first copy is bound
    // to.
    explicit CopyThreads(unsigned threads);
    // No copy is shared any more.
    ~CopyThreads();
    CopyThreads(const CopyThreads&) = delete;

    // --- the owner's thread ---

    // From now on it is the threads' as well, until next_done() or withdraw().
    // @return false: there is no thread
    bool share(Copy& copy, Owner& owner);
    // The next piece of one of the owner's copies, to be copied and given back.
    // @param most  bytes
    // @return false: there is none
    bool take(const Owner& owner, size_t most, Piece* piece);
    void give_back(const Piece& piece, ucs_status_t status);
    // Null: none is done.
    Copy* next_done(Owner& owner);
    // Nothing of it is copied any more when this returns.
    void withdraw(Copy& copy);
    // From now on, until next_done(), the descriptor is written to when a copy is done.
    // @return false: one is done
    bool sleep(Owner& owner);

    // Moved by threads so far.
    uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

    // --- for tests ---

    // Starts a thread; throws std::system_error where there may be no more.
    using Spawn = std::thread (*)(const std::function<void()>& run);
    void set_spawn(Spawn spawn) { spawn_ = spawn; }
    std::vector<std::thread::native_handle_type> handles();

  private:
    bool start();
    void run();
    void cut(Copy& copy, size_t most, Piece* piece);
    void end_piece(const Piece& piece, ucs_status_t status);

    const unsigned wanted_;
    std::vector<unsigned> cpus_;  // on which they run
    Spawn spawn_ = [](const std::function<void()>& run) { return std::thread(run); };
    std::vector<std::thread> threads_;  // the owner's
    bool has_started_ = false;          // the owner's
    std::atomic<uint64_t> bytes_{0};

    std::mutex mutex_;
    std::condition_variable work_;   // there is something to take, or the end
    std::condition_variable ended_;  // a piece has ended
    Copies waiting_;                 // whose turn it is first
    bool is_stopping_ = false;
};

}  // namespace uct
