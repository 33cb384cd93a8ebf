// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

// Peers that are processes of their own, and die.
namespace uct::test {

// Another process. It runs `body`, says so, and waits for the end.
class Child {
  public:
    explicit Child(const std::function<void()>& body) {
        int ready[2], end[2];
        EXPECT_EQ(pipe(ready), 0);
        EXPECT_EQ(pipe(end), 0);
        pid_ = fork();
        if (pid_ == 0) {
            close(ready[0]);
            close(end[1]);
            body();
            char byte = 0;
            if (write(ready[1], &byte, 1) != 1) _exit(2);
            // Ends with the parent at the latest.
            const ssize_t nothing = read(end[0], &byte, 1);
            _exit(nothing == 0 ? 0 : 3);
        }
        close(ready[1]);
        close(end[0]);
        end_ = end[1];
        char byte;
        EXPECT_EQ(read(ready[0], &byte, 1), 1);
        close(ready[0]);
    }
    ~Child() { kill(); }
    // Dies on the spot; nobody has asked for its status yet.
    void kill() {
        if (pid_ == 0) return;
        ::kill(pid_, SIGKILL);
        siginfo_t info;
        waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
        close(end_);
        waited_ = pid_;
        pid_ = 0;
    }
    pid_t pid() const { return pid_; }
    void reap() { waitpid(waited_, nullptr, 0); }

  private:
    pid_t pid_, waited_ = 0;
    int end_;
};

// Memory that child processes share.
template <typename T>
T& shared() {
    void* memory =
        mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return *new (memory) T();
}

}  // namespace uct::test
