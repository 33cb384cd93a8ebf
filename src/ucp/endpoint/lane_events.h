// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace ucp {

class Endpoint;

/** What the driver of dedicated lanes is told about endpoints, by whoever makes and ends them. */
class LaneEvents {
  public:
    /** An endpoint was given to the user, or got its peer. */
    virtual void endpoint_created(Endpoint& endpoint) = 0;
    /** The tracker knows it under a name that is no more its own. */
    virtual void endpoint_renamed(Endpoint& endpoint) = 0;
    /** Does the endpoint hold a dedicated lane, or negotiate one? */
    virtual bool has_link(const Endpoint& endpoint) const = 0;

  protected:
    ~LaneEvents() = default;
};

}  // namespace ucp
