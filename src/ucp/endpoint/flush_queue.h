// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include <boost/intrusive/slist.hpp>

namespace ucp {

class Request;

/** A flush that waits until operations of its endpoint have ended at the peer: in its part. */
struct FlushWait : boost::intrusive::slist_base_hook<
                       boost::intrusive::link_mode<boost::intrusive::normal_link>> {
    uint32_t target = 0;  //!< operations with lower numbers must be finished
    Request* request = nullptr;
};

/**
 * The flushes of an endpoint that wait. Their targets never fall, as operations are counted up, so
 * the first one is done before all others: an operation that ends looks at what it ends, and at one
 * more.
 */
class FlushQueue {
  public:
    void add(FlushWait& flush) { waiting_.push_back(flush); }
    /**
     * So many operations have finished: takes out what waits for no more and hands each to `take`,
     * which may add others or finish more itself.
     * @return how many were looked at
     */
    template <typename Taker>
    size_t finish(uint32_t finished, Taker take) {
        size_t looks = 0;
        while (!waiting_.empty()) {
            ++looks;
            FlushWait& first = waiting_.front();
            if (static_cast<int32_t>(finished - first.target) < 0) break;
            waiting_.pop_front();
            take(first);
        }
        return looks;
    }
    /** Hands all to `take`. */
    template <typename Taker>
    void drain(Taker take) {
        while (!waiting_.empty()) {
            FlushWait& first = waiting_.front();
            waiting_.pop_front();
            take(first);
        }
    }

  private:
    boost::intrusive::slist<FlushWait, boost::intrusive::constant_time_size<false>,
                            boost::intrusive::cache_last<true>>
        waiting_;
};

}  // namespace ucp
