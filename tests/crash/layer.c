// A layer between the program and the system, loaded by LD_PRELOAD: the n-th operation that changes the disk fails or
// kills the process. Writes and flushes count for regular files only.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static atomic_long remaining = -1;  // operations until it happens; negative: never
static atomic_long seen = 0;
static int failure = 0;  // an errno, or 0 for a kill

void crash_arm(long after, int error) {
    failure = error;
    seen = 0;
    remaining = after;
}

long crash_seen(void) { return seen; }

static int fails(void) {
    seen++;
    if (remaining < 0 || remaining-- != 0) return 0;
    if (failure == 0) kill(getpid(), SIGKILL);
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

ssize_t write(int handle, const void* data, size_t size) {
    if (is_file(handle) && fails()) return -1;
    return REAL(write)(handle, data, size);
}

int fsync(int handle) {
    if (fails()) return -1;
    return REAL(fsync)(handle);
}

int rename(const char* from, const char* to) {
    if (fails()) return -1;
    return REAL(rename)(from, to);
}

int mkdir(const char* path, mode_t mode) {
    if (fails()) return -1;
    return REAL(mkdir)(path, mode);
}

int posix_fallocate(int handle, off_t begin, off_t size) {
    if (fails()) return failure;
    return REAL(posix_fallocate)(handle, begin, size);
}

int ftruncate(int handle, off_t size) {
    if (fails()) return -1;
    return REAL(ftruncate)(handle, size);
}
