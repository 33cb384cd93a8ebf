// SPDX-License-Identifier: BSD-3-Clause
#include "tools/info/command.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <ucp/api/ucp.h>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>

#include "tools/common/paths.h"
#include "tools/common/soft_adapter.h"
#include "tools/info/cuda_devices.h"
#include "tools/program/worker.h"

namespace tools {
namespace {

struct InfoCommand {
    bool version = false;
    bool devices = false;
    int config = 0;
    bool full = false;
    bool soft = false;
};

// The file that a function of the library was loaded from.
std::string library_file() {
    Dl_info info{};
    if (dladdr(reinterpret_cast<void*>(&ucp_get_version_string), &info) == 0) return "unknown";
    return info.dli_fname;
}

void print_version() {
    unsigned major = 0;
    unsigned minor = 0;
    unsigned release = 0;
    ucp_get_version(&major, &minor, &release);
    fmt::print("# Swiftlane {}\n", SWIFTLANE_VERSION);
    fmt::print("# Interface: UCX {}.{}.{}\n", major, minor, release);
    fmt::print("# Library: {}\n", library_file());
}

void print_devices() {
    std::fflush(stdout);
    // First: it starts the driver, so that the library finds CUDA in use.
    const std::string cuda = describe_cuda_devices();
    const Context context(1);
    ucp_context_print_info(context.handle(), stdout);
    fmt::print("{}", cuda);
    std::fflush(stdout);
    const Worker worker(context.handle());
    ucp_worker_print_info(worker.handle(), stdout);
}

void print_config(bool full) {
    // The library reads it; in a build tree modules lie where it does not look by itself.
    if (const std::string modules = Paths::find().modules; !modules.empty())
        setenv("UCX_MODULE_DIR", modules.c_str(), 0);
    ucp_config_t* config = nullptr;
    const ucs_status_t status = ucp_config_read(nullptr, nullptr, &config);
    if (status != UCS_OK) throw std::runtime_error(ucs_status_string(status));
    int flags = UCS_CONFIG_PRINT_CONFIG;
    if (full) flags |= UCS_CONFIG_PRINT_HEADER | UCS_CONFIG_PRINT_DOC | UCS_CONFIG_PRINT_HIDDEN;
    std::fflush(stdout);
    ucp_config_print(config, stdout, "Configuration", static_cast<ucs_config_print_flags_t>(flags));
    ucp_config_release(config);
}

void run_info(const InfoCommand& command) {
    if (command.version) print_version();
    if (command.config != 0 || command.full) print_config(command.full);
    if (!command.devices) return;
    if (command.soft) restart_with_soft_adapter({"info", "--soft", "-d"});
    print_devices();
}

}  // namespace

void add_info(CLI::App& app) {
    auto command = std::make_shared<InfoCommand>();
    CLI::App* info = app.add_subcommand("info", "Version, devices and configuration");
    info->add_flag("-v,--version", command->version, "Version, and which library is in use");
    info->add_flag("-d,--devices", command->devices,
                   "Devices and transports found here, and what they are used for");
    info->add_flag("-c,--config", command->config, "Configuration variables and their values");
    info->add_flag("-f,--full", command->full, "With -c: each variable's help and type as well");
    info->add_flag("--soft", command->soft, "With -d: on the emulated adapter");
    info->callback([command, info] {
        if (!command->version && !command->devices && command->config == 0 && !command->full) {
            throw CLI::CallForHelp();
        }
        run_info(*command);
    });
    app.add_subcommand("version", "Version, and which library is in use")->callback(print_version);
}

}  // namespace tools
