// SPDX-License-Identifier: BSD-3-Clause

// Encryption of one connection, with both ends and the wire between them in one test.

#include "uct/tcp/network/tls.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "ucs/sys/descriptor.h"

namespace uct::tcp {
namespace {

constexpr size_t kHeader = 5;  // of a record: type, version, length

wire::Key key_of(char fill) {
    wire::Key key;
    key.fill(static_cast<std::byte>(fill));
    return key;
}

// Both ends of an encrypted connection; what one sends waits on the wire until it is carried.
class TlsPair : public testing::Test {
  protected:
    TlsPair() : TlsPair(TlsContext::kRecordsPerKey) {}
    explicit TlsPair(uint64_t records_per_key)
        : context_(std::make_shared<TlsContext>(records_per_key)) {
        EXPECT_TRUE(context_->is_ready());
        for (End& end : ends_) {
            int pair[2];
            EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
            end.inside.reset(pair[0]);
            end.outside.reset(pair[1]);
        }
    }

    // @return what becomes of the two ends
    std::array<Tls::State, 2> agree(char key, char other_key) {
        ends_[0].tls =
            Tls::begin(context_, ends_[0].inside.get(), Tls::Side::kConnects, key_of(key));
        ends_[1].tls =
            Tls::begin(context_, ends_[1].inside.get(), Tls::Side::kListens, key_of(other_key));
        std::array<Tls::State, 2> states{};
        for (int round = 0; round < 10; ++round) {
            for (size_t i : {0, 1}) {
                if (states[i] == Tls::State::kUnderWay) states[i] = ends_[i].tls->negotiate();
                carry();
            }
        }
        return states;
    }
    void connect() {
        const auto states = agree('k', 'k');
        ASSERT_EQ(states[0], Tls::State::kStands);
        ASSERT_EQ(states[1], Tls::State::kStands);
    }

    Tls& tls(size_t end) { return *ends_[end].tls; }
    // What each end has sent goes to the other. @return what the first sent, as records
    std::vector<std::string> carry(const std::function<void(std::string&)>& change = {}) {
        std::string sent = take(0);
        std::vector<std::string> records;
        for (size_t at = 0; at + kHeader <= sent.size();) {
            const auto byte = [&](size_t i) { return static_cast<unsigned char>(sent[at + i]); };
            const size_t length = kHeader + byte(3) * 256u + byte(4);
            records.push_back(sent.substr(at, length));
            at += length;
        }
        if (change) change(sent);
        give(1, sent);
        give(0, take(1));
        return records;
    }
    ssize_t send(size_t end, const std::string& text) {
        const iovec piece{const_cast<char*>(text.data()), text.size()};
        return tls(end).send({&piece, 1}, Tls::BufferOwner::kOurs);
    }
    // All that has come. @return as Tls::receive(), of the last call that brought nothing
    ssize_t receive(size_t end, std::string& text) {
        for (;;) {
            char room[1000];
            const iovec piece{room, sizeof(room)};
            const ssize_t got = tls(end).receive({&piece, 1}, Tls::BufferOwner::kOurs);
            if (got <= 0) return got;
            text.append(room, static_cast<size_t>(got));
        }
    }
    int inside(size_t end) const { return ends_[end].inside.get(); }

  private:
    struct End {
        ucs::Descriptor inside, outside;
        std::unique_ptr<Tls> tls;
    };

    std::string take(size_t end) {
        std::string all;
        char bytes[4096];
        for (ssize_t got; (got = recv(ends_[end].outside.get(), bytes, sizeof(bytes), 0)) > 0;) {
            all.append(bytes, static_cast<size_t>(got));
        }
        return all;
    }
    void give(size_t end, const std::string& bytes) {
        const ssize_t put =
            ::send(ends_[end].outside.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
        EXPECT_EQ(put, static_cast<ssize_t>(bytes.size()));
    }

    std::shared_ptr<TlsContext> context_;
    std::array<End, 2> ends_;
};

TEST_F(TlsPair, WhatIsSentArrivesInBothDirections) {
    connect();
    std::string there, back;
    const std::string text(40000, 'x');
    EXPECT_EQ(send(0, text), static_cast<ssize_t>(text.size()));
    EXPECT_EQ(send(1, "an answer"), 9);
    for (const std::string& record : carry()) {
        EXPECT_EQ(record.find("xxxx"), std::string::npos);
    }
    EXPECT_EQ(receive(1, there), -1);
    EXPECT_EQ(errno, EAGAIN);
    EXPECT_EQ(receive(0, back), -1);
    EXPECT_EQ(there, text);
    EXPECT_EQ(back, "an answer");
    EXPECT_FALSE(tls(1).has_unread());
}

TEST_F(TlsPair, WhoHasAnotherKeyIsRefused) {
    const auto states = agree('k', 'l');
    EXPECT_EQ(states[1], Tls::State::kRefused);
    EXPECT_EQ(states[0], Tls::State::kRefused);
    EXPECT_NE(tls(0).reason(), "");
    EXPECT_NE(tls(1).reason(), "");
}

TEST_F(TlsPair, AChangedRecordAndAllBehindItAreNotReceived) {
    connect();
    std::string text;
    send(0, "first");
    carry();
    send(0, "second");
    carry([](std::string& bytes) { bytes.back() ^= 1; });
    send(0, "third");
    carry();
    EXPECT_EQ(receive(1, text), -1);
    EXPECT_EQ(errno, EBADMSG);
    EXPECT_EQ(text, "first");
    EXPECT_EQ(receive(1, text), -1);
    EXPECT_EQ(errno, EBADMSG);
}

TEST_F(TlsPair, ARecordThatComesTwiceIsNotReceivedTwice) {
    connect();
    std::string text;
    send(0, "once");
    carry([](std::string& bytes) { bytes += bytes; });
    EXPECT_EQ(receive(1, text), -1);
    EXPECT_EQ(errno, EBADMSG);
    EXPECT_EQ(text, "once");
}

TEST_F(TlsPair, AnEndIsAnEnd) {
    connect();
    std::string text;
    send(0, "last words");
    carry();
    shutdown(inside(1), SHUT_RD);
    EXPECT_EQ(receive(1, text), 0);
    EXPECT_EQ(text, "last words");
}

TEST_F(TlsPair, WhatTheKernelDoesNotTakeIsKept) {
    connect();
    const std::string text(4 << 20, 'y');
    const ssize_t taken = send(0, text);
    ASSERT_GT(taken, 0);
    ASSERT_LT(taken, static_cast<ssize_t>(text.size()));
    EXPECT_GT(tls(0).backlog(), 0u);
    EXPECT_LE(tls(0).backlog(), TlsContext::kRecord + 256);
    // There is no room, so nothing is taken any more.
    EXPECT_EQ(send(0, text), -1);
    EXPECT_EQ(errno, EAGAIN);
    std::string got;
    carry();
    EXPECT_EQ(receive(1, got), -1);
    EXPECT_TRUE(tls(0).flush());
    EXPECT_EQ(tls(0).backlog(), 0u);
    carry();
    EXPECT_EQ(receive(1, got), -1);
    EXPECT_EQ(got.size(), static_cast<size_t>(taken));
}

TEST_F(TlsPair, MemoryThatIsNotThereIsAnErrorAndNothingIsLost) {
    connect();
    const size_t size = TlsContext::kRecord;
    void* const memory = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    std::string head = "head";
    const iovec pieces[] = {{head.data(), head.size()}, {memory, 8}};
    EXPECT_EQ(tls(0).send(pieces, Tls::BufferOwner::kUsers), -1);
    EXPECT_EQ(errno, EFAULT);
    EXPECT_TRUE(carry().empty());
    send(0, "to be placed");
    carry();
    const iovec nowhere{memory, size};
    EXPECT_EQ(tls(1).receive({&nowhere, 1}, Tls::BufferOwner::kUsers), -1);
    EXPECT_EQ(errno, EFAULT);
    EXPECT_TRUE(tls(1).has_unread());
    std::string text;
    EXPECT_EQ(receive(1, text), -1);
    EXPECT_EQ(text, "to be placed");
    munmap(memory, size);
}

TEST_F(TlsPair, WhatHasBeenReadComesWithoutTheKernel) {
    connect();
    send(0, "one");
    send(0, "two");
    carry();
    char room[3];
    const iovec piece{room, sizeof(room)};
    EXPECT_EQ(tls(1).receive({&piece, 1}, Tls::BufferOwner::kOurs), 3);
    EXPECT_TRUE(tls(1).has_unread());
    send(0, "six");
    carry();
    std::string text;
    for (int i = 0; i < 2; ++i) {
        tls(1).hold_reading();
        const ssize_t got = tls(1).receive({&piece, 1}, Tls::BufferOwner::kOurs);
        if (got > 0) text.append(room, static_cast<size_t>(got));
    }
    EXPECT_EQ(text, "two");
    EXPECT_EQ(receive(1, text), -1);
    EXPECT_EQ(text, "twosix");
}

class TlsKeys : public TlsPair {
  protected:
    static constexpr uint64_t kEach = 3;
    TlsKeys() : TlsPair(kEach) {}
};

TEST_F(TlsKeys, AreReplacedInTime) {
    connect();
    constexpr size_t kCount = 20, kTag = 16, kType = 1, kUpdate = 5;
    std::string text, wanted;
    size_t updates = 0;
    for (size_t i = 0; i < kCount; ++i) {
        wanted += std::string(100, static_cast<char>('a' + i));
        send(0, wanted.substr(i * 100));
        for (const std::string& record : carry()) {
            updates += record.size() == kHeader + kUpdate + kType + kTag;
        }
    }
    EXPECT_EQ(updates, (kCount - 1) / kEach);
    EXPECT_EQ(receive(1, text), -1);
    EXPECT_EQ(errno, EAGAIN);
    EXPECT_EQ(text, wanted);
}

}  // namespace
}  // namespace uct::tcp
