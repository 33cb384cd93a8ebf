// SPDX-License-Identifier: BSD-3-Clause
#include "tools/common/soft_adapter.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "uct/ib/base/transports.h"

namespace tools {

bool has_real_adapter() {
    std::error_code error;
    const std::filesystem::directory_iterator adapters("/sys/class/infiniband", error);
    return !error && adapters != std::filesystem::directory_iterator();
}

void add_device_options(CLI::App& app, std::string& device) {
    auto* named = app.add_option("--device", device,
                                 "soft: the emulated adapter; real: what the machine has; auto: "
                                 "soft only where there is no adapter, no other host and no memory "
                                 "of a device")
                      ->check(CLI::IsMember({"auto", "soft", "real"}));
    app.add_flag_callback(
           "--soft", [&device] { device = "soft"; }, "On the emulated adapter: --device soft")
        ->excludes(named);
}

std::string chosen_device(const std::string& device, bool with_other_host) {
    if (device != "auto") return device;
    return with_other_host || has_real_adapter() ? "real" : "soft";
}

bool is_over_adapter(std::string_view lanes) {
    return std::ranges::any_of(uct::ib::kTransports, [&](const auto& transport) {
        return lanes.find(std::string(transport.name) + "/") != std::string_view::npos;
    });
}

}  // namespace tools
