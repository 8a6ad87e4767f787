/* A directory as one stream, and back. Entries: type (f, d, l), mode (u32), size (u64), length of the path (u16), all
 * little-endian, then the path and `size` bytes: a file's contents, a link's target. 'e' ends the stream. Paths are
 * relative and hold no "..". Other kinds of file are left out. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools.h"

#define HEAD 15u

static bool put_head(char type, uint32_t mode, uint64_t size, const char *path)
{
    uint8_t head[HEAD] = {(uint8_t)type};
    size_t length = strlen(path);
    for (int i = 0; i < 4; i++)
        head[1 + i] = (uint8_t)(mode >> (8 * i));
    for (int i = 0; i < 8; i++)
        head[5 + i] = (uint8_t)(size >> (8 * i));
    head[13] = (uint8_t)length;
    head[14] = (uint8_t)(length >> 8);
    return write_out(STDOUT_FILENO, head, HEAD) && write_out(STDOUT_FILENO, path, length);
}

/* Writes exactly `size` bytes, padded with zeros if the file shrinks meanwhile. */
static bool put_contents(int fd, uint64_t size)
{
    static char buffer[256u << 10];
    while (size) {
        size_t most = size < sizeof buffer ? (size_t)size : sizeof buffer;
        ssize_t got = read(fd, buffer, most);
        if (got <= 0) {
            memset(buffer, 0, most);
            got = (ssize_t)most;
        }
        if (!write_out(STDOUT_FILENO, buffer, (size_t)got))
            return false;
        size -= (uint64_t)got;
    }
    return true;
}

static bool pack_one(int parent, const char *name, const char *path, int depth);

static bool pack_all(int directory, const char *prefix, int depth)
{
    DIR *entries = fdopendir(directory);
    struct dirent *entry;
    bool good = entries != NULL;
    while (good && (entry = readdir(entries))) {
        char *path;
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        if (asprintf(&path, "%s%s", prefix, entry->d_name) < 0)
            return false;
        good = strlen(path) > UINT16_MAX || pack_one(dirfd(entries), entry->d_name, path, depth);
        free(path);
    }
    if (entries)
        closedir(entries);
    return good;
}

static bool pack_one(int parent, const char *name, const char *path, int depth)
{
    struct stat status;
    if (fstatat(parent, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return true;
    if (S_ISLNK(status.st_mode)) {
        char target[4096];
        ssize_t length = readlinkat(parent, name, target, sizeof target);
        return length < 0 || (put_head('l', 0777, (uint64_t)length, path) && write_out(STDOUT_FILENO, target, (size_t)length));
    }
    if (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode))
        return true;
    int fd = openat(parent, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return false;
    if (S_ISREG(status.st_mode)) {
        bool good = put_head('f', status.st_mode & 0777, (uint64_t)status.st_size, path) && put_contents(fd, (uint64_t)status.st_size);
        close(fd);
        return good;
    }
    char *deeper;
    bool good = depth && put_head('d', status.st_mode & 0777, 0, path) && asprintf(&deeper, "%s/", path) >= 0;
    if (!good) {
        close(fd);
        return false;
    }
    good = pack_all(fd, deeper, depth - 1);
    free(deeper);
    return good;
}

int tool_pack(const char *path)
{
    int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0 || !pack_all(directory, "", TOOL_DEPTH) || !put_head('e', 0, 0, ""))
        return tool_failed();
    return 0;
}

static bool is_inside(const char *path)
{
    if (!*path || *path == '/')
        return false;
    for (const char *at = path; at; at = strchr(at, '/') ? strchr(at, '/') + 1 : NULL)
        if (!strncmp(at, "..", 2) && (!at[2] || at[2] == '/'))
            return false;
    return true;
}

static bool take_file(int parent, const char *name, mode_t mode, uint64_t size)
{
    static char buffer[256u << 10];
    unlinkat(parent, name, 0);
    int fd = openat(parent, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool good = fd >= 0;
    while (good && size) {
        size_t most = size < sizeof buffer ? (size_t)size : sizeof buffer;
        good = read_in(STDIN_FILENO, buffer, most) && write_out(fd, buffer, most);
        size -= most;
    }
    good = good && fchmod(fd, mode & 0777) == 0;
    if (fd >= 0)
        close(fd);
    return good;
}

static bool take_link(int parent, const char *name, uint64_t size)
{
    char target[4096];
    if (size >= sizeof target || !read_in(STDIN_FILENO, target, (size_t)size))
        return false;
    target[size] = 0;
    unlinkat(parent, name, 0);
    return symlinkat(target, parent, name) == 0;
}

/* Sets the mode of an existing one too: a read-only directory is sent twice, before and after its contents. */
static bool take_directory(int parent, const char *name, mode_t mode)
{
    if (mkdirat(parent, name, 0755) < 0 && errno != EEXIST)
        return false;
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0) {
        fchmod(fd, mode & 0777);
        close(fd);
    }
    return true;
}

int tool_unpack(const char *path)
{
    int directory = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        return tool_failed();
    for (;;) {
        uint8_t head[HEAD];
        char name[UINT16_MAX + 1];
        uint32_t mode = 0;
        uint64_t size = 0;
        if (!read_in(STDIN_FILENO, head, HEAD))
            return tool_failed();
        for (int i = 0; i < 4; i++)
            mode |= (uint32_t)head[1 + i] << (8 * i);
        for (int i = 0; i < 8; i++)
            size |= (uint64_t)head[5 + i] << (8 * i);
        size_t length = head[13] | (size_t)head[14] << 8;
        if (!read_in(STDIN_FILENO, name, length))
            return tool_failed();
        name[length] = 0;
        if (head[0] == 'e')
            return 0;
        const char *last;
        errno = EPROTO;
        int parent = strlen(name) == length && is_inside(name) ? open_parent(directory, name, &last) : -1;
        bool good = parent >= 0;
        if (good && head[0] == 'd')
            good = take_directory(parent, last, mode);
        else if (good && head[0] == 'f')
            good = take_file(parent, last, mode, size);
        else if (good)
            good = head[0] == 'l' && take_link(parent, last, size);
        if (!good)
            return tool_failed();
        close(parent);
    }
}
