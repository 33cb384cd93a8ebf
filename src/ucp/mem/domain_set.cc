// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/mem/domain_set.h"

namespace ucp {

void DomainSet::set_options(const Options& options) {
    options_ = options;
    regions_ = RegionTable(options.identity);
}

bool DomainSet::open_cache(const RegistrationCache::Limits& limits, bool use_events) {
    registrations_ = std::make_unique<RegistrationCache>(domains_, limits);
    if (use_events && memory_events_.report_to(registrations_->invalidations())) return true;
    registrations_.reset();
    return false;
}

void DomainSet::collect() {
    if (registrations_ == nullptr) return;
    DomainLock lock(*this);
    registrations_->collect();
}

}  // namespace ucp
