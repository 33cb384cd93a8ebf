// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "ucp/proto/eager/eager.h"
#include "ucp/proto/eager/reassembly.h"
#include "ucp/proto/rndv/rndv.h"

namespace ucp {

/**
 * What protocols of whole messages, tagged and active ones, work with: each message goes eagerly or
 * by rendezvous, in fragments or not.
 */
class MessageProtocol {
  public:
    MessageProtocol(RequestPool& requests, EndpointTable& endpoints, Rendezvous& rndv,
                    Reassembly& reassembly)
        : requests_(requests), endpoints_(endpoints), rndv_(rndv), reassembly_(reassembly) {}
    MessageProtocol(const MessageProtocol&) = delete;
    MessageProtocol& operator=(const MessageProtocol&) = delete;

  protected:
    ~MessageProtocol() = default;

    RequestPool& requests_;
    EndpointTable& endpoints_;
    Rendezvous& rndv_;
    Reassembly& reassembly_;
};

}  // namespace ucp
