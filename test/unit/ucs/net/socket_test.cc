// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/net/socket.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace ucs::net {
namespace {

SocketAddress loopback(uint16_t port = 0) {
    return {{.version = 4, .bytes = {127, 0, 0, 1}}, port, 0};
}

// Both ends of a connection.
struct Pair {
    Pair() {
        Socket listener;
        EXPECT_EQ(Socket::open(AF_INET, &listener), UCS_OK);
        EXPECT_EQ(listener.bind(loopback()), UCS_OK);
        EXPECT_EQ(listener.listen(), UCS_OK);
        EXPECT_EQ(Socket::open(AF_INET, &caller), UCS_OK);
        EXPECT_EQ(caller.connect(listener.local()), UCS_INPROGRESS);
        EXPECT_TRUE(listener.wait(POLLIN, 10000));
        EXPECT_EQ(listener.accept(&called), UCS_OK);
        EXPECT_TRUE(caller.wait(POLLOUT, 10000));
        EXPECT_EQ(caller.error(), UCS_OK);
    }
    Socket caller, called;
};

TEST(IpAddresses, AreWrittenAndComparedByTheirNetworkPart) {
    const IpAddress v4{4, {10, 1, 2, 3}}, near{4, {10, 1, 3, 3}};
    EXPECT_EQ(v4.text(), "10.1.2.3");
    EXPECT_TRUE(v4.shares_prefix(near, 23));
    EXPECT_FALSE(v4.shares_prefix(near, 24));
    EXPECT_FALSE(v4.shares_prefix(near, 33)) << "longer than the address";
    const IpAddress v6{6, {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
    EXPECT_TRUE(v6.is_link_local());
    EXPECT_FALSE(v4.shares_prefix(v6, 0)) << "of another version";
    EXPECT_EQ(SocketAddress(v6, 80, 0).text(), "[fe80::1]:80");
    EXPECT_EQ(SocketAddress(v4, 80, 0).text(), "10.1.2.3:80");
    EXPECT_EQ(SocketAddress(v6, 80, 7).ip(), v6);
}

TEST(SocketAddresses, OfOtherFamiliesOrCutShortAreRefused) {
    const SocketAddress own = loopback(5);
    const auto copy = SocketAddress::from({own.get(), own.length()});
    ASSERT_TRUE(copy);
    EXPECT_EQ(copy->text(), own.text());
    EXPECT_FALSE(SocketAddress::from({own.get(), own.length() - 1}));
    EXPECT_FALSE(SocketAddress::from({nullptr, own.length()}));
    sockaddr_storage local{};
    local.ss_family = AF_UNIX;
    EXPECT_FALSE(SocketAddress::from({reinterpret_cast<sockaddr*>(&local), sizeof(local)}));
}

TEST(Sockets, CarryBytesBothWaysAndSayWhenTheOtherEndIsGone) {
    Pair pair;
    char byte = 0;
    EXPECT_EQ(pair.called.read(&byte, 1), 0) << "nothing yet";
    EXPECT_EQ(pair.caller.write("ab", 2), 2);
    ASSERT_TRUE(pair.called.wait(POLLIN, 10000));
    char both[4];
    EXPECT_EQ(pair.called.read(both, sizeof(both)), 2);
    EXPECT_EQ(pair.caller.peer().text(), pair.called.local().text());
    pair.called.finish();
    ASSERT_TRUE(pair.caller.wait(POLLIN, 10000));
    EXPECT_EQ(pair.caller.read(&byte, 1), UCS_ERR_CONNECTION_RESET);
    EXPECT_EQ(pair.caller.write("c", 1), 1) << "the other direction is open";
}

TEST(Sockets, SendPiecesInOneCall) {
    Pair pair;
    char first[] = "one", second[] = "two";
    const iovec out[] = {{first, 3}, {second, 3}};
    EXPECT_EQ(pair.caller.send(out), 6);
    ASSERT_TRUE(pair.called.wait(POLLIN, 10000));
    char head[2], tail[8] = {};
    const iovec in[] = {{head, sizeof(head)}, {tail, sizeof(tail) - 1}};
    EXPECT_EQ(pair.called.receive(in), 6);
    EXPECT_STREQ(tail, "etwo");
}

TEST(Sockets, AResetReachesThePeerAsAnError) {
    Pair pair;
    pair.called.reset_on_close();
    pair.called.close();
    ASSERT_TRUE(pair.caller.wait(POLLIN, 10000));
    EXPECT_EQ(pair.caller.error(), UCS_ERR_CONNECTION_RESET);
    EXPECT_FALSE(pair.called.is_open());
}

TEST(Sockets, APortIsTakenOnceAndNobodyListensBehindAClosedOne) {
    Socket first, second;
    ASSERT_EQ(Socket::open(AF_INET, &first), UCS_OK);
    ASSERT_EQ(Socket::open(AF_INET, &second), UCS_OK);
    ASSERT_EQ(first.bind(loopback()), UCS_OK);
    ASSERT_EQ(first.listen(), UCS_OK);
    const SocketAddress taken = first.local();
    EXPECT_EQ(second.bind(taken, Socket::Reuse::kNo), UCS_ERR_BUSY);
    Socket none;
    EXPECT_EQ(first.accept(&none), UCS_ERR_NO_RESOURCE) << "nobody calls";
    EXPECT_FALSE(none.is_open());
    EXPECT_FALSE(second.peer().is_known());
    first.close();
    const ucs_status_t called = second.connect(taken);
    if (called == UCS_INPROGRESS) {
        ASSERT_TRUE(second.wait(POLLOUT, 10000));
        EXPECT_EQ(second.error(), UCS_ERR_NOT_CONNECTED);
    } else {
        EXPECT_EQ(called, UCS_ERR_NOT_CONNECTED);
    }
}

}  // namespace
}  // namespace ucs::net
