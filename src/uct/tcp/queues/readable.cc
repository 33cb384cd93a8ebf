// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/queues/readable.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "ucs/sys/descriptor.h"

namespace uct::tcp {

namespace {

/** Takes bytes of any memory, by which the kernel tells whether it is there. */
class Probe {
  public:
    Probe() {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return;
        out_.reset(ends[0]);
        in_.reset(ends[1]);
    }
    bool reads(const void* byte) {
        for (;;) {
            if (write(in_.get(), byte, 1) == 1) return true;
            if (errno == EINTR) continue;
            if (errno != EAGAIN) return errno != EFAULT;
            std::array<std::byte, 4096> old;
            if (read(out_.get(), old.data(), old.size()) < 0) return true;
        }
    }

  private:
    ucs::Descriptor in_, out_;
};

}  // namespace

bool is_readable(std::span<const iovec> pieces) {
    static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    Probe probe;
    return std::ranges::all_of(pieces, [&](const iovec& piece) {
        const auto begin = reinterpret_cast<uintptr_t>(piece.iov_base);
        const uintptr_t end = begin + piece.iov_len;
        for (uintptr_t at = begin; at < end; at = (at / page + 1) * page) {
            if (!probe.reads(reinterpret_cast<const void*>(at))) return false;
        }
        return true;
    });
}

}  // namespace uct::tcp
