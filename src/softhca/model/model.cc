// SPDX-License-Identifier: BSD-3-Clause
#include "softhca/model/model.h"

#include <cctype>
#include <cmath>
#include <cstdlib>
#include <string>

namespace softhca {

Model Model::instant() {
    Model model;
    for_each(model, [](const char*, double& field) { field = 0; });
    // Timers keep their length: a retry that took no time would never let it pass.
    model.retry_timeout_scale = model.rnr_timer_scale = 1;
    model.requester_cache = model.responder_cache = 1e9;
    model.link_gbps = 0;  // no serialisation
    return model;
}

Model Model::from_environment() {
    Model model;
    for_each(model, [](const char* name, double& field) {
        std::string variable = "SOFTHCA_MODEL_";
        for (const char* c = name; *c != '\0'; ++c) variable += char(std::toupper(*c));
        const char* value = std::getenv(variable.c_str());
        if (value == nullptr) return;
        char* end = nullptr;
        const double number = std::strtod(value, &end);
        if (end != value && *end == '\0' && std::isfinite(number) && number >= 0) field = number;
    });
    return model;
}

}  // namespace softhca
