// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>

#include "uct/base/copy_queue.h"

// What tests of copies within a host learn of their ends.
namespace uct::test {

struct Group final : CopyGroup {
    void copy_failed(ucs_status_t status) override { failure = status; }
    void copies_done() override { ++times_done; }
    ucs_status_t failure = UCS_OK;
    int times_done = 0;
};

struct Done : Completion {
    Done() {
        count = 1;
        callback = [](Completion* self) {
            auto& done = *static_cast<Done*>(self);
            done.is_done = true;
            if (done.then) done.then();
        };
    }
    bool is_done = false;
    std::function<void()> then;
};

}  // namespace uct::test
