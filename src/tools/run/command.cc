// SPDX-License-Identifier: BSD-3-Clause
#include "tools/run/command.h"

#include <fmt/format.h>
#include <unistd.h>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "tools/common/paths.h"

namespace tools {
namespace {

struct RunCommand {
    bool verbose = false;
    bool soft = false;
};

class Environment {
  public:
    explicit Environment(bool verbose) : verbose_(verbose) {}

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

  private:
    const bool verbose_;
};

// Open MPI takes its UCX components by itself only on devices that it knows; openib, ofi and psm2
// would open the adapters past the library (docs/benchmarks.md says more on each).
void set_up_open_mpi(const Environment& environment) {
    const std::pair<const char*, const char*> kVariables[] = {
        {"OMPI_MCA_pml", "ucx"},
        {"OMPI_MCA_osc", "ucx"},
        {"OMPI_MCA_opal_common_ucx_tls", "any"},
        {"OMPI_MCA_opal_common_ucx_devices", "any"},
        {"OMPI_MCA_btl", "^openib,ofi"},
        {"OMPI_MCA_mtl", "^ofi,psm,psm2"},
    };
    for (const auto& [name, value] : kVariables) environment.set_default(name, value);
}

void run_program(const RunCommand& command, std::vector<std::string> program) {
    if (program.empty()) throw CLI::RequiredError("a command to run");
    const Paths paths = Paths::find();
    const Environment environment(command.verbose);
    std::string folders = prepend_path(paths.libraries, std::getenv("LD_LIBRARY_PATH"));
    if (command.soft) folders = prepend_path(paths.softhca, folders.c_str());
    environment.set("LD_LIBRARY_PATH", folders);
    if (!paths.modules.empty()) environment.set_default("UCX_MODULE_DIR", paths.modules);
    set_up_open_mpi(environment);

    std::vector<char*> argv;
    for (std::string& argument : program) argv.push_back(argument.data());
    argv.push_back(nullptr);
    execvp(argv[0], argv.data());
    throw std::system_error(errno, std::generic_category(), program.front());
}

}  // namespace

void add_run(CLI::App& app, std::vector<std::string> after_dashes) {
    auto command = std::make_shared<RunCommand>();
    CLI::App* run = app.add_subcommand(
        "run", "Run an MPI or OpenSHMEM program over Swiftlane: run [-v] [--soft] -- COMMAND...");
    run->add_flag("-v,--verbose", command->verbose, "Say what is set in the environment");
    run->add_flag("--soft", command->soft, "On the emulated adapter");
    run->prefix_command();
    run->callback([command, run, program = std::move(after_dashes)] {
        std::vector<std::string> words = run->remaining();
        words.insert(words.end(), program.begin(), program.end());
        run_program(*command, std::move(words));
    });
}

}  // namespace tools
