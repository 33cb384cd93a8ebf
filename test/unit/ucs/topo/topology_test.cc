// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/topo/topology.h"

#include <gtest/gtest.h>

#include "ucs/sys/processors.h"

namespace ucs::topo {
namespace {

// Two packages of two nodes of one CPU each; an adapter at the first node of either package.
const char* const kMachine = R"(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
 <object type="Machine" os_index="0" cpuset="0xf" complete_cpuset="0xf" allowed_cpuset="0xf"
   nodeset="0xf" complete_nodeset="0xf" allowed_nodeset="0xf" gp_index="1">
  <object type="Package" os_index="0" cpuset="0x3" complete_cpuset="0x3" nodeset="0x3"
    complete_nodeset="0x3" gp_index="2">
   <object type="Group" cpuset="0x1" complete_cpuset="0x1" nodeset="0x1" complete_nodeset="0x1"
     gp_index="3" kind="1001" subkind="0">
    <object type="NUMANode" os_index="0" cpuset="0x1" complete_cpuset="0x1" nodeset="0x1"
      complete_nodeset="0x1" gp_index="4" local_memory="1048576"/>
    <object type="PU" os_index="0" cpuset="0x1" complete_cpuset="0x1" nodeset="0x1"
      complete_nodeset="0x1" gp_index="5"/>
    <object type="Bridge" os_index="0" gp_index="20" bridge_type="0-1" depth="0"
      bridge_pci="0000:[00-0f]">
     <object type="PCIDev" os_index="16" gp_index="21" pci_busid="0000:01:00.0"
       pci_type="0207 [15b3:1017] [0000:0000] 00" pci_link_speed="0.000000">
      <object type="OSDev" gp_index="22" name="mlx5_0" osdev_type="3"/>
     </object>
    </object>
   </object>
   <object type="Group" cpuset="0x2" complete_cpuset="0x2" nodeset="0x2" complete_nodeset="0x2"
     gp_index="6" kind="1001" subkind="0">
    <object type="NUMANode" os_index="1" cpuset="0x2" complete_cpuset="0x2" nodeset="0x2"
      complete_nodeset="0x2" gp_index="7" local_memory="1048576"/>
    <object type="PU" os_index="1" cpuset="0x2" complete_cpuset="0x2" nodeset="0x2"
      complete_nodeset="0x2" gp_index="8"/>
   </object>
  </object>
  <object type="Package" os_index="1" cpuset="0xc" complete_cpuset="0xc" nodeset="0xc"
    complete_nodeset="0xc" gp_index="9">
   <object type="Group" cpuset="0x4" complete_cpuset="0x4" nodeset="0x4" complete_nodeset="0x4"
     gp_index="10" kind="1001" subkind="0">
    <object type="NUMANode" os_index="2" cpuset="0x4" complete_cpuset="0x4" nodeset="0x4"
      complete_nodeset="0x4" gp_index="11" local_memory="1048576"/>
    <object type="PU" os_index="2" cpuset="0x4" complete_cpuset="0x4" nodeset="0x4"
      complete_nodeset="0x4" gp_index="12"/>
    <object type="Bridge" os_index="1" gp_index="23" bridge_type="0-1" depth="0"
      bridge_pci="0000:[80-8f]">
     <object type="PCIDev" os_index="528400" gp_index="24" pci_busid="0000:81:00.0"
       pci_type="0207 [15b3:1017] [0000:0000] 00" pci_link_speed="0.000000">
      <object type="OSDev" gp_index="25" name="mlx5_1" osdev_type="3"/>
     </object>
    </object>
   </object>
   <object type="Group" cpuset="0x8" complete_cpuset="0x8" nodeset="0x8" complete_nodeset="0x8"
     gp_index="13" kind="1001" subkind="0">
    <object type="NUMANode" os_index="3" cpuset="0x8" complete_cpuset="0x8" nodeset="0x8"
      complete_nodeset="0x8" gp_index="14" local_memory="1048576"/>
    <object type="PU" os_index="3" cpuset="0x8" complete_cpuset="0x8" nodeset="0x8"
      complete_nodeset="0x8" gp_index="15"/>
   </object>
  </object>
 </object>
</topology>
)";

TEST(Topology, DistanceGrowsWithWhatLiesBetween) {
    const auto machine = Topology::from_xml(kMachine);
    ASSERT_NE(machine, nullptr);
    const struct {
        const char* device;
        std::vector<unsigned> cpus;
        double distance;
    } kRows[] = {
        {"mlx5_0", {0}, 0},
        {"mlx5_0", {1}, kOtherNode},
        {"mlx5_0", {2}, kOtherPackage},
        {"mlx5_1", {2}, 0},
        {"mlx5_1", {3}, kOtherNode},
        {"mlx5_1", {0}, kOtherPackage},
        {"mlx5_0", {0, 1}, kOtherNode / 2},
        // A process that may run anywhere is as far from the one as from the other.
        {"mlx5_0", {0, 1, 2, 3}, (kOtherNode + 2 * kOtherPackage) / 4},
        {"mlx5_1", {0, 1, 2, 3}, (kOtherNode + 2 * kOtherPackage) / 4},
        {"mlx5_7", {3}, 0},
        {"mlx5_0", {}, 0},
        {"mlx5_0", {99}, kOtherPackage},
    };
    for (const auto& row : kRows) {
        EXPECT_DOUBLE_EQ(machine->distance(row.device, row.cpus), row.distance)
            << row.device << ", " << row.cpus.size() << " CPUs";
    }
}

TEST(Topology, CpusNearADeviceAreThoseOfItsNode) {
    const auto machine = Topology::from_xml(kMachine);
    ASSERT_NE(machine, nullptr);
    EXPECT_EQ(machine->cpus_near("mlx5_0"), std::vector<unsigned>{0});
    EXPECT_EQ(machine->cpus_near("mlx5_1"), std::vector<unsigned>{2});
    EXPECT_TRUE(machine->cpus_near("mlx5_7").empty());
}

TEST(Topology, NonsenseIsNoTopology) {
    EXPECT_EQ(Topology::from_xml("<topology"), nullptr);
    EXPECT_EQ(Topology::from_xml(""), nullptr);
}

TEST(Topology, ThisMachineIsLookedAtOnce) {
    const Topology* const machine = Topology::machine();
    ASSERT_NE(machine, nullptr);
    EXPECT_EQ(Topology::machine(), machine);
    EXPECT_EQ(machine->distance("no device", {0}), 0);
}

TEST(Topology, ThisProcessHasCpus) {
    EXPECT_FALSE(allowed_cpus().empty());
}

}  // namespace
}  // namespace ucs::topo
