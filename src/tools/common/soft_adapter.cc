// SPDX-License-Identifier: BSD-3-Clause
#include "tools/common/soft_adapter.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <system_error>

#include "tools/common/paths.h"

namespace tools {

void restart_with_soft_adapter(const std::vector<std::string>& arguments) {
    constexpr const char* kRestarted = "SWIFTLANE_INFO_SOFT";
    if (std::getenv(kRestarted) != nullptr) return;
    const Paths paths = Paths::find();
    setenv(kRestarted, "1", 1);
    setenv("LD_LIBRARY_PATH", prepend_path(paths.softhca, std::getenv("LD_LIBRARY_PATH")).c_str(),
           1);
    if (!paths.modules.empty()) setenv("UCX_MODULE_DIR", paths.modules.c_str(), 0);
    std::vector<std::string> words{"swiftlane"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    std::fflush(stdout);
    execv(paths.program.c_str(), argv.data());
    throw std::system_error(errno, std::generic_category(), paths.program);
}

}  // namespace tools
