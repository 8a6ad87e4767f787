/*
 * Established connections to hosts (listener.c makes them). Frames to a host are collected in `out` and sent at the end of the loop's
 * turn; large output is sent at once. We read nothing from a host that leaves OUT_MAX bytes of answers unread.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "init.h"

#define IN_SIZE (16u << 10)
#define KEEP_SIZE (64u << 10)
#define OUT_MAX (4u << 20)
#define SEND_BUFFER (1 << 20)
#define HELLO_WITHIN (60000 * MS) /* long, since the machine may be busy, and a silent caller keeps nobody out (vacancy) */
#define SILENCE_MAX (25000 * MS)  /* of a bridged host, which sends a heartbeat every few seconds */
#define SMALL 4096           /* output of at most this size is sent with the turn's other frames: one wake-up for the host */
#define HOLD (1 * MS)        /* how long a frame may wait for the next one */
#define ALWAYS (EPOLLIN | EPOLLRDHUP | EPOLLET)

static struct connection connections[CONNECTIONS_MAX];
static unsigned used; /* entries beyond it were never used */
uint64_t lease, lease_from;

#define EACH(connection) \
    for (struct connection *connection = connections; connection < connections + used; connection++) \
        if (connection->fd >= 0)

void lease_set(uint32_t milliseconds) { lease = milliseconds * MS; }

unsigned connections_greeted(void)
{
    unsigned count = 0;
    EACH (connection)
        count += connection->greeted;
    return count;
}

static void hang_up(struct connection *connection)
{
    close(connection->fd);
    connection->fd = -1;
    free(connection->in);
    free(connection->out);
    commands_lose(connection);
    if (connection->stopped_clock)
        clock_go_on();
    if (connection->greeted && connections_greeted() == 0)
        lease_from = now;
}

static struct connection *vacancy(void)
{
    struct connection *oldest = NULL;
    EACH (connection)
        if (!connection->greeted && (!oldest || connection->since < oldest->since))
            oldest = connection;
    for (unsigned i = 0; i < used; i++)
        if (connections[i].fd < 0)
            return &connections[i];
    if (used < CONNECTIONS_MAX)
        return &connections[used++];
    if (oldest)
        hang_up(oldest); /* a caller without the token must not keep out one that has it */
    return oldest;
}

void connection_admit(int fd, uint64_t inode)
{
    struct connection *connection = vacancy();
    if (!connection) {
        close(fd);
        return;
    }
    int size = SEND_BUFFER;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    *connection = (struct connection){.source.kind = AT_CONNECTION, .fd = fd, .inode = inode, .since = now, .last_received = now};
    watch(fd, &connection->source, ALWAYS);
}

bool connection_known(uint64_t inode)
{
    EACH (connection)
        if (connection->inode == inode)
            return true;
    return false;
}

/* Watches for EPOLLOUT only while the socket is full: otherwise each read of the host would wake us. */
static void set_blocked(struct connection *connection, bool blocked)
{
    struct epoll_event event = {.events = ALWAYS | (blocked ? EPOLLOUT : 0), .data.ptr = &connection->source};
    if (connection->blocked != blocked)
        epoll_ctl(epoll, EPOLL_CTL_MOD, connection->fd, &event);
    connection->blocked = blocked;
}

void connection_event(struct connection *connection, uint32_t events)
{
    if (connection->fd < 0)
        return;
    if (events & EPOLLOUT)
        set_blocked(connection, false);
    if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        connection->readable = true;
    if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        connection->hup = true;
}

/* Makes room for the whole frame that is arriving, once its length is known. A malformed one never gets here. */
static bool make_room(struct connection *connection)
{
    struct frame frame;
    size_t wanted = IN_SIZE;
    if (connection->in_length && frame_parse(connection->in, connection->in_length, &frame) == FRAME_PARTIAL &&
        connection->in_length >= WIRE_HEADER && WIRE_HEADER + (size_t)frame.length > wanted)
        wanted = WIRE_HEADER + (size_t)frame.length;
    if (wanted <= connection->in_size && connection->in_length < connection->in_size)
        return true;
    uint8_t *bytes = realloc(connection->in, wanted);
    if (!bytes)
        return false;
    connection->in = bytes;
    connection->in_size = wanted;
    return true;
}

static bool handle_frames(struct connection *connection)
{
    struct frame frame;
    enum frame_status status;
    size_t at = 0;
    while ((status = frame_parse(connection->in + at, connection->in_length - at, &frame)) == FRAME_WHOLE) {
        if ((!connection->greeted && frame.type != HELLO) || !request_handle(connection, &frame))
            return false;
        at += WIRE_HEADER + frame.length;
    }
    connection->in_length -= at;
    memmove(connection->in, connection->in + at, connection->in_length);
    if (!connection->in_length && connection->in_size > KEEP_SIZE) {
        free(connection->in);
        connection->in = NULL;
        connection->in_size = 0;
    }
    return status == FRAME_PARTIAL && (connection->greeted || connection->in_length < WIRE_HEADER || connection->in[4] == HELLO);
}

static void serve(struct connection *connection)
{
    if (!make_room(connection)) {
        connection->doomed = true;
        return;
    }
    size_t room = connection->in_size - connection->in_length;
    ssize_t n = read(connection->fd, connection->in + connection->in_length, room);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        connection->readable = false;
        return;
    }
    if (n <= 0) {
        connection->doomed = true;
        return;
    }
    if ((size_t)n < room && !connection->hup)
        connection->readable = false;
    connection->last_received = now;
    connection->in_length += (size_t)n;
    if (!handle_frames(connection))
        connection->doomed = true;
}

static bool servable(const struct connection *connection)
{
    return connection->readable && !connection->doomed && connection->out_length < OUT_MAX;
}

void connections_serve(void)
{
    EACH (connection)
        if (servable(connection))
            serve(connection);
}

bool connections_pending(void)
{
    EACH (connection)
        if (servable(connection))
            return true;
    return false;
}

static bool out_room(struct connection *connection, size_t length)
{
    if (connection->out_at + connection->out_length + length <= connection->out_size)
        return true;
    if (connection->out_length)
        memmove(connection->out, connection->out + connection->out_at, connection->out_length);
    connection->out_at = 0;
    if (connection->out_length + length <= connection->out_size)
        return true;
    size_t size =
        connection->out_size * 2 > connection->out_length + length ? connection->out_size * 2 : connection->out_length + length;
    uint8_t *bytes = realloc(connection->out, size);
    if (!bytes) {
        connection->doomed = true;
        return false;
    }
    connection->out = bytes;
    connection->out_size = size;
    return true;
}

uint8_t *connection_frame(struct connection *connection, uint32_t length, uint8_t type, uint8_t stream, uint64_t id)
{
    if (!out_room(connection, WIRE_HEADER + (size_t)length))
        return NULL;
    uint8_t *at = connection->out + connection->out_at + connection->out_length;
    connection->out_length += WIRE_HEADER + (size_t)length;
    connection->hold_until = 0;
    return put_header(at, length, type, stream, id);
}

/* The queued frames may wait a moment for the next one. */
void connection_hold(struct connection *connection) { connection->hold_until = now + HOLD; }

/* Keeps what writev did not accept. */
static void keep_unsent(struct connection *connection, const struct iovec *parts, size_t sent)
{
    size_t old = sent < connection->out_length ? sent : connection->out_length;
    connection->out_at += old;
    connection->out_length -= old;
    sent -= old;
    for (const struct iovec *part = parts; part < parts + 2; part++) {
        size_t skip = sent < part->iov_len ? sent : part->iov_len;
        sent -= skip;
        if (skip == part->iov_len || !out_room(connection, part->iov_len - skip))
            continue;
        memcpy(connection->out + connection->out_at + connection->out_length, (uint8_t *)part->iov_base + skip, part->iov_len - skip);
        connection->out_length += part->iov_len - skip;
    }
}

static ssize_t send_parts(struct connection *connection, struct iovec *parts, int count)
{
    ssize_t sent = writev(connection->fd, parts, count);
    if (sent < 0 && errno != EAGAIN && errno != EINTR)
        connection->doomed = true;
    if (sent < 0)
        set_blocked(connection, true);
    return sent < 0 ? 0 : sent;
}

void connection_output(struct connection *connection, uint8_t stream, uint64_t id, uint64_t offset, const uint8_t *data, size_t length)
{
    if (length <= SMALL) {
        uint8_t *to = connection_frame(connection, (uint32_t)length + 8, OUTPUT, stream, id);
        if (to)
            put_bytes(put_u64(to, offset), data, length);
        return;
    }
    uint8_t header[WIRE_HEADER + 8];
    put_u64(put_header(header, (uint32_t)length + 8, OUTPUT, stream, id), offset);
    struct iovec parts[3] = {
        {connection->out + connection->out_at, connection->out_length},
        {header, sizeof header},
        {(void *)data, length},
    };
    size_t sent = (size_t)send_parts(connection, parts, 3);
    size_t whole = connection->out_length + sizeof header + length;
    keep_unsent(connection, parts + 1, sent);
    if (sent < whole)
        set_blocked(connection, true);
}

void connection_flush(struct connection *connection)
{
    struct iovec part = {connection->out + connection->out_at, connection->out_length};
    size_t sent = (size_t)send_parts(connection, &part, 1);
    connection->out_at += sent;
    connection->out_length -= sent;
    if (connection->out_length)
        return set_blocked(connection, true);
    connection->out_at = 0;
    if (connection->out_size > KEEP_SIZE) {
        free(connection->out);
        connection->out = NULL;
        connection->out_size = 0;
    }
}

/* True: a connection was closed, so its commands must be handled. */
bool connections_flush(void)
{
    bool lost = false;
    EACH (connection) {
        if (connection->out_length && !connection->blocked && connection->hold_until <= now)
            connection_flush(connection);
        if (connection->doomed) {
            hang_up(connection);
            lost = true;
        }
    }
    return lost;
}

/*
 * Until when a connection may stay silent. When a host on this machine dies, the kernel closes its socket. Behind a bridge a cut
 * network closes nothing, and the sandbox must not outlive its host.
 */
static uint64_t silent_until(const struct connection *connection)
{
    if (!connection->greeted)
        return connection->since + HELLO_WITHIN;
    return connection->inode ? NEVER : connection->last_received + SILENCE_MAX;
}

void connections_expire(uint64_t *next)
{
    uint64_t at = connections_greeted() ? NEVER : lease_from + lease;
    if (at <= now)
        leave(NULL);
    EACH (connection) {
        if (connection->out_length && connection->hold_until > now && connection->hold_until < at)
            at = connection->hold_until;
        uint64_t until = silent_until(connection);
        if (until <= now)
            hang_up(connection);
        else if (until < at)
            at = until;
    }
    if (at < *next)
        *next = at;
}
