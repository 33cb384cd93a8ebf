// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/mem/device_memory.h"

#include "ucm/api/ucm.h"
#include "ucs/log/log.h"

// The library as installed has libucm beside it; what links its parts may do without.
#pragma weak ucm_set_event_handler

namespace ucp {

namespace {

void changed(ucm_event_type_t type, ucm_event_t* event, void*) {
    ucs::MemoryGate& gate = ucs::MemoryGate::instance();
    if (type == UCM_EVENT_VM_UNMAPPED) {
        gate.unmapped(reinterpret_cast<uintptr_t>(event->vm_unmapped.address),
                      event->vm_unmapped.size);
    } else {
        gate.mapped();
    }
}

bool follow_mappings() {
    return ucm_set_event_handler != nullptr &&
           ucm_set_event_handler(UCM_EVENT_VM_MAPPED | UCM_EVENT_VM_UNMAPPED, 0, changed,
                                 nullptr) == UCS_OK;
}

}  // namespace

void open_device_memory(bool has_events) {
    if (!ucs::MemoryDetectors::any()) return;
    static const bool is_followed = has_events && follow_mappings();
    ucs::MemoryGate& gate = ucs::MemoryGate::instance();
    if (!is_followed) {
        ucs::log_info(
            "no memory events: the driver is asked about each buffer, 0.5 us for host "
            "memory, while CUDA is in use");
        gate.open_for_good();
    }
    gate.mapped();  // whatever came before
    ucs::MemoryDetectors::prepare();
}

}  // namespace ucp
