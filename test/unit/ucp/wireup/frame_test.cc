// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/wireup/frame.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>

#include <cstring>

#include "ucs/sys/random.h"

namespace ucp::wireup {
namespace {

/** Two ends of one connection. */
struct Ends {
    Ends() {
        sockaddr_in where{};
        where.sin_family = AF_INET;
        where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        Socket listener;
        EXPECT_EQ(Socket::open(AF_INET, &listener), UCS_OK);
        const auto any = SocketAddress::from({reinterpret_cast<sockaddr*>(&where), sizeof(where)});
        EXPECT_EQ(listener.bind(*any), UCS_OK);
        EXPECT_EQ(listener.listen(), UCS_OK);
        EXPECT_EQ(Socket::open(AF_INET, &writer), UCS_OK);
        EXPECT_EQ(writer.connect(listener.local()), UCS_INPROGRESS);
        pollfd calling{listener.descriptor(), POLLIN, 0};
        EXPECT_EQ(poll(&calling, 1, 10000), 1);
        EXPECT_EQ(listener.accept(&reader), UCS_OK);
    }
    void wait() {
        pollfd arriving{reader.descriptor(), POLLIN, 0};
        ASSERT_EQ(poll(&arriving, 1, 10000), 1);
    }
    Socket reader, writer;
};

Frame example() {
    Frame frame;
    frame.kind = FrameKind::kConnect;
    frame.has_client_id = true;
    frame.client_id = 77;
    frame.stream = 88;
    frame.address.assign(500, std::byte{9});
    return frame;
}

ucs_status_t read_all(Ends& ends, Frame* frame) {
    FrameReader reader;
    ucs_status_t status;
    while ((status = reader.read(ends.reader, frame)) == UCS_INPROGRESS) ends.wait();
    return status;
}

TEST(Frame, ArrivesInPieces) {
    Ends ends;
    const auto bytes = pack_frame(example());
    FrameReader reader;
    Frame frame;
    for (size_t offset = 0; offset < bytes.size();) {
        const size_t part = std::min<size_t>(7, bytes.size() - offset);
        ASSERT_EQ(ends.writer.write(bytes.data() + offset, part), static_cast<ssize_t>(part));
        offset += part;
        ends.wait();
        const ucs_status_t status = reader.read(ends.reader, &frame);
        ASSERT_EQ(status, offset < bytes.size() ? UCS_INPROGRESS : UCS_OK);
    }
    EXPECT_EQ(frame.kind, FrameKind::kConnect);
    EXPECT_TRUE(frame.has_client_id);
    EXPECT_EQ(frame.client_id, 77u);
    EXPECT_EQ(frame.stream, 88u);
    EXPECT_EQ(frame.address, example().address);
}

TEST(Frame, ManyBehindEachOther) {
    Ends ends;
    FrameWriter writer;
    for (int count = 0; count < 3; ++count) writer.add(example());
    ASSERT_EQ(writer.write(ends.writer), UCS_OK);
    ends.writer.finish();
    FrameReader reader;
    Frame frame;
    for (int count = 0; count < 3; ++count) EXPECT_EQ(read_all(ends, &frame), UCS_OK);
    EXPECT_EQ(read_all(ends, &frame), UCS_ERR_CONNECTION_RESET);
}

/** Any header with one byte changed is refused, or is a frame of the length that it says. */
TEST(Frame, GarbageIsRefused) {
    constexpr size_t kHeader = 28;
    const auto bytes = pack_frame(example());
    unsigned refused = 0;
    for (size_t place = 0; place < kHeader; ++place) {
        Ends ends;
        auto changed = bytes;
        changed[place] ^= std::byte{0xff};
        ASSERT_EQ(ends.writer.write(changed.data(), changed.size()),
                  static_cast<ssize_t>(changed.size()));
        ends.writer.finish();
        Frame frame;
        const ucs_status_t status = read_all(ends, &frame);
        const bool is_free = place >= 8 && place < 24;  // the two numbers
        if (is_free) {
            EXPECT_EQ(status, UCS_OK) << place;
        } else {
            EXPECT_TRUE(status == UCS_ERR_INVALID_PARAM || place == 24 || place == 25) << place;
            refused += status == UCS_ERR_INVALID_PARAM ? 1 : 0;
        }
    }
    EXPECT_GE(refused, 10u);
}

}  // namespace
}  // namespace ucp::wireup
