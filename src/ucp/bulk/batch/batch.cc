// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/batch/batch.h"

#include <algorithm>
#include <array>
#include <new>

#include "ucp/base/handles.h"
#include "ucp/bulk/engine/engine.h"
#include "ucp/bulk/engine/notification.h"
#include "ucp/bulk/schedule/slice_queue.h"
#include "ucp/endpoint/flush.h"
#include "ucp/mem/memory.h"
#include "ucp/proto/rma/rma.h"

namespace ucp {
namespace {

using bulk::Direction;
using bulk::Piece;

// Pieces of the first kernel, few, so that the device begins while the next ones are checked. Each
// further kernel gets twice as many, up to the most: between two kernels the device stands still
// for some microseconds.
constexpr size_t kFirstDevicePieces = 1024, kMostDevicePieces = 8192;

// The part of a batch's request.
struct BatchPart {
    OneSided* one_sided;
    Direction direction;
    Notification* notification = nullptr;  // of the request that tells of the end; null: nobody
    Piece* pieces = nullptr;               // the batch's own list, without the empty ones
    size_t count = 0;
    size_t next = 0;                        // the first that is not begun
    size_t under_way = 0;                   // pieces that go on their own
    bool needs_flush = false;               // some of a put did
    bool has_begun = false;                 // devices have, before it was posted
    size_t at_a_time = kFirstDevicePieces;  // what they are given next
    const RemoteMemory* refused = nullptr;  // a key whose memory devices did not reach
};

// What one call of a transport is given at most, where a processor copies.
constexpr size_t kMostPieces = 1024;
constexpr size_t kMostBytes = 2 * 1024 * 1024;

// Every byte is there, or the batch has failed.
void finish_batch(Request& batch) {
    delete[] batch.part<BatchPart>().pieces;
}

// --- piece by piece, where the engine of bulk transfers does not serve

Request& batch_of(Request& part) {
    return *static_cast<Request*>(part.user_data);
}

// A request that tells its batch when it is finished, and does not outlive it.
Request* make_part(Request& batch, void (*on_finish)(Request&)) {
    Request* request = batch.pool->allocate();
    if (request == nullptr) return nullptr;
    request->callback_kind = Request::CallbackKind::kInternal;
    request->on_finish.internal = on_finish;
    request->user_data = &batch;
    return request;
}

// The end of a put says only that its bytes have left; a flush says that they are there.
void pieces_done(Request& batch) {
    if (batch.part<BatchPart>().direction == Direction::kGet || batch.status != UCS_OK) {
        batch.complete(UCS_OK);
        return;
    }
    Request* flush =
        make_part(batch, [](Request& request) { batch_of(request).complete(request.status); });
    if (flush == nullptr) {
        batch.complete(UCS_ERR_NO_MEMORY);
        return;
    }
    make_flush(*flush, *batch.endpoint);
    batch.endpoint->start(*flush);
}

// A piece is done. All pieces under way hold one reference to the batch, which the flush behind the
// last one takes over.
void drop_part(Request& batch, ucs_status_t status) {
    BatchPart& part = batch.part<BatchPart>();
    if (batch.status == UCS_OK) batch.status = status;
    if (--part.under_way != 0) return;
    if (part.next == part.count) {
        pieces_done(batch);
    } else {
        batch.complete(UCS_OK);
    }
}

ucs_status_t start_piece(Request& batch, const Piece& piece) {
    Request* request =
        make_part(batch, [](Request& request) { drop_part(batch_of(request), request.status); });
    if (request == nullptr) return UCS_ERR_NO_MEMORY;
    BatchPart& part = batch.part<BatchPart>();
    const ucs_status_t status =
        part.one_sided->begin(*request, *batch.endpoint,
                              {.owner = part.one_sided,
                               .direction = part.direction,
                               .buffer = static_cast<std::byte*>(piece.local),
                               .length = piece.length,
                               .address = piece.remote,
                               .remote = piece.key,
                               .user_memory = const_cast<Memory*>(piece.memory)});
    if (status != UCS_OK) {
        batch.endpoint->requests().recycle(*request);
        return status;
    }
    if (part.under_way++ == 0) ++batch.count;
    part.needs_flush = part.direction == Direction::kPut;
    batch.endpoint->start_within(*request, batch);
    return UCS_OK;
}

// May a processor copy that piece with others?
bool goes_together(const Endpoint& endpoint, const Piece& piece) {
    return piece.length <= uct::kLongestPiece && !endpoint.may_be_on_device(piece.local);
}

// The next pieces, as many as go together.
// @return how many are done; 0: the next one does not go that way; or a negative status
ssize_t copy_together(Request& batch, const Lane& lane) {
    const BatchPart& part = batch.part<BatchPart>();
    if ((lane.attributes.capabilities & uct::kPieces) == 0) return 0;
    std::array<uct::ChainPiece, kMostPieces> together;
    size_t count = 0, bytes = 0;
    for (size_t i = part.next; i < part.count && count < kMostPieces && bytes < kMostBytes; ++i) {
        const Piece& piece = part.pieces[i];
        const uct::RemoteKey key = piece.key->find(lane.domains);
        if (key == uct::kInvalidRemoteKey || !goes_together(*batch.endpoint, piece)) break;
        together[count++] = {piece.local, piece.length, nullptr, piece.remote, key};
        bytes += piece.length;
    }
    if (count == 0) return 0;
    const std::span<const uct::ChainPiece> pieces(together.data(), count);
    const ssize_t done = part.direction == Direction::kPut ? lane.endpoint.put_pieces(pieces)
                                                           : lane.endpoint.get_pieces(pieces);
    if (done == 0) return UCS_ERR_NO_RESOURCE;
    return done;
}

// The part of a request for pieces that devices copy.
struct DevicePieces {
    OneSided* owner;
    std::optional<uint32_t> number = {};  // a flush waits for them
};

void finish_device_pieces(Request& request) {
    const DevicePieces& part = request.part<DevicePieces>();
    if (part.number) request.endpoint->remote_operation_finished(*part.number);
}

// Waits for the device, which still reads and writes both sides.
void abort_device_pieces(Request& request, ucs_status_t status) {
    request.part<DevicePieces>().owner->direct.wait_for(request);
    request.complete(status);
}

const Piece& as_piece(const Piece& piece) {
    return piece;
}
Piece as_piece(const ucpx_piece_t& piece) {
    return {piece.local_addr, piece.remote_addr, piece.length,
            reinterpret_cast<Memory*>(piece.memh), &unwrap(piece.rkey)};
}

// Begins as many of the batch's next pieces as devices copy together.
// @return how many; 0: the next one does not go that way; or a negative status
template <typename AnyPiece>
ssize_t copy_by_devices(Request& batch, std::span<const AnyPiece> pieces) {
    BatchPart& part = batch.part<BatchPart>();
    DirectPath& direct = part.one_sided->direct;
    const RemoteMemory* key = nullptr;  // of the piece before
    const ucs::MemoryExport* there = nullptr;
    uint64_t base = 0;
    const size_t most = std::min(pieces.size(), part.at_a_time);
    ucs::DevicePiece* together = nullptr;
    size_t count = 0;
    for (; count < most; ++count) {
        const Piece& piece = as_piece(pieces[count]);
        if (piece.key != key) {
            key = piece.key;
            there = key == part.refused ? nullptr : reach_directly(*batch.endpoint, *key);
            base = key->header().address;
        }
        if (there == nullptr || piece.length == 0) break;
        if (together == nullptr) together = direct.room_for(most).data();
        together[count] = {there, piece.remote - base, piece.local, piece.length};
    }
    if (count == 0) return 0;
    Request* const request =
        make_part(batch, [](Request& self) { drop_part(batch_of(self), self.status); });
    if (request == nullptr) return UCS_ERR_NO_MEMORY;
    const size_t begun =
        direct.transfer(*request, {together, count}, part.direction == Direction::kPut);
    if (begun == 0) {
        batch.pool->recycle(*request);
        part.refused = as_piece(pieces.front()).key;
        return 0;
    }
    request->endpoint = batch.endpoint;
    request->emplace<DevicePieces>(part.one_sided, batch.endpoint->remote_operation_started());
    request->cleanup = finish_device_pieces;
    request->abort = abort_device_pieces;
    (void)batch.pool->name(*request);
    if (part.under_way++ == 0) ++batch.count;
    part.at_a_time = std::min(2 * part.at_a_time, kMostDevicePieces);
    return static_cast<ssize_t>(begun);
}

ucs_status_t post_pieces(Request& batch, const Lane& lane) {
    BatchPart& part = batch.part<BatchPart>();
    while (part.next < part.count && batch.status == UCS_OK) {
        const ssize_t by_devices = copy_by_devices(
            batch, std::span<const Piece>(part.pieces + part.next, part.count - part.next));
        if (by_devices > 0) {
            part.next += static_cast<size_t>(by_devices);
            continue;
        }
        const ssize_t done = by_devices < 0 ? by_devices : copy_together(batch, lane);
        if (done < 0) {
            if (done == UCS_ERR_NO_RESOURCE) return UCS_ERR_NO_RESOURCE;
            batch.status = static_cast<ucs_status_t>(done);
        } else if (done > 0) {
            part.next += static_cast<size_t>(done);
            // One call of the lane a turn: the next one may find no room.
            if (part.next < part.count) return UCS_INPROGRESS;
        } else {
            const ucs_status_t status = start_piece(batch, part.pieces[part.next]);
            if (status != UCS_OK) batch.status = status;
            ++part.next;
        }
    }
    part.next = part.count;
    if (part.under_way == 0 && part.needs_flush) {
        ++batch.count;
        pieces_done(batch);
    }
    return UCS_OK;
}

// Devices begin with the caller's list, as far as they take it; of the rest there is a copy.
ucs_status_t take_pieces(Request& batch, std::span<const ucpx_piece_t> pieces) try {
    BatchPart& part = batch.part<BatchPart>();
    while (!pieces.empty() && batch.endpoint->one_sided_ready()) {
        const ssize_t begun = copy_by_devices(batch, pieces);
        if (begun < 0) return static_cast<ucs_status_t>(begun);
        if (begun == 0) break;
        part.has_begun = true;
        pieces = pieces.subspan(static_cast<size_t>(begun));
    }
    if (pieces.empty()) return UCS_OK;
    part.pieces = new Piece[pieces.size()];
    for (const ucpx_piece_t& piece : pieces) {
        if (piece.length != 0) part.pieces[part.count++] = as_piece(piece);
    }
    return UCS_OK;
} catch (const std::bad_alloc&) {
    return UCS_ERR_NO_MEMORY;
}

ucs_status_t post_batch(Request& batch, const Lane& lane) {
    BatchPart& part = batch.part<BatchPart>();
    const std::span<const Piece> pieces(part.pieces, part.count);
    bulk::Engine& engine = part.one_sided->bulk;
    // A batch that was begun piece by piece goes on so.
    if (part.next != 0 || part.has_begun ||
        !engine.can_serve(*batch.endpoint, part.direction, pieces))
        return post_pieces(batch, lane);
    return engine.start(batch, part.direction, pieces,
                        part.direction == Direction::kPut ? part.notification : nullptr);
}

}  // namespace

ucs_status_t check_pieces(const OneSided& one_sided, std::span<const ucpx_piece_t> pieces,
                          bool needs_memory, CheckedPieces* checked) {
    size_t total = 0;
    const Memory* memory = nullptr;  // of the piece before
    for (const ucpx_piece_t& piece : pieces) {
        if (piece.rkey == nullptr) return UCS_ERR_INVALID_PARAM;
        if (piece.memh != nullptr) {
            if (const Memory* const own = &unwrap(piece.memh); own != memory) {
                if (&own->domains() != &one_sided.domains) return UCS_ERR_INVALID_PARAM;
                memory = own;
            }
            if (!memory->covers(reinterpret_cast<uintptr_t>(piece.local_addr), piece.length))
                return UCS_ERR_INVALID_PARAM;
        } else if (needs_memory || (piece.local_addr == nullptr && piece.length != 0)) {
            return UCS_ERR_INVALID_PARAM;
        }
        if (!unwrap(piece.rkey).covers(piece.remote_addr, piece.length) ||
            __builtin_add_overflow(total, piece.length, &total))
            return UCS_ERR_INVALID_PARAM;
    }
    *checked = {pieces, total};
    return UCS_OK;
}

ucs_status_t pieces_of_list(const void* local, size_t count, const ucp_request_param_t& param,
                            std::vector<ucpx_piece_t>* pieces) {
    constexpr uint64_t kLocal = UCP_DT_LOCAL_SGL_FIELD_BUFFERS | UCP_DT_LOCAL_SGL_FIELD_LENGTHS;
    constexpr uint64_t kRepeated = UCP_DT_LOCAL_SGL_FIELD_COUNTS | UCP_DT_LOCAL_SGL_FIELD_STRIDES;
    constexpr uint64_t kRemote =
        UCP_DT_REMOTE_SGL_FIELD_REMOTE_ADDRS | UCP_DT_REMOTE_SGL_FIELD_RKEYS;
    constexpr uint32_t kParams = UCP_OP_ATTR_FIELD_REMOTE_DATATYPE | UCP_OP_ATTR_FIELD_REMOTE;
    const auto* here = static_cast<const ucp_dt_local_sgl_t*>(local);
    const auto* there = static_cast<const ucp_dt_remote_sgl_t*>(param.remote);
    if ((param.op_attr_mask & kParams) != kParams || param.remote_datatype != ucp_dt_make_sgl() ||
        ((param.op_attr_mask & UCP_OP_ATTR_FIELD_REMOTE_COUNT) != 0 && param.remote_count != count))
        return UCS_ERR_INVALID_PARAM;
    if (count == 0) return UCS_OK;
    if (here == nullptr || there == nullptr || (here->field_mask & kLocal) != kLocal ||
        (there->field_mask & kRemote) != kRemote)
        return UCS_ERR_INVALID_PARAM;
    if ((here->field_mask & kRepeated) != 0) return UCS_ERR_UNSUPPORTED;
    const bool has_handles =
        (here->field_mask & UCP_DT_LOCAL_SGL_FIELD_MEMHS) != 0 && here->memhs != nullptr;
    const bool has_lengths = (there->field_mask & UCP_DT_REMOTE_SGL_FIELD_LENGTHS) != 0;
    pieces->reserve(count);
    for (size_t i = 0; i < count; ++i) {
        if (has_lengths && there->lengths[i] != here->lengths[i]) return UCS_ERR_INVALID_PARAM;
        pieces->push_back({here->buffers[i], there->remote_addrs[i], here->lengths[i],
                           has_handles ? here->memhs[i] : nullptr, there->rkeys[i]});
    }
    return UCS_OK;
}

namespace {

// Make the request a batch.
// @return UCS_ERR_NO_MEMORY: it has not begun, and is still the caller's
ucs_status_t make_batch(Request& request, OneSided& one_sided, Endpoint& endpoint,
                        const CheckedPieces& checked, const BatchPart& initial) {
    BatchPart& part = request.emplace<BatchPart>(initial);
    const bool is_put = part.direction == Direction::kPut;
    request.endpoint = &endpoint;
    request.protocol = is_put ? "put of pieces" : "get of pieces";
    request.length = checked.total;
    request.order = Request::Order::kOneSided;
    request.post = post_batch;
    request.cleanup = finish_batch;
    if (const ucs_status_t status = take_pieces(request, checked.pieces); status != UCS_OK) {
        if (part.under_way == 0) return status;
        request.status = status;
    }
    endpoint.count_send(checked.total);
    return UCS_OK;
}

// The batch is a request of its own, behind which the program's tells the peer, and ends.
ucs_status_ptr_t start_before(OneSided& one_sided, Endpoint& endpoint, const CheckedPieces& checked,
                              Direction direction, Request& teller, const OpParams& params) {
    Request* const batch =
        make_part(teller, [](Request& self) { tell_of_end(batch_of(self), self.status); });
    ucs_status_t status = UCS_ERR_NO_MEMORY;
    if (batch != nullptr) {
        status = make_batch(*batch, one_sided, endpoint, checked,
                            {&one_sided, direction, &teller.part<Notification>()});
        if (status != UCS_OK) one_sided.requests.recycle(*batch);
    }
    if (status != UCS_OK) {
        one_sided.requests.undo(teller);
        return UCS_STATUS_PTR(status);
    }
    teller.protocol = batch->protocol;
    teller.length = checked.total;
    endpoint.start(*batch);
    return one_sided.requests.end_call(teller, params);
}

}  // namespace

ucs_status_ptr_t start_batch(OneSided& one_sided, Endpoint& endpoint, const CheckedPieces& checked,
                             bool is_put, Request* teller, const OpParams& params) {
    const Direction direction = is_put ? Direction::kPut : Direction::kGet;
    if (teller != nullptr)
        return start_before(one_sided, endpoint, checked, direction, *teller, params);
    if (endpoint.is_failed()) return UCS_STATUS_PTR(endpoint.status());
    Request* const request = one_sided.requests.begin(params, Request::CallbackKind::kSend);
    if (request == nullptr) return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
    const ucs_status_t status =
        make_batch(*request, one_sided, endpoint, checked, {&one_sided, direction});
    if (status != UCS_OK) {
        one_sided.requests.recycle(*request);
        return UCS_STATUS_PTR(status);
    }
    return endpoint.submit(*request, params);
}

}  // namespace ucp
