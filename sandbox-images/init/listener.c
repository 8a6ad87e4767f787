/*
 * How hosts connect. There are two ways, and no command inside can use either:
 *  - dial: sockets appear in a directory that the host owns and mounts read-only. We connect, and go on only if the process that
 *    listens is outside our PID namespace (SO_PEERCRED shows pid 0 for it);
 *  - listen: an abstract socket that every process inside can reach. So the first frame must carry the token, and we hang up on callers
 *    with our own uid, unless the engine cannot run the bridge as another user.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "init.h"

#define RESCAN_AFTER (20 * MS) /* after a full backlog */
#define SCAN_EVERY (200 * MS) /* where the directory cannot be watched */

static struct source listener = {.kind = AT_LISTENER};
static int listener_fd = -1;
static const char *directory;
static char token[WIRE_TOKEN];
static bool bridge_is_same_user;
static uint64_t next_scan = NEVER;
static bool unwatched; /* inotify failed: a user has few instances, and all sandboxes may share one user */

static bool is_outside(int fd)
{
    struct ucred peer;
    socklen_t length = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.pid == 0;
}

/*
 * A command has our uid, a bridge has another. We hang up on commands before they take a place: by calling all the time a command
 * could push out a host that has not sent its HELLO yet. gVisor does not know the caller and shows our own pid instead.
 */
static bool is_command(int fd)
{
    struct ucred peer;
    socklen_t length = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || (peer.pid != getpid() && peer.uid == getuid());
}

static void dial(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat file;
    size_t length = strlen(name);
    if (length < 5 || strcmp(name + length - 5, ".sock") != 0)
        return;
    if ((size_t)snprintf(address.sun_path, sizeof address.sun_path, "%s/%s", directory, name) >= sizeof address.sun_path)
        return;
    if (lstat(address.sun_path, &file) != 0 || !S_ISSOCK(file.st_mode))
        return;
    /* With the time: the kernel may reuse an inode number after its socket was unlinked. */
    uint64_t inode = file.st_ino + ((uint64_t)file.st_ctim.tv_nsec << 32);
    if (connection_known(inode))
        return;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return;
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0 && is_outside(fd)) {
        connection_admit(fd, inode);
        return;
    }
    if (errno == EAGAIN)
        next_scan = now + RESCAN_AFTER;
    close(fd);
}

static void scan_directory(void)
{
    next_scan = unwatched ? now + SCAN_EVERY : NEVER;
    DIR *listing = opendir(directory);
    if (!listing)
        return;
    for (struct dirent *entry; (entry = readdir(listing));)
        dial(entry->d_name);
    closedir(listing);
}

void listener_dial(const char *where)
{
    directory = where;
    listener_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    unwatched = listener_fd < 0 || inotify_add_watch(listener_fd, directory, IN_MOVED_TO | IN_CREATE) < 0;
    if (!unwatched)
        watch(listener_fd, &listener, EPOLLIN);
    scan_directory();
}

void listener_listen(const char *expected, bool same_user)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "\0belljar"};
    socklen_t length = offsetof(struct sockaddr_un, sun_path) + sizeof "\0belljar" - 1;
    memcpy(token, expected, sizeof token);
    bridge_is_same_user = same_user;
    listener_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener_fd < 0 || bind(listener_fd, (struct sockaddr *)&address, length) != 0 || listen(listener_fd, 64) != 0)
        leave("cannot listen");
    watch(listener_fd, &listener, EPOLLIN);
}

void listener_event(void)
{
    if (!directory) {
        int fd = accept4(listener_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0 && !bridge_is_same_user && is_command(fd))
            close(fd);
        else if (fd >= 0)
            connection_admit(fd, 0);
        return;
    }
    char events[4096] __attribute__((aligned(8)));
    ssize_t length = read(listener_fd, events, sizeof events);
    for (char *at = events; length > 0 && at < events + length;) {
        struct inotify_event *event = (struct inotify_event *)at;
        if (event->len)
            dial(event->name);
        if (event->mask & IN_Q_OVERFLOW)
            scan_directory();
        at += sizeof *event + event->len;
    }
}

/* Takes the same time wherever the tokens differ. */
bool token_matches(const uint8_t *received, size_t length)
{
    if (directory)
        return true;
    uint8_t differences = length != sizeof token;
    for (size_t i = 0; i < sizeof token && i < length; i++)
        differences |= (uint8_t)(received[i] ^ (uint8_t)token[i]);
    return differences == 0;
}

void listener_tend(uint64_t *next)
{
    if (next_scan <= now)
        scan_directory();
    if (next_scan < *next)
        *next = next_scan;
}
