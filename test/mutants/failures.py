# SPDX-License-Identifier: BSD-3-Clause
"""Mutants of what goes on though memory, a callback or another process fails."""

# As in safety.py.
NO_MEMORY = ("test/system/no_memory_test",)
MUTANTS = {
    "a notification finds room however many are under way": (
        "src/ucp/bulk/engine/notification.cc",
        {"outgoing.under_way + cost > kWindow) return false;": "false) return false;"},
        ("ucp_test",), "*KeptNotifications*"),
    "a notification goes before those that wait for room": (
        "src/ucp/bulk/engine/notification.cc",
        {"!outgoing.waiting.empty() || outgoing.under_way": "outgoing.under_way"},
        ("ucp_test",), "*KeptNotifications*"),
    "a notification waits behind what a fence holds back": (
        "src/ucp/bulk/engine/notification.cc",
        {"request.flags |= Request::kAwaited;": "request.flags |= 0;"},
        ("ucp_test",), "*KeptNotifications*Fence*"),
    "a payload without memory is missed by nobody": (
        "src/ucp/bulk/engine/notification.cc",
        {"if (endpoint != nullptr) endpoint->reset(status);\n    }\n    if (status": "(void)endpoint;\n    }\n    if (status"},
        NO_MEMORY, "*Notifications*"),
    "a read without memory gets no answer": (
        "src/uct/tcp/association/responder.cc",
        {"        refuse(connection, wire::kNobody, get.operation);\n": ""},
        NO_MEMORY, "*AReadWithoutMemory*"),
    "a peer hears of nothing where no memory may be locked": (
        "src/ucp/endpoint/control_queue.cc",
        {"        if (!is_short || status != UCS_ERR_NO_MEMORY) return status;\n": "        return status;\n"},
        NO_MEMORY, "*RegistrationsAreFew*"),
    "a link that there is no memory for is a message lost": (
        "src/ucp/lanes/negotiator.cc",
        {"    } catch (const std::bad_alloc&) {\n        return nullptr;\n": "    } catch (const std::bad_alloc&) {\n        throw;\n"},
        NO_MEMORY, "*.Promotions/*"),
    "what is behind a fence without memory waits for ever": (
        "src/uct/tcp/association/association_operations.cc",
        {"    return fencing_ ? UCS_ERR_NO_RESOURCE : status;\n": "    return UCS_ERR_NO_RESOURCE;\n"},
        NO_MEMORY, "*AFenceWithoutMemory*tcp"),
    "what is gathered waits for a timer at the peer": (
        "src/uct/tcp/association/burst.cc",
        {"    set(stream_, TCP_QUICKACK, 1);\n": ""},
        ("uct_test",), "*TcpBurst*"),
    "what is gathered is never pushed": (
        "src/uct/tcp/association/burst.cc",
        {"    unlink();\n    set(stream_, TCP_NODELAY, 1);\n": "    unlink();\n"},
        ("uct_test",), "*TcpBurst*"),
    "bursts go to peers that do not acknowledge": (
        "src/uct/tcp/association/tcp_connection.cc",
        {" && config.nodelay && association_.answers_bursts();": " && config.nodelay;"},
        ("uct_test",), "*TcpBurst*"),
    "OpenSSL is called without memory": (
        "src/uct/tcp/network/tls.cc",
        {"    return tried != nullptr;\n": "    return true;\n"},
        NO_MEMORY, "*Encrypted.AReadWaits*"),
    "what is not decrypted for want of memory is forgotten": (
        "src/uct/tcp/association/tcp_connection_data.cc",
        {"    has_early_input_ = true;\n": ""},
        NO_MEMORY, "*Encrypted.Records*"),
    "half a record is as good as a whole one": (
        "src/uct/tcp/association/tcp_connection.cc",
        {"return bytes > 0 && stream_.tls() != nullptr ? bytes + TlsContext::kRecord : bytes;": "return bytes;"},
        ("uct_test",), "TcpFailover.*"),
    "a reset does not wait for room": (
        "src/ucp/endpoint/send_queue.cc",
        {"status == UCS_ERR_NO_RESOURCE && !backlog().controls.wait_to_tell()": "false"},
        ("ucp_test",), "Reset.*"),
    "a reset is told again": (
        "src/ucp/endpoint/send_queue.cc",
        {"    told();\n    return UCS_OK;\n":
         "    host_->events.reset_told(*this);\n    return UCS_OK;\n"},
        ("ucp_test",), "Reset.*"),
    "a reset that is told frees nothing": (
        "src/ucp/worker/worker_endpoints.cc",
        {"    if (endpoint.is_doomed()) endpoints_.look_for_doomed();\n": ""},
        ("ucp_test",), "Reset.*"),
    "a reset waits for a lane that has failed": (
        "src/ucp/endpoint/send_queue.cc",
        {"    if (backlog_ != nullptr) backlog_->controls.end_waiting();\n    told();\n":
         "    host_->events.reset_told(*this);\n"},
        ("ucp_test",), "Reset.*"),
    "a short message whose handler throws stays": (
        "src/uct/sm/inbox.h",
        {"                    } catch (...) {\n                        consume();\n": "                    } catch (...) {\n"},
        ("ucp_test",), "*ThrowingCallbacks*sm*"),
    "a long message whose handler throws stays": (
        "src/uct/sm/inbox.h",
        {"area_.advance(length);\n                    consume();\n": "area_.advance(length);\n"},
        ("ucp_test",), "*ThrowingCallbacks*sm*"),
    "what came with a message whose handler throws is lost (self)": (
        "src/uct/self/self_interface.cc",
        {"            queue_.splice_after(queue_.before_begin(), arrived);\n": ""},
        ("uct_test",), "*AHandlerThatThrows*self*"),
    "what came with a message whose handler throws is lost (tcp)": (
        "src/uct/tcp/association/tcp_connection_data.cc",
        {"        is_interrupted_ = is_open();\n": ""},
        ("ucp_test",), "*ThrowingCallbacks*tcp*"),
    "what came with a message whose handler throws is lost (adapters)": (
        "src/uct/ib/base/ib_interface.cc",
        {"        kept_receives_.insert(kept_receives_.begin(), completions + taken + 1, completions + count);\n": ""},
        ("ucp_test", "uct_test"), "*ThrowingCallbacks*:*AHandlerThatThrows*"),
    "an exchange is one message of many": (
        "src/ucp/proto/match/turns.h",
        {"if (is_alone || is_exchange)": "if (is_alone)"},
        ("ucp_proto_test",), "TurnsOf.*"),
    "messages of an exchange go as those that are alone have learned": (
        "src/ucp/proto/tag/messages.cc",
        {"        if (is_exchange && endpoint.learned(kTag)->is_within_host) return {usual};\n": ""},
        ("ucp_proto_test",), "LongMessages.*"),
    "long pieces begin anew as short ones do": (
        "src/uct/sm/queue_layout.h",
        {"return last <= piece / 2 + kLine && offset >= size / 8;": "return offset >= size / 8;"},
        ("uct_test",), "SmRings.*"),
    "few peers in turn are many": (
        "src/ucp/proto/match/turns.h",
        {"kNear = 8;": "kNear = 1;"},
        ("ucp_proto_test",), "TurnsOf.*"),
    "a call takes more than the program waits for": (
        "src/ucp/proto/tag/messages.cc",
        {"    if (matcher_.awaited() == 0) *is_enough_ = true;\n": ""},
        ("ucp_proto_test",), "*Exchanges*"),
    "a call ends with any receive": (
        "src/ucp/proto/tag/messages.cc",
        {"    if (matcher_.awaited() == 0) *is_enough_ = true;\n": "    *is_enough_ = true;\n"},
        ("ucp_proto_test",), "*Exchanges*"),
    "receives that stand are awaited": (
        "src/ucp/proto/match/matcher.cc",
        {"earliest.table == &exact_ && earliest.receive->sequence > last_wildcard_": "false"},
        ("ucp_proto_test",), "*Exchanges*"),
    "a receive from anybody is not awaited": (
        "src/ucp/proto/match/matcher.cc",
        {" && earliest.receive->sequence > last_wildcard_": ""},
        ("ucp_proto_test",), "*Exchanges*"),
    "memory that was freed is mapped again": (
        "src/uct/cuda/mappings.cc",
        {"    if (freed_.contains({owner.process, owner.buffer})) return UCS_ERR_UNSUPPORTED;\n": ""},
        ("test/cuda/process_test",), "ProcessTest.AKeyOfMemoryThatWasFreedIsRefused"),
    "short messages that must be packed have requests": (
        "src/ucp/proto/tag/messages.cc",
        {"if (packer.is_packed() && mode": "if (!packer.is_packed() && mode"},
        ("ucp_proto_test",), "TagSend.*"),
    "a pack that throws keeps its state": (
        "src/ucp/proto/tag/messages.cc",
        {"    } catch (...) {\n        packer.close();\n": "    } catch (...) {\n"},
        ("ucp_proto_test",), "TagSend.*"),
    "a pair's queue in use keeps the others waiting": (
        "src/uct/sm/ring_interface.cc",
        {"            first_ = next;\n": "            first_ = i;\n"},
        ("uct_test",), "SmRings.*"),
    "a pack that throws leaves its slot empty": (
        "src/uct/sm/fifo_interface.cc",
        {"        slot.control.store(outbox_->word(number, 0, 0, control::kNothing),\n"
         "                           std::memory_order_release);\n": ""},
        ("uct_test",), "*APackThatThrows*sm_fifo*"),
    "nobody goes past a stopped sender": (
        "src/uct/sm/inbox.cc",
        {"            if (!hole_spares_.empty()) open_hole();\n": ""},
        ("uct_test",), "SmHoles.*:SmStopped.*"),
    "the tail goes past a stopped sender": (
        "src/uct/sm/inbox.cc",
        {"        tail = std::ranges::min(holes_, {}, &Hole::number).number;\n": ""},
        ("uct_test",), "SmHoles.*"),
    "a stopped sender's buffer is another's": (
        "src/uct/sm/inbox.cc",
        {"    buffer_of_[place] = hole_spares_.back();\n": ""},
        ("uct_test",), "SmHoles.*"),
    "what a stopped sender has sent since comes first": (
        "src/uct/sm/inbox.h",
        {"            count += take_late(deliver, announced);\n            count += poll": "            count += poll"},
        ("uct_test",), "SmHoles.*"),
    "a late message looks like one of a later lap": (
        "src/uct/sm/inbox.cc",
        {"    slots_[message & mask_].control.store(control::word(message + 1, 0, 0, 0),\n"
         "                                          std::memory_order_relaxed);\n": ""},
        ("uct_test",), "SmHoles.*"),
    "a receiver sleeps over a late message": (
        "src/uct/sm/inbox.cc",
        {"    if (find_late() != nullptr) return false;\n": ""},
        ("uct_test",), "SmHoles.*"),
    "a sender that is killed takes a wake-up along": (
        "src/uct/sm/outbox.h",
        {"compare_exchange_weak(head, head + 1,": "compare_exchange_weak(head, number + 1,"},
        ("uct_test",), "SmStopped.*:SmQueues.*"),
    "time is the calendar's": (
        "src/ucs/sys/time.h",
        {"Time now() const override { return Time(std::chrono::steady_clock::now().time_since_epoch()); }":
         "Time now() const override { return calendar(); }"},
        ("ucp_test",), "*ACalendarThatIsSet*"),
    "costs of tomorrow are fresh": (
        "src/ucp/select/cost_file.cc",
        {"written != 0 && age >= 0 && age < kFresh": "written != 0 && age < kFresh"},
        ("select_test",), "CostFile.*"),
    "a flush of a worker waits for strangers": (
        "src/ucp/worker/worker.cc",
        {"(endpoint.is_users() || endpoint.is_lent() || endpoint.is_being_closed()) &&\n           ": ""},
        ("test/system/soft_fabric_test",), "*WorkerFlush.*"),
    "a flush of a worker forgets what was lent": (
        "src/ucp/worker/worker.cc",
        {"endpoint.is_users() || endpoint.is_lent()": "endpoint.is_users()"},
        ("ucp_test",), "*WorkerFlush.*"),
    "a flush of a worker forgets what is being closed": (
        "src/ucp/worker/worker.cc",
        {"is_lent() || endpoint.is_being_closed()": "is_lent()"},
        ("ucp_test",), "*WorkerFlush.*"),
    "a flush does not wait for copies within the host": (
        "src/uct/self/self_interface.h",
        {"bool is_flushed() const override { return !has_copies(); }":
         "bool is_flushed() const override { return true; }"},
        ("ucp_proto_test",), "Loopback.*"),
    "a flush does not wait for answers": (
        "src/ucp/endpoint/endpoint.cc",
        {"if (has_backlog_ || is_failed() || has_remote_operations()) return false;":
         "if (has_backlog_ || is_failed()) return false;"},
        ("ucp_proto_test",), "Loopback.*"),
    "a flush rides on a chain and forgets what came after": (
        "src/uct/tcp/association/association_operations.cc",
        {"        chain->covered[connection.index()] != connection.one_sided) {": "        false) {"},
        ("uct_test",), "*TcpRiding*"),
    "who rides on a chain hears nothing": (
        "src/uct/tcp/association/association_operations.cc",
        {"        on_flush_reply(*flush, connection);\n": ""},
        ("uct_test",), "*TcpRiding*"),
    "a stopped process has seen everything": (
        "src/ucs/sys/time.h",
        {"now <= last_look ? Duration(0)": "true ? Duration(0)"},
        ("uct_test", "bulk_test"), "*UdConnection.WhatAStopped*:*Faults.WhatAStopped*"),
    # --- questions to the kernel
    "the kernel is asked about a peer that is heard": (
        "src/uct/tcp/association/tcp_connection.cc",
        {"    if (now - heard_at_ < Answers::kSilence) return {.is_awaited = true, .quiet = now - heard_at_};\n": ""},
        ("uct_test",), "TcpSessions.WhosePeerIsHeard*"),
    "that all has arrived is asked again": (
        "src/uct/tcp/association/tcp_connection.cc",
        {"    if (!answers_.is_awaited) arrived_ = given_;\n": ""},
        ("uct_test",), "TcpSessions.*"),
    "routes are asked for every time": (
        "src/uct/tcp/network/device.cc",
        {"now < known->second.asked + kAge": "false"},
        ("uct_test",), "RoutesTest*"),
    # --- copies by threads
    "an endpoint that goes does not wait for the piece that a thread copies": (
        "src/uct/base/copy_threads.cc",
        {"    ended_.wait(lock, [&copy] { return copy.pieces == 0; });\n": ""},
        ("uct_test",), "*CopyThreads*Cancel*"),
    "what a thread could not copy is no error": (
        "src/uct/base/copy_threads.cc",
        {"if (copy.status == UCS_OK) copy.status = status;": ""},
        ("uct_test",), "*CopyThreads*Error*"),
    "threads wake nobody up": (
        "src/uct/base/copy_threads.cc",
        {"    if (!owner.is_asleep) return;\n": "    return;\n"},
        ("uct_test",), "*CopyThreads*WakeUp*"),
    "threads copy where the program computes": (
        "src/uct/base/copy_threads.cc",
        {"    cpus_ = ucs::beside_caller(cpus_);\n": ""},
        ("uct_test",), "*CopyThreads*RunElsewhere*"),
    "progress takes no part in what threads have": (
        "src/uct/base/copy_queue.cc",
        {"while (has_room() &&\n           threads_->take": "while (false &&\n           threads_->take"},
        ("uct_test",), "*CopyThreads*TakesItsPart*"),
    # --- copies by both processes
    "an owner withdraws a copy while its partner is in a chunk": (
        "src/uct/base/joint_copy.cc",
        {"    while (look() == UCS_INPROGRESS) sched_yield();\n": "    release();\n"},
        ("uct_test",), "JointCopyTest.NothingIsCopied*"),
    "a partner copies for a process that has died": (
        "src/uct/base/joint_copy.cc",
        {"is_sound && is_alive(terms.owner) &&": "is_sound &&"},
        ("uct_test",), "JointCopyTest.Nonsense*:JointCopyTest.PlacesOfTheDead*"),
    "a partner copies what its keys do not allow": (
        "src/uct/sm/key_table.cc",
        {"return uct::allows(grant.rights, wanted) && covers(grant, terms.remote, terms.length);": "return wanted != PeerRights::kNone;"},
        ("uct_test",), "KeyTable*"),
    "a place is taken over while its partner is in a chunk": (
        "src/uct/base/joint_copy.cc",
        {"            if (!is_quiet(offer)) continue;\n": ""},
        ("uct_test",), "JointCopyTest.PlacesOfTheDead*"),
    "what a partner could not copy is left out": (
        "src/uct/base/copy_queue.cc",
        {"if (status != UCS_ERR_REJECTED) return status;": "if (status != UCS_ERR_REJECTED) return status;\n    if (status != UCS_OK) return UCS_OK;"},
        ("uct_test",), "JointQueueTest.WhatThePartner*"),
    "nobody looks whether a partner that is waited for lives": (
        "src/uct/base/joint_copy.cc",
        {"if (++looks_ % kLooks != 0 || is_partner_alive()) return UCS_INPROGRESS;": "return UCS_INPROGRESS;"},
        ("uct_test",), "JointCopyTest.APartnerThatDies*"),
    "registrations go while they are read": (
        "src/uct/tcp/queues/region_table.cc",
        {"        no_readers_.wait(lock, [&] { return readers_[last] == 0; });\n": "        (void)last;\n"},
        ("uct_test",), "TcpRegions.*"),
    "whoever begins to read keeps a registration from going": (
        "src/uct/tcp/queues/region_table.cc",
        {"        generation_ ^= 1;\n": ""},
        ("uct_test",), "TcpRegions.*"),
    "chains of a peer whose end was destroyed are written": (
        "src/uct/tcp/interface/tcp_connected_endpoint.cc",
        {"    interface_.cut_off({{}, peer_, {}}, 0);\n": ""},
        ("uct_test",), "TcpConnected.*"),
    "a failure is that of an endpoint that nobody knows": (
        "src/uct/tcp/interface/tcp_endpoint.cc",
        {"reported_as != nullptr ? *reported_as : *this": "reported_as != nullptr ? *this : *this"},
        ("uct_test",), "TcpConnected.*"),
    "queue pairs over TCP that failed are missed by nobody": (
        "src/ucp/bulk/queue_pairs/queue_pair_set.cc",
        {"    if (is_beside_scalable_lane()) driver_.review_soon();\n": ""},
        ("test/system/bulk_threads_test",), "*TcpThreads.Connections*"),
    "threads share the processor of who computes": (
        "src/ucs/sys/processors.cc",
        {"    return others.empty() ? cpus : others;\n": "    return cpus;\n"},
        ("test/system/bulk_threads_test",), "*TcpThreads.KeepOff*"),
}
