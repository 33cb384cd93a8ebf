// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/wireup/frame.h"

#include <cstring>

namespace ucp::wireup {
namespace {

constexpr uint32_t kMagic = 0x4d434c53;  // "SLCM"
constexpr uint8_t kVersion = 2;
constexpr size_t kMaxAddress = 64 * 1024;

#pragma pack(push, 1)
struct FrameHeader {
    uint32_t magic;
    uint8_t version;
    uint8_t kind;
    uint8_t has_client_id;
    uint8_t reserved;  //!< 0
    uint64_t client_id;
    uint64_t stream;
    uint32_t address_length;  //!< bytes behind the header
};
#pragma pack(pop)

bool is_sound(const FrameHeader& header) {
    const auto kind = static_cast<FrameKind>(header.kind);
    const bool has_address = kind == FrameKind::kConnect || kind == FrameKind::kAccept;
    return header.magic == kMagic && header.version == kVersion && header.reserved == 0 &&
           header.has_client_id <= 1 && kind >= FrameKind::kConnect && kind <= FrameKind::kBye &&
           (header.address_length != 0) == has_address && header.address_length <= kMaxAddress;
}

}  // namespace

std::vector<std::byte> pack_frame(const Frame& frame) {
    const FrameHeader header{kMagic,
                             kVersion,
                             static_cast<uint8_t>(frame.kind),
                             frame.has_client_id,
                             0,
                             frame.client_id,
                             frame.stream,
                             static_cast<uint32_t>(frame.address.size())};
    const auto head = std::as_bytes(std::span(&header, 1));
    std::vector<std::byte> bytes(head.begin(), head.end());
    bytes.insert(bytes.end(), frame.address.begin(), frame.address.end());
    return bytes;
}

/** How many bytes the frame has, as far as they tell. */
size_t FrameReader::wanted(size_t seal) const {
    FrameHeader header;
    if (bytes_.size() < sizeof(header)) return sizeof(header);
    std::memcpy(&header, bytes_.data(), sizeof(header));
    return is_sound(header) ? sizeof(header) + header.address_length + seal : 0;
}

ucs_status_t FrameReader::read(ucs::net::Socket& socket, FrameSeal& seal, Frame* frame) {
    for (;;) {
        const size_t have = bytes_.size();
        const size_t end = wanted(seal.length());
        if (end == 0) return UCS_ERR_INVALID_PARAM;
        if (have >= sizeof(FrameHeader) && have == end) break;
        bytes_.resize(end);
        const ssize_t got = socket.read(bytes_.data() + have, end - have);
        bytes_.resize(have + static_cast<size_t>(got > 0 ? got : 0));
        if (got == 0) return UCS_INPROGRESS;
        if (got < 0) return static_cast<ucs_status_t>(got);
    }
    const auto text = std::span(bytes_).first(bytes_.size() - seal.length());
    if (!seal.accepts(text, std::span(bytes_).subspan(text.size()))) return UCS_ERR_REJECTED;
    FrameHeader header;
    std::memcpy(&header, bytes_.data(), sizeof(header));
    frame->kind = static_cast<FrameKind>(header.kind);
    frame->has_client_id = header.has_client_id != 0;
    frame->client_id = header.client_id;
    frame->stream = header.stream;
    frame->address.assign(text.begin() + sizeof(header), text.end());
    bytes_.clear();
    return UCS_OK;
}

void FrameWriter::add(const Frame& frame, FrameSeal& seal) {
    auto bytes = pack_frame(frame);
    seal.append(bytes);
    add_bytes(bytes);
}

ucs_status_t FrameWriter::write(ucs::net::Socket& socket) {
    while (!is_done()) {
        const ssize_t put = socket.write(bytes_.data() + offset_, bytes_.size() - offset_);
        if (put == 0) return UCS_INPROGRESS;
        if (put < 0) return static_cast<ucs_status_t>(put);
        offset_ += static_cast<size_t>(put);
    }
    return UCS_OK;
}

}  // namespace ucp::wireup
