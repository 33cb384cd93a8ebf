// SPDX-License-Identifier: BSD-3-Clause
#include "softhca/model/model.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace softhca::test {
namespace {

TEST(Model, EnvironmentSetsFields) {
    setenv("SOFTHCA_MODEL_DCI_SWITCH", "500", 1);
    setenv("SOFTHCA_MODEL_ONE_WAY", "fast", 1);
    const Model model = Model::from_environment();
    EXPECT_EQ(model.dci_switch, 500);
    EXPECT_EQ(model.one_way, 600) << "nonsense changes nothing";
    unsetenv("SOFTHCA_MODEL_DCI_SWITCH");
    unsetenv("SOFTHCA_MODEL_ONE_WAY");
}

// A field that for_each() leaves out cannot be set, and is not free in Model::instant().
TEST(Model, EveryFieldHasAName) {
    Model model;
    size_t fields = 0;
    Model::for_each(model, [&](const char*, double& field) {
        ++fields;
        field = -1;
    });
    EXPECT_EQ(fields * sizeof(double), sizeof(Model));
    Model::for_each(model, [&](const char* name, double& field) {
        EXPECT_EQ(field, -1) << name << " is another field as well";
        field = 1;
    });
}

}  // namespace
}  // namespace softhca::test
