// SPDX-License-Identifier: BSD-3-Clause
#include <sched.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include <cinttypes>
#include <new>
#include <string>

#include "ucp/api/ucp.h"
#include "ucp/base/handles.h"
#include "ucp/capi/compat.h"
#include "ucp/proto/am/am_handlers.h"
#include "ucp/worker/worker.h"

using namespace ucp;

namespace ucp {

Context& context_of(ucp_worker_h worker) {
    return unwrap(worker).context();
}

Context& context_of(const Endpoint& endpoint) {
    return worker_of(endpoint).context();
}

ucs_status_t wait_for(Worker& worker, ucs_status_ptr_t operation) {
    if (!UCS_PTR_IS_PTR(operation)) return UCS_PTR_RAW_STATUS(operation);
    Request& request = Request::from_handle(operation);
    while (!request.is_finished()) {
        if (worker.progress() == 0) sched_yield();
    }
    const ucs_status_t status = request.status;
    worker.requests().free(request);
    return status;
}

namespace {

constexpr size_t kMaxDebugString = 256;

ucp_address_t* copy_address(const std::vector<std::byte>& address) {
    void* copy = std::malloc(address.size());
    if (copy != nullptr) std::memcpy(copy, address.data(), address.size());
    return static_cast<ucp_address_t*>(copy);
}

}  // namespace
}  // namespace ucp

ucs_status_t ucp_worker_create(ucp_context_h context, const ucp_worker_params_t* params,
                               ucp_worker_h* worker_p) try {
    std::unique_ptr<Worker> worker;
    const ucs_status_t status = Worker::create(unwrap(context), *params, &worker);
    if (status != UCS_OK) return status;
    *worker_p = wrap(worker.release());
    return UCS_OK;
} catch (const std::bad_alloc&) {
    return UCS_ERR_NO_MEMORY;
}

void ucp_worker_destroy(ucp_worker_h worker) {
    // What a child of fork() would say its parent's peers would hear: it leaves things as they are.
    if (!unwrap(worker).is_inherited()) delete &unwrap(worker);
}

ucs_status_t ucp_worker_query(ucp_worker_h worker_h, ucp_worker_attr_t* attr) try {
    Worker& worker = unwrap(worker_h);
    GateLock lock(worker.gate());
    const auto wants = wanted_of(attr);
    if (wants(UCP_WORKER_ATTR_FIELD_THREAD_MODE)) attr->thread_mode = worker.thread_mode();
    if (wants(UCP_WORKER_ATTR_FIELD_ADDRESS)) {
        const uint32_t flags = wants(UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS) ? attr->address_flags : 0;
        const std::vector<std::byte> address = worker.planner().address(flags);
        attr->address = copy_address(address);
        if (attr->address == nullptr) return UCS_ERR_NO_MEMORY;
        attr->address_length = address.size();
    }
    if (wants(UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER))
        attr->max_am_header = worker.interfaces().max_am_header();
    if (wants(UCP_WORKER_ATTR_FIELD_NAME)) {
        snprintf(attr->name, sizeof(attr->name), "%s", worker.name().c_str());
    }
    if (wants(UCP_WORKER_ATTR_FIELD_MAX_INFO_STRING)) attr->max_debug_string = kMaxDebugString;
    return UCS_OK;
} catch (const std::bad_alloc&) {
    return UCS_ERR_NO_MEMORY;
}

namespace {

// What endpoints can be given of a transport.
std::string use_of(const uct::InterfaceAttributes& attributes, bool auxiliary) {
    if (attributes.device_type == uct::DeviceType::kAccelerator) return "memory of the device";
    if (attributes.reach == uct::Reach::kEndpoint) return "hot peers: a dedicated lane each";
    if (auxiliary) return "sets up dedicated lanes";
    switch (attributes.device_type) {
        case uct::DeviceType::kSelf:
            return "messages of the worker to itself";
        case uct::DeviceType::kSharedMemory:
            return "all peers on this host";
        default:
            return "all peers on other hosts, and on this one if nothing nearer reaches them";
    }
}

// Runtimes look for names in this text.
void print_worker(Worker& worker, FILE* stream) {
    fprintf(stream, "#\n# Swiftlane worker %s (%016" PRIx64 ")\n#\n", worker.name().c_str(),
            worker.uuid());
    fprintf(stream, "#     address: %zu bytes, endpoints: %zu\n", worker.address().size(),
            worker.endpoints().size());
    for (const WorkerInterface& interface : worker.interfaces().list()) {
        const auto& attributes = interface.transport->attributes();
        const bool auxiliary = worker.context().resources()[interface.resource].auxiliary;
        fprintf(stream, "#     %s/%s: %s\n", attributes.transport.c_str(),
                attributes.device.c_str(), use_of(attributes, auxiliary).c_str());
        fprintf(
            stream,
            "#         latency %.0f ns + %.1f ns for each endpoint, %.2f GB/s, overhead %.0f ns, "
            "short up to %zu bytes\n",
            attributes.latency.base * 1e9, attributes.latency.per_endpoint * 1e9,
            attributes.bandwidth * 1e-9, attributes.overhead * 1e9, attributes.am.max_short);
    }
    const lanes::Negotiator& negotiator = worker.lanes().negotiator();
    fprintf(stream, "#     dedicated lanes: %" PRIu32 " of %" PRIu32 "\n#\n", negotiator.held(),
            negotiator.config().cap + negotiator.config().host_cap);
}

}  // namespace

void ucp_worker_print_info(ucp_worker_h worker, FILE* stream) {
    GateLock lock(unwrap(worker).gate());
    print_worker(unwrap(worker), stream);
}

ucs_status_t ucp_worker_get_address(ucp_worker_h worker_h, ucp_address_t** address_p,
                                    size_t* address_length_p) {
    const Worker& worker = unwrap(worker_h);
    *address_p = copy_address(worker.address());
    *address_length_p = worker.address().size();
    return *address_p != nullptr ? UCS_OK : UCS_ERR_NO_MEMORY;
}

void ucp_worker_release_address(ucp_worker_h, ucp_address_t* address) {
    std::free(address);
}

ucs_status_t ucp_worker_address_query(ucp_address_t* address, ucp_worker_address_attr_t* attr) try {
    WorkerAddress parsed;
    const ucs_status_t status = unpack_address(
        {reinterpret_cast<const std::byte*>(address), packed_address_length(address)}, &parsed);
    if (status != UCS_OK) return status;
    if ((attr->field_mask & UCP_WORKER_ADDRESS_ATTR_FIELD_UID) != 0) {
        attr->worker_uid = parsed.uuid;
    }
    return UCS_OK;
} catch (const std::bad_alloc&) {
    return UCS_ERR_NO_MEMORY;
}

namespace {

[[gnu::noinline]] unsigned progress_locked(Worker& worker) {
    unsigned found;
    bool gives_way;
    {
        GateLock lock(worker.gate());
        worker.gate().set_sleeper(nullptr);
        found = worker.progress();
        gives_way = found == 0 && worker.gate().lock().should_give_way();
    }
    if (gives_way) sched_yield();
    return found;
}

}  // namespace

unsigned ucp_worker_progress(ucp_worker_h worker_h) {
    Worker& worker = unwrap(worker_h);
    if (worker.gate().has_threads()) [[unlikely]]
        return progress_locked(worker);
    return worker.progress();
}

ucs_status_t ucp_worker_fence(ucp_worker_h worker_h) {
    Worker& worker = unwrap(worker_h);
    GateLock lock(worker.gate());
    worker.fence();
    return UCS_OK;
}

ucs_status_ptr_t ucp_worker_flush_nbx(ucp_worker_h worker_h, const ucp_request_param_t* param) {
    return locked(worker_h, [&](Worker& worker) { return worker.flush(OpParams(param)); });
}

ucs_status_ptr_t ucp_worker_flush_nb(ucp_worker_h worker, unsigned, ucp_send_callback_t cb) {
    {
        GateLock lock(unwrap(worker).gate());
        if (unwrap(worker).try_flush()) return nullptr;
    }
    return ucp_worker_flush_nbx(worker, OldParams().send_callback(cb).get());
}

ucs_status_t ucp_worker_flush(ucp_worker_h worker_h) {
    return locked(worker_h, [&](Worker& worker) {
        return wait_for(worker, worker.flush(OpParams(OldParams().get())));
    });
}

// --- sleeping ---

ucs_status_t ucp_worker_get_efd(ucp_worker_h worker_h, int* fd) {
    return locked(worker_h, [&](Worker& worker) {
        Wakeup* wakeup = nullptr;
        const ucs_status_t status = worker.wakeup(&wakeup);
        if (status == UCS_OK) *fd = wakeup->descriptor();
        return status;
    });
}

ucs_status_t ucp_worker_arm(ucp_worker_h worker_h) {
    return locked(worker_h, [&](Worker& worker) {
        Wakeup* wakeup = nullptr;
        const ucs_status_t status = worker.wakeup(&wakeup);
        return status == UCS_OK ? wakeup->arm() : status;
    });
}

ucs_status_t ucp_worker_wait(ucp_worker_h worker_h) try {
    Worker& worker = unwrap(worker_h);
    Wakeup* wakeup = nullptr;
    {
        GateLock lock(worker.gate());
        ucs_status_t status = worker.wakeup(&wakeup);
        if (status == UCS_OK) status = wakeup->arm();
        if (status == UCS_ERR_BUSY) return UCS_OK;
        if (status != UCS_OK) return status;
    }
    return wakeup->wait();
} catch (const std::bad_alloc&) {
    return UCS_ERR_NO_MEMORY;
}

void ucp_worker_wait_mem(ucp_worker_h, void*) {
    sched_yield();
}

ucs_status_t ucp_worker_signal(ucp_worker_h worker_h) try {
    Wakeup* wakeup = nullptr;
    const ucs_status_t status = unwrap(worker_h).wakeup(&wakeup);
    return status == UCS_OK ? wakeup->signal() : status;
} catch (const std::bad_alloc&) {
    return UCS_ERR_NO_MEMORY;
}
