/* System calls that run millions of times and require no decisions.
 *
 * Each function performs the plain case of an operation for many names in a directory, and
 * reports the outcome for each name.  The callers, in Python, interpret errors and process names
 * that are not plain.  `pure.py` implements the same functions in Python, and the same tests cover
 * both.
 *
 * Rules for safety:
 * - A name contains no slash, and is relative to a descriptor that the caller keeps open.  No link
 *   is followed unless the caller's open flags permit it.
 * - All steps that can raise (checking arguments, allocating the result) precede the first change.
 *   After that, a function always returns a result.
 * - The interpreter lock is released during system calls, so names are copied before.
 * - If a signal interrupts a system call, the function returns, and the remaining names are
 *   reported as not tried.  Python handles the signal, and the caller continues.
 * - The clock is read after each name.  After `until_ns`, the remaining names are not tried.
 *
 * A result contains one 64-bit number for each name: the value of the function, -1 - errno,
 * NOT_PLAIN or UNTRIED.  Times are nanoseconds of CLOCK_MONOTONIC, as in `time.monotonic_ns`.
 */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#define _FILE_OFFSET_BITS 64
#define _TIME_BITS 64 /* otherwise 32-bit systems truncate times after 2038 */
#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030A0000
#endif
#include <Python.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/types.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(time_t) == 8, "times of files have 64 bits");

/* The version of the functions and their results, which must equal that in `interface.py`. */
#define INTERFACE 10

#define UNTRIED INT64_MIN
#define NOT_PLAIN (INT64_MIN + 1)

#define KEEP_MODE 1
#define KEEP_OWNER 2
#define KEEP_TIMES 4
#define KEEP_LISTS 8
#define KEEP_ATTRIBUTES 16
#define ASK_LISTS 32

#define MAX_FILE_BYTES (1 << 20)
#define SPECIAL_BITS (S_ISUID | S_ISGID | S_ISVTX)
#define LIST_BYTES 4096
#define ACCESS_LIST "system.posix_acl_access"
#define DEFAULT_LIST "system.posix_acl_default" /* only for directories */
#define GET_FLAGS _IOR('f', 1, long) /* FS_IOC_GETFLAGS, without requiring linux/fs.h */
#define DT_DIRECTORY 4
#define LISTING_BYTES (64 << 10) /* the buffer for one getdents64 call */
#define FCHMODAT2 452 /* Linux 6.6; the number is the same on all supported machines */
#define OPENAT2 437   /* Linux 5.6; likewise */
#define NO_OTHER_MOUNT 0x01
#define BENEATH 0x08
#define LISTXATTRAT 465 /* Linux 6.13; likewise */

/* ---- statx(2), whose function and structure old C libraries lack ----------------------------- */

struct stamp {
    int64_t seconds;
    uint32_t ns;
    int32_t unused;
};

struct status {
    uint32_t mask, block_size;
    uint64_t attributes;
    uint32_t links, uid, gid;
    uint16_t mode, unused0;
    uint64_t inode, size, blocks, attributes_mask;
    struct stamp accessed, born, changed, modified;
    uint32_t rdev_major, rdev_minor, device_major, device_minor;
    uint64_t mount, unused1[13];
};

_Static_assert(sizeof(struct status) == 256, "as of linux/stat.h");

#ifndef SYS_statx
#if defined(__x86_64__) && defined(__LP64__)
#define SYS_statx 332
#elif defined(__i386__)
#define SYS_statx 383
#elif defined(__powerpc__)
#define SYS_statx 383
#elif defined(__s390__)
#define SYS_statx 379
#elif defined(__arm__)
#define SYS_statx 397
#elif defined(__aarch64__) || defined(__riscv) || defined(__loongarch__)
#define SYS_statx 291
#else
#error "the number of statx is not known"
#endif
#endif

#define BASIC 0x7ffu
#define EMPTY_PATH 0x1000

static int
look(int fd, const char *name, int flags, unsigned int mask, struct status *status)
{
    return (int)syscall(SYS_statx, fd, name, flags, mask, status);
}

static int
look_open(int fd, struct status *status)
{
    return look(fd, "", EMPTY_PATH, BASIC, status);
}

static uint64_t
device_of(const struct status *status)
{
    return makedev(status->device_major, status->device_minor);
}

/* The status of an entry: mode, links, uid, gid, size, blocks, block_size, inode, device, rdev, and
 * seconds and nanoseconds of atime, mtime and ctime. */
#define COLUMNS 16
typedef int64_t row[COLUMNS];

/* ---- names and their outcomes ---------------------------------------------------------------- */

struct names {
    Py_ssize_t count;
    char **texts; /* the text follows the pointers in the same allocation */
};

static int64_t
now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int
is_itself_or_above(const char *name)
{
    return name[0] == '.' && (name[1] == 0 || (name[1] == '.' && name[2] == 0));
}

/* Copy names, which must be non-empty bytes without a slash or NUL.  "." and ".." are permitted
 * only with `dots`.
 */
static int
take_names(PyObject *list, struct names *names, int dots)
{
    size_t room = 0;
    if (!PyList_Check(list)) {
        PyErr_SetString(PyExc_TypeError, "names must be a list of bytes");
        return -1;
    }
    names->count = PyList_Size(list);
    for (Py_ssize_t at = 0; at < names->count; at++) {
        char *text;
        Py_ssize_t size;
        if (PyBytes_AsStringAndSize(PyList_GetItem(list, at), &text, &size) < 0)
            return -1;
        if (size == 0 || memchr(text, 0, (size_t)size) != NULL
            || memchr(text, '/', (size_t)size) != NULL
            || (!dots && is_itself_or_above(text))) {
            PyErr_SetString(PyExc_ValueError, "not the name of an entry of a directory");
            return -1;
        }
        room += (size_t)size + 1;
    }
    names->texts = PyMem_Malloc((size_t)names->count * sizeof(char *) + room + 1);
    if (names->texts == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    char *place = (char *)(names->texts + names->count);
    for (Py_ssize_t at = 0; at < names->count; at++) {
        PyObject *item = PyList_GetItem(list, at);
        size_t size = (size_t)PyBytes_Size(item) + 1;
        memcpy(place, PyBytes_AsString(item), size);
        names->texts[at] = place;
        place += size;
    }
    return 0;
}

/* Return a bytes object with `count` numbers, all UNTRIED, and set `numbers` to its content. */
static PyObject *
new_result(Py_ssize_t count, int64_t **numbers)
{
    PyObject *result = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(int64_t));
    if (result == NULL)
        return NULL;
    *numbers = (int64_t *)PyBytes_AsString(result);
    for (Py_ssize_t at = 0; at < count; at++)
        (*numbers)[at] = UNTRIED;
    return result;
}

/* An operation on one name.  Returns the outcome; sets `ends` to stop after this name. */
typedef int64_t (*action)(const char *name, void *context, int *ends);

/* Act on names in order, without the interpreter lock, until `until_ns` has passed. */
static void
act_on_each(const struct names *names, int64_t *outcomes, action act, void *context,
            int64_t until_ns)
{
    int ends = 0;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t at = 0; at < names->count && !ends; at++) {
        int64_t outcome = act(names->texts[at], context, &ends);
        if (outcome == -1 - (int64_t)EINTR)
            break;
        outcomes[at] = outcome;
        if (now_ns() > until_ns)
            break;
    }
    Py_END_ALLOW_THREADS
}

/* Act on each name and return the outcomes or, with `more`, both as a tuple.
 *
 * Takes over the reference to `more`.  Returns NULL if an exception is set or memory is exhausted.
 */
static PyObject *
result_of(const struct names *names, PyObject *more, action act, void *context, int64_t until_ns)
{
    int64_t *outcomes;
    PyObject *result = PyErr_Occurred() ? NULL : new_result(names->count, &outcomes);
    if (result != NULL && more != NULL) {
        PyObject *both = PyTuple_Pack(2, result, more);
        Py_DECREF(result); /* the tuple holds it */
        result = both;
    }
    if (result != NULL)
        act_on_each(names, outcomes, act, context, until_ns);
    Py_XDECREF(more);
    return result;
}

/* ---- a buffer for each thread, freed when the thread ends ------------------------------------ */

static pthread_key_t buffer_key;

static char *
own_buffer(void)
{
    void *buffer = pthread_getspecific(buffer_key);
    if (buffer == NULL) {
        if (posix_memalign(&buffer, 4096, MAX_FILE_BYTES + 4096) != 0)
            return NULL;
        if (pthread_setspecific(buffer_key, buffer) != 0) {
            free(buffer);
            return NULL;
        }
    }
    return buffer;
}

/* ---- the directories of names: one for all, or one for each ---------------------------------- */

struct holders {
    int one;      /* -1: each name has its own, in `each` */
    int *each;
    Py_ssize_t next; /* the position of the next name */
};

static int
take_fds(PyObject *object, Py_ssize_t count, struct holders *holders)
{
    holders->each = NULL;
    holders->next = 0;
    holders->one = -1;
    if (PyLong_Check(object)) {
        holders->one = (int)PyLong_AsLong(object);
        return holders->one == -1 && PyErr_Occurred() ? -1 : 0;
    }
    if (!PyList_Check(object) || PyList_Size(object) != count) {
        PyErr_SetString(PyExc_TypeError, "fds must be an int, or a list of one for each name");
        return -1;
    }
    holders->each = PyMem_Malloc((size_t)count * sizeof(int) + 1);
    if (holders->each == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t at = 0; at < count; at++) {
        holders->each[at] = (int)PyLong_AsLong(PyList_GetItem(object, at));
        if (holders->each[at] == -1 && PyErr_Occurred()) {
            PyMem_Free(holders->each);
            return -1;
        }
    }
    return 0;
}

static int
next_holder(struct holders *holders)
{
    int fd = holders->each == NULL ? holders->one : holders->each[holders->next];
    holders->next++;
    return fd;
}

/* ---- copying --------------------------------------------------------------------------------- */

struct copying {
    struct holders sources, targets;
    int target_fd; /* the directory of the last name */
    int flags, creation_bits, keep;
    int inode_flags; /* flags to preserve */
    const char *ignored; /* NUL-terminated names of attributes that copies do not get */
    Py_ssize_t ignored_bytes;
    int64_t max_links, max_bytes, max_range_bytes, source_device, owner, group;
    char *buffer;
    int64_t room; /* remaining bytes for contents; 0 if contents are not returned */
    uid_t user;   /* the effective user of this process */
    int right_mode; /* mode with which a file was created correctly in target_fd, or -1 */
};

static int
is_no_attribute(int error)
{
    return error == ENODATA || error == EOPNOTSUPP || error == ENOSYS;
}

static int
is_ignored(const char *name, const struct copying *how)
{
    const char *end = how->ignored + how->ignored_bytes;
    for (const char *each = how->ignored; each < end; each += strlen(each) + 1)
        if (strcmp(name, each) == 0)
            return 1;
    return 0;
}

/* Return whether a file has, or may have, this attribute. */
static int
has_attribute(int fd, const char *name)
{
    return fgetxattr(fd, name, NULL, 0) >= 0 || !is_no_attribute(errno);
}

/* Return whether a list of attribute names contains any to preserve; `size` < 0: an error. */
static int
is_any_kept(char *list, ssize_t size, const struct copying *how)
{
    if (size < 0)
        return !is_no_attribute(errno); /* the caller must look more closely */
    list[size] = 0; /* a list from a server may lack the terminator */
    for (const char *name = list; name < list + size; name += strlen(name) + 1) {
        if (strcmp(name, ACCESS_LIST) == 0 || strcmp(name, DEFAULT_LIST) == 0)
            return 1;
        if ((how->keep & KEEP_ATTRIBUTES) != 0 && !is_ignored(name, how))
            return 1;
    }
    return 0;
}

/* Return whether a file or directory has attributes to preserve. */
static int
has_attributes(int fd, const struct copying *how)
{
    char list[LIST_BYTES + 1];
    if ((how->keep & ASK_LISTS) != 0 && has_attribute(fd, ACCESS_LIST))
        return 1;
    if ((how->keep & (KEEP_LISTS | KEEP_ATTRIBUTES)) == 0)
        return 0;
    return is_any_kept(list, flistxattr(fd, list, LIST_BYTES), how);
}

/* Return whether a file has one of these inode flags.  Not all file systems support them. */
static int
has_flags(int fd, int flags)
{
    union {
        int value;
        long room[2];
    } found = {.room = {0, 0}}; /* most write an int, although the request encodes a long */
    return flags != 0 && ioctl(fd, GET_FLAGS, &found) == 0 && (found.value & flags) != 0;
}

/* Give an open copy its owner, mode and times, in this order; return 0 or an errno. */
static int
settle(int out, const struct status *source, struct copying *how, int made_right)
{
    struct status made;
    if (made_right && how->right_mode != (int)source->mode) {
        /* The kernel treats all files of one mode in a directory alike, so check only one. */
        if (look_open(out, &made) != 0)
            return errno;
        made_right = made.mode == source->mode && made.uid == source->uid
            && made.gid == source->gid;
        if (made_right)
            how->right_mode = (int)source->mode;
    }
    if (!made_right) {
        if ((how->keep & KEEP_OWNER) != 0 && fchown(out, source->uid, source->gid) != 0)
            return errno;
        if ((how->keep & KEEP_MODE) != 0 && fchmod(out, source->mode & 07777) != 0)
            return errno;
    }
    if ((how->keep & KEEP_TIMES) != 0) {
        struct timespec times[2] = {
            {.tv_sec = (time_t)source->accessed.seconds, .tv_nsec = source->accessed.ns},
            {.tv_sec = (time_t)source->modified.seconds, .tv_nsec = source->modified.ns},
        };
        if (futimens(out, times) != 0)
            return errno;
    }
    return 0;
}

/* Remove an incomplete file, unless its name refers to another file by now. */
static void
discard(int out, int directory_fd, const char *name)
{
    struct status made, now;
    if (look_open(out, &made) == 0
        && look(directory_fd, name, AT_SYMLINK_NOFOLLOW, BASIC, &now) == 0
        && made.inode == now.inode && device_of(&made) == device_of(&now))
        unlinkat(directory_fd, name, 0);
}

/* Read a whole file; return 0, an errno, or -1 if its size is not as reported.
 *
 * One byte more than expected is read, in order to detect growth.  Files of size 0 are read as
 * well, because they may have content.
 */
static int
read_all(int fd, size_t size, char *buffer)
{
    size_t done = 0;
    do {
        ssize_t count = read(fd, buffer + done, size + 1 - done);
        if (count < 0)
            return errno;
        if (count == 0)
            break;
        done += (size_t)count;
    } while (done < size);
    return done == size ? 0 : -1;
}

/* Read a whole file and write it; return as `read_all` does. */
static int
move_content(int fd, int out, size_t size, char *buffer)
{
    int error = read_all(fd, size, buffer);
    for (size_t done = 0; error == 0 && done < size;) {
        ssize_t count = write(out, buffer + done, size - done);
        if (count <= 0) /* some file systems write nothing and report no error */
            error = count < 0 ? errno : -1;
        else
            done += (size_t)count;
    }
    return error;
}

#ifndef SYS_copy_file_range /* headers from before Linux 4.5 lack it */
#define SYS_copy_file_range -1
#endif

/* Let the kernel copy a whole file; return 0, an errno, or -1 if the file changed. */
static int
move_range(int fd, int out, const struct status *source)
{
    struct status now;
    int64_t from = 0, to = 0;
    const int64_t size = (int64_t)source->size;
    while (from < size) {
        long count = syscall(SYS_copy_file_range, fd, &from, out, &to, (size_t)(size - from), 0);
        if (count < 0 && (errno != EINTR || from == 0))
            return errno;
        if (count == 0)
            return -1;
    }
    if (look_open(fd, &now) != 0)
        return errno;
    const int is_same = now.size == source->size
        && now.modified.seconds == source->modified.seconds
        && now.modified.ns == source->modified.ns
        && now.changed.seconds == source->changed.seconds
        && now.changed.ns == source->changed.ns;
    return is_same ? 0 : -1;
}

/* Copy one file, and remove the copy unless it is complete; return the outcome.
 *
 * If a copy may be created with its final mode, its directory is inaccessible to other users, see
 * `pure.copy_files`.
 */
static int64_t
copy_file(const char *name, struct copying *how)
{
    struct status source;
    int64_t outcome = NOT_PLAIN;
    int fd = openat(next_holder(&how->sources), name, how->flags), last = how->target_fd;
    how->target_fd = next_holder(&how->targets);
    if (how->target_fd != last)
        how->right_mode = -1;
    if (fd < 0)
        return -1 - (int64_t)errno;
    if (look_open(fd, &source) != 0) {
        outcome = -1 - (int64_t)errno;
        goto close_source;
    }
    if (!S_ISREG(source.mode) || (int64_t)source.links > how->max_links
        || (source.size > (uint64_t)how->max_bytes && source.size > (uint64_t)how->max_range_bytes)
        || source.size > source.blocks * 512 || (int64_t)device_of(&source) != how->source_device
        || has_attributes(fd, how) || has_flags(fd, how->inode_flags))
        goto close_source;
    int right = how->owner == (int64_t)source.uid && how->group == (int64_t)source.gid
        && (source.mode & SPECIAL_BITS) == 0;
    /* Ordinary users cannot give files away, so the caller must decide. */
    if (!right && (how->keep & KEEP_OWNER) != 0 && how->user != 0 && how->user != source.uid)
        goto close_source;
    int least = (how->keep & KEEP_MODE) != 0 ? 0600 : 0;
    mode_t mode = (mode_t)(right ? source.mode & 0777 : (source.mode & how->creation_bits) | least);
    int out = openat(
        how->target_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    if (out < 0) {
        outcome = -1 - (int64_t)errno;
        goto close_source;
    }
    int error = source.size > (uint64_t)how->max_bytes
        ? move_range(fd, out, &source)
        : move_content(fd, out, (size_t)source.size, how->buffer);
    if (error == 0)
        error = settle(out, &source, how, right);
    if (error != 0)
        discard(out, how->target_fd, name);
    if (close(out) != 0 && error == 0) { /* not all data was written */
        error = errno;
        unlinkat(how->target_fd, name, 0);
    }
    outcome = error == 0 ? (int64_t)source.size : error < 0 ? NOT_PLAIN : -1 - (int64_t)error;
close_source:
    close(fd);
    return outcome;
}

/* Copy one file.  Stop after the first failure: the caller handles it before the next file. */
static int64_t
copy_next(const char *name, void *context, int *ends)
{
    struct copying *how = context;
    int64_t outcome = copy_file(name, how);
    *ends = outcome < 0;
    if (how->room != 0 && outcome > 0) {
        how->buffer += outcome;
        how->room -= outcome;
        *ends = how->room <= how->max_bytes;
    }
    return outcome;
}

PyDoc_STRVAR(copy_files_doc, "See `pcircle.fs.native.pure.copy_files`.");

static PyObject *
copy_files(PyObject *module, PyObject *arguments)
{
    struct copying how;
    struct names names;
    PyObject *sources, *targets, *list, *contents, *result = NULL;
    long long max_links, max_bytes, max_range_bytes, device, owner, group, until_ns, room;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OOOiiiiy#LLLLLLLL:copy_files", &sources, &targets, &list,
                          &how.flags, &how.creation_bits, &how.keep, &how.inode_flags, &how.ignored,
                          &how.ignored_bytes, &max_links, &max_bytes, &max_range_bytes, &device,
                          &owner, &group, &until_ns, &room))
        return NULL;
    if (max_bytes < 0 || max_bytes > MAX_FILE_BYTES || max_range_bytes < 0
        || (room != 0 && (room <= max_bytes || max_range_bytes != 0))) {
        PyErr_SetString(PyExc_ValueError, "max_bytes");
        return NULL;
    }
    how.max_links = max_links;
    how.max_bytes = max_bytes;
    how.max_range_bytes = max_range_bytes;
    how.source_device = device;
    how.owner = owner;
    how.group = group;
    how.room = room;
    how.user = geteuid();
    how.right_mode = how.target_fd = -1;
    if (take_names(list, &names, 0) < 0)
        return NULL;
    if (take_fds(sources, names.count, &how.sources) == 0) {
        if (take_fds(targets, names.count, &how.targets) == 0) {
            contents = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)room);
            if (contents != NULL)
                how.buffer = room != 0 ? PyBytes_AsString(contents) : own_buffer();
            if (contents != NULL && how.buffer == NULL)
                PyErr_NoMemory();
            result = result_of(&names, contents, copy_next, &how, until_ns);
            PyMem_Free(how.targets.each);
        }
        PyMem_Free(how.sources.each);
    }
    PyMem_Free(names.texts);
    return result;
}

/* ---- copying directories --------------------------------------------------------------------- */

struct making {
    struct copying rules; /* defines the attributes to preserve */
    struct holders sources, modes;
    int target_fd, flags;
    int64_t *opened;
    Py_ssize_t place;
};

/* Create and open a directory whose source has no attributes to preserve; return the outcome. */
static int64_t
make_next(const char *name, void *context, int *ends)
{
    struct making *how = context;
    const Py_ssize_t place = how->place++;
    const int source = next_holder(&how->sources), mode = next_holder(&how->modes);
    (void)ends;
    if (has_attributes(source, &how->rules) || has_flags(source, how->rules.inode_flags)
        || ((how->rules.keep & ASK_LISTS) != 0 && has_attribute(source, DEFAULT_LIST)))
        return NOT_PLAIN;
    if (mkdirat(how->target_fd, name, (mode_t)mode) != 0)
        return -1 - (int64_t)errno;
    const int fd = openat(how->target_fd, name, how->flags);
    how->opened[place] = fd >= 0 ? fd : -1 - (int64_t)errno;
    return 0;
}

PyDoc_STRVAR(make_directories_doc, "See `pcircle.fs.native.pure.make_directories`.");

static PyObject *
make_directories(PyObject *module, PyObject *arguments)
{
    struct making how = {0};
    struct names names;
    PyObject *sources, *list, *modes, *result = NULL;
    long long until_ns;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OiOOiiiy#L:make_directories", &sources, &how.target_fd, &list,
                          &modes, &how.flags, &how.rules.keep, &how.rules.inode_flags,
                          &how.rules.ignored, &how.rules.ignored_bytes, &until_ns))
        return NULL;
    if (take_names(list, &names, 0) < 0)
        return NULL;
    if (take_fds(sources, names.count, &how.sources) == 0) {
        if (take_fds(modes, names.count, &how.modes) == 0) {
            PyObject *opened = new_result(names.count, &how.opened);
            result = result_of(&names, opened, make_next, &how, until_ns);
            PyMem_Free(how.modes.each);
        }
        PyMem_Free(how.sources.each);
    }
    PyMem_Free(names.texts);
    return result;
}

/* Set the fields of a source's status that `settle` uses. */
static void
status_of(const row found, struct status *status)
{
    status->mode = (uint16_t)found[0];
    status->uid = (uint32_t)found[2];
    status->gid = (uint32_t)found[3];
    status->accessed.seconds = found[10];
    status->accessed.ns = (uint32_t)found[11];
    status->modified.seconds = found[12];
    status->modified.ns = (uint32_t)found[13];
}

PyDoc_STRVAR(settle_open_doc, "See `pcircle.fs.native.pure.settle_open`.");

static PyObject *
settle_open(PyObject *module, PyObject *arguments)
{
    struct holders fds;
    PyObject *list, *result;
    const char *table;
    Py_ssize_t size, count;
    long long owner, group;
    int64_t *outcomes;
    int keep;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "Oy#iLL:settle_open", &list, &table, &size, &keep, &owner,
                          &group))
        return NULL;
    const Py_ssize_t row_bytes = (Py_ssize_t)sizeof(row);
    count = size / row_bytes;
    if (size % row_bytes != 0 || PyLong_Check(list) || take_fds(list, count, &fds) < 0) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "fds must be a list of one for each row");
        return NULL;
    }
    result = new_result(count, &outcomes);
    if (result != NULL) {
        const uid_t user = geteuid();
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t at = 0; at < count; at++) {
            struct copying how = {.keep = keep};
            struct status source;
            row found;
            for (int column = 0; column < COLUMNS; column++)
                memcpy(&found[column], table + (column * count + at) * (Py_ssize_t)sizeof(int64_t),
                       sizeof(int64_t));
            status_of(found, &source);
            if (owner == (long long)source.uid && group == (long long)source.gid)
                how.keep &= ~KEEP_OWNER;
            if ((how.keep & KEEP_OWNER) != 0 && user != 0 && user != source.uid) {
                outcomes[at] = NOT_PLAIN;
                continue;
            }
            const int error = settle(fds.each[at], &source, &how, 0);
            outcomes[at] = error == 0 ? 0 : -1 - (int64_t)error;
        }
        Py_END_ALLOW_THREADS
    }
    PyMem_Free(fds.each);
    return result;
}

/* ---- removing -------------------------------------------------------------------------------- */

struct removing {
    int fd, flags;
};

static int64_t
unlink_next(const char *name, void *context, int *ends)
{
    const struct removing *how = context;
    (void)ends;
    return unlinkat(how->fd, name, how->flags) == 0 ? 0 : -1 - (int64_t)errno;
}

PyDoc_STRVAR(unlink_names_doc, "See `pcircle.fs.native.pure.unlink_names`.");

static PyObject *
unlink_names(PyObject *module, PyObject *arguments)
{
    struct removing how;
    struct names names;
    PyObject *list, *result;
    int directories;
    long long until_ns;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "iOpL:unlink_names", &how.fd, &list, &directories, &until_ns))
        return NULL;
    how.flags = directories ? AT_REMOVEDIR : 0;
    if (take_names(list, &names, 0) < 0)
        return NULL;
    result = result_of(&names, NULL, unlink_next, &how, until_ns);
    PyMem_Free(names.texts);
    return result;
}

/* ---- status, by column ----------------------------------------------------------------------- */

#if defined(__x86_64__) && defined(__LP64__)

/* newfstatat fills a smaller structure than statx, and takes 5 % less time. */
static int
look_row(int fd, const char *name, int flags, row found)
{
    struct stat st;
    if (syscall(SYS_newfstatat, fd, name, &st, flags) != 0)
        return -1;
    found[0] = st.st_mode;
    found[1] = (int64_t)st.st_nlink;
    found[2] = st.st_uid;
    found[3] = st.st_gid;
    found[4] = st.st_size;
    found[5] = st.st_blocks;
    found[6] = st.st_blksize;
    found[7] = (int64_t)st.st_ino;
    found[8] = (int64_t)st.st_dev;
    found[9] = (int64_t)st.st_rdev;
    found[10] = st.st_atim.tv_sec;
    found[11] = st.st_atim.tv_nsec;
    found[12] = st.st_mtim.tv_sec;
    found[13] = st.st_mtim.tv_nsec;
    found[14] = st.st_ctim.tv_sec;
    found[15] = st.st_ctim.tv_nsec;
    return 0;
}

#else

static int
look_row(int fd, const char *name, int flags, row found)
{
    struct status st;
    if (look(fd, name, flags, BASIC, &st) != 0)
        return -1;
    found[0] = st.mode;
    found[1] = st.links;
    found[2] = st.uid;
    found[3] = st.gid;
    found[4] = (int64_t)st.size;
    found[5] = (int64_t)st.blocks;
    found[6] = st.block_size;
    found[7] = (int64_t)st.inode;
    found[8] = (int64_t)device_of(&st);
    found[9] = (int64_t)makedev(st.rdev_major, st.rdev_minor);
    found[10] = st.accessed.seconds;
    found[11] = st.accessed.ns;
    found[12] = st.modified.seconds;
    found[13] = st.modified.ns;
    found[14] = st.changed.seconds;
    found[15] = st.changed.ns;
    return 0;
}

#endif

#define ITSELF (AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT)

struct looking {
    struct holders holders;
    int64_t *table; /* stored by columns */
    Py_ssize_t count;
};

static int64_t
stat_next(const char *name, void *context, int *ends)
{
    struct looking *how = context;
    row found;
    Py_ssize_t place = how->holders.next;
    int flags = *name != 0 ? ITSELF : EMPTY_PATH;
    (void)ends;
    if (look_row(next_holder(&how->holders), name, flags, found) != 0)
        return -1 - (int64_t)errno;
    for (int column = 0; column < COLUMNS; column++)
        how->table[column * how->count + place] = found[column];
    return 0;
}

/* Return a bytes object with `count` rows of zeros, and set `table` to its content. */
static PyObject *
new_table(Py_ssize_t count, int64_t **table)
{
    Py_ssize_t size = count * COLUMNS * (Py_ssize_t)sizeof(int64_t);
    PyObject *result = PyBytes_FromStringAndSize(NULL, size);
    if (result == NULL)
        return NULL;
    *table = (int64_t *)PyBytes_AsString(result);
    memset(*table, 0, (size_t)size);
    return result;
}

PyDoc_STRVAR(stat_names_doc, "See `pcircle.fs.native.pure.stat_names`.");

static PyObject *
stat_names(PyObject *module, PyObject *arguments)
{
    struct looking how;
    struct names names;
    PyObject *fds, *list, *result = NULL;
    long long until_ns;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OOL:stat_names", &fds, &list, &until_ns))
        return NULL;
    if (take_names(list, &names, 1) < 0)
        return NULL;
    if (take_fds(fds, names.count, &how.holders) == 0) {
        how.count = names.count;
        PyObject *table = new_table(names.count, &how.table);
        result = result_of(&names, table, stat_next, &how, until_ns);
        PyMem_Free(how.holders.each);
    }
    PyMem_Free(names.texts);
    return result;
}

PyDoc_STRVAR(stat_open_doc, "See `pcircle.fs.native.pure.stat_open`.");

static PyObject *
stat_open(PyObject *module, PyObject *fds)
{
    struct looking how;
    PyObject *result, *table, *both = NULL;
    int64_t *outcomes;
    (void)module;
    how.count = PyList_Check(fds) ? PyList_Size(fds) : -1;
    if (take_fds(fds, how.count, &how.holders) < 0)
        return NULL;
    if (how.count < 0) {
        PyErr_SetString(PyExc_TypeError, "fds must be a list");
        return NULL;
    }
    result = new_result(how.count, &outcomes);
    table = new_table(how.count, &how.table);
    if (result != NULL && table != NULL)
        both = PyTuple_Pack(2, result, table);
    if (both != NULL) {
        int ends = 0;
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t at = 0; at < how.count; at++)
            outcomes[at] = stat_next("", &how, &ends);
        Py_END_ALLOW_THREADS
    }
    Py_XDECREF(result);
    Py_XDECREF(table);
    PyMem_Free(how.holders.each);
    return both;
}

/* ---- listing --------------------------------------------------------------------------------- */

struct entry {
    uint64_t inode;
    int64_t next;
    uint16_t record_bytes;
    uint8_t kind;
    char name[];
};

/* NUL-terminated names, and the kind (DT_*) of each. */
struct listing {
    char *names, *kinds;
    size_t names_bytes, names_room, count, kinds_room;
};

static void
forget(struct listing *listing)
{
    free(listing->names);
    free(listing->kinds);
}

/* Make room for `more` bytes after `used`; return 0, or -1 if memory is exhausted. */
static int
make_room(char **text, size_t used, size_t more, size_t *room)
{
    if (used + more <= *room)
        return 0;
    size_t wanted = *room * 2 > used + more ? *room * 2 : used + more;
    char *larger = realloc(*text, wanted);
    if (larger == NULL)
        return -1;
    *text = larger;
    *room = wanted;
    return 0;
}

static int
add_name(struct listing *listing, const char *name, uint8_t kind)
{
    size_t size = strlen(name) + 1;
    if (make_room(&listing->names, listing->names_bytes, size, &listing->names_room) != 0
        || make_room(&listing->kinds, listing->count, 1, &listing->kinds_room) != 0)
        return -1;
    memcpy(listing->names + listing->names_bytes, name, size);
    listing->names_bytes += size;
    listing->kinds[listing->count++] = (char)kind;
    return 0;
}

/* Look up a kind that the directory does not store; return 0 if it is unknown. */
static uint8_t
kind_of(int fd, const char *name)
{
    struct status status;
    if (look(fd, name, ITSELF, 1 /* STATX_TYPE */, &status) != 0)
        return 0;
    return (uint8_t)((status.mode & S_IFMT) >> 12);
}

/* Add the entries of a directory; return 1 at its end, 0 if there are more than `most`, or
 * -errno.
 */
static int
add_entries(int fd, char *buffer, size_t most, int64_t until_ns, struct listing *listing)
{
    for (;;) {
        long size = syscall(SYS_getdents64, fd, buffer, LISTING_BYTES);
        if (size <= 0)
            return size == 0 ? 1 : -errno;
        for (long at = 0; at < size;) {
            const struct entry *entry = (const struct entry *)(buffer + at);
            at += entry->record_bytes;
            if (is_itself_or_above(entry->name))
                continue;
            uint8_t kind = entry->kind;
            if (kind == 0 && now_ns() <= until_ns)
                kind = kind_of(fd, entry->name);
            if (add_name(listing, entry->name, kind) != 0)
                return -ENOMEM;
        }
        if (listing->count > most)
            return 0;
    }
}

struct item {
    const char *name;
    char kind;
};

static int
compare_items(const void *a, const void *b)
{
    return strcmp(((const struct item *)a)->name, ((const struct item *)b)->name);
}

/* Sort the entries from `begin` by name; return 0, or -1 if memory is exhausted. */
static int
sort_entries(struct listing *listing, size_t begin, size_t begin_bytes)
{
    const size_t count = listing->count - begin, size = listing->names_bytes - begin_bytes;
    struct item *items;
    char *text = listing->names + begin_bytes;
    if (count < 2)
        return 0;
    items = malloc(count * sizeof *items + size);
    if (items == NULL)
        return -1;
    const char *name = memcpy(items + count, text, size);
    for (size_t at = 0; at < count; at++, name += strlen(name) + 1) {
        items[at].name = name;
        items[at].kind = listing->kinds[begin + at];
    }
    qsort(items, count, sizeof *items, compare_items);
    for (size_t at = 0; at < count; at++) {
        text = stpcpy(text, items[at].name) + 1;
        listing->kinds[begin + at] = items[at].kind;
    }
    free(items);
    return 0;
}

/* Return the names as a Python list. */
static PyObject *
list_of(const struct listing *listing)
{
    PyObject *names = PyList_New((Py_ssize_t)listing->count);
    const char *name = listing->names;
    for (size_t at = 0; names != NULL && at < listing->count; at++) {
        size_t size = strlen(name);
        PyObject *text = PyBytes_FromStringAndSize(name, (Py_ssize_t)size);
        if (text == NULL || PyList_SetItem(names, (Py_ssize_t)at, text) < 0) {
            Py_DECREF(names);
            return NULL;
        }
        name += size + 1;
    }
    return names;
}

PyDoc_STRVAR(list_directory_doc, "See `pcircle.fs.native.pure.list_directory`.");

static PyObject *
list_directory(PyObject *module, PyObject *arguments)
{
    struct listing listing = {0};
    PyObject *names = NULL, *result = NULL;
    Py_ssize_t most;
    long long until_ns;
    int fd, state;
    char *buffer = own_buffer();
    (void)module;
    if (!PyArg_ParseTuple(arguments, "inL:list_directory", &fd, &most, &until_ns))
        return NULL;
    if (buffer == NULL)
        return PyErr_NoMemory();
    do {
        Py_BEGIN_ALLOW_THREADS
        listing.count = listing.names_bytes = 0;
        state = lseek(fd, 0, SEEK_SET) != 0
            ? -errno
            : add_entries(fd, buffer, most < 0 ? 0 : (size_t)most, until_ns, &listing);
        Py_END_ALLOW_THREADS
    } while (state == -EINTR && PyErr_CheckSignals() == 0);
    if (PyErr_Occurred())
        goto end;
    if (state == 0 || (state == 1 && most < (Py_ssize_t)listing.count)) {
        lseek(fd, 0, SEEK_SET); /* the caller will read the directory in another way */
        Py_INCREF(Py_None);
        result = Py_None;
    } else if (state < 0) {
        errno = -state;
        state == -ENOMEM ? PyErr_NoMemory() : PyErr_SetFromErrno(PyExc_OSError);
    } else if ((names = list_of(&listing)) != NULL) {
        result = Py_BuildValue("(Oy#)", names, listing.count ? listing.kinds : "",
                               (Py_ssize_t)listing.count);
        Py_DECREF(names);
    }
end:
    forget(&listing);
    return result;
}

/* ---- several small directories --------------------------------------------------------------- */

#define DIRECTORIES_TOO 1 /* `looks`: look up all entries; 2: all except directories */
#define SMALL_ENTRIES 256 /* entries between two readings of the clock in a large directory */

struct scanning {
    struct holders holders;
    int flags, beneath, looks, keeps, sorts, kinds;
    size_t max_parents, parents; /* directories with subdirectories that are kept open */
    int64_t device;
    size_t max_each, max_all;
    char *buffer;
    int64_t until_ns;
    struct listing listing; /* of all directories done */
    row *rows;              /* the status of their entries */
    row *own;               /* the status of the directories */
    int *fds;
    int64_t *ends; /* where each directory's names end in the listing */
    size_t done;
};

/* Open an entry on its directory's mount; return -1, also if the kernel has no openat2. */
static int
open_beneath(int fd, const char *name, int flags)
{
    const uint64_t how[3] = {(uint64_t)flags, 0, NO_OTHER_MOUNT | BENEATH};
    return (int)syscall(OPENAT2, fd, name, how, sizeof how);
}

/* Set the row of a directory that is not looked up, so that only its kind is known. */
static void
only_kind(row found)
{
    memset(found, 0, sizeof(row));
    found[0] = S_IFDIR;
    found[1] = 1;
}

/* Open a directory, list it and look up its entries; return the outcome. */
static int64_t
scan_next(const char *name, void *context, int *ends)
{
    struct scanning *how = context;
    struct listing *listing = &how->listing;
    const size_t begin = listing->count, begin_bytes = listing->names_bytes;
    int64_t outcome = NOT_PLAIN;
    int holder = next_holder(&how->holders), is_parent = 0;
    int state, fd = how->beneath ? open_beneath(holder, name, how->flags)
                                 : openat(holder, name, how->flags);
    if (fd < 0)
        return -1 - (int64_t)errno;
    int64_t *own = how->own[how->done];
    if (how->device < 0)
        memset(own, 0, sizeof(row));
    else if (look_row(fd, "", EMPTY_PATH, own) != 0) {
        outcome = -1 - (int64_t)errno;
        goto undone;
    } else if (own[8] != how->device)
        goto undone;
    /* If entries are looked up anyway, their modes contain the kinds. */
    const int64_t until_ns = how->looks ? INT64_MIN : INT64_MAX;
    state = add_entries(fd, how->buffer, begin + how->max_each, until_ns, listing);
    if (state < 0)
        outcome = -1 + (int64_t)state;
    if (state <= 0 || listing->count > begin + how->max_each)
        goto undone;
    for (size_t at = begin; at < listing->count; at++)
        if ((how->kinds & (1 << (listing->kinds[at] & 15))) == 0
            && !(how->looks && listing->kinds[at] == 0))
            goto undone;
    if (how->sorts && sort_entries(listing, begin, begin_bytes) != 0) {
        outcome = -1 - (int64_t)ENOMEM;
        goto undone;
    }
    if (how->looks) {
        const char *text = listing->names + begin_bytes;
        for (size_t at = begin; at < listing->count; at++, text += strlen(text) + 1) {
            if ((at - begin) % SMALL_ENTRIES == SMALL_ENTRIES - 1 && now_ns() > how->until_ns) {
                outcome = how->done > 0 ? -1 - (int64_t)EINTR : NOT_PLAIN;
                goto undone;
            }
            if (how->looks != DIRECTORIES_TOO && listing->kinds[at] == DT_DIRECTORY) {
                only_kind(how->rows[at]);
                continue;
            }
            if (look_row(fd, text, ITSELF, how->rows[at]) != 0) {
                outcome = errno == EINTR ? -1 - (int64_t)EINTR : NOT_PLAIN;
                goto undone;
            }
            int kind = (int)(how->rows[at][0] & S_IFMT) >> 12;
            if ((how->kinds & (1 << kind)) == 0) /* an entry was replaced in the meantime */
                goto undone;
            listing->kinds[at] = (char)kind;
            if (how->looks != DIRECTORIES_TOO && kind == DT_DIRECTORY)
                only_kind(how->rows[at]);
        }
    }
    for (size_t at = begin; how->max_parents > 0 && at < listing->count && !is_parent; at++)
        is_parent = listing->kinds[at] == DT_DIRECTORY;
    how->parents += (size_t)is_parent;
    how->fds[how->done] = how->keeps || is_parent ? fd : -1;
    if (how->fds[how->done] < 0)
        close(fd);
    how->ends[how->done] = (int64_t)listing->names_bytes;
    how->done++;
    *ends = listing->count + how->max_each > how->max_all
        || (how->max_parents > 0 && how->parents == how->max_parents);
    return (int64_t)(listing->count - begin);
undone:
    close(fd);
    listing->count = begin;
    listing->names_bytes = begin_bytes;
    return outcome;
}

/* Convert rows to a table. */
static PyObject *
table_of(const row *rows, size_t count)
{
    int64_t *table;
    PyObject *result = new_table((Py_ssize_t)count, &table);
    for (int column = 0; result != NULL && column < COLUMNS; column++)
        for (size_t at = 0; at < count; at++)
            *table++ = rows[at][column];
    return result;
}

static PyObject *
list_of_fds(const int *fds, size_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t at = 0; list != NULL && at < count; at++) {
        PyObject *number = PyLong_FromLong(fds[at]);
        if (number == NULL || PyList_SetItem(list, (Py_ssize_t)at, number) < 0) {
            Py_DECREF(list);
            return NULL;
        }
    }
    return list;
}

PyDoc_STRVAR(scan_directories_doc, "See `pcircle.fs.native.pure.scan_directories`.");

static PyObject *
scan_directories(PyObject *module, PyObject *arguments)
{
    struct scanning how = {0};
    struct names names;
    PyObject *holders, *list, *result, *all = NULL;
    int64_t *outcomes;
    Py_ssize_t max_each, max_all, max_parents;
    long long device, until_ns;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OOiLinnipnppL:scan_directories", &holders, &list, &how.flags,
                          &device, &how.kinds, &max_each, &max_all, &how.looks, &how.keeps,
                          &max_parents, &how.beneath, &how.sorts, &until_ns))
        return NULL;
    if (max_each < 0 || max_all < max_each || max_all > 1 << 20 || max_parents < 0) {
        PyErr_SetString(PyExc_ValueError, "max_each, max_all, max_parents");
        return NULL;
    }
    if (take_names(list, &names, 0) < 0)
        return NULL;
    if (take_fds(holders, names.count, &how.holders) < 0) {
        PyMem_Free(names.texts);
        return NULL;
    }
    how.max_parents = (size_t)max_parents;
    how.device = device;
    how.max_each = (size_t)max_each;
    how.max_all = (size_t)max_all;
    how.until_ns = until_ns;
    how.buffer = own_buffer();
    how.own = PyMem_Malloc((size_t)(names.count + 1) * sizeof(row));
    how.rows = PyMem_Malloc(how.looks ? (size_t)(max_all + 1) * sizeof(row) : 1);
    how.fds = PyMem_Malloc((size_t)(names.count + 1) * sizeof(int));
    how.ends = PyMem_Malloc((size_t)(names.count + 1) * sizeof(int64_t));
    result = new_result(names.count, &outcomes);
    if (how.buffer == NULL || how.own == NULL || how.rows == NULL || how.fds == NULL
        || how.ends == NULL)
        PyErr_NoMemory();
    else if (result != NULL) {
        act_on_each(&names, outcomes, scan_next, &how, until_ns);
        const size_t entries = how.listing.count;
        const int any_kept = how.keeps || how.parents > 0;
        PyObject *fds = list_of_fds(how.fds, any_kept ? how.done : 0);
        PyObject *own = table_of(how.own, how.done);
        PyObject *texts = PyBytes_FromStringAndSize(how.listing.names,
                                                    (Py_ssize_t)how.listing.names_bytes);
        PyObject *ends = PyBytes_FromStringAndSize((const char *)how.ends,
                                                   (Py_ssize_t)(how.done * sizeof(int64_t)));
        PyObject *kinds = PyBytes_FromStringAndSize(how.listing.kinds, (Py_ssize_t)entries);
        PyObject *table = table_of(how.rows, how.looks ? entries : 0);
        if (fds != NULL && own != NULL && texts != NULL && ends != NULL && kinds != NULL
            && table != NULL)
            all = PyTuple_Pack(7, result, fds, own, texts, ends, kinds, table);
        for (size_t at = 0; all == NULL && at < how.done; at++)
            if (how.fds[at] >= 0)
                close(how.fds[at]);
        Py_XDECREF(fds);
        Py_XDECREF(own);
        Py_XDECREF(texts);
        Py_XDECREF(ends);
        Py_XDECREF(kinds);
        Py_XDECREF(table);
    }
    Py_XDECREF(result);
    forget(&how.listing);
    PyMem_Free(how.own);
    PyMem_Free(how.rows);
    PyMem_Free(how.fds);
    PyMem_Free(how.ends);
    PyMem_Free(how.holders.each);
    PyMem_Free(names.texts);
    return all;
}

/* ---- reading --------------------------------------------------------------------------------- */

struct reading {
    struct holders holders;
    int flags;
    int64_t max_bytes;
    char *buffer;
    int64_t room;
};

/* Read a small file; return its size or another outcome. */
static int64_t
read_next(const char *name, void *context, int *ends)
{
    struct reading *how = context;
    struct status source;
    int64_t outcome = NOT_PLAIN;
    int error, fd = openat(next_holder(&how->holders), name, how->flags);
    if (fd < 0)
        return -1 - (int64_t)errno;
    if (look_open(fd, &source) != 0) {
        outcome = -1 - (int64_t)errno;
        goto close_file;
    }
    if (!S_ISREG(source.mode) || source.size > (uint64_t)how->max_bytes
        || (source.size > 0 && source.blocks == 0)) /* the data may be on tape */
        goto close_file;
    error = read_all(fd, (size_t)source.size, how->buffer);
    if (error == 0) {
        outcome = (int64_t)source.size;
        how->buffer += outcome;
        how->room -= outcome;
        *ends = how->room <= how->max_bytes;
    } else if (error > 0)
        outcome = -1 - (int64_t)error;
close_file:
    close(fd);
    return outcome;
}

PyDoc_STRVAR(read_files_doc, "See `pcircle.fs.native.pure.read_files`.");

static PyObject *
read_files(PyObject *module, PyObject *arguments)
{
    struct reading how;
    struct names names;
    PyObject *fds, *list, *result = NULL;
    long long max_bytes, room, until_ns;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OOiLLL:read_files", &fds, &list, &how.flags, &max_bytes,
                          &room, &until_ns))
        return NULL;
    if (max_bytes < 0 || max_bytes > MAX_FILE_BYTES || room <= max_bytes) {
        PyErr_SetString(PyExc_ValueError, "max_bytes");
        return NULL;
    }
    if (take_names(list, &names, 0) < 0)
        return NULL;
    if (take_fds(fds, names.count, &how.holders) == 0) {
        how.max_bytes = max_bytes;
        how.room = room;
        PyObject *contents = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)room);
        how.buffer = contents == NULL ? NULL : PyBytes_AsString(contents);
        result = result_of(&names, contents, read_next, &how, until_ns);
        PyMem_Free(how.holders.each);
    }
    PyMem_Free(names.texts);
    return result;
}

/* ---- detecting attributes -------------------------------------------------------------------- */

struct asking {
    struct holders holders;
    struct copying rules; /* defines the attributes to preserve */
};

/* Call listxattr(2) or, if `attribute` is given, getxattr(2) for an entry of a directory. */
static ssize_t
ask_by_path(int fd, const char *name, const char *attribute, char *list)
{
    char path[64 + NAME_MAX];
    int size = snprintf(path, sizeof path, "/proc/self/fd/%d/%s", fd, name);
    if (size < 0 || (size_t)size >= sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return attribute != NULL ? lgetxattr(path, attribute, NULL, 0)
                             : llistxattr(path, list, LIST_BYTES);
}

static ssize_t
list_attributes(int fd, const char *name, char *list)
{
    /* Sandboxes refuse unknown calls with EPERM. */
    ssize_t size = syscall(LISTXATTRAT, fd, name, AT_SYMLINK_NOFOLLOW, list, (size_t)LIST_BYTES);
    return size >= 0 || (errno != ENOSYS && errno != EPERM) ? size
                                                            : ask_by_path(fd, name, NULL, list);
}

static int64_t
ask_next(const char *name, void *context, int *ends)
{
    struct asking *how = context;
    const struct copying *rules = &how->rules;
    const int fd = next_holder(&how->holders), is_directory = is_itself_or_above(name);
    char list[LIST_BYTES + 1];
    (void)ends;
    if (is_directory && has_flags(fd, rules->inode_flags))
        return 1;
    if ((rules->keep & ASK_LISTS) != 0
        && (ask_by_path(fd, name, ACCESS_LIST, NULL) >= 0 || !is_no_attribute(errno)))
        return 1;
    if ((rules->keep & ASK_LISTS) != 0 && is_directory
        && (ask_by_path(fd, name, DEFAULT_LIST, NULL) >= 0 || !is_no_attribute(errno)))
        return 1;
    if ((rules->keep & (KEEP_LISTS | KEEP_ATTRIBUTES)) == 0)
        return 0;
    return is_any_kept(list, list_attributes(fd, name, list), rules);
}

PyDoc_STRVAR(ask_attributes_doc, "See `pcircle.fs.native.pure.ask_attributes`.");

static PyObject *
ask_attributes(PyObject *module, PyObject *arguments)
{
    struct asking how;
    struct names names;
    PyObject *fds, *list, *result = NULL;
    long long until_ns;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OOiiy#L:ask_attributes", &fds, &list, &how.rules.keep,
                          &how.rules.inode_flags, &how.rules.ignored, &how.rules.ignored_bytes,
                          &until_ns))
        return NULL;
    if (take_names(list, &names, 1) < 0)
        return NULL;
    if (take_fds(fds, names.count, &how.holders) == 0) {
        result = result_of(&names, NULL, ask_next, &how, until_ns);
        PyMem_Free(how.holders.each);
    }
    PyMem_Free(names.texts);
    return result;
}

/* ---- changing modes and owners --------------------------------------------------------------- */

struct changing {
    struct holders holders;
    int mode; /* -1: unchanged */
    uid_t uid;
    gid_t gid;
};

static int64_t
change_next(const char *name, void *context, int *ends)
{
    struct changing *how = context;
    int fd = next_holder(&how->holders);
    (void)ends;
    if (how->uid != (uid_t)-1 || how->gid != (gid_t)-1)
        if (fchownat(fd, name, how->uid, how->gid, AT_SYMLINK_NOFOLLOW) != 0)
            return -1 - (int64_t)errno;
    if (how->mode >= 0
        && syscall(FCHMODAT2, fd, name, (mode_t)how->mode, AT_SYMLINK_NOFOLLOW) != 0)
        return -1 - (int64_t)errno;
    return 0;
}

PyDoc_STRVAR(change_names_doc, "See `pcircle.fs.native.pure.change_names`.");

static PyObject *
change_names(PyObject *module, PyObject *arguments)
{
    struct changing how;
    struct names names;
    PyObject *fds, *list, *result = NULL;
    long long uid, gid, until_ns;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OOiLLL:change_names", &fds, &list, &how.mode, &uid, &gid,
                          &until_ns))
        return NULL;
    how.uid = (uid_t)uid;
    how.gid = (gid_t)gid;
    if (take_names(list, &names, 0) < 0)
        return NULL;
    if (take_fds(fds, names.count, &how.holders) == 0) {
        result = result_of(&names, NULL, change_next, &how, until_ns);
        PyMem_Free(how.holders.each);
    }
    PyMem_Free(names.texts);
    return result;
}

/* ---- lines of text --------------------------------------------------------------------------- */

#define OF_EACH -1 /* sources of a field other than a column: a list with a text for each entry */
#define OF_BODY -2 /* a list with a text for each body */
#define OF_NAME -3
#define AS_IS 0 /* alignments; AS_NUMBERS: numbers on the right, other text on the left */
#define LEFT 1
#define RIGHT 2
#define AS_NUMBERS 3
#define CACHED 64 /* values of a column whose texts are cached */
#define NS_DIGITS 9

struct slice {
    size_t at, size; /* in `lines.text` */
};

struct cached {
    int64_t value;
    struct slice slice; /* unused if its size is SIZE_MAX */
};

struct field {
    const char *literal;   /* NULL if the text varies */
    size_t literal_bytes;
    int place, align;
    PyObject *change;      /* borrowed; None, a callable, a tuple of times, or a list */
    struct slice *slices;  /* the text of each entry or body */
    struct cached *cached; /* 2 * CACHED elements */
};

struct lines {
    char *text; /* all texts made so far */
    size_t used, room;
    const int64_t *table;
    size_t rows, count, bodies; /* of the table; entries in their order; */
    const size_t *order;
    struct slice *names;
};

static int
add_text(struct lines *lines, const char *text, size_t size, struct slice *slice)
{
    if (make_room(&lines->text, lines->used, size, &lines->room) != 0) {
        PyErr_NoMemory();
        return -1;
    }
    if (size > 0)
        memcpy(lines->text + lines->used, text, size);
    slice->at = lines->used;
    slice->size = size;
    lines->used += size;
    return 0;
}

static int
add_bytes(struct lines *lines, PyObject *object, struct slice *slice)
{
    char *text;
    Py_ssize_t size;
    if (object == NULL || PyBytes_AsStringAndSize(object, &text, &size) < 0)
        return -1;
    return add_text(lines, text, (size_t)size, slice);
}

static int
add_number(struct lines *lines, int64_t value, int has_sign, struct slice *slice)
{
    char digits[20], *first = digits + sizeof digits;
    uint64_t left = (uint64_t)value;
    const int is_negative = has_sign && value < 0;
    if (is_negative)
        left = 0 - left;
    do {
        *--first = (char)('0' + left % 10);
        left /= 10;
    } while (left != 0);
    if (is_negative) /* a negative number has at most 19 digits, so the sign fits */
        *--first = '-';
    return add_text(lines, first, (size_t)(digits + sizeof digits - first), slice);
}

/* Add the text that a callable returns for a number, or use the cached text. */
static int
add_changed(struct lines *lines, PyObject *change, int64_t value, struct cached *cached,
            struct slice *slice)
{
    struct cached *known = cached + ((uint64_t)value ^ (uint64_t)value >> 7) % CACHED;
    if (known->slice.size == SIZE_MAX || known->value != value) {
        PyObject *number = PyLong_FromLongLong(value);
        PyObject *text = number == NULL ? NULL
                                        : PyObject_CallFunctionObjArgs(change, number, NULL);
        known->slice.size = SIZE_MAX;
        const int state = add_bytes(lines, text, slice);
        Py_XDECREF(number);
        Py_XDECREF(text);
        if (state != 0)
            return -1;
        known->value = value;
        known->slice = *slice;
    }
    *slice = known->slice;
    return 0;
}

/* Fill the template for a second: "%09d" stands for the nanoseconds, and "%%" for "%". */
static int
add_time(struct lines *lines, struct slice template, int64_t ns, struct slice *slice)
{
    /* Four bytes become nine at most, so the text is less than three times as long. */
    if (make_room(&lines->text, lines->used, 3 * template.size, &lines->room) != 0) {
        PyErr_NoMemory();
        return -1;
    }
    const char *from = lines->text + template.at, *end = from + template.size;
    char *to = lines->text + lines->used;
    slice->at = lines->used;
    while (from < end) {
        if (*from != '%') {
            *to++ = *from++;
        } else if (end - from >= 4 && memcmp(from, "%09d", 4) == 0) {
            int64_t left = ns;
            for (int digit = NS_DIGITS - 1; digit >= 0; digit--, left /= 10)
                to[digit] = (char)('0' + left % 10);
            to += NS_DIGITS;
            from += 4;
        } else {
            *to++ = '%';
            from += end - from >= 2 ? 2 : 1;
        }
    }
    slice->size = (size_t)(to - lines->text) - lines->used;
    lines->used += slice->size;
    return 0;
}

/* Make the texts of times with two callables, of which the first is for recent times. */
static int
make_times(struct lines *lines, struct field *field)
{
    PyObject *recent, *others;
    long long from, from_ns, until, until_ns;
    const int64_t *seconds, *parts;
    if (lines->table == NULL)
        return 0;
    seconds = lines->table + (size_t)field->place * lines->rows;
    parts = seconds + lines->rows;
    if (!PyArg_ParseTuple(field->change, "OOLLLL", &recent, &others, &from, &from_ns, &until,
                          &until_ns))
        return -1;
    for (size_t at = 0; at < lines->count; at++) {
        const int64_t second = seconds[lines->order[at]], ns = parts[lines->order[at]];
        const int is_recent = (second > from || (second == from && ns > from_ns))
            && (second < until || (second == until && ns <= until_ns));
        struct slice template;
        if (add_changed(lines, is_recent ? recent : others, second,
                        field->cached + (is_recent ? CACHED : 0), &template) != 0
            || add_time(lines, template, ns, &field->slices[at]) != 0)
            return -1;
    }
    return 0;
}

/* Make the texts of a field for each entry in order, or for each body. */
static int
make_texts(struct lines *lines, struct field *field)
{
    const size_t count = field->place == OF_BODY ? lines->bodies : lines->count;
    if (field->literal != NULL)
        return 0;
    field->slices = PyMem_Malloc(count * sizeof *field->slices + 1);
    field->cached = PyMem_Malloc(2 * CACHED * sizeof *field->cached);
    if (field->slices == NULL || field->cached == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (int at = 0; at < 2 * CACHED; at++)
        field->cached[at].slice.size = SIZE_MAX;
    if (PyTuple_Check(field->change))
        return make_times(lines, field);
    const int64_t *column = field->place < 0 || lines->table == NULL
        ? NULL
        : lines->table + (size_t)field->place * lines->rows;
    const int has_sign = field->place < 7 || field->place > 9; /* except inode, device, rdev */
    for (size_t at = 0; at < count; at++) {
        const size_t entry = field->place == OF_BODY ? at : lines->order[at];
        struct slice *slice = &field->slices[at];
        if (field->place == OF_NAME)
            *slice = lines->names[entry];
        else if (field->place < 0) {
            /* Callables of other fields may have shortened the list, so check the index. */
            PyObject *text = PyList_GetItem(field->change, (Py_ssize_t)entry);
            if (add_bytes(lines, text, slice) != 0)
                return -1;
        } else if (field->change == Py_None) {
            if (add_number(lines, column[entry], has_sign, slice) != 0)
                return -1;
        } else if (add_changed(lines, field->change, column[entry], field->cached, slice) != 0)
            return -1;
    }
    return 0;
}

static int
is_number(const char *text, size_t size)
{
    for (size_t at = 0; at < size; at++)
        if (text[at] < '0' || text[at] > '9')
            return 0;
    return size > 0;
}

/* Return the text of entries from `begin` up to `end`, after the text `first`. */
static PyObject *
body_of(const struct lines *lines, const struct field *fields, size_t count, size_t *widths,
        size_t number, size_t begin, size_t end, struct slice first)
{
    size_t size = first.size;
    for (size_t which = 0; which < count; which++) {
        const struct field *field = fields + which;
        widths[which] = 0;
        if (field->literal != NULL) {
            size += field->literal_bytes * (end - begin);
        } else if (field->place == OF_BODY) {
            size += field->slices[number].size * (end - begin);
        } else if (field->align == AS_IS) {
            for (size_t at = begin; at < end; at++)
                size += field->slices[at].size;
        } else {
            for (size_t at = begin; at < end; at++)
                if (field->slices[at].size > widths[which])
                    widths[which] = field->slices[at].size;
            size += widths[which] * (end - begin);
        }
    }
    PyObject *result = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (result == NULL)
        return NULL;
    char *to = PyBytes_AsString(result);
    if (first.size > 0)
        to = (char *)memcpy(to, lines->text + first.at, first.size) + first.size;
    for (size_t at = begin; at < end; at++) {
        for (size_t which = 0; which < count; which++) {
            const struct field *field = fields + which;
            if (field->literal != NULL) {
                to = (char *)memcpy(to, field->literal, field->literal_bytes);
                to += field->literal_bytes;
                continue;
            }
            const struct slice *slice = field->slices + (field->place == OF_BODY ? number : at);
            const char *text = lines->text + slice->at;
            const size_t wide = slice->size > widths[which] ? slice->size : widths[which];
            const size_t blank = wide - slice->size;
            const int is_right = field->align == RIGHT
                || (field->align == AS_NUMBERS && is_number(text, slice->size));
            memset(to, ' ', wide);
            if (slice->size > 0)
                memcpy(to + (is_right ? blank : 0), text, slice->size);
            to += wide;
        }
    }
    return result;
}

/* Convert a tuple of fields, which keeps their objects alive. */
static int
take_fields(PyObject *tuple, const struct lines *lines, struct field *fields)
{
    for (Py_ssize_t at = 0; at < PyTuple_Size(tuple); at++) {
        PyObject *item = PyTuple_GetItem(tuple, at);
        struct field *field = fields + at;
        if (PyBytes_Check(item)) {
            field->literal = PyBytes_AsString(item);
            field->literal_bytes = (size_t)PyBytes_Size(item);
            continue;
        }
        if (!PyTuple_Check(item)) {
            PyErr_SetString(PyExc_TypeError, "a field must be bytes or a tuple");
            return -1;
        }
        if (!PyArg_ParseTuple(item, "iiO", &field->place, &field->align, &field->change))
            return -1;
        const int is_time = PyTuple_Check(field->change);
        const int of_list = field->place == OF_EACH || field->place == OF_BODY;
        const size_t size = field->place == OF_BODY ? lines->bodies : lines->rows;
        if (field->place < OF_NAME || field->place + is_time >= COLUMNS
            || field->align < AS_IS || field->align > AS_NUMBERS
            || (field->place == OF_BODY && field->align != AS_IS)
            || (field->place >= 0 && lines->table == NULL && lines->rows > 0)
            || (is_time && field->place < 0)) {
            PyErr_SetString(PyExc_ValueError, "fields");
            return -1;
        }
        if (of_list
            && (!PyList_Check(field->change) || (size_t)PyList_Size(field->change) != size)) {
            PyErr_SetString(PyExc_TypeError, "a field must have a list of all texts");
            return -1;
        }
    }
    return 0;
}

/* Copy a list of numbers from 0 to below `limit`; return their count, or -1 with an exception. */
static Py_ssize_t
take_sizes(PyObject *list, size_t limit, size_t **sizes)
{
    if (!PyList_Check(list)) {
        PyErr_SetString(PyExc_TypeError, "counts and order must be lists of int");
        return -1;
    }
    const Py_ssize_t count = PyList_Size(list);
    *sizes = PyMem_Malloc((size_t)count * sizeof **sizes + 1);
    if (*sizes == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t at = 0; at < count; at++) {
        (*sizes)[at] = PyLong_AsSize_t(PyList_GetItem(list, at));
        if ((*sizes)[at] >= limit) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_ValueError, "counts, order");
            return -1;
        }
    }
    return count;
}

/* Take NUL-terminated names, and the order in which they are requested. */
static int
take_lines(const char *names, Py_ssize_t names_bytes, Py_ssize_t table_bytes, PyObject *order,
           struct lines *lines, size_t **places)
{
    if (names_bytes > 0 && names[names_bytes - 1] != 0) {
        PyErr_SetString(PyExc_ValueError, "names must end with a NUL");
        return -1;
    }
    for (Py_ssize_t at = 0; at < names_bytes; at++)
        lines->rows += names[at] == 0;
    if (table_bytes == 0)
        lines->table = NULL;
    else if ((size_t)table_bytes != lines->rows * sizeof(row)) {
        PyErr_SetString(PyExc_ValueError, "the table must have a row for each name");
        return -1;
    }
    lines->names = PyMem_Malloc(lines->rows * sizeof *lines->names + 1);
    if (lines->names == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    struct slice all;
    if (add_text(lines, names, (size_t)names_bytes, &all) != 0)
        return -1;
    for (size_t at = 0, place = 0; at < lines->rows; at++) {
        lines->names[at].at = place;
        lines->names[at].size = strlen(names + place);
        place += lines->names[at].size + 1;
    }
    if (order != Py_None) {
        const Py_ssize_t count = take_sizes(order, lines->rows, places);
        if (count < 0)
            return -1;
        lines->count = (size_t)count;
    } else {
        *places = PyMem_Malloc(lines->rows * sizeof **places + 1);
        if (*places == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        for (size_t at = 0; at < lines->rows; at++)
            (*places)[at] = at;
        lines->count = lines->rows;
    }
    lines->order = *places;
    return 0;
}

/* Return the list of bodies, or NULL with an exception. */
static PyObject *
bodies_of(struct lines *lines, struct field *fields, size_t count, const size_t *counts, int total,
          PyObject *total_text)
{
    struct cached cached[CACHED];
    size_t *widths = PyMem_Malloc(count * sizeof *widths + 1);
    PyObject *result = PyList_New((Py_ssize_t)lines->bodies);
    if (widths == NULL)
        PyErr_NoMemory();
    for (int at = 0; at < CACHED; at++)
        cached[at].slice.size = SIZE_MAX;
    for (size_t number = 0, begin = 0; !PyErr_Occurred() && number < lines->bodies; number++) {
        struct slice first = {0, 0};
        const size_t end = begin + counts[number];
        if (total >= 0) {
            const int64_t *column = lines->table + (size_t)total * lines->rows;
            int64_t sum = 0;
            for (size_t at = begin; lines->table != NULL && at < end; at++)
                sum = (int64_t)((uint64_t)sum + (uint64_t)column[lines->order[at]]);
            if (add_changed(lines, total_text, sum, cached, &first) != 0)
                break;
        }
        PyObject *body = body_of(lines, fields, count, widths, number, begin, end, first);
        if (body == NULL || PyList_SetItem(result, (Py_ssize_t)number, body) < 0)
            break;
        begin = end;
    }
    PyMem_Free(widths);
    if (PyErr_Occurred())
        Py_CLEAR(result);
    return result;
}

PyDoc_STRVAR(format_entries_doc, "See `pcircle.fs.native.pure.format_entries`.");

static PyObject *
format_entries(PyObject *module, PyObject *arguments)
{
    struct lines lines = {0};
    struct field *fields = NULL;
    const char *table, *names;
    Py_ssize_t table_bytes, names_bytes, count = 0;
    PyObject *counted, *order, *wanted, *total_text, *tuple = NULL, *result = NULL;
    size_t *places = NULL, *counts = NULL, all = 0;
    int total;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "y#y#OOOiO:format_entries", &table, &table_bytes, &names,
                          &names_bytes, &counted, &order, &wanted, &total, &total_text))
        return NULL;
    lines.table = (const int64_t *)(const void *)table;
    if (take_lines(names, names_bytes, table_bytes, order, &lines, &places) != 0)
        goto end;
    const Py_ssize_t bodies = take_sizes(counted, lines.count + 1, &counts);
    if (bodies < 0)
        goto end;
    lines.bodies = (size_t)bodies;
    for (size_t at = 0; at < lines.bodies; at++)
        all += counts[at];
    if (all != lines.count || total >= COLUMNS) {
        PyErr_SetString(PyExc_ValueError, "counts, total");
        goto end;
    }
    tuple = PySequence_Tuple(wanted); /* keeps the fields alive, whatever a callable does */
    count = tuple == NULL ? 0 : PyTuple_Size(tuple);
    fields = tuple == NULL ? NULL : PyMem_Calloc((size_t)count + 1, sizeof *fields);
    if (fields == NULL) {
        if (!PyErr_Occurred())
            PyErr_NoMemory();
        goto end;
    }
    if (take_fields(tuple, &lines, fields) != 0)
        goto end;
    for (Py_ssize_t at = 0; at < count; at++)
        if (make_texts(&lines, fields + at) != 0)
            goto end;
    result = bodies_of(&lines, fields, (size_t)count, counts, total, total_text);
end:
    for (Py_ssize_t at = 0; fields != NULL && at < count; at++) {
        PyMem_Free(fields[at].slices);
        PyMem_Free(fields[at].cached);
    }
    PyMem_Free(fields);
    Py_XDECREF(tuple);
    PyMem_Free(lines.names);
    PyMem_Free(places);
    PyMem_Free(counts);
    free(lines.text);
    return result;
}

/* ---- the module ------------------------------------------------------------------------------ */

static PyMethodDef methods[] = {
    {"ask_attributes", ask_attributes, METH_VARARGS, ask_attributes_doc},
    {"change_names", change_names, METH_VARARGS, change_names_doc},
    {"copy_files", copy_files, METH_VARARGS, copy_files_doc},
    {"format_entries", format_entries, METH_VARARGS, format_entries_doc},
    {"list_directory", list_directory, METH_VARARGS, list_directory_doc},
    {"make_directories", make_directories, METH_VARARGS, make_directories_doc},
    {"read_files", read_files, METH_VARARGS, read_files_doc},
    {"scan_directories", scan_directories, METH_VARARGS, scan_directories_doc},
    {"settle_open", settle_open, METH_VARARGS, settle_open_doc},
    {"stat_names", stat_names, METH_VARARGS, stat_names_doc},
    {"stat_open", stat_open, METH_O, stat_open_doc},
    {"unlink_names", unlink_names, METH_VARARGS, unlink_names_doc},
    {NULL, NULL, 0, NULL},
};

static int
execute(PyObject *module)
{
    struct status status;
    static int has_key = 0;
    if (look(AT_FDCWD, "/", 0, BASIC, &status) != 0) {
        PyErr_SetString(PyExc_ImportError, "this kernel has no statx");
        return -1;
    }
    if (!has_key) {
        if (pthread_key_create(&buffer_key, free) != 0) {
            PyErr_SetString(PyExc_ImportError, "no key for memory of threads is left");
            return -1;
        }
        has_key = 1;
    }
    return PyModule_AddIntConstant(module, "INTERFACE", INTERFACE);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)execute},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_native",
    .m_doc = "System calls that run millions of times; see `pcircle.fs.native`.",
    .m_size = 0,
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC
PyInit__native(void)
{
    return PyModuleDef_Init(&definition);
}
