/* File tools that need nothing from the image. Files are opened beneath a root, and written completely or not at all. */
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

static const char *root_path;

int tool_failed(void)
{
    int error = errno;
    dprintf(STDERR_FILENO, "%d %s\n", error, strerror(error));
    return 1;
}

/* Resolves a path without leaving its root: a stack of open directories, with links followed by hand. openat2 could do it, but seccomp
 * refuses it in a sandbox, because a filter cannot see its flags. */
struct walk {
    int stack[TOOL_DEPTH + 1], depth, links;
    char rest[2 * PATH_MAX];
};

static bool walk_to(struct walk *walk, const char *target)
{
    char old[2 * PATH_MAX];
    size_t under = strlen(root_path);
    memcpy(old, walk->rest, sizeof old);
    errno = ELOOP;
    if (++walk->links > 40)
        return false;
    if (*target == '/') { /* an absolute link into the root is common and harmless */
        errno = EXDEV;
        if (strncmp(target, root_path, under) || (target[under] && target[under] != '/'))
            return false;
        target += under;
        while (walk->depth)
            close(walk->stack[walk->depth--]);
    }
    errno = ENAMETOOLONG;
    return snprintf(walk->rest, sizeof walk->rest, "%s/%s", target, old) < (int)sizeof walk->rest;
}

/* Resolves one component. -1: go on; -2: failed; otherwise the descriptor of the file. */
static int walk_on(struct walk *walk, const char *name, bool last, int flags, mode_t mode)
{
    struct stat status;
    char target[PATH_MAX];
    int here = walk->stack[walk->depth];
    if (!strcmp(name, "..")) {
        errno = EXDEV;
        if (!walk->depth)
            return -2;
        close(walk->stack[walk->depth--]);
        return last ? openat(walk->stack[walk->depth], ".", flags & ~O_CREAT) : -1;
    }
    if (fstatat(here, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(status.st_mode)) {
        ssize_t length = readlinkat(here, name, target, sizeof target - 1);
        if (length < 0)
            return -2;
        target[length] = 0;
        return walk_to(walk, target) ? -1 : -2;
    }
    if (last) {
        int fd = openat(here, name, flags | O_NOFOLLOW, mode);
        return fd < 0 ? -2 : fd;
    }
    errno = ENAMETOOLONG;
    int below = walk->depth < TOOL_DEPTH ? openat(here, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
    if (below < 0)
        return -2;
    walk->stack[++walk->depth] = below;
    return -1;
}

/* Links are followed as long as they stay beneath the root. */
int open_beneath(int root, const char *path, int flags, mode_t mode)
{
    struct walk walk = {.stack = {root}};
    int found = -1;
    flags |= O_CLOEXEC;
    if (snprintf(walk.rest, sizeof walk.rest, "%s", path) >= (int)sizeof walk.rest || *path == '/') {
        errno = *path == '/' ? EXDEV : ENAMETOOLONG;
        return -1;
    }
    while (found == -1) {
        char name[NAME_MAX + 2];
        char *at = walk.rest + strspn(walk.rest, "/");
        size_t length = strcspn(at, "/");
        if (!length) { /* the path is empty or ends here, in a directory */
            found = openat(walk.stack[walk.depth], ".", flags & ~O_CREAT);
            found = found < 0 ? -2 : found;
            break;
        }
        if (length > NAME_MAX) {
            errno = ENAMETOOLONG;
            found = -2;
            break;
        }
        memcpy(name, at, length);
        name[length] = 0;
        bool last = !at[length + strspn(at + length, "/")];
        memmove(walk.rest, at + length, strlen(at + length) + 1);
        if (strcmp(name, "."))
            found = walk_on(&walk, name, last, flags, mode);
    }
    int error = errno;
    while (walk.depth)
        close(walk.stack[walk.depth--]);
    errno = error;
    return found < 0 ? -1 : found;
}

/* Opens the directory that holds the last component, which is not followed. */
int open_parent(int root, const char *path, const char **name)
{
    const char *slash = strrchr(path, '/');
    *name = slash ? slash + 1 : path;
    if (!**name || !strcmp(*name, ".") || !strcmp(*name, "..")) {
        errno = EINVAL;
        return -1;
    }
    if (!slash)
        return open_beneath(root, ".", O_PATH | O_DIRECTORY, 0);
    char *parent = strndup(path, (size_t)(slash - path));
    if (!parent)
        return -1;
    int fd = open_beneath(root, parent, O_PATH | O_DIRECTORY, 0);
    free(parent);
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

static int get(int root, const char *path, off_t offset, uint64_t length)
{
    struct stat status;
    int fd = open_beneath(root, path, O_RDONLY | O_NONBLOCK, 0);
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

static int put(int root, const char *path, mode_t mode, const char *mark)
{
    const char *name;
    uint64_t number;
    char temporary[48], self[32];
    int parent = open_parent(root, path, &name);
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

static int append(int root, const char *path)
{
    int fd = open_beneath(root, path, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK, 0644);
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

static int list_in(int root, const char *path, int depth)
{
    int directory = open_beneath(root, path, O_RDONLY | O_DIRECTORY, 0);
    if (directory < 0 || !list(directory, "", depth < TOOL_DEPTH ? depth : TOOL_DEPTH) || fflush(stdout))
        return tool_failed();
    return 0;
}

static int stat_of(int root, const char *path)
{
    struct stat status;
    int fd = open_beneath(root, path, O_PATH, 0);
    if (fd < 0 || fstat(fd, &status) < 0 || !put_record(path, &status, "") || fflush(stdout))
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

static int remove_path(int root, const char *path)
{
    const char *name;
    int parent = open_parent(root, path, &name);
    return parent < 0 || !remove_at(parent, name, TOOL_DEPTH) ? tool_failed() : 0;
}

static int make_directories(int root, const char *path)
{
    char *part = strdup(path);
    for (char *at = part; part && *at; at++) {
        char *slash = strchr(at, '/');
        const char *name;
        if (slash)
            *slash = 0;
        int parent = open_parent(root, part, &name);
        if (parent < 0 || (mkdirat(parent, name, 0755) < 0 && errno != EEXIST))
            return tool_failed();
        close(parent);
        if (!slash)
            break;
        *slash = '/';
        at = slash;
    }
    int made = open_beneath(root, path, O_PATH | O_DIRECTORY, 0);
    return part && made >= 0 ? 0 : tool_failed();
}

int tools_main(int argc, char **argv)
{
    const char *name = argc > 0 ? argv[0] : "";
    if (!strcmp(name, "relay"))
        return relay_main(argc, argv);
    if (argc < 3) {
        errno = EINVAL;
        return tool_failed();
    }
    int root = open(argv[1], O_PATH | O_DIRECTORY | O_CLOEXEC);
    const char *path = argv[2];
    root_path = argv[1];
    if (root < 0)
        return tool_failed();
    if (!strcmp(name, "get"))
        return get(root, path, argc > 4 ? atoll(argv[3]) : 0, argc > 4 ? strtoull(argv[4], NULL, 10) : UINT64_MAX);
    if (!strcmp(name, "put") && argc > 4)
        return put(root, path, (mode_t)strtoul(argv[3], NULL, 8), argv[4]);
    if (!strcmp(name, "append"))
        return append(root, path);
    if (!strcmp(name, "list") && argc > 3)
        return list_in(root, path, atoi(argv[3]));
    if (!strcmp(name, "stat"))
        return stat_of(root, path);
    if (!strcmp(name, "remove"))
        return remove_path(root, path);
    if (!strcmp(name, "mkdir"))
        return make_directories(root, path);
    if (!strcmp(name, "pack"))
        return tool_pack(root, path);
    if (!strcmp(name, "unpack"))
        return tool_unpack(root, path);
    if (!strcmp(name, "search") && argc > 4)
        return tool_search(root, path, argv[3], atol(argv[4]));
    errno = ENOSYS;
    return tool_failed();
}
