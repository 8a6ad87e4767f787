/* File tools that need nothing from the image. They run as the sandbox's user, in /workspace; files are written completely or not at all. */
#define _GNU_SOURCE
#include "tools.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include "relay.h"

#define BUFFER (256u << 10)

int tool_failed(void)
{
    int error = errno;
    dprintf(STDERR_FILENO, "%d %s\n", error, strerror(error));
    return 1;
}

/* Opens the directory that holds the last component, which is not followed. */
int open_parent(int from, const char *path, const char **name)
{
    const char *slash = strrchr(path, '/');
    *name = slash ? slash + 1 : path;
    if (!**name || !strcmp(*name, ".") || !strcmp(*name, "..")) {
        errno = EISDIR;
        return -1;
    }
    char *parent = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    int fd = parent ? openat(from, parent, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    int error = errno;
    free(parent);
    errno = error;
    return fd;
}

bool write_out(int fd, const void *data, size_t length)
{
    const char *at = data;
    while (length) {
        ssize_t written = write(fd, at, length);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return false;
        at += written;
        length -= (size_t)written;
    }
    return true;
}

bool read_in(int fd, void *data, size_t length)
{
    char *at = data;
    while (length) {
        ssize_t got = read(fd, at, length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            errno = got ? errno : EPROTO;
            return false;
        }
        at += got;
        length -= (size_t)got;
    }
    return true;
}

static int get(const char *path, off_t offset, uint64_t length)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status) < 0)
        return tool_failed();
    if (!S_ISREG(status.st_mode)) {
        errno = S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
        return tool_failed();
    }
    while (length) {
        size_t most = length < BUFFER * 16 ? (size_t)length : BUFFER * 16;
        ssize_t sent = sendfile(STDOUT_FILENO, fd, &offset, most);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && (errno == EINVAL || errno == ENOSYS)) {
            static char buffer[BUFFER];
            sent = pread(fd, buffer, most < sizeof buffer ? most : sizeof buffer, offset);
            if (sent > 0 && !write_out(STDOUT_FILENO, buffer, (size_t)sent))
                return tool_failed();
            offset += sent > 0 ? sent : 0;
        }
        if (sent < 0)
            return tool_failed();
        if (!sent)
            return 0;
        length -= (uint64_t)sent;
    }
    return 0;
}

static bool pour(int fd)
{
    static char buffer[BUFFER];
    for (;;) {
        ssize_t got = splice(STDIN_FILENO, NULL, fd, NULL, BUFFER * 4, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            got = read(STDIN_FILENO, buffer, sizeof buffer);
            if (got > 0 && !write_out(fd, buffer, (size_t)got))
                return false;
        }
        if (got <= 0)
            return got == 0;
    }
}

/* The input is complete only if it ends in the host's mark: a host that dies closes the pipe, too. */
static bool ends_in(int fd, const char *mark)
{
    char last[64];
    size_t length = strnlen(mark, sizeof last);
    off_t end = lseek(fd, 0, SEEK_END) - (off_t)length;
    if (end >= 0 && pread(fd, last, length, end) == (ssize_t)length && !memcmp(last, mark, length))
        return ftruncate(fd, end) == 0;
    errno = EPIPE;
    return false;
}

static bool make_directories(char *path)
{
    for (char *at = path;; at++) {
        at += strspn(at, "/");
        at += strcspn(at, "/");
        char rest = *at;
        *at = 0;
        int error = mkdir(path, 0755) < 0 ? errno : 0;
        if (error && access(path, F_OK) < 0) {
            errno = error;
            return false;
        }
        if (!rest)
            return true;
        *at = rest;
    }
}

/* Opens the directory that a file is to be in, and makes it first if it is not there. */
static int parent_to_write(char *path, const char **name)
{
    int parent = open_parent(AT_FDCWD, path, name);
    char *slash = strrchr(path, '/');
    if (parent >= 0 || errno != ENOENT || !slash || slash == path)
        return parent;
    *slash = 0;
    bool made = make_directories(path);
    *slash = '/';
    return made ? open_parent(AT_FDCWD, path, name) : -1;
}

static int put(char *path, mode_t mode, const char *mark)
{
    const char *name;
    uint64_t number;
    char temporary[48], self[32];
    int parent = parent_to_write(path, &name);
    if (parent >= 0 && faccessat(parent, name, W_OK, 0) < 0 && errno != ENOENT)
        return tool_failed(); /* a rename would replace it all the same */
    if (parent < 0 || getrandom(&number, sizeof number, 0) != sizeof number)
        return tool_failed();
    snprintf(temporary, sizeof temporary, ".%016llx.belljar", (unsigned long long)number);
    int fd = openat(parent, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600); /* disappears if we are killed */
    bool named = fd < 0;
    if (named)
        fd = openat(parent, temporary, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return tool_failed();
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    if (pour(fd) && ends_in(fd, mark) && fchmod(fd, mode & 0777) == 0 &&
        (named || linkat(parent, self, parent, temporary, AT_SYMLINK_FOLLOW) == 0) && close(fd) == 0 &&
        renameat(parent, temporary, parent, name) == 0)
        return 0;
    int status = tool_failed();
    unlinkat(parent, temporary, 0);
    return status;
}

static int append(char *path)
{
    const char *name;
    int parent = parent_to_write(path, &name);
    if (parent >= 0)
        close(parent);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC, 0644);
    return fd >= 0 && pour(fd) ? 0 : tool_failed();
}

char entry_type(mode_t mode)
{
    return S_ISREG(mode) ? 'f' : S_ISDIR(mode) ? 'd' : S_ISLNK(mode) ? 'l' : S_ISFIFO(mode) ? 'p' : S_ISSOCK(mode) ? 's' : 'c';
}

/* "type mode size mtime-ns path\0target\0" */
bool put_record(const char *path, const struct stat *status, const char *target)
{
    char head[96];
    int length = snprintf(head, sizeof head, "%c %o %lld %lld%09ld ", entry_type(status->st_mode), status->st_mode & 07777,
                          (long long)status->st_size, (long long)status->st_mtim.tv_sec, status->st_mtim.tv_nsec);
    return fwrite(head, 1, (size_t)length, stdout) == (size_t)length && fwrite(path, 1, strlen(path) + 1, stdout) &&
           fwrite(target, 1, strlen(target) + 1, stdout);
}

static bool record_of(int parent, const char *name, const char *path, struct stat *status)
{
    char target[4096] = "";
    if (fstatat(parent, name, status, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT;
    if (S_ISLNK(status->st_mode)) {
        ssize_t length = readlinkat(parent, name, target, sizeof target - 1);
        target[length > 0 ? length : 0] = 0;
    }
    return put_record(path, status, target);
}

static bool list(int directory, const char *prefix, int depth)
{
    DIR *entries = fdopendir(directory);
    struct dirent *entry;
    bool good = entries != NULL;
    while (good && (entry = readdir(entries))) {
        char *path;
        struct stat status = {0};
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        if (asprintf(&path, "%s%s", prefix, entry->d_name) < 0)
            return false;
        good = record_of(dirfd(entries), entry->d_name, path, &status);
        if (good && depth > 1 && S_ISDIR(status.st_mode)) {
            int below = openat(dirfd(entries), entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            char *deeper;
            if (below >= 0 && asprintf(&deeper, "%s/", path) >= 0) {
                good = list(below, deeper, depth - 1);
                free(deeper);
            }
        }
        free(path);
    }
    if (entries)
        closedir(entries);
    return good;
}

static int list_in(const char *path, int depth)
{
    int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0 || !list(directory, "", depth < TOOL_DEPTH ? depth : TOOL_DEPTH) || fflush(stdout))
        return tool_failed();
    return 0;
}

static int stat_of(const char *path)
{
    struct stat status;
    int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status) < 0 || !put_record(path, &status, "") || fflush(stdout))
        return tool_failed();
    return 0;
}

/* Of the path itself, which may be a link to nothing. */
static int lstat_of(const char *path)
{
    struct stat status;
    const char *name;
    int parent = open_parent(AT_FDCWD, path, &name);
    if (parent < 0 && errno == EISDIR) /* "." and the like are no links */
        return stat_of(path);
    if (parent < 0 || fstatat(parent, name, &status, AT_SYMLINK_NOFOLLOW) < 0 || !record_of(parent, name, path, &status) ||
        fflush(stdout))
        return tool_failed();
    return 0;
}

static bool remove_at(int parent, const char *name, int depth)
{
    if (unlinkat(parent, name, 0) == 0)
        return true;
    if (errno != EISDIR && errno != EPERM)
        return false;
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *entries = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    bool good = entries && depth;
    if (good)
        fchmod(fd, 0700); /* entries of a read-only directory cannot be removed */
    while (good && (entry = readdir(entries)))
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
            good = remove_at(dirfd(entries), entry->d_name, depth - 1);
    if (entries)
        closedir(entries);
    return good && unlinkat(parent, name, AT_REMOVEDIR) == 0;
}

static int remove_path(const char *path)
{
    const char *name;
    int parent = open_parent(AT_FDCWD, path, &name);
    return parent < 0 || !remove_at(parent, name, TOOL_DEPTH) ? tool_failed() : 0;
}

static int make_directory(char *path)
{
    if (!make_directories(path))
        return tool_failed();
    if (open(path, O_PATH | O_DIRECTORY | O_CLOEXEC) >= 0)
        return 0;
    if (errno == ENOTDIR)
        errno = EEXIST; /* it is there, and something else */
    return tool_failed();
}

int tools_main(int argc, char **argv)
{
    const char *name = argc > 0 ? argv[0] : "";
    if (!strcmp(name, "relay"))
        return relay_main(argc, argv);
    if (argc < 2) {
        errno = EINVAL;
        return tool_failed();
    }
    char *path = argv[1];
    if (!strcmp(name, "get"))
        return get(path, argc > 3 ? atoll(argv[2]) : 0, argc > 3 ? strtoull(argv[3], NULL, 10) : UINT64_MAX);
    if (!strcmp(name, "put") && argc > 3)
        return put(path, (mode_t)strtoul(argv[2], NULL, 8), argv[3]);
    if (!strcmp(name, "append"))
        return append(path);
    if (!strcmp(name, "list") && argc > 2)
        return list_in(path, atoi(argv[2]));
    if (!strcmp(name, "stat"))
        return stat_of(path);
    if (!strcmp(name, "lstat"))
        return lstat_of(path);
    if (!strcmp(name, "remove"))
        return remove_path(path);
    if (!strcmp(name, "mkdir"))
        return make_directory(path);
    if (!strcmp(name, "pack"))
        return tool_pack(path);
    if (!strcmp(name, "unpack"))
        return tool_unpack(path);
    if (!strcmp(name, "search") && argc > 3)
        return tool_search(path, argv[2], atol(argv[3]));
    errno = ENOSYS;
    return tool_failed();
}
