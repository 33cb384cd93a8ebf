// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <string_view>

namespace tools {

// Whether the machine has RDMA adapters of its own.
bool has_real_adapter();

// Adds --device and --soft, which is --device soft. The default is "auto".
void add_device_options(CLI::App& app, std::string& device);

// What `device` says for a measurement on this host, or with another one, that the emulated adapter
// cannot reach: "soft" or "real". "auto" is real where there are adapters, or another host.
std::string chosen_device(const std::string& device, bool with_other_host);

// Does one of these lanes ("transport/device, ...") go over an RDMA adapter, emulated or not?
bool is_over_adapter(std::string_view lanes);

// What a reader must see before figures that were measured on the emulated adapter.
inline constexpr const char* kEmulatedNote =
    "# EMULATED adapter on this host: figures of the software, not of a network\n";

}  // namespace tools
