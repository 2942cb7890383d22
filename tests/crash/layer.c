// A layer between the program and the system, loaded by LD_PRELOAD: the n-th operation that changes the disk, or the
// n-th large allocation, fails or kills the process. Writes and flushes count for regular files only.
//
// Allocations are failed here and not by RLIMIT_AS: a limit strikes wherever the sum of all sizes happens to pass it,
// which differs from run to run, while the n-th call is the same call every time. Small allocations are let through:
// nothing that a file or a user chooses is small, and libraries that cannot answer abort on them. Those of other threads
// are let through too: a thread of Python 3.11 that cannot get memory for its first call leaves its starter waiting for
// ever (threading.Thread.start), and threads of libraries end the process.
// Python 3.11 is built with 64-bit offsets, so that its calls carry the names that end in 64.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

typedef struct {
    atomic_long remaining;  // operations until it happens; negative: never
    atomic_long seen;
} Counter;

enum { DISK, MEMORY };
enum { KILL = 0, TORN = -1, SHORT = -2 };  // instead of an errno: die; write half and die; write half and say so

static Counter counters[2] = {{-1, 0}, {-1, 0}};
static int failure = KILL, lasting = 0;
static size_t least = 1 << 12;
static pthread_t arming;

void crash_arm(int kind, long after, int error, int lasts, size_t least_bytes) {
    counters[DISK].remaining = counters[MEMORY].remaining = -1;
    counters[DISK].seen = counters[MEMORY].seen = 0;
    failure = error;
    lasting = lasts;
    least = least_bytes;
    arming = pthread_self();
    counters[kind].remaining = after;
}

long crash_seen(int kind) { return counters[kind].seen; }

static int reached(Counter* counter) {
    counter->seen++;
    if (counter->remaining < 0) return 0;
    if (counter->remaining == 0) {
        if (!lasting) counter->remaining = -1;
        return 1;
    }
    counter->remaining--;
    return 0;
}

static int fails(void) {
    if (!reached(&counters[DISK])) return 0;
    if (failure == KILL || failure == TORN) kill(getpid(), SIGKILL);
    if (failure == SHORT) return 0;
    errno = failure;
    return 1;
}

static int is_file(int handle) {
    struct stat about;
    int before = errno, regular = fstat(handle, &about) == 0 && S_ISREG(about.st_mode);
    errno = before;
    return regular;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

// ---- the disk ----

ssize_t write(int handle, const void* data, size_t size) {
    if (is_file(handle) && reached(&counters[DISK])) {
        if (failure == KILL) kill(getpid(), SIGKILL);
        if (failure == TORN) {
            REAL(write)(handle, data, size / 2);
            kill(getpid(), SIGKILL);
        }
        if (failure == SHORT) return REAL(write)(handle, data, size > 1 ? size / 2 : size);
        errno = failure;
        return -1;
    }
    return REAL(write)(handle, data, size);
}

#define GUARD(type, name, failed, parameters, arguments) \
    type name parameters {                               \
        if (fails()) return failed;                      \
        return REAL(name) arguments;                     \
    }

GUARD(ssize_t, writev, -1, (int handle, const struct iovec* parts, int count), (handle, parts, count))
GUARD(ssize_t, pwrite, -1, (int handle, const void* data, size_t size, off_t at), (handle, data, size, at))
GUARD(ssize_t, pwrite64, -1, (int handle, const void* data, size_t size, off64_t at), (handle, data, size, at))
GUARD(int, fsync, -1, (int handle), (handle))
GUARD(int, fdatasync, -1, (int handle), (handle))
GUARD(int, rename, -1, (const char* from, const char* to), (from, to))
GUARD(int, mkdir, -1, (const char* path, mode_t mode), (path, mode))
GUARD(int, unlink, -1, (const char* path), (path))
GUARD(int, rmdir, -1, (const char* path), (path))
GUARD(int, posix_fallocate, failure, (int handle, off_t begin, off_t size), (handle, begin, size))
GUARD(int, posix_fallocate64, failure, (int handle, off64_t begin, off64_t size), (handle, begin, size))
GUARD(int, ftruncate, -1, (int handle, off_t size), (handle, size))
GUARD(int, ftruncate64, -1, (int handle, off64_t size), (handle, size))

#define OPEN(name)                                                                \
    int name(const char* path, int flags, ...) {                                  \
        va_list rest;                                                             \
        va_start(rest, flags);                                                    \
        mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
        va_end(rest);                                                             \
        if ((flags & O_CREAT) && fails()) return -1;                              \
        return REAL(name)(path, flags, mode);                                     \
    }
OPEN(open)
OPEN(open64)

// ---- memory ----

extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);

static int no_memory(size_t size) {
    if (size < least || !pthread_equal(pthread_self(), arming) || !reached(&counters[MEMORY])) return 0;
    if (failure == KILL) kill(getpid(), SIGKILL);
    errno = ENOMEM;
    return 1;
}

void* malloc(size_t size) { return no_memory(size) ? NULL : __libc_malloc(size); }

void* calloc(size_t count, size_t size) { return no_memory(count * size) ? NULL : __libc_calloc(count, size); }

void* realloc(void* old, size_t size) { return no_memory(size) ? NULL : __libc_realloc(old, size); }

void* memalign(size_t alignment, size_t size) { return no_memory(size) ? NULL : __libc_memalign(alignment, size); }

void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void** place, size_t alignment, size_t size) {
    void* memory = memalign(alignment, size);
    if (memory == NULL) return ENOMEM;
    *place = memory;
    return 0;
}

void* mmap(void* address, size_t size, int protection, int flags, int handle, off_t offset) {
    if (no_memory(size)) return MAP_FAILED;
    return (void*)syscall(SYS_mmap, address, size, protection, flags, handle, offset);
}

void* mmap64(void* address, size_t size, int protection, int flags, int handle, off64_t offset) {
    return mmap(address, size, protection, flags, handle, offset);
}
