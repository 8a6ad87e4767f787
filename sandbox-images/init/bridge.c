/*
 * `--bridge`: copies between its stdin/stdout and PID 1's socket, for engines that share no files with the host. It runs beside PID 1
 * (docker exec) and signals nobody. It holds the container's environment, so it must not be dumpable.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "init.h"

/* One direction. */
struct lane {
    int from, to;
    size_t at, length;
    bool ended;
    uint8_t bytes[64 << 10];
};

#define PID_1_TRIES 2000 /* of 10 ms: a loaded machine is slow */

/* PID 1 may not listen yet: an engine reports a container as started as soon as its first process exists. */
static bool connected(int fd, const struct sockaddr *address, socklen_t length)
{
    for (int tries = 0; tries < PID_1_TRIES; tries++, poll(NULL, 0, 10)) {
        if (connect(fd, address, length) == 0)
            return true;
        if (errno != ECONNREFUSED)
            return false;
    }
    return false;
}

static int connect_to_init(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "\0belljar"};
    struct ucred peer;
    socklen_t length = offsetof(struct sockaddr_un, sun_path) + sizeof "\0belljar" - 1, peer_length = sizeof peer;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || !connected(fd, (struct sockaddr *)&address, length))
        return -1;
    /* gVisor does not know the peer and shows our own pid. There we rely on the name, which PID 1 bound before any command ran. */
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_length) != 0 || (peer.pid != 1 && peer.pid != getpid()))
        return -1;
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

static bool again(ssize_t n) { return n < 0 && (errno == EAGAIN || errno == EINTR); }

/* False: the other side accepts nothing any more. */
static bool move(struct lane *lane)
{
    if (!lane->length && !lane->ended) {
        ssize_t n = read(lane->from, lane->bytes, sizeof lane->bytes);
        lane->at = 0;
        lane->length = n > 0 ? (size_t)n : 0;
        lane->ended = n <= 0 && !again(n);
    }
    while (lane->length) {
        ssize_t n = write(lane->to, lane->bytes + lane->at, lane->length);
        if (n < 0)
            return again(n);
        lane->at += (size_t)n;
        lane->length -= (size_t)n;
    }
    return true;
}

int bridge_run(void)
{
    static struct lane in, out;
    prctl(PR_SET_DUMPABLE, 0);
    int fd = connect_to_init();
    if (fd < 0)
        return 69;
    in.from = 0, in.to = out.from = fd, out.to = 1;
    fcntl(0, F_SETFL, O_NONBLOCK);
    fcntl(1, F_SETFL, O_NONBLOCK);
    for (bool half_closed = false; !out.ended || out.length;) {
        struct pollfd ready[4] = {
            {.fd = in.length || in.ended ? -1 : 0, .events = POLLIN},
            {.fd = in.length ? fd : -1, .events = POLLOUT},
            {.fd = out.length || out.ended ? -1 : fd, .events = POLLIN},
            {.fd = out.length ? 1 : -1, .events = POLLOUT},
        };
        if (poll(ready, 4, -1) < 0 && errno != EINTR)
            return 70;
        if (((ready[0].revents || ready[1].revents) && !move(&in)) || ((ready[2].revents || ready[3].revents) && !move(&out)))
            return 0;
        if (in.ended && !in.length && !half_closed)
            half_closed = shutdown(fd, SHUT_WR) == 0;
    }
    return 0;
}
