// SPDX-License-Identifier: BSD-3-Clause

// What instructions.py runs under callgrind: the functions whose names begin with perf_measured_
// are counted. Arguments: the state of the tracker (off, disarmed, armed) and the lane (dc, rc,
// fifo, ring), or bulk: puts that go in slices; or atomic, fenced: fetch-adds by messages, the
// latter behind a put and a fence each; or mapped: puts, gets and fetch-adds on memory that is
// mapped, and a flush behind each; or what is done with lanes, and how many peers there are; or
// idle, late: progress with nothing there, and messages that come before their receives, within a
// host, and from how many peers; or announced: long messages within a host, and how many bytes each
// has; or beside: messages whose receives wait, and how many receives
// from anybody, for other messages, are posted all the time.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "perf/counting.h"
#include "perf/pair.h"
#include "ucp/api/ucpx.h"
#include "ucp/base/handles.h"
#include "ucp/worker/worker.h"

namespace {

constexpr unsigned kRounds = 64;
constexpr unsigned kBurst = 16;
constexpr ucp_tag_t kTag = 7;

extern "C" [[gnu::noinline]] ucs_status_ptr_t perf_measured_send(ucp_ep_h endpoint,
                                                                 const uint64_t* value,
                                                                 const ucp_request_param_t* param) {
    return ucp_tag_send_nbx(endpoint, value, sizeof(*value), kTag, param);
}

extern "C" [[gnu::noinline]] unsigned perf_measured_progress(ucp_worker_h worker) {
    return ucp_worker_progress(worker);
}

extern "C" [[gnu::noinline]] ucs_status_ptr_t perf_measured_receive(
    ucp_worker_h worker, uint64_t* value, const ucp_request_param_t* param) {
    return ucp_tag_recv_nbx(worker, value, sizeof(*value), kTag, ~ucp_tag_t{0}, param);
}

extern "C" [[gnu::noinline]] ucs_status_ptr_t perf_measured_put(ucp_ep_h endpoint,
                                                                const std::vector<char>& data,
                                                                uint64_t remote, ucp_rkey_h key,
                                                                const ucp_request_param_t* param) {
    return ucp_put_nbx(endpoint, data.data(), data.size(), remote, key, param);
}

extern "C" [[gnu::noinline]] ucs_status_ptr_t perf_measured_fetch_add(ucp_ep_h endpoint,
                                                                      const uint64_t* operand,
                                                                      uint64_t remote,
                                                                      ucp_rkey_h key,
                                                                      ucp_request_param_t* param) {
    return ucp_atomic_op_nbx(endpoint, UCP_ATOMIC_OP_ADD, operand, 1, remote, key, param);
}

extern "C" [[gnu::noinline]] ucs_status_ptr_t perf_measured_short_put(
    ucp_ep_h endpoint, const uint64_t* value, uint64_t remote, ucp_rkey_h key,
    const ucp_request_param_t* param) {
    return ucp_put_nbx(endpoint, value, sizeof(*value), remote, key, param);
}

extern "C" [[gnu::noinline]] ucs_status_ptr_t perf_measured_short_get(
    ucp_ep_h endpoint, uint64_t* value, uint64_t remote, ucp_rkey_h key,
    const ucp_request_param_t* param) {
    return ucp_get_nbx(endpoint, value, sizeof(*value), remote, key, param);
}

extern "C" [[gnu::noinline]] ucs_status_ptr_t perf_measured_flush(
    ucp_worker_h worker, const ucp_request_param_t* param) {
    return ucp_worker_flush_nbx(worker, param);
}

extern "C" [[gnu::noinline]] void perf_measured_lanes(ucp::Worker& worker, ucs::Time now) {
    if (worker.lanes().has_deferred()) worker.lanes().run_deferred();
    worker.lanes().advance(now);
}

extern "C" [[gnu::noinline]] unsigned perf_measured_poll(ucp::Worker& worker) {
    ucp::InterfaceSet& interfaces = worker.interfaces();
    return interfaces.poll(interfaces.find_met());
}

extern "C" [[gnu::noinline]] unsigned perf_measured_look(ucp_worker_h worker) {
    return ucp_worker_progress(worker);
}

extern "C" [[gnu::noinline]] ucs_status_ptr_t perf_measured_announce(
    ucp_ep_h endpoint, const std::vector<char>& data, const ucp_request_param_t* param) {
    return ucp_tag_send_nbx(endpoint, data.data(), data.size(), kTag, param);
}

extern "C" [[gnu::noinline]] unsigned perf_measured_fetch(ucp_worker_h worker) {
    return ucp_worker_progress(worker);
}

extern "C" [[gnu::noinline]] unsigned perf_measured_end(ucp_worker_h worker) {
    return ucp_worker_progress(worker);
}

ucs_status_ptr_t receive(ucp_worker_h worker, uint64_t* value, const ucp_request_param_t* param) {
    return ucp_tag_recv_nbx(worker, value, sizeof(*value), kTag, ~ucp_tag_t{0}, param);
}

bool is_armed(perf::Pair& pair) {
    return (pair.worker(0).gate().bits() & ucp::Gate::kTracker) != 0;
}

void promote(perf::Pair& pair, ucp_ep_h endpoint) {
    perf::require(ucpx_ep_lanes_request(endpoint, UCPX_LANE_POLICY_DEDICATED) == UCS_OK,
                  "request of a lane");
    ucpx_ep_attr_t attr{};
    attr.field_mask = UCPX_EP_ATTR_FIELD_STATE;
    for (int count = 0; attr.state != UCPX_LANE_STATE_ESTABLISHED; ++count) {
        perf::require(count < 100000, "the dedicated lane");
        pair.step(std::chrono::microseconds(1));
        ucpx_ep_query(endpoint, &attr);
    }
}

// One burst: receives first, then sends, then the progress that matches them.
void exchange(perf::Pair& pair, ucp_ep_h endpoint, bool measured) {
    const ucp_request_param_t none{};
    uint64_t sent[kBurst], received[kBurst];
    ucs_status_ptr_t receives[kBurst];
    for (unsigned i = 0; i < kBurst; ++i) {
        sent[i] = i + 1;
        received[i] = 0;
        receives[i] = measured ? perf_measured_receive(pair.handle(1), &received[i], &none)
                               : receive(pair.handle(1), &received[i], &none);
    }
    for (unsigned i = 0; i < kBurst; ++i) {
        const ucs_status_ptr_t status =
            measured ? perf_measured_send(endpoint, &sent[i], &none)
                     : ucp_tag_send_nbx(endpoint, &sent[i], sizeof(sent[i]), kTag, &none);
        perf::require(status == nullptr, "a short message goes at once");
    }
    pair.run_adapters();
    if (measured) perf_measured_progress(pair.handle(1));
    pair.drain();
    for (unsigned i = 0; i < kBurst; ++i) {
        perf::require(received[i] == sent[i], "a message arrives");
        ucp_request_free(receives[i]);
    }
}

ucp_mem_h map(ucp_context_h context, std::vector<char>& data) {
    ucp_mem_map_params_t params{};
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    params.address = data.data();
    params.length = data.size();
    ucp_mem_h memory = nullptr;
    perf::require(ucp_mem_map(context, &params, &memory) == UCS_OK, "registration");
    return memory;
}

// Memory of worker 1 with a key to it at the endpoint of worker 0.
class RemoteBuffer {
  public:
    RemoteBuffer(perf::Pair& pair, ucp_ep_h endpoint, std::vector<char>& bytes)
        : context_(ucp::wrap(&pair.worker(1).context())), memory_(map(context_, bytes)) {
        void* packed = nullptr;
        size_t size = 0;
        perf::require(ucp_rkey_pack(context_, memory_, &packed, &size) == UCS_OK, "packed key");
        perf::require(ucp_ep_rkey_unpack(endpoint, packed, &key) == UCS_OK, "key");
        ucp_rkey_buffer_release(packed);
    }
    RemoteBuffer(const RemoteBuffer&) = delete;
    ~RemoteBuffer() {
        ucp_rkey_destroy(key);
        ucp_mem_unmap(context_, memory_);
    }

    ucp_rkey_h key = nullptr;

  private:
    ucp_context_h context_;
    ucp_mem_h memory_;
};

// Puts of 128 slices, from the call to the completion. @return slices
unsigned put_in_bulk(perf::Pair& pair, ucp_ep_h endpoint) {
    constexpr unsigned kSlices = 128, kPuts = 8;
    std::vector<char> here(kSlices * 65536, 'x'), there(here.size());
    const ucp_mem_h local = map(ucp::wrap(&pair.worker(0).context()), here);
    const RemoteBuffer remote(pair, endpoint, there);
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_MEMH;
    params.memh = local;
    const auto address = reinterpret_cast<uintptr_t>(there.data());
    for (unsigned count = 0; count < kPuts + 1; ++count) {
        // The first makes what an endpoint has for bulk.
        const bool measured = count != 0;
        if (measured) perf::start_counting();
        const ucs_status_ptr_t put =
            measured
                ? perf_measured_put(endpoint, here, address, remote.key, &params)
                : ucp_put_nbx(endpoint, here.data(), here.size(), address, remote.key, &params);
        perf::require(UCS_PTR_IS_PTR(put), "a put in slices");
        while (ucp_request_check_status(put) == UCS_INPROGRESS) {
            pair.run_adapters();
            if (measured) {
                perf_measured_progress(pair.handle(0));
            } else {
                ucp_worker_progress(pair.handle(0));
            }
        }
        perf::require(ucp_request_check_status(put) == UCS_OK, "the end of a put");
        ucp_request_free(put);
    }
    perf::require(there == here, "the data");
    ucp_mem_unmap(ucp::wrap(&pair.worker(0).context()), local);
    return kPuts * kSlices;
}

// Fetch-adds that go as messages, one after the other, from the call to the completion at their
// initiator. @return how many
unsigned fetch_and_add(perf::Pair& pair, ucp_ep_h endpoint, bool is_fenced) {
    constexpr unsigned kWarmUp = 64;  // pools grow
    std::vector<char> there(2 * sizeof(uint64_t));
    const RemoteBuffer remote(pair, endpoint, there);
    const auto address = reinterpret_cast<uintptr_t>(there.data());
    const uint64_t one = 1;
    uint64_t before = 0;
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER;
    params.datatype = ucp_dt_make_contig(sizeof(one));
    params.reply_buffer = &before;
    const ucp_request_param_t none{};
    for (unsigned count = 0; count < kWarmUp + kRounds; ++count) {
        const bool measured = count >= kWarmUp;
        if (measured) perf::start_counting();
        if (is_fenced) {
            const ucs_status_ptr_t put =
                ucp_put_nbx(endpoint, &one, sizeof(one), address + sizeof(one), remote.key, &none);
            perf::require(put == nullptr, "a short put goes at once");
            perf::require(ucp_worker_fence(pair.handle(0)) == UCS_OK, "a fence");
        }
        const ucs_status_ptr_t adding =
            measured ? perf_measured_fetch_add(endpoint, &one, address, remote.key, &params)
                     : ucp_atomic_op_nbx(endpoint, UCP_ATOMIC_OP_ADD, &one, 1, address, remote.key,
                                         &params);
        perf::require(UCS_PTR_IS_PTR(adding), "a fetch-add by messages");
        while (ucp_request_check_status(adding) == UCS_INPROGRESS) {
            pair.run_adapters();
            pair.worker(1).progress();
            pair.run_adapters();
            if (measured) {
                perf_measured_progress(pair.handle(0));
            } else {
                ucp_worker_progress(pair.handle(0));
            }
        }
        ucp_request_free(adding);
        perf::require(before == count, "what was there before");
        pair.drain();
    }
    return kRounds;
}

// One that has a request after all, as every 64th has, ends in the worker's progress.
void end(perf::Pair& pair, ucs_status_ptr_t operation) {
    if (operation == nullptr) return;
    perf::require(UCS_PTR_IS_PTR(operation), "an operation on mapped memory");
    while (ucp_request_check_status(operation) == UCS_INPROGRESS)
        ucp_worker_progress(pair.handle(0));
    ucp_request_free(operation);
}

// On memory that is mapped: worker 1 has no part in it. @return operations of each kind
unsigned access_mapped(perf::Pair& pair, ucp_ep_h endpoint) {
    constexpr unsigned kWarmUp = 256;  // pools grow
    std::vector<char> there(2 * sizeof(uint64_t));
    const RemoteBuffer remote(pair, endpoint, there);
    const auto address = reinterpret_cast<uintptr_t>(there.data());
    const ucp_request_param_t none{};
    uint64_t before = 0;
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER;
    params.datatype = ucp_dt_make_contig(sizeof(before));
    params.reply_buffer = &before;
    const uint64_t one = 1;
    for (uint64_t count = 0; count < kWarmUp + kRounds * kBurst; ++count) {
        const bool measured = count >= kWarmUp;
        if (measured) perf::start_counting();
        uint64_t found = 0;
        const ucs_status_ptr_t put =
            measured ? perf_measured_short_put(endpoint, &count, address, remote.key, &none)
                     : ucp_put_nbx(endpoint, &count, sizeof(count), address, remote.key, &none);
        perf::require(put == nullptr, "a short put goes at once");
        end(pair, measured
                      ? perf_measured_short_get(endpoint, &found, address, remote.key, &none)
                      : ucp_get_nbx(endpoint, &found, sizeof(found), address, remote.key, &none));
        perf::require(found == count, "what was put");
        end(pair, measured ? perf_measured_fetch_add(endpoint, &one, address + sizeof(one),
                                                     remote.key, &params)
                           : ucp_atomic_op_nbx(endpoint, UCP_ATOMIC_OP_ADD, &one, 1,
                                               address + sizeof(one), remote.key, &params));
        perf::require(before == count, "what was there before");
        const ucs_status_ptr_t flush = measured ? perf_measured_flush(pair.handle(0), &none)
                                                : ucp_worker_flush_nbx(pair.handle(0), &none);
        perf::require(flush == nullptr, "a flush behind what is done");
    }
    return kRounds * kBurst;
}

// What lanes cost in each call of progress, with so many peers, most of those that the tracker
// knows hot.
void rank_many(perf::Pair& pair, size_t peers) {
    constexpr size_t kHot = 300, kOthers = 40;
    constexpr unsigned kIntervals = 8;
    std::vector<ucp_ep_h> endpoints;
    for (size_t i = 0; i < peers; ++i) endpoints.push_back(pair.connect_to(i + 1));
    for (unsigned round = 0; round < 100; ++round) pair.step(std::chrono::milliseconds(1));
    ucp::Worker& worker = pair.worker(0);
    const ucs::UsageTracker& tracker = *worker.lanes().tracker();
    const ucp_request_param_t none{};
    uint64_t value = 1;
    const auto send = [&](size_t index) {
        const ucs_status_ptr_t status =
            ucp_tag_send_nbx(endpoints[index], &value, sizeof(value), kTag, &none);
        if (UCS_PTR_IS_PTR(status)) ucp_request_free(status);
        pair.run_adapters();
    };
    size_t next = kHot;
    perf::start_counting();
    ucs::Time now = pair.let_pass(ucs::Duration(0));
    for (const uint64_t end = tracker.rounds() + kIntervals; tracker.rounds() < end;) {
        // Who is hot is hotter in one interval and less so in the next, as samples are.
        for (size_t i = 0; worker.gate().bits() & ucp::Gate::kTracker && i < kHot; ++i) {
            for (size_t count = 0; count < 1 + (i + tracker.rounds()) % 3; ++count) send(i);
        }
        for (size_t i = 0; i < kOthers; ++i) send(next = next + 1 < peers ? next + 1 : kHot);
        pair.run_adapters();
        while (pair.worker(1).progress() != 0) pair.run_adapters();
        const ucs::Time due = worker.lanes().next_deadline();
        if (due > now) now = pair.let_pass(due - now);
        perf_measured_lanes(worker, now);
    }
    std::printf("1\n");
}

// The same with peers that answer: a group of them gets and loses all lanes that there are, each
// of them at once, then another group, which sends and asks itself.
void move_many(perf::Pair& pair, size_t peers) {
    constexpr size_t kGroup = 20, kOthers = 40;
    constexpr unsigned kIntervals = 3;  // hot for so long, then silent
    constexpr ucs::Duration kStep = std::chrono::milliseconds(5);
    std::vector<ucp_ep_h> there, back;
    for (size_t i = 0; i < 2 * kGroup; ++i) {
        const unsigned index = pair.add_worker();
        there.push_back(pair.connect(pair.worker(index).address().data()));
        back.push_back(pair.connect(pair.worker(0).address().data(), index));
    }
    for (size_t i = there.size(); i < peers; ++i) there.push_back(pair.connect_to(i));
    ucp::Worker& worker = pair.worker(0);
    const ucp::lanes::Counters& counters = worker.lanes().negotiator().counters();
    const ucs::UsageTracker& tracker = *worker.lanes().tracker();
    const ucp_request_param_t none{};
    uint64_t value = 1;
    const auto send = [&](ucp_ep_h endpoint) {
        const ucs_status_ptr_t status =
            ucp_tag_send_nbx(endpoint, &value, sizeof(value), kTag, &none);
        if (UCS_PTR_IS_PTR(status)) ucp_request_free(status);
    };
    size_t next = 2 * kGroup;
    perf::start_counting();
    for (const size_t first : {size_t{0}, kGroup}) {
        const std::vector<ucp_ep_h>& senders = first == 0 ? there : back;
        const ucp::lanes::Counters before = counters;
        for (const uint64_t begin = tracker.rounds(); tracker.rounds() < begin + 2 * kIntervals;) {
            const bool is_hot = tracker.rounds() < begin + kIntervals;
            for (size_t i = first; is_hot && i < first + kGroup; ++i) {
                for (unsigned count = 0; count < 4; ++count) send(senders[i]);
            }
            for (size_t i = 0; i < kOthers; ++i) {
                send(there[next]);
                next = next + 1 < there.size() ? next + 1 : 2 * kGroup;
            }
            const ucs::Time now = pair.let_pass(kStep);
            unsigned events = 0;
            do {
                events = 0;
                pair.run_adapters();
                for (unsigned i = 1; i < pair.workers(); ++i) events += pair.worker(i).progress();
                pair.run_adapters();
                // Each measured call of lane work ends a profile, which takes longest: there is one
                // where something has come, which is in it, or is due.
                const unsigned arrived = perf_measured_poll(worker);
                events += arrived;
                if (arrived != 0 || worker.lanes().has_deferred() ||
                    worker.lanes().next_deadline() <= now)
                    perf_measured_lanes(worker, now);
            } while (events != 0 || pair.next_deadline() <= now);
            worker.progress();
        }
        perf::require(counters.promotions == before.promotions + kGroup, "all are promoted");
        perf::require(counters.demotions == before.demotions + kGroup, "all are demoted");
    }
    std::printf("1\n");
}

// Peers of worker 0 within the host, each with an endpoint to it. @return these
std::vector<ucp_ep_h> peers_within_host(perf::Pair& pair, size_t count) {
    std::vector<ucp_ep_h> endpoints;
    for (size_t i = 0; i < count; ++i) {
        const unsigned index = i == 0 ? 1 : pair.add_worker();
        endpoints.push_back(pair.connect(pair.worker(0).address().data(), index));
    }
    return endpoints;
}

void note_end(void*, ucs_status_t, const ucp_tag_recv_info_t*, void* ended) {
    ++*static_cast<unsigned*>(ended);
}

// Messages that come before their receives, from each peer in turn: as Open MPI has it, receives
// have a request and a callback. @return how many
unsigned receive_late(perf::Pair& pair, size_t peers) {
    constexpr unsigned kWarmUp = 256;
    const std::vector<ucp_ep_h> endpoints = peers_within_host(pair, peers);
    const ucp_request_param_t none{};
    ucp_request_param_t params{};
    unsigned ended = 0;
    params.op_attr_mask =
        UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    params.cb.recv = note_end;
    params.user_data = &ended;
    for (unsigned count = 0; count < kWarmUp + kRounds * kBurst; ++count) {
        const uint64_t sent = count + 1;
        uint64_t received = 0;
        const ucs_status_ptr_t sending =
            ucp_tag_send_nbx(endpoints[count % peers], &sent, sizeof(sent), kTag, &none);
        perf::require(sending == nullptr, "a short message goes at once");
        const bool measured = count >= kWarmUp;
        if (measured) perf::start_counting();
        ucs_status_ptr_t receiving;
        if (measured) {
            perf_measured_progress(pair.handle(0));
            receiving = perf_measured_receive(pair.handle(0), &received, &params);
        } else {
            ucp_worker_progress(pair.handle(0));
            receiving = receive(pair.handle(0), &received, &params);
        }
        perf::require(ended == count + 1 && received == sent, "a message that waited");
        ucp_request_free(receiving);
    }
    return kRounds * kBurst;
}

// Messages whose receives wait, beside so many for others that never come, as OpenSHMEM has them
// for questions of its peers. @return how many
unsigned receive_beside(perf::Pair& pair, size_t standing) {
    constexpr ucp_tag_t kOther = 9, kFromAnybody = 0xffffff00000fffff;
    const ucp_ep_h endpoint = peers_within_host(pair, 1).front();
    const ucp_request_param_t none{};
    std::vector<ucs_status_ptr_t> waiting;
    uint64_t received = 0;
    for (size_t i = 0; i < standing; ++i) {
        waiting.push_back(ucp_tag_recv_nbx(pair.handle(0), &received, sizeof(received), kOther,
                                           kFromAnybody, &none));
    }
    for (unsigned count = 0; count < 2 * kRounds * kBurst; ++count) {
        const uint64_t sent = count + 1;
        const ucs_status_ptr_t receiving = receive(pair.handle(0), &received, &none);
        perf::require(UCS_PTR_IS_PTR(receiving), "the message has not come yet");
        perf::require(ucp_tag_send_nbx(endpoint, &sent, sizeof(sent), kTag, &none) == nullptr,
                      "a short message goes at once");
        if (count < kRounds * kBurst) {
            ucp_worker_progress(pair.handle(0));
        } else {
            perf::start_counting();
            perf_measured_progress(pair.handle(0));
        }
        perf::require(ucp_request_check_status(receiving) == UCS_OK && received == sent,
                      "a message for which a receive waited");
        ucp_request_free(receiving);
    }
    for (const ucs_status_ptr_t each : waiting) {
        ucp_request_cancel(pair.handle(0), each);
        ucp_request_free(each);
    }
    return kRounds * kBurst;
}

// Announced messages in windows, for which receives wait. @return how many
unsigned announce(perf::Pair& pair, size_t bytes) {
    constexpr unsigned kWarmUp = 16;  // pools grow
    const ucp_ep_h endpoint = peers_within_host(pair, 1).front();
    const ucp_request_param_t none{};
    std::vector<std::vector<char>> sent(kBurst, std::vector<char>(bytes));
    std::vector<std::vector<char>> received = sent;
    ucs_status_ptr_t sends[kBurst], receives[kBurst];
    const auto are_all_done = [](const auto& requests) {
        return std::ranges::none_of(requests, [](ucs_status_ptr_t each) {
            return ucp_request_check_status(each) == UCS_INPROGRESS;
        });
    };
    for (unsigned round = 0; round < kWarmUp + kRounds; ++round) {
        const bool measured = round >= kWarmUp;
        for (unsigned i = 0; i < kBurst; ++i) {
            sent[i].assign(bytes, static_cast<char>(round + i));
            receives[i] = ucp_tag_recv_nbx(pair.handle(0), received[i].data(), bytes, kTag,
                                           ~ucp_tag_t{0}, &none);
        }
        if (measured) perf::start_counting();
        for (unsigned i = 0; i < kBurst; ++i) {
            sends[i] = measured ? perf_measured_announce(endpoint, sent[i], &none)
                                : ucp_tag_send_nbx(endpoint, sent[i].data(), bytes, kTag, &none);
            perf::require(UCS_PTR_IS_PTR(sends[i]), "a message that is announced");
        }
        while (!are_all_done(receives)) {
            if (measured) {
                perf_measured_fetch(pair.handle(0));
            } else {
                ucp_worker_progress(pair.handle(0));
                ucp_worker_progress(pair.handle(1));
            }
        }
        while (!are_all_done(sends)) {
            if (measured) {
                perf_measured_end(pair.handle(1));
            } else {
                ucp_worker_progress(pair.handle(1));
            }
        }
        perf::require(received == sent, "the data");
        for (unsigned i = 0; i < kBurst; ++i) {
            ucp_request_free(sends[i]);
            ucp_request_free(receives[i]);
        }
    }
    return kRounds * kBurst;
}

// Progress with nothing there. @return calls
unsigned look_in_vain(perf::Pair& pair, size_t peers) {
    receive_late(pair, peers);
    constexpr unsigned kCalls = 1024;
    for (unsigned count = 0; count < 2 * kCalls; ++count) {
        const unsigned events = count < kCalls ? ucp_worker_progress(pair.handle(0))
                                               : perf_measured_look(pair.handle(0));
        perf::require(count < kCalls || events == 0, "nothing is there");
    }
    return kCalls;
}

}  // namespace

int main(int argc, char** argv) {
    perf::require(argc == 3,
                  "arguments: off|disarmed|armed dc|rc|fifo|ring|bulk|atomic|fenced|mapped, or "
                  "peers|moves|idle|late|beside COUNT, or announced BYTES");
    const std::string_view tracker = argv[1], lane = argv[2];
    if (tracker == "peers" || tracker == "moves") {
        perf::Pair pair;
        const size_t peers = std::strtoul(argv[2], nullptr, 10);
        tracker == "peers" ? rank_many(pair, peers) : move_many(pair, peers);
        return 0;
    }
    if (tracker == "idle" || tracker == "late") {
        const size_t peers = std::strtoul(argv[2], nullptr, 10);
        perf::Pair pair(peers, perf::Pair::Over::kHost);
        std::printf("%u\n",
                    tracker == "idle" ? look_in_vain(pair, peers) : receive_late(pair, peers));
        return 0;
    }
    if (tracker == "announced") {
        perf::Pair pair(1, perf::Pair::Over::kHost);
        std::printf("%u\n", announce(pair, std::strtoul(argv[2], nullptr, 10)));
        return 0;
    }
    if (tracker == "beside") {
        perf::Pair pair(1, perf::Pair::Over::kHost);
        std::printf("%u\n", receive_beside(pair, std::strtoul(argv[2], nullptr, 10)));
        return 0;
    }
    const bool is_shared_memory = lane == "fifo" || lane == "ring" || lane == "mapped";
    perf::Pair pair(
        2, is_shared_memory ? perf::Pair::Over::kSharedMemory : perf::Pair::Over::kAdapters);
    const ucp_ep_h endpoint = pair.connect();
    if (lane == "bulk") {
        std::printf("%u\n", put_in_bulk(pair, endpoint));
        return 0;
    }
    if (lane == "atomic" || lane == "fenced") {
        std::printf("%u\n", fetch_and_add(pair, endpoint, lane == "fenced"));
        return 0;
    }
    for (unsigned round = 0; round < 4; ++round) exchange(pair, endpoint, false);
    // These earn a lane, which is to be there or not.
    const bool is_promoted = lane == "rc" || lane == "ring";
    if (is_promoted) promote(pair, endpoint);
    if (tracker != "off") {
        if (!is_promoted) (void)ucpx_ep_lanes_request(endpoint, UCPX_LANE_POLICY_SCALABLE);
        // Past some intervals, so that the tracker has known the endpoint for long.
        for (unsigned step = 0; step < 4000; ++step) {
            pair.step(std::chrono::microseconds(100));
            if (step % 10 == 0) exchange(pair, endpoint, false);
        }
        while (is_armed(pair) != (tracker == "armed")) pair.step(std::chrono::microseconds(100));
    }
    perf::require(is_armed(pair) == (tracker == "armed"), "state of the tracker");
    if (lane == "mapped") {
        std::printf("%u\n", access_mapped(pair, endpoint));
        return 0;
    }
    exchange(pair, endpoint, false);
    perf::start_counting();
    for (unsigned round = 0; round < kRounds; ++round) exchange(pair, endpoint, true);
    perf::require(ucp::unwrap(endpoint).fits_short(sizeof(uint64_t)), "the short protocol");
    std::printf("%u\n", kRounds * kBurst);
    return 0;
}
