// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/stats/page_writer.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>

#include "ucs/sys/process.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace ucp::stats {

ucs_status_t PageWriter::create(std::unique_ptr<PageWriter>* writer) {
    const int descriptor = memfd_create(kFileName, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (descriptor < 0) {
        return errno == EMFILE || errno == ENFILE ? UCS_ERR_NO_RESOURCE : UCS_ERR_UNSUPPORTED;
    }
    void* base = MAP_FAILED;
    struct stat info {};
    if (fchmod(descriptor, S_IRUSR | S_IWUSR) == 0 && ftruncate(descriptor, sizeof(Page)) == 0 &&
        fstat(descriptor, &info) == 0) {
        base = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    }
    auto* page = static_cast<Page*>(base);
    if (base != MAP_FAILED)
        writer->reset(new (std::nothrow) PageWriter(descriptor, info.st_ino, page));
    if (base == MAP_FAILED || *writer == nullptr) {
        if (base != MAP_FAILED) munmap(base, sizeof(Page));
        close(descriptor);
        return UCS_ERR_NO_MEMORY;
    }
    // Older kernels refuse the last one: then others of the user may write, and readers are shown
    // nonsense.
    if (fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE) != 0)
        fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
    const ucs::Process process = ucs::Process::self();
    page->head.version = kVersion;
    page->head.size = sizeof(Page);
    page->head.start_time = process.start_time;
    page->head.pid = process.pid;
    page->head.magic = kMagic;
    return UCS_OK;
}

PageWriter::~PageWriter() {
    munmap(page_, sizeof(Page));
    // A program may have closed what it does not know, and opened something else in its place.
    struct stat info {};
    if (fstat(descriptor_, &info) == 0 && info.st_ino == file_) close(descriptor_);
}

void PageWriter::publish(const WorkerRecord& worker) {
    const std::atomic_ref<uint64_t> sequence(page_->head.sequence);
    const uint64_t before = sequence.load(std::memory_order_relaxed);
    sequence.store(before + 1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    std::memcpy(&page_->worker, &worker, sizeof(worker));
    sequence.store(before + 2, std::memory_order_release);
}

}  // namespace ucp::stats
