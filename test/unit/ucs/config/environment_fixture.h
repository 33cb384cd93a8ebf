// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>

#include "ucs/runtime/runtime.h"
#include "ucs/sys/environment.h"

namespace ucs::test {

// A process whose environment is `environment`.
class EnvironmentTest : public ::testing::Test {
  protected:
    EnvironmentTest() : previous_(runtime().environment) { runtime().environment = &environment; }
    ~EnvironmentTest() { runtime().environment = previous_; }

    MapEnvironment environment;

  private:
    const Environment* previous_;
};

}  // namespace ucs::test
