// SPDX-License-Identifier: BSD-3-Clause

// Bulk transfers. A chain goes over one connection, handed to the kernel with
// as few calls as it takes: puts with a flush behind them, whose answer says
// that all bytes are placed; gets, which are answered in their order, so that
// the last one tells of all.

#include <algorithm>
#include <cstring>

#include "uct/tcp/frames.h"
#include "uct/tcp/tcp_endpoint.h"
#include "uct/tcp/tcp_interface.h"

namespace uct::tcp {

ssize_t TcpEndpoint::put_chain(std::span<const ChainPiece> pieces, Completion* completion) {
    if (status_ != UCS_OK) return status_;
    Channel& channel = link_.bulk_channel();
    OutputQueue& queue = channel.queue();
    pieces = pieces.first(std::min(pieces.size(), channel.room()));
    if (pieces.empty() || !link_.has_operation_room()) return 0;
    RemoteOperation* operation = link_.start_put_chain(this, completion);
    if (operation == nullptr) return 0;
    const bool was_empty = queue.empty();
    uint64_t taken = 0;
    // The flush's record is made first: what was taken must be followed by it.
    ReferringOutput* flush = queue.make();
    for (const ChainPiece& piece : pieces) {
        ReferringOutput* output = flush != nullptr ? queue.make() : nullptr;
        if (output == nullptr) break;
        output->set_head(head_of(wire::FrameType::kPut,
                                 wire::Put{piece.remote, piece.key, name_, 0}, piece.length));
        output->pieces[0] = {piece.local, piece.length};
        output->pieces_count = 1;
        output->tail = static_cast<uint8_t>(wire::padding(piece.length));
        output->owner = this;
        queue.append(output);
        ++taken;
    }
    if (taken == 0) {
        if (flush != nullptr) link_.interface().output_pools().destroy(flush);
        link_.cancel_operation(*operation);
        return 0;
    }
    channel.one_sided += taken;
    operation->covered[channel.index()] = channel.one_sided;
    flush->set_head(head_of(wire::FrameType::kFlush, wire::Reply{operation->name, 0}, 0));
    queue.append(flush);
    channel.send_queued(was_empty);
    return static_cast<ssize_t>(taken);
}

ssize_t TcpEndpoint::get_chain(std::span<const ChainPiece> pieces, Completion* completion) {
    if (status_ != UCS_OK) return status_;
    Channel& channel = link_.bulk_channel();
    using Request = Head<wire::Get>;
    std::array<Request, 64> requests;
    const size_t room = channel.has_room() ? link_.operation_room() : 0;
    const size_t limit = std::min({pieces.size(), room, requests.size()});
    size_t taken = 0;
    RemoteOperation* last = nullptr;
    for (; taken < limit; ++taken) {
        const ChainPiece& piece = pieces[taken];
        RemoteOperation* operation =
            link_.start_operation(RemoteOperation::Kind::kGet, this, nullptr);
        if (operation == nullptr) break;
        operation->chained = true;
        operation->length = piece.length;
        operation->pieces[0] = {piece.local, piece.length};
        operation->pieces_count = 1;
        requests[taken] =
            head_of(wire::FrameType::kGet,
                    wire::Get{piece.remote, piece.key, static_cast<uint32_t>(piece.length), name_,
                              operation->name, 0},
                    0);
        last = operation;
    }
    if (taken == 0) return 0;
    last->completion = completion;
    channel.one_sided += taken;
    last->covered[channel.index()] = channel.one_sided;
    const iovec all{requests.data(), taken * sizeof(Request)};
    channel.send({&all, 1}, all.iov_len);
    return static_cast<ssize_t>(taken);
}

}  // namespace uct::tcp
