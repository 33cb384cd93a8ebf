// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <unordered_set>

#include "uct/api/interface.h"

namespace ucp {

/**
 * Which worker speaks on which connection, where the transport knows its connections apart.
 *
 * A worker's address lists the names that its connections bear (uct::Interface::name_of()). From
 * then on nobody else speaks for that worker, and these connections for no other. A connection that
 * no address has named is its first claimant's.
 */
class PeerNames {
  public:
    /**
     * A worker's address lists that name.
     * @param overrules  whoever had the name before: the program itself brought the address
     * @return false: it is another worker's
     */
    bool learn(uint64_t name, uint64_t worker, bool overrules);
    /** Nothing is left that knows the worker. */
    void forget(uint64_t worker);
    /** Who has that name; 0: nobody that is known. */
    uint64_t worker_of(uint64_t name) const {
        const auto known = workers_.find(name);
        return known == workers_.end() ? 0 : known->second;
    }
    /** Its worker is a guest, who has a say in nothing but his endpoint. Until forget(). */
    void set_guest(uint64_t name) { guests_.insert(name); }
    bool is_guest(uint64_t name) const { return !guests_.empty() && guests_.contains(name); }
    /** May messages of that connection be the worker's? */
    bool is_from(uct::PeerIdentity& peer, uint64_t worker);
    size_t size() const { return workers_.size(); }

  private:
    void drop(uint64_t name, uint64_t worker);

    std::unordered_map<uint64_t, uint64_t> workers_;     //!< by name
    std::unordered_multimap<uint64_t, uint64_t> names_;  //!< by worker
    std::unordered_set<uint64_t> guests_;                //!< names
    uint32_t generation_ = 1;                            //!< of what is known
};

}  // namespace ucp
