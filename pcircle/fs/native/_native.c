/* System calls that run millions of times and involve no decision.
 *
 * Each function does the plain case of an operation for many names of one directory, and reports of
 * each name what became of it.  What an error means, and what is done about a name that is not
 * plain, is decided by the callers, in Python.  `pure.py` is the same in Python; one set of tests
 * holds for both.
 *
 * What makes it safe:
 * - A name has no slash, and is relative to a descriptor that the caller keeps open.  No link is
 *   followed, unless the caller's flags for opening say so.
 * - All that can raise (arguments, memory for the result) comes before the first change.  After
 *   that a function returns.
 * - The interpreter's lock is released during system calls, so names are copied before.
 * - A call that a signal interrupts ends the function: the rest is reported as not tried, Python
 *   handles the signal, and the caller goes on.
 * - Between two names the clock is looked at: the rest is left when `until_ns` has passed.
 *
 * A result has one 64-bit number for each name: what its function says, or -1 - errno, or
 * NOT_PLAIN, or UNTRIED.  Times are nanoseconds of CLOCK_MONOTONIC, as `time.monotonic_ns` has them.
 */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define _FILE_OFFSET_BITS 64
#define _TIME_BITS 64 /* else times after 2038 would be cut on 32 bits */
#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030A0000
#endif
#include <Python.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
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

/* Of the functions here and their results; `pure.py` has the same. */
#define INTERFACE 2

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
#define GET_FLAGS _IOR('f', 1, long) /* FS_IOC_GETFLAGS of linux/fs.h, which not all have */

/* ---- statx(2), of which old C libraries have neither the call nor the record ---------------- */

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

/* ---- names, and what becomes of them -------------------------------------------------------- */

struct names {
    Py_ssize_t count;
    char **texts; /* in one piece, behind the pointers */
};

static int64_t
now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Copy names, which must be bytes without a slash or a NUL, and none of "", "." and "..". */
static int
take_names(PyObject *list, struct names *names)
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
            || memchr(text, '/', (size_t)size) != NULL || strcmp(text, ".") == 0
            || strcmp(text, "..") == 0) {
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

/* A bytes object of so many numbers, all UNTRIED, and where these are. */
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

/* What is done with one name.  It returns the outcome, and sets `ends` if it is to be the last. */
typedef int64_t (*action)(const char *name, void *context, int *ends);

/* Act on names in their order, without the interpreter's lock, until the time has passed. */
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

/* ---- a buffer for each thread, which its end releases ---------------------------------------- */

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

/* ---- copying --------------------------------------------------------------------------------- */

struct copying {
    int source_fd, target_fd, flags, creation_bits, keep;
    int inode_flags; /* that a user sets, and a copy would have to be given */
    const char *ignored; /* attributes that no copy is given, each ended by a NUL */
    Py_ssize_t ignored_bytes;
    int64_t max_links, max_bytes, source_device, owner, group;
    char *buffer;
    int64_t room; /* left for contents; 0 if these are not kept */
    uid_t user;   /* who copies */
    int right_mode; /* with which a file was made as it should be, -1 at first */
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

/* Whether a file has attributes that a copy of it would have to be given. */
static int
has_attributes(int fd, const struct copying *how)
{
    char list[LIST_BYTES + 1];
    ssize_t size;
    int keep = how->keep;
    if ((keep & ASK_LISTS) != 0
        && (fgetxattr(fd, "system.posix_acl_access", NULL, 0) >= 0 || !is_no_attribute(errno)))
        return 1;
    if ((keep & (KEEP_LISTS | KEEP_ATTRIBUTES)) == 0)
        return 0;
    size = flistxattr(fd, list, LIST_BYTES);
    if (size < 0)
        return !is_no_attribute(errno); /* in doubt the caller looks */
    list[size] = 0; /* what a server sends may lack it */
    for (const char *name = list; name < list + size; name += strlen(name) + 1) {
        if (strcmp(name, "system.posix_acl_access") == 0)
            return 1;
        if ((keep & KEEP_ATTRIBUTES) != 0 && !is_ignored(name, how))
            return 1;
    }
    return 0;
}

/* Whether a file has one of these inode flags.  Not all file systems have any, or tell. */
static int
has_flags(int fd, int flags)
{
    union {
        int value;
        long room[2];
    } found = {.room = {0, 0}}; /* most write an int, although the number of the call says long */
    return flags != 0 && ioctl(fd, GET_FLAGS, &found) == 0 && (found.value & flags) != 0;
}

/* Give an open copy owner, mode and times, in this order; 0 or an errno. */
static int
settle(int out, const struct status *source, struct copying *how, int made_right)
{
    struct status made;
    if (made_right && how->right_mode != (int)source->mode) {
        /* The kernel answers alike for all files of one mode in one directory. */
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

/* Remove a file that was made and is not whole, unless its name stands for another one by now. */
static void
discard(int out, int directory_fd, const char *name)
{
    struct status made, now;
    if (look_open(out, &made) == 0
        && look(directory_fd, name, AT_SYMLINK_NOFOLLOW, BASIC, &now) == 0
        && made.inode == now.inode && device_of(&made) == device_of(&now))
        unlinkat(directory_fd, name, 0);
}

/* Read all of a file and write it: 0, an errno, or -1 if it is not as large as it claims.
 *
 * One byte more is asked for than there should be: growth shows.  A file of size 0 may have content.
 */
static int
move_content(int fd, int out, size_t size, char *buffer)
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
    if (done != size)
        return -1;
    for (done = 0; done < size;) {
        ssize_t count = write(out, buffer + done, size - done);
        if (count <= 0) /* some file systems write nothing, and call that no error */
            return count < 0 ? errno : -1;
        done += (size_t)count;
    }
    return 0;
}

/* Copy one file, of which nothing is left behind unless it is whole; its size, or what it is.
 *
 * Where it may be made with its mode, the directory is closed to others, see `pure.copy_files`.
 */
static int64_t
copy_file(const char *name, struct copying *how)
{
    struct status source;
    int64_t outcome = NOT_PLAIN;
    int fd = openat(how->source_fd, name, how->flags);
    if (fd < 0)
        return -1 - (int64_t)errno;
    if (look_open(fd, &source) != 0) {
        outcome = -1 - (int64_t)errno;
        goto close_source;
    }
    if (!S_ISREG(source.mode) || (int64_t)source.links > how->max_links
        || source.size > (uint64_t)how->max_bytes || source.size > source.blocks * 512
        || (int64_t)device_of(&source) != how->source_device
        || has_attributes(fd, how) || has_flags(fd, how->inode_flags))
        goto close_source;
    int right = how->owner == (int64_t)source.uid && how->group == (int64_t)source.gid
        && (source.mode & SPECIAL_BITS) == 0;
    /* Ordinary users cannot give files away: what becomes of owner and mode then is a decision. */
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
    int error = move_content(fd, out, (size_t)source.size, how->buffer);
    if (error == 0)
        error = settle(out, &source, how, right);
    if (error != 0)
        discard(out, how->target_fd, name);
    if (close(out) != 0 && error == 0) { /* what was written is not all there */
        error = errno;
        unlinkat(how->target_fd, name, 0);
    }
    outcome = error == 0 ? (int64_t)source.size : error < 0 ? NOT_PLAIN : -1 - (int64_t)error;
close_source:
    close(fd);
    return outcome;
}

/* Copy one file.  The first that fails is the last: the caller takes care of it before the others. */
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
    PyObject *list, *result, *contents, *both = NULL;
    int64_t *outcomes;
    long long max_links, max_bytes, device, owner, group, until_ns, room;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "iiOiiiiy#LLLLLLL:copy_files", &how.source_fd, &how.target_fd,
                          &list, &how.flags, &how.creation_bits, &how.keep, &how.inode_flags,
                          &how.ignored, &how.ignored_bytes, &max_links, &max_bytes, &device,
                          &owner, &group, &until_ns, &room))
        return NULL;
    if (max_bytes < 0 || max_bytes > MAX_FILE_BYTES || (room != 0 && room <= max_bytes)) {
        PyErr_SetString(PyExc_ValueError, "max_bytes");
        return NULL;
    }
    how.max_links = max_links;
    how.max_bytes = max_bytes;
    how.source_device = device;
    how.owner = owner;
    how.group = group;
    how.room = room;
    how.user = geteuid();
    how.right_mode = -1;
    if (take_names(list, &names) < 0)
        return NULL;
    result = new_result(names.count, &outcomes);
    contents = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)room);
    if (result != NULL && contents != NULL) {
        how.buffer = room != 0 ? PyBytes_AsString(contents) : own_buffer();
        both = how.buffer != NULL ? PyTuple_Pack(2, result, contents) : PyErr_NoMemory();
    }
    if (both != NULL)
        act_on_each(&names, outcomes, copy_next, &how, until_ns);
    PyMem_Free(names.texts);
    Py_XDECREF(result);
    Py_XDECREF(contents);
    return both;
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
    int64_t *outcomes;
    int directories;
    long long until_ns;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "iOpL:unlink_names", &how.fd, &list, &directories, &until_ns))
        return NULL;
    how.flags = directories ? AT_REMOVEDIR : 0;
    if (take_names(list, &names) < 0)
        return NULL;
    result = new_result(names.count, &outcomes);
    if (result != NULL)
        act_on_each(&names, outcomes, unlink_next, &how, until_ns);
    PyMem_Free(names.texts);
    return result;
}

/* ---- the module ------------------------------------------------------------------------------ */

static PyMethodDef methods[] = {
    {"copy_files", copy_files, METH_VARARGS, copy_files_doc},
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
