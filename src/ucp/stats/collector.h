// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <string>

#include "ucp/context/context.h"
#include "ucp/endpoint/endpoint_table.h"
#include "ucp/lanes/driver/lane_driver.h"
#include "ucp/stats/page.h"
#include "ucp/stats/page_writer.h"
#include "ucs/sys/time.h"

namespace ucp::stats {

/**
 * Fills the page of statistics of a worker, from its progress, every kInterval at most (UCX_STATS).
 *
 * The work of a fill has a bound that does not depend on how many endpoints, links or requests
 * there are. A worker that makes no progress leaves its page as it is; the page says of when it is.
 */
class Collector {
  public:
    static constexpr ucs::Duration kInterval = std::chrono::milliseconds(100);

    Collector(const InterfaceSet& interfaces, EndpointTable& endpoints, LaneDriver& lanes,
              Context& context);

    /** Makes the page. None at all is no failure: nobody sees this worker then. */
    void open(uint64_t uuid, const std::string& worker_name, ucs::Time now);
    void advance(ucs::Time now) {
        if (now >= next_) [[unlikely]]
            fill(now);
    }

  private:
    void fill(ucs::Time now);
    void add_transports();
    void add_memory();
    void add_endpoints();
    void add(Endpoint& endpoint, const lanes::Link* link);

    const InterfaceSet& interfaces_;
    EndpointTable& endpoints_;
    LaneDriver& lanes_;
    Context& context_;
    ucs::Time next_ = ucs::kNever;
    std::unique_ptr<PageWriter> writer_;
    std::unique_ptr<WorkerRecord> worker_;  //!< what the next fill shows
};

}  // namespace ucp::stats
