// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <memory>

#include "ucp/stats/page.h"
#include "ucs/type/status.h"

namespace ucp::stats {

/**
 * A page of this process. Only its user may open it, and nobody but this object may write to it,
 * as far as the kernel can forbid that (Linux 5.1). One thread at a time.
 */
class PageWriter {
  public:
    /** @return UCS_ERR_UNSUPPORTED, UCS_ERR_NO_RESOURCE or UCS_ERR_NO_MEMORY */
    static ucs_status_t create(std::unique_ptr<PageWriter>* writer);
    ~PageWriter();
    PageWriter(const PageWriter&) = delete;
    PageWriter& operator=(const PageWriter&) = delete;

    /** Shows `worker` from now on. A reader sees it as a whole or not at all. No system call. */
    void publish(const WorkerRecord& worker);

  private:
    PageWriter(int descriptor, ino_t file, Page* page)
        : descriptor_(descriptor), file_(file), page_(page) {}

    const int descriptor_;
    const ino_t file_;
    Page* const page_;
};

}  // namespace ucp::stats
