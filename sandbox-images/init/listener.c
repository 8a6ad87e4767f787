/*
 * Where connections come from. Two ways, and nothing that runs inside can use either:
 *  - dial: sockets appear in a directory that the host owns and that is mounted read-only; we connect, and go on only if the
 *    listener is outside our PID namespace (SO_PEERCRED shows pid 0 for such a process);
 *  - listen: an abstract socket that anybody inside can reach, so callers with our own uid are hung up on, and the first frame must
 *    carry the token.
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

#define LOOK_AGAIN (20 * MS) /* after a full backlog */
#define LOOK_EVERY (200 * MS) /* where the directory cannot be watched */

static struct source listener = {.kind = AT_LISTENER};
static int listener_fd = -1;
static const char *directory;
static char token[WIRE_TOKEN];
static uint64_t look_again = NEVER;
static bool unwatched; /* the kernel has few inotify instances for a user, and all sandboxes share one user */

static bool outside(int fd)
{
    struct ucred peer;
    socklen_t length = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.pid == 0;
}

/*
 * A command has our uid, a bridge another one. Commands are hung up on before they take a place: whoever calls all the time
 * would push out a host that has not said hello yet. A kernel that names the asker himself (gVisor) does not know who calls.
 */
static bool a_command_s(int fd)
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
    /* A number alone may be used again once its socket was unlinked. */
    uint64_t inode = file.st_ino + ((uint64_t)file.st_ctim.tv_nsec << 32);
    if (connection_known(inode))
        return;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return;
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0 && outside(fd)) {
        connection_admit(fd, inode);
        return;
    }
    if (errno == EAGAIN)
        look_again = now + LOOK_AGAIN;
    close(fd);
}

static void look_into_directory(void)
{
    look_again = unwatched ? now + LOOK_EVERY : NEVER;
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
    look_into_directory();
}

void listener_listen(const char *secret)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "\0belljar"};
    socklen_t length = offsetof(struct sockaddr_un, sun_path) + sizeof "\0belljar" - 1;
    memcpy(token, secret, sizeof token);
    listener_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener_fd < 0 || bind(listener_fd, (struct sockaddr *)&address, length) != 0 || listen(listener_fd, 64) != 0)
        leave("cannot listen");
    watch(listener_fd, &listener, EPOLLIN);
}

void listener_event(void)
{
    if (!directory) {
        int fd = accept4(listener_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0 && a_command_s(fd))
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
            look_into_directory();
        at += sizeof *event + event->len;
    }
}

/* In time that does not depend on where they differ. */
bool token_matches(const uint8_t *given, size_t length)
{
    if (directory)
        return true;
    uint8_t differences = length != sizeof token;
    for (size_t i = 0; i < sizeof token && i < length; i++)
        differences |= (uint8_t)(given[i] ^ (uint8_t)token[i]);
    return differences == 0;
}

void listener_tend(uint64_t *next)
{
    if (look_again <= now)
        look_into_directory();
    if (look_again < *next)
        *next = look_again;
}
