# Toolchain: 64-bit Arm from another machine, Debian's cross compiler; programs run under qemu-user.  The two libraries that
# kvant needs lie in a folder that `./dev neon` fills from Debian's arm64 packages (cmake/arm64_sysroot.sh), so the host's
# own packages stay as they are.  KVANT_QEMU_CPU: the CPU that ctest emulates.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(KVANT_ARM64_SYSROOT ${CMAKE_CURRENT_LIST_DIR}/../build/arm64-sysroot CACHE PATH "unpacked arm64 packages")
set(KVANT_QEMU_CPU max CACHE STRING "qemu -cpu of the tests")
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L /usr/aarch64-linux-gnu -cpu ${KVANT_QEMU_CPU})
set(CMAKE_FIND_ROOT_PATH ${KVANT_ARM64_SYSROOT} /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(ENV{PKG_CONFIG_LIBDIR} ${KVANT_ARM64_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${KVANT_ARM64_SYSROOT})
