# SPDX-License-Identifier: BSD-3-Clause
# The Spack recipe; `contrib/package spack` fills in version, checksum and place of a release.
from spack.package import *

try:
    from spack_repo.builtin.build_systems.autotools import AutotoolsPackage
except ImportError:
    pass  # before Spack 1.0 spack.package has it


class Swiftlane(AutotoolsPackage):
    """Communication library with UCX's interface and dynamic lanes."""

    homepage = "@URL@"
    url = "@URL@"
    license("BSD-3-Clause")

    version("@VERSION@", sha256="@SHA256@")

    variant("tools", default=True, description="The swiftlane command and the simulator")
    variant("verbs", default=True, description="Transports over RDMA adapters, the emulated adapter")
    variant("cuda", default=False, description="Memory of NVIDIA GPUs")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("gmake", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("boost", type="build")
    depends_on("fmt")
    depends_on("hwloc@2.1:")
    depends_on("isa-l")
    depends_on("openssl")
    depends_on("cli11", type="build", when="+tools")
    depends_on("nlohmann-json", type="build", when="+tools")
    depends_on("rdma-core", when="+verbs")
    depends_on("cuda", when="+cuda")

    def configure_args(self):
        args = self.with_or_without("tools") + self.with_or_without("verbs")
        args += [f"--with-cuda={self.spec['cuda'].prefix}"] if "+cuda" in self.spec else ["--without-cuda"]
        return args
