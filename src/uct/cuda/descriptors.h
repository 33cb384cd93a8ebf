// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <unordered_set>

#include "ucs/sys/descriptor.h"

namespace uct::cuda {

// Gives file descriptors that stand for memory of this process to other processes of the host: who
// has been told of an allocation asks for its descriptor by number, over a Unix socket.
//
// Who asks must be a process of the same user and know the token, which stands in the descriptions
// that go to peers. A thread answers, begun with the first descriptor; it calls nothing of the
// driver's. The descriptors are limited in number: the oldest is given up, and offered anew when
// somebody has asked for it and its owner hands the memory over again. Any thread.
class DescriptorServer {
  public:
    // @param process  names the socket; it is no secret
    DescriptorServer(uint64_t process, uint64_t token) : process_(process), token_(token) {}
    ~DescriptorServer() { stop(); }
    DescriptorServer(DescriptorServer&&) = delete;

    // The descriptor is the server's from now on. @return false: nobody can ask; it is closed
    bool offer(uint64_t number, ucs::Descriptor descriptor);
    void withdraw(uint64_t number);
    // Has somebody asked for a descriptor that is not offered (any more)?
    bool is_wanted(uint64_t number);
    // Ends the thread, and closes what was offered.
    void stop();

    // Ask another process. Waits for it a second at most.
    // @return the descriptor; -1: it is not offered now; -2: there is nobody to ask
    static int ask(uint64_t process, uint64_t token, uint64_t number);

  private:
    static constexpr size_t kMaxOffers = 256;
    static constexpr size_t kMaxWanted = 4096;

    struct Offer {
        ucs::Descriptor descriptor;
        uint64_t turn;
    };

    bool begin();
    void loop();
    void answer(int connection);
    void give_up_oldest();

    const uint64_t process_, token_;
    std::mutex mutex_;
    std::unordered_map<uint64_t, Offer> offers_;
    std::unordered_set<uint64_t> wanted_;
    std::atomic<bool> any_wanted_{false};
    uint64_t turns_ = 0;
    ucs::Descriptor listener_;
    bool is_stopped_ = false;
    std::thread thread_;
};

}  // namespace uct::cuda
