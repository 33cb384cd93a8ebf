// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace ucs {

template <typename Signature>
class FunctionRef;

// A reference to something callable, for parameters: two words, no allocation. What it refers to
// must outlive the call.
template <typename Return, typename... Args>
class FunctionRef<Return(Args...)> {
  public:
    template <typename Function>
    requires(!std::is_same_v<std::remove_cvref_t<Function>, FunctionRef> &&
             std::is_invocable_r_v<Return, Function&, Args...>)
        // NOLINTNEXTLINE(google-explicit-constructor,bugprone-forwarding-reference-overload)
        FunctionRef(Function&& function)
        : object_(const_cast<void*>(static_cast<const void*>(std::addressof(function)))),
          call_([](void* object, Args... args) -> Return {
              return (*static_cast<std::remove_reference_t<Function>*>(object))(
                  std::forward<Args>(args)...);
          }) {}

    Return operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

  private:
    void* object_;
    Return (*call_)(void*, Args...);
};

}  // namespace ucs
