// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "uct/api/types.h"

namespace uct {

// Waits for a number of operations that is known only when all are started, then completes the
// user's completion. Lives on the heap until then.
class CompletionGroup final : public Completion {
  public:
    // @param user  may be null
    static CompletionGroup* start(Completion* user) { return new CompletionGroup(user); }

    // Before each operation; take back with cancel() if it completed at once.
    Completion* add() {
        ++count;
        return this;
    }
    void cancel() { --count; }

    // All are started. @return UCS_OK if none was left to wait for, or UCS_INPROGRESS
    ucs_status_t finish() {
        if (count == 1) {
            delete this;
            return UCS_OK;
        }
        --count;
        return UCS_INPROGRESS;
    }

    // As finish(), but the user's completion is not called.
    void abandon() {
        user_ = nullptr;
        finish();
    }

  private:
    explicit CompletionGroup(Completion* user) : user_(user) {
        count = 1;
        callback = [](Completion* self) {
            auto* gather = static_cast<CompletionGroup*>(self);
            if (gather->user_ != nullptr) gather->user_->complete(gather->status);
            delete gather;
        };
    }

    Completion* user_;
};

}  // namespace uct
