// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <new>

#include "ucp/mem/memory.h"
#include "ucp/mem/remote_memory.h"
#include "ucp/proto/rndv/rndv.h"
#include "ucp/trace/probe.h"
#include "ucp/trace/trace.h"
#include "ucs/log/log.h"

namespace ucp {

namespace {

// The part of a rendezvous send.
struct RndvSend {
    RndvSend(Rendezvous& rendezvous, const Packer& data, uint64_t word, uint64_t its_stamp)
        : rndv(&rendezvous), buffer(data), envelope(word), stamp(its_stamp) {}

    Rendezvous* rndv;
    Packer buffer;
    uint64_t envelope;
    uint64_t stamp;
    RndvHeader header{nullptr, 0};  // the user's, in the user's memory
    bool is_am = false;
    bool is_direct = false;    // the peer's device is to read the buffer
    bool announcing = false;   // inside the call that posts the RTS
    bool asked = false;        // an RTR came: data is on its way, no answer will follow
    bool is_storing = false;   // our device writes into the receiver's memory
    bool stuck = false;        // a generic datatype gives no more bytes
    bool is_readable = false;  // the announcement may have a key, by a registration of our own
    bool is_relayed = false;   // the peer has asked for parts
    uint64_t described = 0;    // the allocation of device memory that the peer may read
    Request* parts = nullptr;  // that our device writes for the receiver: a list
    Memory* user_memory = nullptr;
    Memory* memory = nullptr;           // registration of our own, or
    Registration registration;          // one with the domain of the lane alone
    RemoteMemory* remote = nullptr;     // where to put
    uct::Endpoint* put_lane = nullptr;  // carries puts that are not flushed yet

    // Valid once the receiver has asked for the data.
    uint64_t receiver;  // its request
    size_t offset, end;
    uint64_t put_address;  // of byte 0 of the message in the receiver's memory
};

Memory* memory_of(const RndvSend& send) {
    return send.user_memory != nullptr ? send.user_memory : send.memory;
}

// Worker ids are tracks; a request that was never submitted has none.
uint64_t track_of(const Request& request) {
    return request.endpoint == nullptr ? 0 : request.endpoint->local_uuid();
}

// How the data went.
std::string_view way_of(const RndvSend& send) {
    if (send.is_storing) return "direct";
    if (send.is_relayed && !send.asked) return "relay";
    if (send.asked) return send.remote != nullptr ? "put" : "copy";
    return send.is_direct ? "direct" : "get";
}

// Of the request for a part, which our device writes to the receiver's.
struct StoredPart {
    RndvSend* send;
    uint64_t receiver;
    Request* next;
};

void tell_stored(Endpoint& endpoint, uint64_t receiver, ucs_status_t status) {
    const RndvDone done{receiver, endpoint.local_uuid(), static_cast<int8_t>(status)};
    endpoint.send_control(AmId::kRndvAtp, std::as_bytes(std::span(&done, 1)));
}

void part_stored(Request& request) {
    const StoredPart& part = request.part<StoredPart>();
    Request** link = &part.send->parts;
    while (*link != &request) link = &(*link)->part<StoredPart>().next;
    *link = part.next;
    tell_stored(*request.endpoint, part.receiver, request.status);
}

// Nobody reads the buffer any more.
void end_parts(RndvSend& send) {
    while (send.parts != nullptr) {
        Request& request = *send.parts;
        send.rndv->direct.wait_for(request);
        request.complete(UCS_ERR_CANCELED);
    }
}

void finish_send(Request& request) {
    RndvSend& send = request.part<RndvSend>();
    end_parts(send);
    SWIFTLANE_PROBE(rendezvous_send_end, &request, request.status);
    if (Trace* trace = Trace::active()) {
        trace->end("rendezvous", "rendezvous send", track_of(request), &request,
                   {{"way", way_of(send)}, {"status", ucs_status_string(request.status)}});
    }
    if (send.asked && (send.remote != nullptr || send.is_storing || request.status != UCS_OK)) {
        const RndvDone done{send.receiver, request.endpoint->local_uuid(),
                            static_cast<int8_t>(request.status)};
        request.endpoint->send_control(AmId::kRndvAtp, std::as_bytes(std::span(&done, 1)));
    }
    send.buffer.close();
    if (send.memory != nullptr) {
        // The receiver may know its key, and read from it at any time.
        if (request.status != UCS_OK) send.memory->distrust();
        Memory::destroy(send.memory);
    }
    if (send.registration.is_open()) send.registration.close(send.rndv->domains);
    delete send.remote;
    if (send.header.copy != nullptr) std::free(send.header.copy);
}

struct PackRts {
    Request& request;
    const Lane& lane;
    size_t key_length = 0;
    bool is_described_before = false;
    DescribedBefore where{};  // of that
};

// An announcement that is no longer goes by a lane within a host as a short message: it takes a
// slot of the queue, and no line of its buffers.
constexpr size_t kShortRts = 256;

// Of the announcement, at most.
size_t rts_size(const RndvSend& send, const PackRts& pack) {
    const size_t description = pack.is_described_before ? sizeof(DescribedBefore)
                               : send.is_direct         ? sizeof(ucs::MemoryExport)
                                                        : 0;
    return sizeof(RndvRts) + pack.key_length + description + send.header.length;
}

size_t pack_rts(void* destination, void* arg) {
    const PackRts& pack = *static_cast<PackRts*>(arg);
    const auto& [request, lane, key_length, is_described_before, where] = pack;
    RndvSend& send = request.part<RndvSend>();
    RndvRts rts{};
    rts.envelope = send.envelope;
    rts.sender = request.endpoint->local_uuid();
    rts.request = request.wire_id;
    rts.length = send.buffer.length();
    rts.stamp = send.stamp;
    rts.header_length = send.header.length;
    auto* out = static_cast<std::byte*>(destination) + sizeof(rts);
    if (key_length != 0) {
        if (send.registration.is_open()) {
            pack_entry(send.rndv->domains, send.registration, {out, key_length});
        } else {
            pack_entries(*memory_of(send), {out, key_length});
        }
        out += key_length;
        rts.key_length = static_cast<uint32_t>(key_length);
        rts.address = reinterpret_cast<uintptr_t>(send.buffer.data());
    }
    if (is_described_before) {
        std::memcpy(out, &where, sizeof(where));
        out += sizeof(where);
        rts.export_length = sizeof(where);
        send.described = where.buffer;
    } else if (send.is_direct && sizeof(rts) + sizeof(ucs::MemoryExport) + send.header.length <=
                                     lane.attributes.am.max_bcopy) {
        auto* const description = new (out) ucs::MemoryExport;
        if (send.rndv->direct.describe(*request.endpoint, send.buffer.device_bytes(),
                                       send.buffer.found(), description)) {
            set_takes_parts(*description);
            out += sizeof(*description);
            rts.export_length = sizeof(*description);
            send.described = description->buffer;
        }
    }
    if (send.header.length != 0) std::memcpy(out, send.header.data, send.header.length);
    std::memcpy(destination, &rts, sizeof(rts));
    return out + send.header.length - static_cast<std::byte*>(destination);
}

// A registration of our own; domains join it as they are asked for.
// @return false: the buffer cannot be registered
bool take_memory(RndvSend& send) {
    return Memory::create_on_demand(send.rndv->domains, send.buffer.data(), send.buffer.length(),
                                    uct::PeerRights::kRead, &send.memory,
                                    send.buffer.memory()) == UCS_OK;
}

// Within a host only the domain of the lane is needed for a key, and it gives one without a
// registration.
bool needs_one_domain(const Request& request, const RndvSend& send, const Lane& lane) {
    const uct::MemoryDomainAttributes& attributes =
        send.rndv->domains[lane.domains.local].memory->attributes();
    return attributes.can_register && !attributes.needs_handle && send.buffer.is_contiguous() &&
           !request.endpoint->protocols(lane).is_bulk(send.buffer.length());
}

// Gets a key for the lane's device into the announcement. If the device takes no more registrations
// the message goes without one.
void take_key(Request& request, RndvSend& send, const Lane& lane) {
    if (!send.is_readable) return;
    const unsigned domain = lane.domains.local;
    DomainSet& domains = send.rndv->domains;
    if (send.memory == nullptr && needs_one_domain(request, send, lane)) {
        Registration& registration = send.registration;
        if (registration.is_open() && registration.domain == domain) return;
        registration.close(domains);  // of another lane, which had no room
        (void)registration.open_for_peer(domains, domain, send.buffer.data(), send.buffer.length(),
                                         uct::PeerRights::kRead);
        return;
    }
    if (send.memory == nullptr && !take_memory(send)) return;
    if (send.memory->handle(domain) != nullptr ||
        !domains[domain].memory->attributes().can_register)
        return;
    Memory::destroy(send.memory);
    send.memory = nullptr;
    send.is_readable = false;
}

ucs_status_t announce(Request& request, const Lane& lane) {
    const RndvSend& send = request.part<RndvSend>();
    const uct::InterfaceAttributes& attributes = lane.attributes;
    PackRts pack{request, lane};
    size_t size = 0;
    if (send.registration.is_open()) {
        size = packed_entry_size(send.rndv->domains, send.registration);
    } else if (const Memory* memory = memory_of(send); memory != nullptr) {
        bulk::Engine::register_for_peer(*request.endpoint, *memory, send.buffer.length());
        size = packed_entries_size(*memory);
    }
    if (sizeof(RndvRts) + size + send.header.length <= attributes.am.max_bcopy)
        pack.key_length = size;
    pack.is_described_before =
        send.is_direct &&
        sizeof(RndvRts) + sizeof(pack.where) + send.header.length <= attributes.am.max_bcopy &&
        send.rndv->direct.refer(*request.endpoint, send.buffer.device_bytes(), send.buffer.found(),
                                &pack.where);
    const auto id = static_cast<uint8_t>(send.is_am ? AmId::kRndvAmRts : AmId::kRndvRts);
    if (attributes.device_type != uct::DeviceType::kSharedMemory ||
        rts_size(send, pack) > std::min(kShortRts, attributes.am.max_short)) {
        const ssize_t sent = lane.endpoint.am_bcopy(id, pack_rts, &pack);
        return sent < 0 ? static_cast<ucs_status_t>(sent) : UCS_OK;
    }
    std::array<std::byte, kShortRts> bytes;
    const size_t length = pack_rts(bytes.data(), &pack);
    uint64_t header;
    std::memcpy(&header, bytes.data(), sizeof(header));
    return lane.endpoint.am_short(id, header, bytes.data() + sizeof(header),
                                  static_cast<uint32_t>(length - sizeof(header)));
}

// Over a transport within the process the answer may come inside the call that announces. The
// request is still being posted then, and is continued here.
ucs_status_t post_rts(Request& request, const Lane& lane) {
    RndvSend& send = request.part<RndvSend>();
    take_key(request, send, lane);
    send.announcing = true;
    const ucs_status_t status = announce(request, lane);
    send.announcing = false;
    if (status != UCS_OK) return status;
    if (!send.asked || send.is_storing) return UCS_OK;
    --request.count;  // the answer's reference: it came, and posting goes on
    return UCS_INPROGRESS;
}

size_t pack_data(void* destination, void* arg) {
    const PackRts& pack = *static_cast<PackRts*>(arg);
    const Lane& lane = pack.lane;
    Request& request = pack.request;
    RndvSend& send = request.part<RndvSend>();
    const RndvData header{send.receiver, request.endpoint->local_uuid(), send.offset};
    std::memcpy(destination, &header, sizeof(header));
    const size_t room =
        piece_length(lane.attributes.am.longest_bcopy() - sizeof(header), send.end - send.offset);
    const size_t packed =
        send.buffer.pack(send.offset, static_cast<std::byte*>(destination) + sizeof(header), room);
    send.stuck = packed == 0 || packed > room;
    if (!send.stuck) send.offset += packed;
    return sizeof(header) + (send.stuck ? 0 : packed);
}

ucs_status_t post_data(Request& request, const Lane& lane) {
    RndvSend& send = request.part<RndvSend>();
    PackRts pack{request, lane};
    const ssize_t sent =
        lane.endpoint.am_bcopy(static_cast<uint8_t>(AmId::kRndvData), pack_data, &pack);
    if (sent < 0) return static_cast<ucs_status_t>(sent);
    if (send.stuck) return UCS_ERR_INVALID_PARAM;
    return send.offset == send.end ? UCS_OK : UCS_INPROGRESS;
}

// Flush what the lane carried.
ucs_status_t flush_puts(Request& request) {
    RndvSend& send = request.part<RndvSend>();
    if (send.put_lane == nullptr || request.endpoint->is_drained(send.put_lane)) return UCS_OK;
    const ucs_status_t status =
        request.call([&](uct::Completion* c) { return send.put_lane->flush(c); });
    if (status != UCS_OK && status != UCS_INPROGRESS) return status;
    send.put_lane = nullptr;
    return UCS_OK;
}

bool can_put(const RndvSend& send, const Lane& lane) {
    return (lane.attributes.capabilities & uct::kPutZcopy) != 0 && memory_of(send) != nullptr &&
           memory_of(send)->handle(lane.domains.local) != nullptr &&
           send.remote->find(lane.domains) != uct::kInvalidRemoteKey;
}

// After a demotion to a lane without puts the rest goes as messages, once all puts before have
// landed.
ucs_status_t go_on_with_data(Request& request) {
    RndvSend& send = request.part<RndvSend>();
    const ucs_status_t status = flush_puts(request);
    if (status != UCS_OK) return status;
    delete send.remote;
    send.remote = nullptr;
    request.order = Request::Order::kMessage;
    request.post = post_data;
    return UCS_INPROGRESS;
}

ucs_status_t post_put(Request& request, const Lane& lane) {
    RndvSend& send = request.part<RndvSend>();
    if (send.put_lane != nullptr && (send.put_lane != &lane.endpoint || send.offset == send.end)) {
        const ucs_status_t status = flush_puts(request);
        if (status != UCS_OK) return status;
    }
    if (send.offset == send.end) return UCS_OK;

    if (send.put_lane == nullptr &&
        send.rndv->bulk.try_start(request, bulk::Direction::kPut,
                                  {static_cast<std::byte*>(send.buffer.data()) + send.offset,
                                   send.put_address + send.offset, send.end - send.offset,
                                   memory_of(send), send.remote})) {
        send.offset = send.end;
        return UCS_OK;
    }
    if (!can_put(send, lane)) [[unlikely]]
        return go_on_with_data(request);
    const uct::RemoteKey key = send.remote->find(lane.domains);
    uct::MemoryHandle* handle = memory_of(send)->handle(lane.domains.local);
    const size_t length = std::min(lane.attributes.put.max_zcopy, send.end - send.offset);
    const uct::Iov piece{static_cast<std::byte*>(send.buffer.data()) + send.offset, length, handle};
    const ucs_status_t status = request.call([&](uct::Completion* c) {
        return lane.endpoint.put_zcopy({&piece, 1}, send.put_address + send.offset, key, c);
    });
    if (status != UCS_OK && status != UCS_INPROGRESS) return status;
    send.put_lane = &lane.endpoint;
    send.offset += length;
    return UCS_INPROGRESS;
}

// The send that a message names, if it belongs to the peer that the message comes from.
Request* find_send(Rendezvous& rndv, uint64_t id, uint64_t from) {
    Request* request = rndv.requests.find(id);
    if (request == nullptr || request->cleanup != finish_send) return nullptr;
    return request->endpoint->remote_uuid() == from ? request : nullptr;
}

// @param known  the allocation that was found last to be read by the peer itself, or 0
[[gnu::always_inline]] inline void acknowledged(Rendezvous& rndv, const RndvDone& done,
                                                uint64_t* known) {
    Request* request = find_send(rndv, done.request, done.from);
    if (request == nullptr || request->part<RndvSend>().asked) {
        ucs::log_warn("rendezvous acknowledgement for an unknown send dropped");
        return;
    }
    const RndvSend& send = request->part<RndvSend>();
    if (send.described != *known && done.status == UCS_OK && !send.is_relayed) {
        rndv.direct.answered(send.described, done.from, true);
        *known = send.described;
    }
    rndv.requests.answered(*request, static_cast<ucs_status_t>(done.status));
}

ucs_status_t drop_acknowledgement(size_t length) {
    ucs::log_warn("malformed rendezvous acknowledgement of {} bytes dropped", length);
    return UCS_OK;
}

// Of several sends.
[[gnu::noinline]] ucs_status_t on_ats_of_many(Rendezvous& rndv, std::span<const std::byte> bytes) {
    RndvDone done;
    std::span<const std::byte> further = bytes.subspan(sizeof(done));
    if (!parse_done(bytes.first(sizeof(done)), &done) || further.size() % sizeof(done.request) != 0)
        return drop_acknowledgement(bytes.size());
    uint64_t known = 0;
    for (;;) {
        acknowledged(rndv, done, &known);
        if (further.empty()) return UCS_OK;
        std::memcpy(&done.request, further.data(), sizeof(done.request));
        further = further.subspan(sizeof(done.request));
    }
}

ucs_status_t on_ats(void* arg, void* data, size_t length, uct::ReceiveDescriptor*) {
    Rendezvous& rndv = *static_cast<Rendezvous*>(arg);
    const std::span<const std::byte> bytes(static_cast<std::byte*>(data), length);
    RndvDone done;
    if (length > sizeof(done)) return on_ats_of_many(rndv, bytes);
    if (!parse_done(bytes, &done)) return drop_acknowledgement(length);
    uint64_t known = 0;
    acknowledged(rndv, done, &known);
    return UCS_OK;
}

// Waits for the device, which still writes to the peer's buffer.
void abort_store(Request& request, ucs_status_t status) {
    request.part<RndvSend>().rndv->direct.wait_for(request);
    request.complete(status);
}

// Have our device write the bytes that are asked for; the end of the copy is the answer.
bool start_store(Rendezvous& rndv, Request& request, const ucs::MemoryExport& to) {
    RndvSend& send = request.part<RndvSend>();
    const std::span<std::byte> on_device = send.buffer.device_bytes();
    if (!send.buffer.is_contiguous() && on_device.empty()) return false;
    auto* const from =
        on_device.empty() ? static_cast<std::byte*>(send.buffer.data()) : on_device.data();
    if (!rndv.direct.copy(request, {&to, 0, from + send.offset, send.end - send.offset},
                          send.buffer.found(), true))
        return false;
    send.is_storing = true;
    request.abort = abort_store;
    return true;
}

// The same of a part: the receiver hears of its end, and the send goes on.
void store_part(Rendezvous& rndv, Request& request, const ClearToSend& message) {
    RndvSend& send = request.part<RndvSend>();
    const RndvRtr& rtr = message.rtr;
    send.is_relayed = true;
    const std::span<std::byte> bytes = send.buffer.device_bytes();
    Request* const part = bytes.empty() ? nullptr : rndv.requests.allocate();
    if (part == nullptr) return tell_stored(*request.endpoint, rtr.receiver, UCS_ERR_NO_RESOURCE);
    part->emplace<StoredPart>(&send, rtr.receiver, send.parts);
    part->endpoint = request.endpoint;
    part->callback_kind = Request::CallbackKind::kInternal;
    part->on_finish.internal = part_stored;
    send.parts = part;
    const ucs::DevicePiece piece{&message.exported, 0, bytes.data() + rtr.offset,
                                 rtr.end - rtr.offset};
    if (!rndv.direct.copy(*part, piece, send.buffer.found(), true))
        part->complete(UCS_ERR_NO_RESOURCE);
}

ucs_status_t on_rtr(void* arg, void* data, size_t length, uct::ReceiveDescriptor*) {
    Rendezvous& rndv = *static_cast<Rendezvous*>(arg);
    ClearToSend message;
    if (!parse_clear_to_send({static_cast<std::byte*>(data), length}, &message)) {
        ucs::log_warn("malformed rendezvous request of {} bytes dropped", length);
        return UCS_OK;
    }
    const RndvRtr& rtr = message.rtr;
    Request* request = find_send(rndv, rtr.request, rtr.from);
    if (request == nullptr || request->part<RndvSend>().asked ||
        rtr.end > request->part<RndvSend>().buffer.length()) {
        ucs::log_warn("rendezvous request for an unknown send dropped");
        return UCS_OK;
    }
    if (message.is_part()) {
        store_part(rndv, *request, message);
        return UCS_OK;
    }
    RndvSend& send = request->part<RndvSend>();
    send.asked = true;
    if (send.described != 0) rndv.direct.answered(send.described, rtr.from, false);
    send.receiver = rtr.receiver;
    send.offset = rtr.offset;
    send.end = rtr.end;
    if (message.has_export && rndv.scheme != RndvScheme::kAm &&
        start_store(rndv, *request, message.exported))
        return UCS_OK;
    request->post = post_data;
    if (message.has_key &&
        (memory_of(send) != nullptr || (send.registration.is_open() && take_memory(send)))) {
        const Lane lane = request->endpoint->one_sided_lane();
        send.remote = new (std::nothrow) RemoteMemory;
        if (send.remote != nullptr) {
            std::array<DomainPair, RemoteMemory::kMaxKeys> pairs;
            const ucs_status_t status = send.remote->open(rndv.domains, message.key,
                                                          request->endpoint->domain_pairs(pairs));
            if (status != UCS_OK || !can_put(send, lane)) {
                delete send.remote;
                send.remote = nullptr;
            }
        }
        if (send.remote != nullptr) {
            send.put_address = rtr.address - rtr.offset;
            request->post = post_put;
            request->order = Request::Order::kOneSided;
        }
    }
    rndv.requests.unname(*request);
    // No answer is to come any more: its reference is taken over by the posting.
    if (!send.announcing) request->endpoint->start(*request);
    return UCS_OK;
}

}  // namespace

void Rendezvous::begin_send(Request& request, select::Protocol protocol, const Packer& buffer,
                            uint64_t envelope, const RndvHeader* am, Memory* user_memory,
                            uint64_t stamp) {
    RndvSend& send = request.emplace<RndvSend>(*this, buffer, envelope, stamp);
    send.is_direct = protocol == select::Protocol::kDirect;
    request.protocol = send.is_direct ? "direct" : "rendezvous";
    request.cleanup = finish_send;
    if (am != nullptr) {
        send.is_am = true;
        send.header = *am;
    }
    SWIFTLANE_PROBE(rendezvous_send_begin, &request, buffer.length());
    if (Trace* trace = Trace::active()) {
        trace->begin("rendezvous", "rendezvous send", track_of(request), &request,
                     {{"bytes", buffer.length()}, {"protocol", request.protocol}});
    }
    const std::optional<ucs_memory_type_t> type = buffer.whole_in();
    if (type && !send.is_direct && Memory::can_register(domains, *type) &&
        scheme != RndvScheme::kAm && buffer.length() > 0) {
        const bool covered =
            user_memory != nullptr && user_memory->allows(UCP_MEM_MAP_PROT_REMOTE_READ) &&
            user_memory->covers(reinterpret_cast<uintptr_t>(buffer.data()), buffer.length());
        if (covered) {
            send.user_memory = user_memory;
        } else {
            send.is_readable = true;
        }
    }
    request.post = post_rts;
    request.flags |= Request::kNeedsGreeting;
    requests.await_answer(request);
}

bool Rendezvous::announce_at_once(Request& request, const DescribedBefore& where) {
    Endpoint& endpoint = *request.endpoint;
#pragma pack(push, 1)
    struct {
        RndvRts rts;
        DescribedBefore where;
    } message;
#pragma pack(pop)
    static_assert(offsetof(RndvRts, envelope) == 0);
    constexpr size_t kRest = sizeof(message) - sizeof(message.rts.envelope);
    if (endpoint.short_limit() < 0 || !endpoint.has_greeted()) return false;
    const uct::InterfaceAttributes& attributes = endpoint.tx_attributes();
    if (attributes.device_type != uct::DeviceType::kSharedMemory || attributes.am.max_short < kRest)
        return false;
    RndvSend& send = request.part<RndvSend>();
    message.rts = {.envelope = send.envelope,
                   .sender = endpoint.local_uuid(),
                   .request = request.wire_id,
                   .length = send.buffer.length(),
                   .address = 0,
                   .stamp = 0,
                   .key_length = 0,
                   .header_length = 0,
                   .export_length = sizeof(where)};
    message.where = where;
    send.described = where.buffer;
    if (endpoint.post_short(AmId::kRndvRts, send.envelope,
                            reinterpret_cast<const std::byte*>(&message) + sizeof(send.envelope),
                            kRest) != UCS_OK)
        return false;
    request.complete(UCS_OK);  // what posting was; the answer is still to come
    return true;
}

void Rendezvous::add_send_handlers(InterfaceSet& interfaces) {
    interfaces.set_handler(AmId::kRndvAts, on_ats, this);
    interfaces.set_handler(AmId::kRndvRtr, on_rtr, this);
}

}  // namespace ucp
