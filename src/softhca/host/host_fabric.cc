// SPDX-License-Identifier: BSD-3-Clause
#include "softhca/host/host_fabric.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <future>
#include <optional>

// Joining and leaving the fabric, and the service thread of a process: how others call it.
namespace softhca {
namespace {

constexpr unsigned kMaxDevices = 64;
constexpr unsigned kMaxPorts = 4;         // of a device
constexpr uint64_t kIdleNs = 2000000000;  // between looks for dead processes
constexpr uint64_t kStalledNs = 200000;   // between tries of queues that wait for a peer

std::mutex& instance_mutex() {
    static std::mutex mutex;
    return mutex;
}

// Not destroyed at exit: other static objects may still close their devices. Its destructor runs
// from an exit handler instead.
std::shared_ptr<HostFabric>*& instance_slot() {
    static std::shared_ptr<HostFabric>* slot = nullptr;
    return slot;
}

unsigned env_count(const char* variable, unsigned most) {
    const char* text = std::getenv(variable);
    if (text == nullptr) return 1;
    const unsigned long number = std::strtoul(text, nullptr, 10);
    return unsigned(std::min<unsigned long>(number, most));
}

std::string segment_path() {
    const char* name = std::getenv("SOFTHCA_FABRIC");
    std::string path = "/dev/shm/softhca-" + std::to_string(getuid()) + "-";
    for (const char* c = name != nullptr && *name != '\0' ? name : "default"; *c != '\0'; ++c) {
        path += std::isalnum(static_cast<unsigned char>(*c)) != 0 ? *c : '_';
    }
    return path;
}

// Address space is all that an arena costs, and limits leave little of it.
constexpr uint64_t kMinArena = uint64_t{1} << 30;

// A segment of the file's length, which may have been made under a limit of address space.
std::optional<SegmentLayout> layout_of(uint64_t bytes) {
    SegmentLayout layout;
    while (Segment::bytes(layout) > bytes && layout.arena_bytes > kMinArena)
        layout.arena_bytes /= 2;
    if (Segment::bytes(layout) != bytes) return {};
    return layout;
}

}  // namespace

std::shared_ptr<HostFabric> HostFabric::instance() {
    std::lock_guard guard(instance_mutex());
    auto*& slot = instance_slot();
    if (slot != nullptr) return *slot;
    std::shared_ptr<HostFabric> fabric(new HostFabric);
    if (!fabric->join()) return nullptr;
    slot = new std::shared_ptr<HostFabric>(fabric);
    static bool handlers = false;
    if (!handlers) {
        handlers = true;
        std::atexit([] {
            if (instance_slot() != nullptr) (*instance_slot())->leave();
        });
        // A child has no service thread, hence no life in the parent's slot: it joins anew.
        pthread_atfork(nullptr, nullptr, [] { instance_slot() = nullptr; });
    }
    return fabric;
}

HostFabric::HostFabric()
    : path_(segment_path()),
      refuse_cma_(std::getenv("SOFTHCA_NO_CMA") != nullptr),
      num_devices_(env_count("SOFTHCA_DEVICES", kMaxDevices)),
      ports_per_device_(std::max(1u, env_count("SOFTHCA_PORTS", kMaxPorts))),
      pid_(getpid()) {
    limits = Limits::from_environment();
    faults.set(FaultPlan::from_environment());
}

HostFabric::~HostFabric() {
    leave();
}

bool HostFabric::lock_file() {
    // Not kept across a removal of the file by the last process that left.
    for (;;) {
        fd_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd_ < 0) {
            std::fprintf(stderr, "softhca: %s: %s\n", path_.c_str(), std::strerror(errno));
            return false;
        }
        struct stat st {};
        if (flock(fd_, LOCK_EX) == 0 && fstat(fd_, &st) == 0 && st.st_nlink > 0) {
            if (st.st_uid == geteuid() && (st.st_mode & 077) == 0) return true;
            std::fprintf(stderr, "softhca: %s belongs to others\n", path_.c_str());
            close(fd_);
            return false;
        }
        close(fd_);
    }
}

void HostFabric::unlock_file() {
    flock(fd_, LOCK_UN);
}

bool HostFabric::any_alive() {
    for (unsigned i = 0; i < segment.num_procs(); ++i) {
        const uint16_t generation = uint16_t(segment.proc(i).generation.load());
        if (generation != 0 && !segment.dead({uint16_t(i), generation})) return true;
    }
    return false;
}

bool HostFabric::open_segment() {
    struct stat st {};
    if (fstat(fd_, &st) != 0) return false;
    if (const auto found = layout_of(uint64_t(st.st_size))) {
        if (segment.map_file(fd_, *found, false)) {
            const SegmentHeader& head = segment.header();
            if (head.magic.load() == SegmentHeader::kMagic && head.layout == *found &&
                any_alive()) {
                return true;
            }
            segment.unmap();
        } else if (errno == ENOMEM) {
            // Others may use it: it is not to be laid out anew.
            std::fprintf(stderr,
                         "softhca: %s takes %llu MiB of address space, more than there may be "
                         "(ulimit -v)\n",
                         path_.c_str(), static_cast<unsigned long long>(st.st_size >> 20));
            return false;
        }
    }
    for (SegmentLayout layout; layout.arena_bytes >= kMinArena; layout.arena_bytes /= 2) {
        if (ftruncate(fd_, 0) != 0 || ftruncate(fd_, off_t(Segment::bytes(layout))) != 0)
            return false;
        if (segment.map_file(fd_, layout, true)) return true;
        if (errno != ENOMEM) return false;
    }
    return false;
}

bool HostFabric::take_slot() {
    for (unsigned i = 0; i < segment.num_procs(); ++i) {
        ProcRecord& proc = segment.proc(i);
        const int result = pthread_mutex_trylock(&proc.life);
        if (result != 0 && result != EOWNERDEAD) continue;
        if (result == EOWNERDEAD) pthread_mutex_consistent(&proc.life);
        const uint16_t former = uint16_t(proc.generation.load());
        const uint16_t generation = former == UINT16_MAX ? 1 : uint16_t(former + 1);
        proc.generation.store(generation, std::memory_order_release);
        proc.pid.store(uint32_t(getpid()));
        proc.refuses_cma.store(refuse_cma_);
        proc.gpu_first.store(UINT64_MAX);
        proc.gpu_end.store(0);
        for (auto& hazard : proc.hazards) hazard.store(0);
        segment.set_self({uint16_t(i), generation});
        if (former != 0) segment.reap({uint16_t(i), former});
        return true;
    }
    return false;
}

void HostFabric::reap_dead() {
    for (unsigned i = 0; i < segment.num_procs(); ++i) {
        ProcRecord& proc = segment.proc(i);
        const uint16_t generation = uint16_t(proc.generation.load());
        if (generation == 0 || !segment.dead({uint16_t(i), generation})) continue;
        const int result = pthread_mutex_trylock(&proc.life);
        if (result != 0 && result != EOWNERDEAD) continue;
        if (result == EOWNERDEAD) pthread_mutex_consistent(&proc.life);
        segment.reap({uint16_t(i), generation});
        pthread_mutex_unlock(&proc.life);
    }
}

bool HostFabric::join() {
    if (num_devices_ == 0) return false;
    if (!lock_file()) return false;
    if (!open_segment() || !set_up_tables()) {
        std::fprintf(stderr, "softhca: cannot set up %s\n", path_.c_str());
        unlock_file();
        return false;
    }
    std::promise<bool> started;
    service_ = std::thread([this, &started] {
        const bool taken = take_slot();
        if (taken) reap_dead();
        started.set_value(taken);
        if (taken) serve();
    });
    joined_ = started.get_future().get();
    unlock_file();
    if (!joined_) {
        service_.join();
        std::fprintf(stderr, "softhca: %s: too many processes\n", path_.c_str());
        return false;
    }
    // Where Yama restricts process_vm_*, let any process of this user reach us.
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    return true;
}

void HostFabric::leave() {
    if (!joined_ || pid_ != getpid()) return;
    joined_ = false;
    // Before we are dead to others: whoever joined then would lay the file out anew, and what we
    // give back below would be theirs, who have our slot and generation there.
    int locked;
    {
        std::lock_guard guard(leave_mutex_);
        do {
            locked = flock(fd_, LOCK_EX);
        } while (locked != 0 && errno == EINTR);
        stop_.store(true);
        wake(segment.self());
        service_.join();  // gives up the life mutex
    }
    if (locked == 0) {
        segment.reap(segment.self());
        if (!any_alive()) unlink(path_.c_str());
        unlock_file();
    }
    close(fd_);
    fd_ = -1;
}

std::vector<Device> HostFabric::devices() {
    std::vector<Device> list;
    for (unsigned i = 0; i < num_devices_; ++i) {
        list.push_back(make_device(0, i, uint16_t(1 + i * ports_per_device_), ports_per_device_));
    }
    return list;
}

uint16_t HostFabric::lid_of_guid(uint64_t guid) const {
    const uint64_t lid = guid - kGuidBase;
    return lid > 0 && lid <= kMaxDevices * kMaxPorts ? uint16_t(lid) : 0;
}

uint64_t HostFabric::guid_of_lid(uint16_t lid) const {
    return lid > 0 && lid <= kMaxDevices * kMaxPorts ? kGuidBase + lid : 0;
}

uint64_t HostFabric::now_ns() const {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return uint64_t(t.tv_sec) * 1000000000 + uint64_t(t.tv_nsec);
}

// --- the service thread ---

void HostFabric::wake(Owner owner) {
    ProcRecord& proc = segment.proc(owner.slot);
    proc.attention.fetch_add(1, std::memory_order_release);
    futex_wake(proc.attention);
}

void HostFabric::serve() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, nullptr);
    ProcRecord& proc = segment.self_proc();
    uint32_t seen = proc.attention.load(std::memory_order_acquire);
    while (!stop_.load()) {
        serve_mailbox();
        flush_failed();
        collect_events();
        const bool stalled = num_stalled_.load() != 0;
        if (stalled) retry_stalled();
        const uint32_t before = seen;
        if (proc.attention.load(std::memory_order_acquire) == before) {
            futex_wait(proc.attention, before, stalled ? kStalledNs : kIdleNs);
        }
        seen = proc.attention.load(std::memory_order_acquire);
        if (seen != before || stalled) continue;
        const std::unique_lock guard(leave_mutex_, std::try_to_lock);
        if (guard.owns_lock() && flock(fd_, LOCK_EX | LOCK_NB) == 0) {
            reap_dead();
            unlock_file();
        }
    }
    pthread_mutex_unlock(&proc.life);
}

void HostFabric::cq_activity(CqRecord& record, bool event) {
    if (!event) return;
    const Owner owner = record.owner;
    if (!local(owner)) {
        wake(owner);
        return;
    }
    std::lock_guard guard(objects_mutex);
    Cq* cq = cqs.get(segment.index_of(record.number));
    if (cq == nullptr) return;
    uint32_t notifications = record.notifications.exchange(0);
    while (notifications-- > 0) deliver_cq_event(*cq);
}

void HostFabric::raised_events(Owner owner, uint16_t) {
    // The owner's thread tells its contexts: the caller may hold locks that this would need.
    wake(owner);
}

void HostFabric::qp_failed(QpRecord& qp) {
    segment.proc(qp.owner.slot).qp_failures.fetch_add(1, std::memory_order_release);
    if (!local(qp.owner)) wake(qp.owner);
}

}  // namespace softhca
