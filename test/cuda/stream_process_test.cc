// SPDX-License-Identifier: BSD-3-Clause

// Operations on streams between two processes of a host (scenes.h).

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda/device.h"
#include "cuda/graphs.h"
#include "cuda/scenes.h"
#include "ucp/api/ucpx.h"

namespace {

using cuda_test::Buffer;
using cuda_test::Kind;
using cuda_test::require;
using cuda_test::require_ok;
using cuda_test::Scene;
using cuda_test::Side;
using cuda_test::Stream;
using Clock = std::chrono::steady_clock;

void send_on(Side& side, const Stream& stream, const Buffer& from, uint64_t tag,
             ucpx_stream_op_h* op) {
    require_ok(
        ucpx_send_on_stream(side.endpoint, from.data(), from.length(), tag, stream.get(), op),
        "ucpx_send_on_stream");
}
void receive_on(Side& side, const Stream& stream, const Buffer& to, uint64_t tag,
                ucpx_stream_op_h* op) {
    require_ok(ucpx_recv_on_stream(side.worker, side.endpoint, to.data(), to.length(), tag, ~0ul,
                                   stream.get(), op),
               "ucpx_recv_on_stream");
}
ucs_status_t status_of(ucpx_stream_op_h op) {
    ucpx_stream_op_attr_t attributes{};
    attributes.field_mask = UCPX_STREAM_OP_ATTR_FIELD_STATUS;
    require_ok(ucpx_stream_op_query(op, &attributes), "ucpx_stream_op_query");
    return attributes.status;
}
void end(ucpx_stream_op_h op) {
    const ucs_status_t status = status_of(op);
    ucpx_stream_op_release(op);
    require_ok(status, "an operation on a stream");
}

// --- the scenes ---

// One process's data goes to the other and back, each step behind work of a stream.
void go_to_and_fro(Side& side) {
    for (const size_t length : {size_t{8}, size_t{5000}, size_t{1000003}}) {
        for (const Kind kind : {Kind::kDevice, Kind::kPool}) {
            const Stream stream;
            const Buffer filled(Kind::kPinned, length), memory(kind, length);
            Buffer result(Kind::kPinned, length);
            for (uint32_t round = 1; round <= 4; ++round) {
                if (side.rank == 0) {
                    const_cast<Buffer&>(filled).fill(round);
                    stream.copy(memory, filled);
                    send_on(side, stream, memory, round, nullptr);
                    stream.copy(memory, result);
                }
                ucpx_stream_op_h op = nullptr;
                receive_on(side, stream, memory, round, &op);
                stream.copy(result, memory);
                if (side.rank == 1) send_on(side, stream, memory, round, nullptr);
                side.run(stream);
                require(bool{result.holds(round)}, "other bytes than were sent");
                end(op);
                result.clear();
            }
            side.meet();
        }
    }
}

void exchange_in_graphs(Side& side) {
    constexpr size_t kLength = 200000;
    const Stream stream;
    Buffer filled(Kind::kPinned, kLength), result(Kind::kPinned, kLength);
    const Buffer out(Kind::kDevice, kLength), in(Kind::kDevice, kLength);
    ucpx_stream_op_h group = nullptr;
    {
        cuda_test::CapturedGraph graph(stream.get());
        stream.copy(out, filled);
        ucpx_stream_part_t parts[2] = {};
        parts[0].kind = UCPX_STREAM_PART_SEND;
        parts[1].kind = UCPX_STREAM_PART_RECV;
        parts[0].buffer = out.data();
        parts[1].buffer = in.data();
        parts[1].tag_mask = ~0ul;
        for (ucpx_stream_part_t& part : parts) {
            part.ep = side.endpoint;
            part.length = kLength;
            part.tag = 4;
        }
        require_ok(
            ucpx_group_on_stream(side.worker, parts, 2, sizeof(parts[0]), stream.get(), &group),
            "ucpx_group_on_stream");
        stream.copy(result, in);
        graph.end();
        for (uint32_t launch = 0; launch < 20; ++launch) {
            filled.fill(2 * launch + static_cast<uint32_t>(side.rank));
            graph.launch();
            side.run(stream);
            require(bool{result.holds(2 * launch + 1 - static_cast<uint32_t>(side.rank))},
                    "other bytes than were sent");
        }
    }
    end(group);
    side.meet();
}

// Rank 0 puts into rank 1's device memory; a word of the host's tells it.
void put_and_signal(Side& side) {
    constexpr size_t kLength = 200000;
    constexpr uint32_t kRounds = 20;
    const Stream stream;
    const Buffer memory(Kind::kDevice, kLength);
    Buffer filled(Kind::kPinned, kLength), result(Kind::kPinned, kLength);
    auto word = std::make_unique<uint64_t>(0);
    const Side::Remote data = side.expose(memory.data(), kLength);
    const Side::Remote there = side.expose(word.get(), sizeof(*word));
    ucpx_signal_t signal{};
    signal.field_mask = UCPX_SIGNAL_FIELD_STEP;
    signal.remote_addr = there.address;
    signal.rkey = there.key;
    signal.op = UCPX_SIGNAL_SET;
    signal.value = signal.step = 1;
    ucpx_stream_op_h put = nullptr, wait = nullptr;
    {
        // Each waits for the other's signal: rank 1 for the data, rank 0 until it may go on.
        cuda_test::CapturedGraph graph(stream.get());
        const auto wait_for_signal = [&] {
            require_ok(ucpx_signal_wait_on_stream(side.worker, side.endpoint, word.get(), 1, 1,
                                                  stream.get(), &wait),
                       "ucpx_signal_wait_on_stream");
        };
        const auto put_bytes = [&](size_t length) {
            require_ok(ucpx_put_on_stream(side.endpoint, memory.data(), length, data.address,
                                          data.key, &signal, stream.get(), &put),
                       "ucpx_put_on_stream");
        };
        if (side.rank == 0) {
            stream.copy(memory, filled);
            put_bytes(kLength);
            wait_for_signal();
        } else {
            wait_for_signal();
            stream.copy(result, memory);
            put_bytes(0);
        }
        graph.end();
        for (uint32_t round = 1; round <= kRounds; ++round) {
            filled.fill(round);
            graph.launch();
            side.run(stream);
            if (side.rank == 1) require(bool{result.holds(round)}, "other bytes than were put");
        }
    }
    require(*word == kRounds, "signals");
    end(put);
    end(wait);
    side.meet();
}

void die(Side& side) {
    const Stream receives, sends, waits;
    Buffer small(Kind::kDevice, 100), large(Kind::kDevice, 1 << 20);
    auto word = std::make_unique<uint64_t>(0);
    // They know each other.
    uint32_t number = 0;
    const ucp_request_param_t plain{};
    const ucs_status_ptr_t sent = ucp_tag_send_nbx(side.endpoint, &number, 4, 1, &plain);
    require_ok(side.wait(ucp_tag_recv_nbx(side.worker, &number, 4, 1, ~0ul, &plain)), "receive");
    require_ok(side.wait(sent), "send");
    side.meet();
    if (side.rank == 1) (void)raise(SIGKILL);
    ucpx_stream_op_h ops[3] = {};
    receive_on(side, receives, small, 2, &ops[0]);
    send_on(side, sends, large, 3, &ops[1]);
    require_ok(ucpx_signal_wait_on_stream(side.worker, side.endpoint, word.get(), 1, 0, waits.get(),
                                          &ops[2]),
               "ucpx_signal_wait_on_stream");
    side.run(receives);
    side.run(sends);
    side.run(waits);
    for (ucpx_stream_op_h op : ops) {
        require(UCS_STATUS_IS_ERR(status_of(op)), "a dead peer gives no error");
        ucpx_stream_op_release(op);
    }
}

// Microseconds one way, with a short copy of the stream's before each send.
template <typename Step>
double measure(Side& side, unsigned steps, Step step) {
    side.meet();
    const auto begin = Clock::now();
    step();
    const std::chrono::duration<double, std::micro> taken = Clock::now() - begin;
    side.meet();
    return taken.count() / (2.0 * steps);
}

void time_steps(Side& side) {
    const unsigned steps = cuda_test::is_real() ? 200 : 10;
    const ucp_request_param_t plain{};
    for (const size_t length : {size_t{8}, size_t{4096}, size_t{65536}, size_t{1} << 20}) {
        const Stream stream;
        const Buffer out(Kind::kDevice, length), in(Kind::kDevice, length);
        const auto send = [&] {
            stream.copy(out, in);
            while (!stream.is_done()) continue;
            require_ok(side.wait(ucp_tag_send_nbx(side.endpoint, out.data(), length, 1, &plain)),
                       "send");
        };
        const auto receive = [&] {
            require_ok(side.wait(ucp_tag_recv_nbx(side.worker, in.data(), length, 1, ~0ul, &plain)),
                       "receive");
        };
        const auto by_host = [&] {
            for (unsigned i = 0; i < steps; ++i) {
                if (side.rank == 0) send();
                receive();
                if (side.rank == 1) send();
            }
        };
        (void)measure(side, steps, by_host);
        const double host = measure(side, steps, by_host);

        std::vector<ucpx_stream_op_h> ops;
        const auto one_step = [&](bool has_handles) {
            ucpx_stream_op_h sent = nullptr, received = nullptr;
            const auto send_it = [&] {
                stream.copy(out, in);
                send_on(side, stream, out, 1, has_handles ? &sent : nullptr);
            };
            if (side.rank == 0) send_it();
            receive_on(side, stream, in, 1, has_handles ? &received : nullptr);
            if (side.rank == 1) send_it();
            if (has_handles) ops.insert(ops.end(), {sent, received});
        };
        const auto by_stream = [&] {
            for (unsigned i = 0; i < steps; ++i) one_step(false);
            side.run(stream);
        };
        (void)measure(side, steps, by_stream);
        const double streams = measure(side, steps, by_stream);
        double graphs = 0;
        {
            cuda_test::CapturedGraph graph(stream.get());
            for (unsigned i = 0; i < 10; ++i) one_step(true);
            graph.end();
            const auto by_graph = [&] {
                for (unsigned i = 0; i < steps; i += 10) graph.launch();
                side.run(stream);
            };
            (void)measure(side, steps, by_graph);
            graphs = measure(side, steps, by_graph);
        }
        for (ucpx_stream_op_h op : ops) end(op);
        if (side.rank == 0) {
            std::printf(
                "%zu bytes, copy and message one way: host %.2f us, stream %.2f us, "
                "graph %.2f us\n",
                length, host, streams, graphs);
        }
    }
}

constexpr Scene kScenes[] = {
    {"ToAndFro", go_to_and_fro},
    {"ExchangeInGraphs", exchange_in_graphs},
    {"PutAndSignal", put_and_signal},
    {"APeerThatDies", die, false},
    {"Times", time_steps},
};

class StreamProcessTest : public ::testing::TestWithParam<Scene> {};

TEST_P(StreamProcessTest, Goes) {
    cuda_test::play_both(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Scenes, StreamProcessTest, ::testing::ValuesIn(kScenes),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace

int main(int argc, char** argv) {  // NOLINT(bugprone-exception-escape)
    return cuda_test::run_scenes(argc, argv, kScenes);
}
