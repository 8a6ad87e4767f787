/*
 * What the kernel shows PID 1 of its own sandbox, for a host that cannot look into it (a Pod, gVisor, a remote Docker). The files are
 * sent as they are: the host parses them, and trusts neither their form nor their length.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "init.h"

#define FILE_MAX (64u << 10) /* a longer one is cut, and the host misses what it looks for */

/* The control group's files are there in one version or the other. */
static const char *const files[] = {
    "/proc/self/status",
    "/proc/self/limits",
    "/proc/self/uid_map",
    "/proc/self/mountinfo",
    "/proc/net/route",
    "/proc/net/ipv6_route",
    "/proc/swaps",
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory.swap.max",
    "/sys/fs/cgroup/pids.max",
    "/sys/fs/cgroup/cpu.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    "/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes",
    "/sys/fs/cgroup/pids/pids.max",
    "/sys/fs/cgroup/cpu/cpu.cfs_quota_us",
    "/sys/fs/cgroup/cpu/cpu.cfs_period_us",
};

static size_t read_file(const char *path, uint8_t *to, size_t size)
{
    size_t length = 0;
    ssize_t n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return 0;
    while (length < size && (n = read(fd, to + length, size - length)) > 0)
        length += (size_t)n;
    close(fd);
    return length;
}

/* An entry: the lengths of name and content, then both. */
static uint8_t *put_entry(uint8_t *to, const char *name, size_t length)
{
    size_t name_length = strlen(name);
    uint8_t *content = to + 8 + name_length;
    put_bytes(put_u32(put_u32(to, (uint32_t)name_length), (uint32_t)length), name, name_length);
    return content + length;
}

/* The last entry has no name: a byte for each path that the host asks about, 1 if something is there. */
void answer_testimony(struct connection *connection, const struct frame *frame)
{
    uint8_t *at = scratch, *end = scratch + sizeof scratch - frame->length - 8;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        uint8_t *content = at + 8 + strlen(files[i]);
        size_t room = content < end ? (size_t)(end - content) : 0;
        size_t length = read_file(files[i], content, room < FILE_MAX ? room : FILE_MAX);
        if (length)
            at = put_entry(at, files[i], length);
    }
    const char *path = (const char *)frame->payload, *last = path + frame->length;
    size_t count = 0;
    struct stat status;
    for (const char *nul; path < last && (nul = memchr(path, 0, (size_t)(last - path))); path = nul + 1)
        at[8 + count++] = lstat(path, &status) == 0;
    at = put_entry(at, "", count);
    uint8_t *to = connection_frame(connection, (uint32_t)(at - scratch), TESTIMONY, 0, 0);
    if (to)
        put_bytes(to, scratch, (size_t)(at - scratch));
}
