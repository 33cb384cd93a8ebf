// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "uct/api/types.h"

namespace uct::tcp {

class AssociationUser;

/** Something that the peer was asked and has not answered yet. */
struct RemoteOperation {
    enum class Kind : uint8_t { kGet, kGetCopy, kAtomic, kFlush };

    Kind kind;
    bool chained = false;    //!< of a bulk transfer
    bool abandoned = false;  //!< nobody waits any more: the answer is dropped
    bool is_cut = false;     //!< a chain whose connection is gone: ends when the peer's end is too
    uint32_t epoch = 0;      //!< is_cut: ends with this
    uint8_t pieces_count = 0;
    uint8_t waiting = 0;  //!< kFlush: bit i: connection i has not answered
    uint8_t again =
        0;  //!< kFlush: answers on connection 0 before its last: it asks there for others
    uint8_t connection = 0;  //!< of a chain
    uint8_t size = 0;        //!< kAtomic: of the operand
    uint32_t name = 0;       //!< on the wire
    const AssociationUser* owner = nullptr;
    Completion* completion = nullptr;
    uint64_t length = 0;  //!< bytes that the answer must have
    union {
        void* result;           //!< kAtomic: where the old value goes; may be null
        UnpackCallback unpack;  //!< kGetCopy
    };
    void* unpack_argument = nullptr;
    std::unique_ptr<std::byte[]> copy;  //!< kGetCopy
    std::array<iovec, 16> pieces;       //!< kGet: where the bytes go
    std::array<uint64_t, 8> covered{};  //!< one-sided operations of each connection up to it

    explicit RemoteOperation(Kind what) : kind(what), result(nullptr) {}
};

/** The part [offset, offset + length) of scattered memory, as pieces. @return how many */
size_t slice(const iovec* pieces, size_t count, uint64_t offset, uint64_t length, iovec* part);

}  // namespace uct::tcp
