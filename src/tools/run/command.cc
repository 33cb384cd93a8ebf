// SPDX-License-Identifier: BSD-3-Clause
#include "tools/commands.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tools/common/paths.h"
#include "tools/common/process.h"

namespace tools {
namespace {

struct RunCommand {
    bool verbose = false;
    bool soft = false;
    bool system_ucs = false;
};

// What a runtime must be told, and why. What the user has set already stays.
struct Setting {
    const char* name;
    const char* value;
    const char* why;
};

class Settings {
  public:
    explicit Settings(bool verbose) : verbose_(verbose) {}

    void set(const std::string& name, const std::string& value) const {
        if (verbose_) fmt::print(stderr, "swiftlane: {}={}\n", name, value);
        setenv(name.c_str(), value.c_str(), 1);
    }

    // What the user has set already stays.
    void set_default(const std::string& name, const std::string& value) const {
        if (const char* given = std::getenv(name.c_str())) {
            if (verbose_) fmt::print(stderr, "swiftlane: {}={} (as given)\n", name, given);
            return;
        }
        set(name, value);
    }

    void set_default(const Setting& setting) const {
        if (verbose_) fmt::print(stderr, "swiftlane: # {}\n", setting.why);
        set_default(setting.name, setting.value);
    }

  private:
    const bool verbose_;
};

// By itself Open MPI takes its UCX components only on devices that it knows. What else could carry
// the messages, or would open the adapters past the library, stays out; windows that are shared by
// load and store need osc/sm, which must not take others.
constexpr Setting kOpenMpi[] = {
    {"OMPI_MCA_opal_common_ucx_tls", "any", "Open MPI's UCX components on any transport"},
    {"OMPI_MCA_opal_common_ucx_devices", "any", "and any device"},
    {"OMPI_MCA_pml", "ucx", "point to point"},
    {"OMPI_MCA_osc", "ucx,sm", "one-sided"},
    {"OMPI_MCA_osc_ucx_priority", "200", "before sm, which has 100"},
    {"OMPI_MCA_btl", "^openib,ofi,uct,usnic", "nothing else opens the adapters"},
    {"OMPI_MCA_mtl", "^ofi,psm,psm2", "nor the fabrics"},
    {"OMPI_MCA_spml", "ucx", "OpenSHMEM's put and get"},
    {"OMPI_MCA_atomic", "ucx", "OpenSHMEM's atomics"},
    {"OMPI_MCA_sshmem", "ucx", "OpenSHMEM's heap"},
};

// Containers and test machines run as root, where Open MPI refuses to start unless told twice.
constexpr Setting kOpenMpiAsRoot[] = {
    {"OMPI_ALLOW_RUN_AS_ROOT", "1", "you are root"},
    {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", "you are root"},
};

void set_up_open_mpi(const Settings& environment) {
    for (const Setting& setting : kOpenMpi) environment.set_default(setting);
    if (geteuid() != 0) return;
    for (const Setting& setting : kOpenMpiAsRoot) environment.set_default(setting);
}

std::string text_of(const char* text) {
    return text == nullptr ? "" : text;
}

// The folders of a list of the loader but for those where our libucs is found: a module that was
// loaded, or an exported LD_LIBRARY_PATH, may name them.
std::string without_own(const std::string& folders, const std::string& libraries) {
    std::string rest;
    std::istringstream list(folders);
    for (std::string folder; std::getline(list, folder, ':');) {
        std::error_code error;
        const std::filesystem::path own = std::filesystem::path(libraries) / "libucs.so.0";
        if (std::filesystem::equivalent(folder + "/libucs.so.0", own, error)) continue;
        rest += (rest.empty() ? "" : ":") + folder;
    }
    return rest;
}

// Our libucp takes the place of the system's; libucs, libuct and libucm, of which a program may
// need what ours lack, stay the system's.
void put_before_system_ucx(const Settings& environment, const std::string& library) {
    if (library.find_first_of(" :") != library.npos) {
        throw std::runtime_error(
            fmt::format("{}: the loader takes no blank and no colon in LD_PRELOAD", library));
    }
    environment.set("LD_PRELOAD", prepend_path(library, std::getenv("LD_PRELOAD")));
}

void run_program(const RunCommand& command, const std::vector<std::string>& program) {
    if (program.empty()) throw CLI::RequiredError("a command to run");
    const Paths paths = Paths::find();
    const Settings environment(command.verbose);
    std::string folders = text_of(std::getenv("LD_LIBRARY_PATH"));
    if (command.system_ucs) {
        put_before_system_ucx(environment, paths.libraries + "/libucp.so.0");
        const std::string given = std::exchange(folders, without_own(folders, paths.libraries));
        if (folders.empty() && !given.empty()) unsetenv("LD_LIBRARY_PATH");
    } else {
        folders = prepend_path(paths.libraries, folders.c_str());
    }
    if (command.soft) folders = prepend_path(paths.softhca, folders.c_str());
    if (!folders.empty()) environment.set("LD_LIBRARY_PATH", folders);
    if (!paths.modules.empty()) environment.set_default("UCX_MODULE_DIR", paths.modules);
    set_up_open_mpi(environment);

    become_program(program.front(), program);
}

}  // namespace

void add_run(CLI::App& app, std::vector<std::string> after_dashes) {
    auto command = std::make_shared<RunCommand>();
    CLI::App* run = app.add_subcommand(
        "run", "Run a program over Swiftlane: run [-v] [--soft] [--system-ucs] -- COMMAND...");
    run->add_flag("-v,--verbose", command->verbose, "Say what is set in the environment");
    run->add_flag("--soft", command->soft, "On the emulated adapter");
    run->add_flag(
        "--system-ucs", command->system_ucs,
        "With the system's libucs, libuct and libucm: for programs that need more of them "
        "than ours have");
    run->prefix_command();
    run->callback([command, run, program = std::move(after_dashes)] {
        std::vector<std::string> words = run->remaining();
        words.insert(words.end(), program.begin(), program.end());
        run_program(*command, words);
    });
}

}  // namespace tools
