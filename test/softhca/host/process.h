// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <string>
#include <type_traits>

#include "softhca/support.h"

// Tests with real processes: each participant is a child with a socket to the test.
namespace softhca::test {

class Wire {
  public:
    explicit Wire(int fd) : fd_(fd) {}
    template <class T>
    void put(const T& value) {
        static_assert(std::is_trivially_copyable_v<T>);
        EXPECT_EQ(write(fd_, &value, sizeof(value)), ssize_t(sizeof(value)));
    }
    // Waits at most a minute: a participant that hangs fails the test instead of hanging it.
    template <class T>
    T get() {
        T value{};
        pollfd event{fd_, POLLIN, 0};
        EXPECT_EQ(::poll(&event, 1, 60000), 1) << "the other side says nothing";
        EXPECT_EQ(recv(fd_, &value, sizeof(value), MSG_WAITALL), ssize_t(sizeof(value)));
        return value;
    }

  private:
    int fd_;
};

// A child process that runs `body` with the other end of a wire.
class Process {
  public:
    Process(const std::map<std::string, std::string>& environment,
            const std::function<void(Wire&)>& body) {
        int ends[2];
        EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
        pid_ = fork();
        if (pid_ == 0) {
            close(ends[0]);
            for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
            alarm(300);
            Wire inside(ends[1]);
            body(inside);
            std::exit(::testing::Test::HasFailure() ? 1 : 0);
        }
        close(ends[1]);
        fd_ = ends[0];
        wire = Wire(fd_);
    }
    ~Process() {
        close(fd_);
        if (pid_ > 0) {
            ::kill(pid_, SIGKILL);
            waitpid(pid_, nullptr, 0);
        }
    }
    Process(const Process&) = delete;
    Process& operator=(const Process&) = delete;

    pid_t pid() const { return pid_; }
    void signal(int number) { ASSERT_EQ(::kill(pid_, number), 0); }
    // Kills it and leaves a zombie, as a parent that is busy elsewhere does.
    void kill_unreaped() {
        signal(SIGKILL);
        siginfo_t info;
        waitid(P_PID, id_t(pid_), &info, WEXITED | WNOWAIT);
    }
    void expect_success() {
        int status = 0;
        ASSERT_EQ(waitpid(pid_, &status, 0), pid_);
        pid_ = 0;
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
    }

    Wire wire{-1};

  private:
    pid_t pid_ = 0;
    int fd_ = -1;
};

}  // namespace softhca::test
