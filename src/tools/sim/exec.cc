// SPDX-License-Identifier: BSD-3-Clause
#include "tools/sim/exec.h"

#include <unistd.h>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <cerrno>
#include <string>
#include <system_error>
#include <vector>

#include "tools/common/paths.h"

namespace tools {

void add_sim(CLI::App& app) {
    CLI::App* sim = app.add_subcommand(
        "sim", "Benchmarks with many ranks in one process, on modelled adapters and time");
    sim->prefix_command();
    sim->set_help_flag();
    sim->set_help_all_flag();
    sim->callback([sim] {
        const std::string program = Paths::find().simulator;
        const std::vector<std::string> arguments = sim->remaining();
        std::string name = "swiftlane sim";
        std::vector<char*> argv{name.data()};
        for (const std::string& argument : arguments) {
            argv.push_back(const_cast<char*>(argument.c_str()));
        }
        argv.push_back(nullptr);
        execv(program.c_str(), argv.data());
        throw std::system_error(errno, std::generic_category(), program);
    });
}

}  // namespace tools
