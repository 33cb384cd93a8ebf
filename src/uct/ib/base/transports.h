// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "uct/api/types.h"

// The transports over adapters, as they are known without the driver's libraries too.
namespace uct::ib {

namespace declared {

inline constexpr uint32_t kMessages = kAmShort | kAmBcopy | kAmZcopy | kCheckPeer | kEventFd;
inline constexpr uint32_t kConnected = kMessages | kPutShort | kPutBcopy | kPutZcopy | kGetBcopy |
                                       kGetZcopy | kPutChain | kGetChain | kOrderedChain |
                                       kAtomicDevice | kAtomicCpu;

// A dedicated transport needs a scalable one to be brought up.
inline constexpr std::string_view kDedicated[] = {"rc", "rc_x", "rc_v", "rc_mlx5", "rc_verbs"};

inline constexpr std::string_view kDcWords[] = {"ib", "dc", "dc_x"};
inline constexpr std::string_view kRcMlx5Words[] = {"ib", "rc", "rc_x"};
inline constexpr std::string_view kRcVerbsWords[] = {"ib", "rc", "rc_v"};
inline constexpr std::string_view kUdWords[] = {"ib", "ud", "ud_v"};

}  // namespace declared

inline constexpr TransportDeclaration kDcMlx5{"dc_mlx5",          DeviceType::kNetwork,
                                              Reach::kInterface,  declared::kConnected,
                                              declared::kDcWords, declared::kDedicated};
inline constexpr TransportDeclaration kRcMlx5{"rc_mlx5", DeviceType::kNetwork, Reach::kEndpoint,
                                              declared::kConnected | kImmediate,
                                              declared::kRcMlx5Words};
inline constexpr TransportDeclaration kRcVerbs{"rc_verbs", DeviceType::kNetwork, Reach::kEndpoint,
                                               declared::kConnected | kImmediate,
                                               declared::kRcVerbsWords};
inline constexpr TransportDeclaration kUdVerbs{"ud_verbs",         DeviceType::kNetwork,
                                               Reach::kInterface,  declared::kMessages,
                                               declared::kUdWords, declared::kDedicated};

// Best first; to bring up dedicated ones the last, whose state does not depend on peers.
inline constexpr TransportDeclaration kTransports[] = {kDcMlx5, kRcMlx5, kRcVerbs, kUdVerbs};

}  // namespace uct::ib
