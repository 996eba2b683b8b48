/* Preloaded under Python: the k-th call that changes a file fails with an error of one's choice, or
 * ends the process as a power cut would. Calls are counted while armed, in all threads; writes to
 * what is no regular file are let through. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static atomic_long left; /* calls until the fault; 0: not armed */
static int fault;        /* an errno, or -1: kill */

/* Fault the k-th call from now on (k 0: none); returns what was left of the last arming. */
long faulty_arm(long k, int what) {
    fault = what;
    return atomic_exchange(&left, k);
}

static int due(void) {
    long before = atomic_load(&left);
    while (before > 0 && !atomic_compare_exchange_weak(&left, &before, before - 1)) {}
    if (before != 1) return 0;
    if (fault < 0) kill(getpid(), SIGKILL);
    errno = fault;
    return 1;
}

static int regular(int fd) {
    struct stat s;
    int saved = errno, is = fstat(fd, &s) == 0 && S_ISREG(s.st_mode);
    errno = saved;
    return is;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *data, size_t n) { return regular(fd) && due() ? -1 : REAL(write)(fd, data, n); }
int fsync(int fd) { return due() ? -1 : REAL(fsync)(fd); }
int fdatasync(int fd) { return due() ? -1 : REAL(fdatasync)(fd); }
int fchmod(int fd, mode_t mode) { return due() ? -1 : REAL(fchmod)(fd, mode); }
int rename(const char *from, const char *to) { return due() ? -1 : REAL(rename)(from, to); }
int link(const char *from, const char *to) { return due() ? -1 : REAL(link)(from, to); }
int mkdir(const char *path, mode_t mode) { return due() ? -1 : REAL(mkdir)(path, mode); }

static mode_t mode_of(int flags, va_list rest) { return flags & O_CREAT ? va_arg(rest, mode_t) : 0; }

#define OPEN(name)                                                                                 \
    int name(const char *path, int flags, ...) {                                                   \
        va_list rest;                                                                              \
        va_start(rest, flags);                                                                     \
        mode_t mode = mode_of(flags, rest);                                                        \
        va_end(rest);                                                                              \
        return (flags & O_CREAT) && due() ? -1 : REAL(name)(path, flags, mode);                    \
    }
OPEN(open)
OPEN(open64)
