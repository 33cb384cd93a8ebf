// SPDX-License-Identifier: BSD-3-Clause
#include "tools/top/terminal.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

namespace tools {
namespace {

// ECMA-48 and xterm: another screen without a cursor; back; from the top; erase to the end.
constexpr const char* kEnter = "\033[?1049h\033[?25l";
constexpr const char* kLeave = "\033[?25h\033[?1049l";
constexpr const char* kHome = "\033[H";
constexpr const char* kClearLine = "\033[K";
constexpr const char* kClearBelow = "\033[J";

}  // namespace

bool Terminal::is_there() {
    return isatty(STDOUT_FILENO) != 0 && isatty(STDIN_FILENO) != 0;
}

Terminal::Terminal() {
    is_ended_ = 0;
    struct sigaction action {};
    action.sa_handler = [](int) { is_ended_ = 1; };
    for (size_t i = 0; i < std::size(kSignals); ++i)
        sigaction(kSignals[i], &action, &actions_before_[i]);
    tcgetattr(STDIN_FILENO, &before_);
    termios quiet = before_;
    quiet.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    tcsetattr(STDIN_FILENO, TCSANOW, &quiet);
    fmt::print("{}", kEnter);
    std::fflush(stdout);
}

Terminal::~Terminal() {
    tcsetattr(STDIN_FILENO, TCSANOW, &before_);
    fmt::print("{}", kLeave);
    std::fflush(stdout);
    for (size_t i = 0; i < std::size(kSignals); ++i)
        sigaction(kSignals[i], &actions_before_[i], nullptr);
}

void Terminal::show(std::span<const std::string> lines) const {
    winsize size{};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0) size = {24, 80, 0, 0};
    const size_t count = std::min<size_t>(lines.size(), size.ws_row);
    std::string text = kHome;
    for (size_t i = 0; i < count; ++i) {
        text += lines[i].substr(0, size.ws_col);
        text += kClearLine;
        // A new line below the last one would move all up.
        if (i + 1 < size.ws_row) text += "\r\n";
    }
    text += count < size.ws_row ? kClearBelow : "";
    fmt::print("{}", text);
    std::fflush(stdout);
}

bool Terminal::wait(int milliseconds) {
    pollfd input{.fd = has_input_ ? STDIN_FILENO : -1, .events = POLLIN, .revents = 0};
    if (is_ended_ == 0 && poll(&input, 1, milliseconds) > 0) {
        char key = 0;
        const ssize_t length = read(STDIN_FILENO, &key, 1);
        if (length == 1 && (key == 'q' || key == 'Q')) return false;
        // A terminal that has gone is readable for good.
        if (length == 0 || (length < 0 && errno != EINTR)) return false;
    }
    return is_ended_ == 0;
}

}  // namespace tools
