// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ucs/config/values.h"

// What the words in UCX_TLS and in the lists of devices mean.
namespace ucp::select {

// What UCX_TLS says of a transport.
enum class Permission : uint8_t {
    kNo,
    kAuxiliary,  // only to bring up the dedicated lanes that were asked for ("rc" needs one)
    kYes,
};

// The meaning of UCX_TLS, as in UCX: names and aliases, as the transports declare them; "all"; "^"
// in front turns the list round; a backslash before a name means that transport and no alias. A
// list without "self" has no "self". Aliases of dedicated transports (rc, rc_x, rc_v, and their own
// names) admit a scalable one as auxiliary.
Permission permission(const ucs::config::AllowList& list, std::string_view transport);

// Words in UCX_TLS that name nothing, or nothing that is here, each with a sentence for the user.
// @param found  names of the transports that work here
std::vector<std::string> objections(const ucs::config::AllowList& list,
                                    std::span<const std::string_view> found);

// The word of a list of devices means this device: its name, or its adapter without the port.
bool means_device(std::string_view word, std::string_view device);

// A list of devices (UCX_NET_DEVICES and its like) allows this device.
bool allows_device(const ucs::config::AllowList& list, std::string_view device);

// Words of a list of devices, not negated, that no device answers to, as for objections().
std::vector<std::string> device_objections(std::string_view variable,
                                           const ucs::config::AllowList& list,
                                           std::span<const std::string_view> found);

}  // namespace ucp::select
