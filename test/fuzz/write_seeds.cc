// SPDX-License-Identifier: BSD-3-Clause

// Writes the seeds of each fuzz target into DIRECTORY/TARGET/: write_seeds DIRECTORY

#include <filesystem>
#include <fstream>
#include <string>

#include "fuzz/inputs.h"

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    for (const ucp::fuzz::Target& target : ucp::fuzz::targets()) {
        const std::filesystem::path folder = std::filesystem::path(argv[1]) / target.name;
        std::filesystem::create_directories(folder);
        size_t number = 0;
        for (const ucp::fuzz::Input& seed : target.seeds()) {
            std::ofstream file(folder / ("seed" + std::to_string(number++)), std::ios::binary);
            file.write(reinterpret_cast<const char*>(seed.data()),
                       static_cast<std::streamsize>(seed.size()));
            if (!file) return 1;
        }
    }
    return 0;
}
