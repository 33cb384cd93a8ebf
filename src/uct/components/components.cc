// SPDX-License-Identifier: BSD-3-Clause
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include "config.h"
#include "ucs/config/source.h"
#include "ucs/config/table.h"
#include "ucs/config/values.h"
#include "ucs/log/log.h"
#include "ucs/runtime/runtime.h"
#include "uct/api/module.h"
#include "uct/ib/base/transports.h"
#include "uct/self/self_interface.h"
#include "uct/sm/component.h"
#include "uct/tcp/component.h"

namespace uct {

namespace {

namespace fs = std::filesystem;

struct ModuleConfig {
    std::string directory;
};

constexpr ucs::config::Field<ModuleConfig> kModuleFields[] = {
    ucs::config::field<&ModuleConfig::directory>(
        "MODULE_DIR", "",
        "Folder of the transport modules; empty: the folder modules beside that of the library."),
};
const ucs::config::Table<ModuleConfig> module_table("transport modules", {""}, kModuleFields);

// The names that programs give the ways of CUDA memory in UCX_TLS. They have no interfaces: device
// buffers are staged, or copied by the devices, beside the transports that carry messages
// (docs/design/gpu.md). gdr_copy is taken as a name of UCX's.
constexpr std::string_view kCudaWords[] = {"cuda"};
constexpr TransportDeclaration kCudaTransports[] = {
    {"cuda_copy", DeviceType::kAccelerator, Reach::kInterface, 0, kCudaWords},
    {"cuda_ipc", DeviceType::kAccelerator, Reach::kInterface, 0, kCudaWords},
    {"gdr_copy", DeviceType::kAccelerator, Reach::kInterface, 0, kCudaWords},
};

// The transports of this library's own modules, for machines where a module does not load: a name
// in UCX_TLS is then known, and not available.
constexpr std::span<const TransportDeclaration> kOfModules[] = {ib::kTransports, kCudaTransports};

struct Registry {
    std::mutex mutex;
    std::vector<Component*> components;
    bool complete = false;
};

auto built_in_components() {
    return std::to_array<Component*>({&self::component(), &sm::component(), &tcp::component()});
}

Registry& registry() {
    static auto* instance = new Registry;  // modules outlive every destructor
    return *instance;
}

// UCX_MODULE_DIR, else "../modules" as seen from the library that holds this function.
fs::path module_directory() {
    ModuleConfig config;
    std::string problem;
    if (module_table.load(ucs::config::Source::from_environment(), config, problem) == UCS_OK &&
        !config.directory.empty()) {
        return config.directory;
    }
    Dl_info info;
    if (dladdr(reinterpret_cast<void*>(&module_directory), &info) == 0) return {};
    std::error_code error;
    const fs::path library = fs::canonical(info.dli_fname, error);
    return error ? fs::path() : library.parent_path().parent_path() / "modules";
}

Component* load(const fs::path& file) {
    void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle == nullptr) {
        ucs::log_debug("module {} does not load: {}", file.filename().string(), dlerror());
        return nullptr;
    }
    const auto* module = static_cast<const Module*>(dlsym(handle, kModuleSymbol));
    if (module == nullptr || std::string_view(module->version) != PACKAGE_VERSION) {
        ucs::log_warn("{} is no module of version {}: remove it or install both anew",
                      file.string(), PACKAGE_VERSION);
        return nullptr;
    }
    return module->component(ucs::runtime());
}

std::vector<fs::path> module_files() {
    std::vector<fs::path> files;
    const fs::path directory = module_directory();
    std::error_code error;
    if (directory.empty()) return files;
    for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
         entry.increment(error)) {
        const std::string name = entry->path().filename().string();
        if (name.starts_with("libuct_") && name.ends_with(".so")) files.push_back(entry->path());
    }
    std::ranges::sort(files);
    return files;
}

}  // namespace

void add_component(Component& component) {
    Registry& known = registry();
    std::lock_guard lock(known.mutex);
    known.components.push_back(&component);
}

std::span<Component* const> components() {
    Registry& known = registry();
    std::lock_guard lock(known.mutex);
    if (!known.complete) {
        known.complete = true;
        const auto built_in = built_in_components();
        known.components.insert(known.components.begin(), built_in.begin(), built_in.end());
        for (const fs::path& file : module_files()) {
            Component* component = load(file);
            if (component == nullptr) continue;
            const bool linked_in = std::ranges::any_of(known.components, [&](Component* other) {
                return other->name() == component->name();
            });
            if (!linked_in) known.components.push_back(component);
        }
    }
    return known.components;
}

std::vector<TransportDeclaration> known_transports() {
    std::vector<TransportDeclaration> known;
    const auto add = [&](std::span<const TransportDeclaration> more) {
        for (const TransportDeclaration& transport : more) {
            const bool is_new = std::ranges::find(known, transport.name,
                                                  &TransportDeclaration::name) == known.end();
            if (is_new) known.push_back(transport);
        }
    };
    for (const Component* component : built_in_components()) add(component->transports());
    {
        Registry& loaded = registry();
        std::lock_guard lock(loaded.mutex);
        for (const Component* component : loaded.components) add(component->transports());
    }
    for (const auto& transports : kOfModules) add(transports);
    return known;
}

}  // namespace uct
