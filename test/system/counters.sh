#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# What has a number of 32 bits comes around within these tests (docs/testing.md, "Numbers that come around").
set -u

unset GTEST_OUTPUT # counted as one test
export SWIFTLANE_FIRST_NUMBER=0xfffffc00
status=0
run() {
    GTEST_BRIEF=1 "$@" || status=1
}
run ./uct_test --gtest_filter="${UCT_FILTER:-*Messages.*:*RemoteMemory.*:*Chains.*:*FlowControl.*:*DedicatedConnections.*:*Flush.*:*Fences.*:TcpSessions.*:TcpBulkFailover.*:Ud.*:Dc.*:Rc.*}"
run ./ucp_test --gtest_filter="${UCP_FILTER:-OneSided*:Stream.*:Rendezvous*:LaneSwitch*:Batch*:QueuePair*:Closing.*:Faults*}"
exit $status
