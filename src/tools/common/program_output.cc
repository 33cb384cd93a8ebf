// SPDX-License-Identifier: BSD-3-Clause
#include "tools/common/program_output.h"

#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <stdexcept>
#include <system_error>

#include "tools/common/paths.h"
#include "tools/common/process.h"
#include "ucs/sys/descriptor.h"

namespace tools {
namespace {

// A file in memory, which no program that is started later inherits by its number.
class MemoryFile {
  public:
    explicit MemoryFile(const char* name) : descriptor_(memfd_create(name, MFD_CLOEXEC)) {
        if (!descriptor_) throw std::system_error(errno, std::generic_category(), name);
    }

    int descriptor() const { return descriptor_.get(); }

    void write(const std::string& text) const {
        for (size_t done = 0; done < text.size();) {
            const ssize_t n = ::pwrite(descriptor(), text.data() + done, text.size() - done,
                                       static_cast<off_t>(done));
            if (n <= 0)
                throw std::system_error(errno, std::generic_category(), "a program's input");
            done += static_cast<size_t>(n);
        }
    }
    std::string read() const {
        std::string text;
        std::array<char, 65536> buffer{};
        for (;;) {
            const ssize_t n = ::pread(descriptor(), buffer.data(), buffer.size(),
                                      static_cast<off_t>(text.size()));
            if (n <= 0) return text;
            text.append(buffer.data(), static_cast<size_t>(n));
        }
    }

  private:
    const ucs::Descriptor descriptor_;
};

}  // namespace

ProgramOutput output_of(std::vector<std::string> words, const std::string& input) {
    const MemoryFile in("input");
    const MemoryFile out("output");
    const MemoryFile err("errors");
    in.write(input);
    posix_spawn_file_actions_t actions{};
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in.descriptor(), STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out.descriptor(), STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, err.descriptor(), STDERR_FILENO);
    pid_t pid = -1;
    const int error =
        posix_spawnp(&pid, words[0].c_str(), &actions, nullptr, pointers_to(words).data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) throw std::system_error(error, std::generic_category(), words[0]);
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    return {status, out.read(), err.read()};
}

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
