# SPDX-License-Identifier: BSD-3-Clause
"""What a guest boots: the distribution's stock kernel, a few of its modules and an initial root with
programs.

Nothing is installed: packages are downloaded with apt-get and unpacked into a cache. A file that is
an ELF program or library comes with the libraries that it needs.
"""

import bz2
import fcntl
import glob
import gzip
import io
import lzma
import os
import pathlib
import re
import shutil
import stat
import struct
import subprocess
import tempfile

# Debian's and Ubuntu's: each depends on the image proper. Ubuntu has the modules in packages of their own.
KERNEL_PACKAGES = ["linux-image-amd64", "linux-image-virtual"]
MODULE_PACKAGES = ["linux-modules-", "linux-modules-extra-"]
MODULES = ["virtio_pci", "9pnet_virtio", "9p", "virtio_net", "dummy", "crc32_generic", "ib_uverbs",
           "rdma_ucm", "rdma_rxe"]
TOOLS = ["ip", "rdma"]  # of iproute2, from the host


class Missing(Exception):
    """Something that the machine does not have; the text says what to do."""


def run(*command, **options):
    result = subprocess.run(command, capture_output=True, **options)
    if result.returncode != 0:
        text = result.stderr.decode(errors="replace").strip().splitlines()
        raise Missing(f"{' '.join(command[:3])} fails: {text[-1] if text else result.returncode}")
    return result.stdout


def download(package, folder):
    """The package's .deb in the folder, of the distribution that the host runs."""
    if not shutil.which("apt-get"):
        raise Missing("apt-get is not here: the guest's kernel comes from Debian's packages")
    command = ["apt-get", "-o", "APT::Sandbox::User=root", "-q", "download", package]
    try:
        run(*command, cwd=folder)
    except Missing:  # the lists are old or empty
        run("apt-get", "-q", "update")
        run(*command, cwd=folder)
    return glob.glob(f"{glob.escape(str(folder))}/{package}_*.deb")[0]


def kernel_packages():
    """Names of the packages that the kernel and its modules are in."""
    for package in KERNEL_PACKAGES:
        depends = subprocess.run(["apt-cache", "depends", package], capture_output=True).stdout
        image = re.search(r"Depends: linux-image-(\S+)", depends.decode())
        if image:
            version = image.group(1)
            names = [f"{prefix}{version}" for prefix in MODULE_PACKAGES]
            return [f"linux-image-{version}"] + [name for name in names if is_known(name)]
    raise Missing(f"apt-cache knows none of {', '.join(KERNEL_PACKAGES)}")


def is_known(package):
    return subprocess.run(["apt-cache", "show", package], capture_output=True).returncode == 0


def dependencies(package):
    """All packages that it needs and recommends nothing of, itself included."""
    text = run("apt-cache", "depends", "--recurse", "--no-recommends", "--no-suggests",
               "--no-conflicts", "--no-breaks", "--no-replaces", "--no-enhances", package)
    return sorted(set(re.findall(r"^([a-z0-9][a-z0-9+.-]+)$", text.decode(), re.M)))


def decompressed_kernel(image):
    """The ELF kernel inside a bzImage: QEMU starts it seconds sooner than it unpacks itself."""
    setup_sectors = image[0x1f1] or 4
    offset, length = struct.unpack_from("<II", image, 0x248)
    start = (setup_sectors + 1) * 512 + offset
    payload = image[start:start + length]
    if payload[:6] == b"\xfd7zXZ\0":
        return lzma.LZMADecompressor().decompress(payload)
    if payload[:3] == b"\x1f\x8b\x08":
        return gzip.GzipFile(fileobj=io.BytesIO(payload[:-4])).read()
    if payload[:3] == b"BZh":
        return bz2.BZ2Decompressor().decompress(payload)
    if payload[:4] == b"\x28\xb5\x2f\xfd":
        return run("zstd", "-dc", input=payload[:-4])
    raise Missing("the kernel image is compressed in a way that is not known here")


def load_order(folder, builtin, wanted):
    """Paths of the modules and of those that they need, in an order in which they can be loaded."""
    paths = {path.name.split(".")[0].replace("-", "_"): path for path in folder.rglob("*.ko*")}
    order = []

    def add(name):
        name = name.replace("-", "_")
        if name in builtin or any(name == have for have, _ in order):
            return
        if name not in paths:
            raise Missing(f"the kernel package has no module {name}")
        content = module_content(paths[name])
        needs = re.search(rb"\0depends=([^\0]*)\0", b"\0" + content)
        for need in needs.group(1).decode().split(",") if needs else []:
            if need:
                add(need)
        order.append((name, content))

    for name in wanted:
        add(name)
    return order


def module_content(path):
    content = path.read_bytes()
    if path.suffix == ".xz":
        return lzma.decompress(content)
    if path.suffix == ".zst":
        return run("zstd", "-dc", input=content)
    return content


class Cache:
    """Downloaded and unpacked parts, kept between runs: vmlinux, modules in load order, busybox."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder).absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (self.folder / "complete").exists():
                self._fill()
                (self.folder / "complete").touch()

    @property
    def kernel(self):
        return self.folder / "vmlinux"

    @property
    def modules(self):
        return sorted((self.folder / "modules").iterdir())

    @property
    def busybox(self):
        return self.folder / "busybox"

    def unpacked(self, package):
        """A folder with the package and everything it needs that the host has not installed."""
        folder = self.folder / "packages" / package
        with open(self.folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():
                with tempfile.TemporaryDirectory(dir=self.folder) as work:
                    for name in dependencies(package):
                        if not is_installed(name):
                            run("dpkg-deb", "-x", download(name, work), f"{work}/root")
                    folder.parent.mkdir(exist_ok=True)
                    os.rename(f"{work}/root", folder)
        return folder

    def _fill(self):
        with tempfile.TemporaryDirectory(dir=self.folder) as work:
            files = f"{work}/kernel"
            os.mkdir(files)
            for package in kernel_packages():
                deb = download(package, work)
                archive = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE)
                run("tar", "-x", "-C", files, "--wildcards", "--exclude", "*/drivers/[a-hj-mo-uw-z]*",
                    stdin=archive.stdout)
                if archive.wait() != 0:
                    raise Missing(f"{deb} cannot be unpacked")
                os.remove(deb)
            boot = next(pathlib.Path(files, "boot").glob("vmlinuz*"))
            self.kernel.write_bytes(decompressed_kernel(boot.read_bytes()))
            builtin_list = next(pathlib.Path(files).rglob("modules.builtin")).read_text()
            builtin = {line.rsplit("/", 1)[-1].split(".")[0].replace("-", "_")
                       for line in builtin_list.splitlines()}
            shutil.rmtree(self.folder / "modules", ignore_errors=True)
            (self.folder / "modules").mkdir()
            order = load_order(pathlib.Path(files), builtin, MODULES)
            for number, (name, content) in enumerate(order):
                (self.folder / "modules" / f"{number:02}-{name}.ko").write_bytes(content)
            run("dpkg-deb", "-x", download("busybox-static", work), f"{work}/busybox")
            shutil.copy(next(pathlib.Path(work, "busybox").rglob("bin/busybox")), self.busybox)


def is_installed(package):
    query = subprocess.run(["dpkg-query", "-W", "-f=${Status}", package], capture_output=True)
    return b"ok installed" in query.stdout


def libraries(path, search=""):
    """The shared libraries that an ELF file loads, as the host's loader finds them."""
    environment = dict(os.environ, LD_LIBRARY_PATH=search)
    result = subprocess.run(["ldd", path], capture_output=True, env=environment)
    return re.findall(r"(?:=> |^\s+)(/\S+) \(0x", result.stdout.decode(), re.M)


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


class Root:
    """The initial root: a cpio archive (format newc), uncompressed, which boots soonest."""

    def __init__(self):
        self.entries = {}  # path in the guest without leading slash: (mode, content)
        self._resolved = {}

    def directory(self, path):
        path = path.strip("/")
        if path and path not in self.entries:
            self.directory(os.path.dirname(path))
            self.entries[path] = (stat.S_IFDIR | 0o755, b"")

    def content(self, path, content, mode=0o644):
        self.directory(os.path.dirname(path))
        self.entries[path.strip("/")] = (stat.S_IFREG | mode, content)

    def link(self, path, target):
        self.directory(os.path.dirname(path))
        self.entries[path.strip("/")] = (stat.S_IFLNK | 0o777, os.fsencode(target))

    def file(self, source, path, search=""):
        """A host's file; an ELF file without its debug information, and its libraries with it."""
        if path.strip("/") in self.entries:
            return
        mode = os.stat(source).st_mode & 0o755
        if not is_elf(source):
            self.content(path, pathlib.Path(source).read_bytes(), mode)
            return
        with tempfile.NamedTemporaryFile() as stripped:
            run("strip", "-g", "-o", stripped.name, source)
            self.content(path, pathlib.Path(stripped.name).read_bytes(), mode)
        for library in libraries(source, search):
            system = library.startswith(("/lib", "/usr/lib"))
            self.file(library, library if system else f"/lib/{os.path.basename(library)}", search)

    def program(self, source, search=""):
        """A program of the build tree or the host, as /bin/NAME; libtool's wrapper is seen through.
        Libraries that are not the system's go to /lib."""
        source = pathlib.Path(source)
        hidden = source.parent / ".libs" / source.name
        if hidden.exists() and not is_elf(source):
            source = hidden
        self.file(source, f"/bin/{source.name}", search)

    def tree(self, source, path):
        """A folder with everything below, links as they are; libraries' own needs are not looked up."""
        for full, target in below(source, path):
            if os.path.islink(full):
                self.link(target, os.readlink(full))
            elif os.path.isfile(full):
                content = pathlib.Path(full).read_bytes()
                self.content(target, content, os.stat(full).st_mode & 0o755)

    def plugins(self, source, search=""):
        """A folder of the host's that programs load modules from, at its own path, with what these need."""
        for full, target in below(source, source):
            if os.path.isfile(full):
                self.file(os.path.realpath(full), target, search)

    def write(self, path):
        with open(path, "wb") as file:
            for number, (name, (mode, content)) in enumerate(self.entries.items(), 1):
                write_entry(file, number, name, mode, content)
            write_entry(file, 0, "TRAILER!!!", 0, b"")


def below(source, path):
    """Pairs: each file and folder below the source, and its place below the path."""
    for folder, names, files in os.walk(source):
        inside = os.path.join(path, os.path.relpath(folder, source))
        for name in names + files:
            yield os.path.join(folder, name), os.path.normpath(f"{inside}/{name}")


def write_entry(file, number, name, mode, content):
    encoded = os.fsencode(name) + b"\0"
    fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(encoded), 0)
    header = b"070701" + b"".join(b"%08x" % field for field in fields) + encoded
    file.write(header + bytes(-len(header) % 4))
    file.write(content + bytes(-len(content) % 4))


def base_root(cache, init):
    """What every guest has: busybox, modules, tools of the network and of RDMA."""
    root = Root()
    for path in ("/proc", "/sys", "/dev", "/tmp", "/out", "/etc", "/root"):
        root.directory(path)
    root.file(cache.busybox, "/bin/busybox")
    for applet in run(cache.busybox, "--list").decode().split():
        if applet != "busybox":
            root.link(f"/bin/{applet}", "busybox")
    for module in cache.modules:
        root.content(f"/modules/{module.name}", module.read_bytes())
    for tool in TOOLS:
        found = shutil.which(tool, path="/usr/bin:/bin:/usr/sbin:/sbin")
        if not found:
            raise Missing(f"{tool} is not here: apt-get install iproute2")
        root.entries.pop(f"bin/{tool}", None)
        root.file(os.path.realpath(found), f"/bin/{tool}")
    providers = glob.glob("/usr/lib/*/libibverbs/librxe-*.so")
    if not providers:
        raise Missing("libibverbs has no provider for rxe: apt-get install ibverbs-providers")
    for provider in providers:
        root.file(provider, provider)
    root.content("/etc/libibverbs.d/rxe.driver", b"driver rxe\n")
    root.content("/etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n")
    root.content("/etc/group", b"root:x:0:\n")
    root.content("/etc/hosts", b"127.0.0.1 localhost\n10.9.0.1 guest0\n10.9.0.2 guest1\n")
    root.content("/etc/nsswitch.conf", b"hosts: files\n")
    root.file(init, "/init")
    return root
