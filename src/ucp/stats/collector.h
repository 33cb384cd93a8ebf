// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "ucp/context/context.h"
#include "ucp/endpoint/endpoint_table.h"
#include "ucp/lanes/driver/lane_driver.h"
#include "ucp/stats/page.h"
#include "ucs/sys/time.h"
#include "ucs/type/status.h"

namespace ucp::stats {

// A page of this process. Only its user may open it, and nobody but this object may write to it,
// as far as the kernel can forbid that (Linux 5.1). One thread at a time.
class PageWriter {
  public:
    // @return UCS_ERR_UNSUPPORTED, UCS_ERR_NO_RESOURCE or UCS_ERR_NO_MEMORY
    static ucs_status_t create(std::unique_ptr<PageWriter>* writer);
    ~PageWriter();
    PageWriter(const PageWriter&) = delete;

    // Shows `worker` from now on. A reader sees it as a whole or not at all. No system call.
    void publish(const WorkerRecord& worker);

  private:
    PageWriter(int descriptor, ino_t file, Page* page)
        : descriptor_(descriptor), file_(file), page_(page) {}

    const int descriptor_;
    const ino_t file_;
    Page* const page_;
};

// Fills the page of statistics of a worker, from its progress, every kInterval at most (UCX_STATS).
//
// The work of a fill has a bound that does not depend on how many endpoints, links or requests
// there are. A worker that makes no progress leaves its page as it is; the page says of when it is.
class Collector {
  public:
    static constexpr ucs::Duration kInterval = std::chrono::milliseconds(100);

    Collector(const InterfaceSet& interfaces, EndpointTable& endpoints, LaneDriver& lanes,
              Context& context);

    // Makes the page. None at all is no failure: nobody sees this worker then.
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
    std::unique_ptr<WorkerRecord> worker_;  // what the next fill shows
};

}  // namespace ucp::stats
