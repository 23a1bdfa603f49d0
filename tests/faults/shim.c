/*
 * A preloaded library that counts each call with an effect below one folder, and makes one fail.
 *
 * Counted, with one index over all of them: calls that create, change, rename or remove what stands
 * below the folder, fsync (of folders too, and the opening of a folder for it), and kernel locks.
 * Calls that only read are passed on uncounted. What to do stands in a file that both sides map
 * (FAULT_CONTROL), and so does the trace, which therefore outlives a process that is killed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* fault_shim.py knows this layout, these modes and these flags. */
enum { ROOT = 480, TRACE = 1 << 20 };
enum mode { RECORD, KILL, FAIL_ONCE, FAIL_FROM, SHORT_THEN_FAIL, SHORT_THEN_KILL };
enum flag { SKIP_SYNC = 1, FREE_LOCKS = 2, REFUSE_TRUNCATE = 4, LOSE_TRUNCATE = 8 };

struct control {
    int32_t armed, mode, at, error, flags, index, refuse_next, used;
    char root[ROOT];
    char trace[TRACE];
};

enum kind { EFFECT, WRITE, SYNC, TRUNCATE, LOCK, UNLOCK };
enum verdict { PASS, FAIL, SHORT, PRETEND };

static struct control *control;
static char short_path[1024];
static int forced; /* whether the call that runs is spoilt by us, and not refused by the system */

__attribute__((constructor)) static void begin(void)
{
    const char *name = getenv("FAULT_CONTROL");
    int (*real_open)(const char *, int, ...) = dlsym(RTLD_NEXT, "open");
    int descriptor = name ? real_open(name, O_RDWR | O_CLOEXEC) : -1;
    if (descriptor < 0)
        return;
    void *at = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    close(descriptor);
    if (at != MAP_FAILED)
        control = at;
}

static void note(const char *text, size_t length)
{
    if (control->used + length > TRACE)
        abort();
    memcpy(control->trace + control->used, text, length);
    control->used += length;
}

static int below(const char *path)
{
    size_t length = strlen(control->root);
    return strncmp(path, control->root, length) == 0 && (path[length] == '/' || !path[length]);
}

static int path_of(int descriptor, char *out, size_t size)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, out, size - 1);
    out[length < 0 ? 0 : length] = 0;
    return length > 0;
}

static int armed(void)
{
    return control != NULL && control->armed;
}

/* Makes `path` absolute in `out`; tells whether it is below the folder. */
static int locate(int folder, const char *path, char *out, size_t size)
{
    int saved = errno, found = 0;
    if (armed() && path != NULL) {
        char base[1024] = "";
        if (path[0] == '/')
            snprintf(out, size, "%s", path);
        else if (folder == AT_FDCWD ? getcwd(base, sizeof base) != NULL
                                    : path_of(folder, base, sizeof base))
            snprintf(out, size, "%s/%s", base, path);
        else
            out[0] = 0;
        found = below(out);
    }
    errno = saved;
    return found;
}

static int locate_open(int descriptor, char *out, size_t size)
{
    int saved = errno, found = armed() && path_of(descriptor, out, size) && below(out);
    errno = saved;
    return found;
}

static enum verdict spoilt(enum verdict verdict)
{
    forced = 1;
    return verdict;
}

/* Enters one call into the trace, and says what is to become of it. */
static enum verdict enter(const char *name, const char *path, const char *other, long detail,
                          enum kind kind)
{
    char line[2400];
    int index = ++control->index, hit = index == control->at;
    forced = 0;
    note(line, snprintf(line, sizeof line, "%d\t%s\t%s\t%s\t%ld", index, name, path, other, detail));
    switch ((enum mode)control->mode) {
    case RECORD:
        break;
    case KILL:
        if (hit)
            for (;;)
                kill(getpid(), SIGKILL);
        break;
    case FAIL_FROM:
        hit = control->at > 0 && index >= control->at;
        /* fall through */
    case FAIL_ONCE:
        /* A kernel never refuses to give a lock back. */
        if (hit && kind != UNLOCK) {
            errno = kind == LOCK ? ENOLCK : control->error;
            return spoilt(FAIL);
        }
        break;
    case SHORT_THEN_FAIL:
        if (kind == WRITE && control->refuse_next && strcmp(path, short_path) == 0) {
            control->refuse_next = 0;
            errno = control->error;
            return spoilt(FAIL);
        }
        /* fall through */
    case SHORT_THEN_KILL:
        if (hit && kind == WRITE) {
            control->refuse_next = control->mode == SHORT_THEN_FAIL;
            snprintf(short_path, sizeof short_path, "%s", path);
            return spoilt(SHORT);
        }
        break;
    }
    if (kind == TRUNCATE && control->flags & REFUSE_TRUNCATE) {
        errno = EPERM;
        return spoilt(FAIL);
    }
    if (kind == TRUNCATE && control->flags & LOSE_TRUNCATE)
        return PRETEND;
    if (kind == SYNC && control->flags & SKIP_SYNC)
        return PRETEND;
    if ((kind == LOCK || kind == UNLOCK) && control->flags & FREE_LOCKS)
        return PRETEND;
    return PASS;
}

static long leave(long result)
{
    char line[64];
    int saved = errno;
    note(line, snprintf(line, sizeof line, "\t%ld\t%d\t%d\n", result,
                        result < 0 ? saved : 0, forced));
    if (control->mode == SHORT_THEN_KILL && control->index == control->at)
        for (;;)
            kill(getpid(), SIGKILL);
    errno = saved;
    return result;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* Runs `call` unless the verdict is another, and returns from the wrapper. */
#define COUNTED(found, label, path, other, detail, kind, call)                                     \
    do {                                                                                           \
        if (!(found))                                                                              \
            return call;                                                                           \
        switch (enter(label, path, other, detail, kind)) {                                         \
        case FAIL:                                                                                 \
            return leave(-1);                                                                      \
        case PRETEND:                                                                              \
            return leave(0);                                                                       \
        default:                                                                                   \
            return leave(call);                                                                    \
        }                                                                                          \
    } while (0)

static const char *opening(int flags)
{
    if ((flags & O_ACCMODE) != O_RDONLY || flags & (O_CREAT | O_TRUNC))
        return "open";
    return flags & O_DIRECTORY ? "open-folder" : NULL;
}

#define OPEN(name, folder, parameters, arguments)                                                  \
    int name parameters                                                                            \
    {                                                                                              \
        va_list rest;                                                                              \
        mode_t mode = 0;                                                                           \
        char at[1024];                                                                             \
        const char *label = opening(flags);                                                        \
        if (flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE) {                                 \
            va_start(rest, flags);                                                                 \
            mode = va_arg(rest, mode_t);                                                           \
            va_end(rest);                                                                          \
        }                                                                                          \
        COUNTED(label && locate(folder, path, at, sizeof at), label, at, "", flags, EFFECT,        \
                REAL(name) arguments);                                                             \
    }

OPEN(open, AT_FDCWD, (const char *path, int flags, ...), (path, flags, mode))
OPEN(open64, AT_FDCWD, (const char *path, int flags, ...), (path, flags, mode))
OPEN(openat, folder, (int folder, const char *path, int flags, ...), (folder, path, flags, mode))
OPEN(openat64, folder, (int folder, const char *path, int flags, ...), (folder, path, flags, mode))

#define CREAT(name)                                                                                \
    int name(const char *path, mode_t mode)                                                        \
    {                                                                                              \
        char at[1024];                                                                             \
        COUNTED(locate(AT_FDCWD, path, at, sizeof at), "open", at, "", O_CREAT, EFFECT,            \
                REAL(name)(path, mode));                                                           \
    }

CREAT(creat)
CREAT(creat64)

/* A short write takes half of the bytes. */
#define WRITES(name, label, parameters, arguments, halved)                                         \
    ssize_t name parameters                                                                        \
    {                                                                                              \
        char at[1024];                                                                             \
        if (!locate_open(descriptor, at, sizeof at))                                               \
            return REAL(name) arguments;                                                           \
        switch (enter(label, at, "", (long)size, WRITE)) {                                         \
        case FAIL:                                                                                 \
            return leave(-1);                                                                      \
        case SHORT:                                                                                \
            return leave(REAL(name) halved);                                                       \
        default:                                                                                   \
            return leave(REAL(name) arguments);                                                    \
        }                                                                                          \
    }

WRITES(write, "write", (int descriptor, const void *data, size_t size), (descriptor, data, size),
       (descriptor, data, size / 2))
WRITES(pwrite, "pwrite", (int descriptor, const void *data, size_t size, off_t offset),
       (descriptor, data, size, offset), (descriptor, data, size / 2, offset))
WRITES(pwrite64, "pwrite", (int descriptor, const void *data, size_t size, off64_t offset),
       (descriptor, data, size, offset), (descriptor, data, size / 2, offset))
WRITES(writev, "writev", (int descriptor, const struct iovec *data, int size),
       (descriptor, data, size), (descriptor, data, size / 2))
WRITES(pwritev64v2, "pwritev",
       (int descriptor, const struct iovec *data, int size, off64_t offset, int flags),
       (descriptor, data, size, offset, flags), (descriptor, data, size / 2, offset, flags))
WRITES(sendfile64, "sendfile", (int descriptor, int source, off64_t *offset, size_t size),
       (descriptor, source, offset, size), (descriptor, source, offset, size / 2))
WRITES(copy_file_range, "copy_file_range",
       (int source, off64_t *from, int descriptor, off64_t *to, size_t size, unsigned flags),
       (source, from, descriptor, to, size, flags),
       (source, from, descriptor, to, size / 2, flags))

#define ON_DESCRIPTOR(name, label, kind, detail, parameters, arguments)                            \
    int name parameters                                                                            \
    {                                                                                              \
        char at[1024];                                                                             \
        COUNTED(locate_open(descriptor, at, sizeof at), label, at, "", (long)(detail), kind,       \
                REAL(name) arguments);                                                             \
    }

ON_DESCRIPTOR(fsync, "fsync", SYNC, 0, (int descriptor), (descriptor))
ON_DESCRIPTOR(fdatasync, "fsync", SYNC, 0, (int descriptor), (descriptor))
ON_DESCRIPTOR(ftruncate, "truncate", TRUNCATE, size, (int descriptor, off_t size),
              (descriptor, size))
ON_DESCRIPTOR(ftruncate64, "truncate", TRUNCATE, size, (int descriptor, off64_t size),
              (descriptor, size))
ON_DESCRIPTOR(fallocate, "fallocate", EFFECT, size,
              (int descriptor, int mode, off_t offset, off_t size),
              (descriptor, mode, offset, size))
ON_DESCRIPTOR(posix_fallocate64, "fallocate", EFFECT, size,
              (int descriptor, off64_t offset, off64_t size), (descriptor, offset, size))
ON_DESCRIPTOR(fchmod, "chmod", EFFECT, mode, (int descriptor, mode_t mode), (descriptor, mode))
ON_DESCRIPTOR(fchown, "chown", EFFECT, user, (int descriptor, uid_t user, gid_t group),
              (descriptor, user, group))
ON_DESCRIPTOR(futimens, "utime", EFFECT, 0, (int descriptor, const struct timespec times[2]),
              (descriptor, times))
ON_DESCRIPTOR(flock, "flock", operation & LOCK_UN ? UNLOCK : LOCK, operation,
              (int descriptor, int operation), (descriptor, operation))
ON_DESCRIPTOR(lockf64, "lockf", operation == F_ULOCK ? UNLOCK : LOCK, operation,
              (int descriptor, int operation, off64_t size), (descriptor, operation, size))

static int locks(int command)
{
    return command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK ||
           command == F_OFD_SETLKW;
}

#define FCNTL(name)                                                                                \
    int name(int descriptor, int command, ...)                                                     \
    {                                                                                              \
        char at[1024];                                                                             \
        va_list rest;                                                                              \
        va_start(rest, command);                                                                   \
        void *argument = va_arg(rest, void *);                                                     \
        va_end(rest);                                                                              \
        int found = locks(command) && locate_open(descriptor, at, sizeof at);                      \
        int frees = found && ((struct flock *)argument)->l_type == F_UNLCK;                        \
        COUNTED(found, "fcntl", at, "", command, frees ? UNLOCK : LOCK,                            \
                REAL(name)(descriptor, command, argument));                                        \
    }

FCNTL(fcntl)
FCNTL(fcntl64)

#define ON_PATH(name, label, folder, kind, detail, parameters, arguments)                          \
    int name parameters                                                                            \
    {                                                                                              \
        char at[1024];                                                                             \
        COUNTED(locate(folder, path, at, sizeof at), label, at, "", (long)(detail), kind,          \
                REAL(name) arguments);                                                             \
    }

ON_PATH(mkdir, "mkdir", AT_FDCWD, EFFECT, mode, (const char *path, mode_t mode), (path, mode))
ON_PATH(mkdirat, "mkdir", folder, EFFECT, mode, (int folder, const char *path, mode_t mode),
        (folder, path, mode))
ON_PATH(rmdir, "rmdir", AT_FDCWD, EFFECT, 0, (const char *path), (path))
ON_PATH(unlink, "unlink", AT_FDCWD, EFFECT, 0, (const char *path), (path))
ON_PATH(unlinkat, flags & AT_REMOVEDIR ? "rmdir" : "unlink", folder, EFFECT, flags,
        (int folder, const char *path, int flags), (folder, path, flags))
ON_PATH(remove, "unlink", AT_FDCWD, EFFECT, 0, (const char *path), (path))
ON_PATH(truncate, "truncate", AT_FDCWD, TRUNCATE, size, (const char *path, off_t size),
        (path, size))
ON_PATH(truncate64, "truncate", AT_FDCWD, TRUNCATE, size, (const char *path, off64_t size),
        (path, size))
ON_PATH(chmod, "chmod", AT_FDCWD, EFFECT, mode, (const char *path, mode_t mode), (path, mode))
ON_PATH(fchmodat, "chmod", folder, EFFECT, mode,
        (int folder, const char *path, mode_t mode, int flags), (folder, path, mode, flags))
ON_PATH(chown, "chown", AT_FDCWD, EFFECT, user, (const char *path, uid_t user, gid_t group),
        (path, user, group))
ON_PATH(lchown, "chown", AT_FDCWD, EFFECT, user, (const char *path, uid_t user, gid_t group),
        (path, user, group))
ON_PATH(utimensat, "utime", folder, EFFECT, 0,
        (int folder, const char *path, const struct timespec times[2], int flags),
        (folder, path, times, flags))
ON_PATH(mknod, "mknod", AT_FDCWD, EFFECT, mode, (const char *path, mode_t mode, dev_t device),
        (path, mode, device))
ON_PATH(mkfifo, "mknod", AT_FDCWD, EFFECT, mode, (const char *path, mode_t mode), (path, mode))
ON_PATH(symlink, "symlink", AT_FDCWD, EFFECT, 0, (const char *target, const char *path),
        (target, path))
ON_PATH(symlinkat, "symlink", folder, EFFECT, 0,
        (const char *target, int folder, const char *path), (target, folder, path))

#define ON_TWO_PATHS(name, label, source, target, parameters, arguments)                           \
    int name parameters                                                                            \
    {                                                                                              \
        char at[1024] = "", other[1024] = "";                                                      \
        int found = locate(source, from, at, sizeof at);                                           \
        found = locate(target, to, other, sizeof other) || found;                                  \
        COUNTED(found, label, at, other, 0, EFFECT, REAL(name) arguments);                         \
    }

ON_TWO_PATHS(rename, "rename", AT_FDCWD, AT_FDCWD, (const char *from, const char *to), (from, to))
ON_TWO_PATHS(renameat, "rename", source, target,
             (int source, const char *from, int target, const char *to),
             (source, from, target, to))
ON_TWO_PATHS(renameat2, "rename", source, target,
             (int source, const char *from, int target, const char *to, unsigned flags),
             (source, from, target, to, flags))
ON_TWO_PATHS(link, "link", AT_FDCWD, AT_FDCWD, (const char *from, const char *to), (from, to))
ON_TWO_PATHS(linkat, "link", source, target,
             (int source, const char *from, int target, const char *to, int flags),
             (source, from, target, to, flags))
