// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/wireup/guests.h"

#include <algorithm>
#include <utility>

#include "ucs/log/log.h"

namespace ucp::wireup {

uct::GuestHost* Guests::host(unsigned interface) const {
    return interfaces_[interface].transport->guest_host();
}

bool Guests::can_host() const {
    for (unsigned index = 0; index < interfaces_.size(); ++index) {
        if (host(index) != nullptr) return true;
    }
    return false;
}

// Of a transport of this worker's that knows guests?
bool Guests::is_known_kind(const AddressEntry& entry) const {
    for (unsigned index = 0; index < interfaces_.size(); ++index) {
        if (interfaces_[index].kind == entry.kind && host(index) != nullptr) return true;
    }
    return false;
}

void Guests::restrict(WorkerAddress& guest, bool is_near) const {
    const auto known = guests_.find(guest.uuid);
    std::erase_if(guest.entries, [&](const AddressEntry& entry) {
        if (entry.device_type != uct::DeviceType::kNetwork) return !is_near;
        if (!is_known_kind(entry)) return true;
        // He keeps to the way that he came by first.
        return known != guests_.end() &&
               std::ranges::none_of(known->second.invitations, [&](const Invitation& each) {
                   return std::ranges::equal(each.address, entry.interface);
               });
    });
}

ucs_status_t Guests::invite(const WorkerAddress& guest) {
    if (contains(guest.uuid)) return UCS_OK;
    Guest made;
    ucs_status_t status = UCS_OK;
    for (unsigned index = 0; index < interfaces_.size() && status != UCS_ERR_REJECTED; ++index) {
        uct::GuestHost* const own = host(index);
        if (own == nullptr) continue;
        for (const AddressEntry& entry : guest.entries) {
            if (entry.kind != interfaces_[index].kind) continue;
            Invitation invitation{index, copy_bytes(entry.device), copy_bytes(entry.interface), {}};
            invitation.own.resize(interfaces_.attributes(index).interface_address_length);
            const ucs_status_t invited = own->invite(invitation.guest(), invitation.own);
            if (invited == UCS_OK) made.invitations.push_back(std::move(invitation));
            if (invited == UCS_ERR_REJECTED) status = invited;
        }
    }
    if (status == UCS_OK) {
        guests_.emplace(guest.uuid, std::move(made));
    } else {
        for (const Invitation& invitation : made.invitations) end(invitation);
    }
    return status;
}

void Guests::settle(const WorkerAddress& guest, unsigned interface, const AddressEntry& entry) {
    Guest& known = guests_[guest.uuid];
    known.type = interfaces_.attributes(interface).device_type;
    known.interface = interface;
    std::erase_if(known.invitations, [&](const Invitation& each) {
        const bool is_settled =
            each.interface == interface && std::ranges::equal(each.address, entry.interface);
        if (!is_settled) end(each);
        return !is_settled;
    });
}

void Guests::end(const Invitation& invitation) {
    host(invitation.interface)->end_invitation(invitation.guest());
}

void Guests::end(uint64_t worker) {
    const auto found = guests_.find(worker);
    if (found == guests_.end()) return;
    for (const Invitation& invitation : found->second.invitations) end(invitation);
    guests_.erase(found);
}

bool Guests::is_way(uint64_t worker, unsigned interface) const {
    const Guest& guest = guests_.at(worker);
    if (guest.type == uct::DeviceType::kNetwork) return interface == guest.interface;
    return interfaces_.attributes(interface).device_type == guest.type;
}

void Guests::admit(uint64_t worker, AddressEntry& own, unsigned interface,
                   std::vector<std::byte>* storage) const {
    for (const Invitation& invitation : guests_.at(worker).invitations) {
        if (invitation.interface != interface) continue;
        *storage = invitation.own;
        own.interface = *storage;
    }
}

bool Guests::conceal(unsigned interface, AddressEntry& own, std::vector<std::byte>* storage) const {
    const uct::GuestHost* const transport = host(interface);
    if (transport == nullptr) return true;
    storage->resize(interfaces_.attributes(interface).interface_address_length);
    if (transport->guest_address(*storage) != UCS_OK) return false;
    own.interface = *storage;
    return true;
}

}  // namespace ucp::wireup
