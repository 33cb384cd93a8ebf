// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/topo/topology.h"

#include <hwloc.h>

#include <atomic>

namespace ucs::topo {
namespace {

class HwlocTopology final : public Topology {
  public:
    HwlocTopology() = default;
    ~HwlocTopology() override {
        if (topology_ != nullptr) hwloc_topology_destroy(topology_);
    }
    HwlocTopology(HwlocTopology&&) = delete;

    // @param xml  null: this machine
    bool load(const std::string* xml) {
        if (hwloc_topology_init(&topology_) != 0) {
            topology_ = nullptr;
            return false;
        }
        if (xml != nullptr &&
            hwloc_topology_set_xmlbuffer(topology_, xml->c_str(),
                                         static_cast<int>(xml->size() + 1)) != 0) {
            return false;
        }
        // Caches do not matter here, and reading them is much of the work.
        hwloc_topology_set_cache_types_filter(topology_, HWLOC_TYPE_FILTER_KEEP_NONE);
        hwloc_topology_set_icache_types_filter(topology_, HWLOC_TYPE_FILTER_KEEP_NONE);
        hwloc_topology_set_io_types_filter(topology_, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
        // Plugins that know other adapters: one asks the X server, whose name may take ten seconds.
        for (const char* plugin : {"gl", "opencl", "cuda", "nvml", "rsmi", "levelzero"}) {
            hwloc_topology_set_components(topology_, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
                                          plugin);
        }
        return hwloc_topology_load(topology_) == 0;
    }

    double distance(std::string_view device, const std::vector<unsigned>& cpus) const override {
        const hwloc_obj_t near = locality_of(device);
        if (near == nullptr || near->cpuset == nullptr || cpus.empty()) return 0;
        const hwloc_obj_t package = package_of(near);
        double sum = 0;
        for (const unsigned cpu : cpus) {
            if (hwloc_bitmap_isset(near->cpuset, cpu) != 0) continue;
            const bool is_inside =
                package == nullptr || hwloc_bitmap_isset(package->cpuset, cpu) != 0;
            sum += is_inside ? kOtherNode : kOtherPackage;
        }
        return sum / static_cast<double>(cpus.size());
    }

    std::vector<unsigned> cpus_near(std::string_view device) const override {
        std::vector<unsigned> cpus;
        const hwloc_obj_t near = locality_of(device);
        if (near == nullptr || near->cpuset == nullptr) return cpus;
        for (int cpu = hwloc_bitmap_first(near->cpuset); cpu >= 0;
             cpu = hwloc_bitmap_next(near->cpuset, cpu)) {
            cpus.push_back(static_cast<unsigned>(cpu));
        }
        return cpus;
    }

  private:
    // The part of the machine that the device hangs on.
    hwloc_obj_t locality_of(std::string_view device) const {
        for (hwloc_obj_t object = nullptr;
             (object = hwloc_get_next_osdev(topology_, object)) != nullptr;) {
            if (object->name != nullptr && device == object->name) {
                return hwloc_get_non_io_ancestor_obj(topology_, object);
            }
        }
        return nullptr;
    }

    hwloc_obj_t package_of(hwloc_obj_t object) const {
        if (object->type == HWLOC_OBJ_PACKAGE) return object;
        return hwloc_get_ancestor_obj_by_type(topology_, HWLOC_OBJ_PACKAGE, object);
    }

    hwloc_topology_t topology_ = nullptr;
};

std::atomic<const Topology*> replacement{nullptr};

std::unique_ptr<Topology> make(const std::string* xml) {
    auto topology = std::make_unique<HwlocTopology>();
    if (!topology->load(xml)) return nullptr;
    return topology;
}

}  // namespace

std::unique_ptr<Topology> Topology::load() {
    return make(nullptr);
}

void Topology::replace_machine(const Topology* other) {
    replacement = other;
}

const Topology* Topology::machine() {
    if (const Topology* other = replacement) return other;
    // For the life of the process: libpciaccess, which hwloc's plugin loads, loses its table of
    // names when the plugin goes.
    static const Topology* const topology = load().release();
    return topology;
}

std::unique_ptr<Topology> Topology::from_xml(const std::string& xml) {
    return make(&xml);
}

}  // namespace ucs::topo
