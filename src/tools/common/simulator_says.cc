// SPDX-License-Identifier: BSD-3-Clause
#include "tools/common/simulator_says.h"

#include <cerrno>
#include <stdexcept>
#include <system_error>

#include "tools/common/paths.h"
#include "tools/common/program_output.h"

namespace tools {

std::string simulator_says(const char* what) {
    const std::string program = Paths::find().simulator;
    try {
        const ProgramOutput answer = output_of({program, what});
        if (answer.status != 0) throw std::runtime_error(program + ": " + answer.err);
        return answer.out;
    } catch (const std::system_error& error) {
        if (error.code().value() != ENOENT) throw;
        return {};
    }
}

}  // namespace tools
