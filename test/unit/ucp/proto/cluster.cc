// SPDX-License-Identifier: BSD-3-Clause
#include "unit/ucp/proto/cluster.h"

#include "ucp/endpoint/flush.h"

namespace ucp::test {

void Cluster::make_flush_of(Request& request) {
    make_flush(request, endpoint());
}

}  // namespace ucp::test
