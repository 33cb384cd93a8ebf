// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <vector>

#include "uct/api/interface.h"

namespace uct::tcp {

class TcpInterface;

/** The TCP interfaces of one worker, who take each other's place. Used on the worker's thread. */
struct Family {
    /** That of the worker with this table. */
    static std::shared_ptr<Family> of(const AmTable& worker);

    std::vector<TcpInterface*> members;
};

}  // namespace uct::tcp
