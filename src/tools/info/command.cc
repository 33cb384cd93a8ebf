// SPDX-License-Identifier: BSD-3-Clause
#include "tools/commands.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <ucp/api/ucp.h>

#include <cstdio>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "tools/common/device_memory.h"
#include "tools/common/process.h"
#include "tools/common/program_output.h"
#include "tools/info/variables.h"
#include "tools/program/worker.h"
#include "tools/report/json.h"

namespace tools {
namespace {

namespace abi = uct::cuda::abi;
using uct::cuda::Driver;
constexpr int kNativeAtomics = 3;  // CUdevice_P2PAttribute

int attribute(const Driver& cuda, abi::DeviceAttribute which, int device) {
    int value = 0;
    check_cuda(cuda.device_get_attribute(&value, which, device), "cuDeviceGetAttribute");
    return value;
}

std::string link(const Driver& cuda, int from, int to) {
    int reaches = 0;
    int has_atomics = 0;
    check_cuda(cuda.device_can_access_peer(&reaches, from, to), "cuDeviceCanAccessPeer");
    if (reaches == 0) return "not reached: messages are staged through host memory";
    check_cuda(cuda.device_get_p2p_attribute(&has_atomics, kNativeAtomics, from, to),
               "cuDeviceGetP2PAttribute");
    return has_atomics != 0 ? "reached directly, atomic operations included, as over NVLink"
                            : "reached directly, without atomic operations, as over PCIe";
}

std::string describe() {
    const Driver& cuda = cuda_driver();
    int count = 0;
    check_cuda(cuda.device_get_count(&count), "cuDeviceGetCount");
    std::string text;
    auto out = std::back_inserter(text);
    for (int device = 0; device < count; ++device) {
        char name[256] = {};
        size_t memory = 0;
        check_cuda(cuda.device_get_name(name, sizeof(name), device), "cuDeviceGetName");
        check_cuda(cuda.device_total_memory(&memory, device), "cuDeviceTotalMem");
        fmt::format_to(out, "#   CUDA device {}  :  {}, {} MiB, PCI {:04x}:{:02x}:{:02x}\n", device,
                       static_cast<const char*>(name), memory >> 20,
                       attribute(cuda, abi::kPciDomainId, device),
                       attribute(cuda, abi::kPciBusId, device),
                       attribute(cuda, abi::kPciDeviceId, device));
        for (int other = 0; other < count; ++other) {
            if (other == device) continue;
            fmt::format_to(out, "#                     device {}: {}\n", other,
                           link(cuda, device, other));
        }
    }
    return text;
}

// The CUDA devices of this host and which reach each other's memory, as lines of `info -d`; a line
// that says why if there are none. Starts the driver, but makes no context.
std::string describe_cuda_devices() {
    try {
        return describe() + "#\n";
    } catch (const std::runtime_error& error) {
        return fmt::format("#   CUDA devices  :  none: {}\n#\n", error.what());
    }
}

struct InfoCommand {
    bool version = false;
    bool devices = false;
    int config = 0;
    bool full = false;
    bool soft = false;
    std::string json;
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
    unsigned flags = UCS_CONFIG_PRINT_CONFIG;
    if (full) flags |= UCS_CONFIG_PRINT_HEADER | UCS_CONFIG_PRINT_DOC | UCS_CONFIG_PRINT_HIDDEN;
    fmt::print("{}", configuration("Configuration", flags));
}

Json version_json() {
    return {{"swiftlane", SWIFTLANE_VERSION},
            {"interface", ucp_get_version_string()},
            {"library", library_file()}};
}

Json variables_json() {
    Json json = Json::array();
    for (const Variable& variable : read_variables()) {
        json.push_back({{"name", variable.name},
                        {"value", variable.value},
                        {"default", variable.default_value},
                        {"expected", variable.expected},
                        {"help", variable.help},
                        {"falls_back_to", variable.fallbacks},
                        {"table", variable.table}});
    }
    return json;
}

// What the worker's description says of each transport: "#     NAME/DEVICE: use", and its figures
// in the line below.
Json transports_json() {
    const Context context(1);
    const Worker worker(context.handle());
    const std::string text =
        printed([&](std::FILE* stream) { ucp_worker_print_info(worker.handle(), stream); });
    constexpr std::string_view kIndent = "#     ";
    Json json = Json::array();
    std::string_view rest = text;
    bool is_below = false;
    while (!rest.empty()) {
        std::string_view line = rest.substr(0, rest.find('\n'));
        rest.remove_prefix(std::min(line.size() + 1, rest.size()));
        if (!line.starts_with(kIndent)) continue;
        line.remove_prefix(kIndent.size());
        const size_t slash = line.find('/');
        const size_t colon = line.find(": ");
        if (line.starts_with("    ")) {
            if (is_below) json.back()["figures"] = line.substr(4);
        } else if (is_below = slash < colon && colon != line.npos; is_below) {
            json.push_back({{"name", line.substr(0, slash)},
                            {"device", line.substr(slash + 1, colon - slash - 1)},
                            {"use", line.substr(colon + 2)}});
        }
    }
    return json;
}

void run_json(const InfoCommand& command) {
    const bool is_all = !command.version && !command.devices && command.config == 0;
    if (command.soft && (command.devices || is_all)) restart(library_environment(true, ""));
    JsonFile file(command.json);
    Json document = version_json();
    if (command.config != 0 || command.full || is_all) document["variables"] = variables_json();
    if (command.devices || is_all) document["transports"] = transports_json();
    file.write(document);
}

void run_info(const InfoCommand& command) {
    if (!command.json.empty()) {
        run_json(command);
        return;
    }
    if (command.soft && command.devices) restart(library_environment(true, ""));
    if (command.version) print_version();
    if (command.config != 0 || command.full) print_config(command.full);
    if (command.devices) print_devices();
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
    info->add_option("--json", command->json,
                     "In JSON, to this file; -: standard output. Without -c and -d: all");
    info->callback([command] {
        if (command->json.empty() && !command->version && !command->devices &&
            command->config == 0 && !command->full) {
            throw CLI::CallForHelp();
        }
        run_info(*command);
    });
    app.add_subcommand("version", "Version, and which library is in use")->callback(print_version);
}

}  // namespace tools
