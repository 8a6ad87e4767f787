/* relay: carries TCP connections of the sandbox's loopback over its own stdin and stdout.
 *
 * It serves both directions. With a port as its argument it listens there and passes connections from programs in the
 * sandbox on to the host (the network door). And the host may have it connect to any port in the sandbox (port
 * forwarding). It does not look at the bytes; the host decides who may reach what.
 *
 * Frames, windows and ids: see src/belljar/network/mux.py, the other end. Writes block: the host always reads.
 * When stdin ends, the host is gone: the relay exits, and every connection with it. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "relay.h"

enum { OPEN = 1, DATA, END, CLOSE, CREDIT, READY };

#define HEAD 9u
#define PAYLOAD_MAX (64u << 10)
#define HOST_WINDOW (16u << 10)   /* bytes that we may send on a new connection; the host extends it with CREDIT */
#define OUR_WINDOW (256u << 10)   /* bytes that the host may send before we have passed them on */
#define LINKS_MAX 2048u
#define BUCKETS 4096u
#define EVENTS 64

struct link {
    struct link *next;
    uint32_t id;
    int fd;
    uint16_t port;
    bool connecting, second_try;
    bool program_ended, host_ended;    /* no more data comes from there */
    bool write_shut;                   /* the program knows that the host has ended */
    bool closing;                      /* the host sent CLOSE: the queue is still written out */
    bool close_sent;
    uint32_t credit, watched;          /* bytes that we may still send to the host; events that epoll watches for */
    uint32_t uncredited;               /* bytes that we passed on and gave the host no new credit for yet */
    uint8_t *queue;                    /* bytes from the host for the program */
    size_t at, length, size;
};

static struct link *buckets[BUCKETS];
static uint32_t links, next_id = 1;
static int epoll_fd, listener = -1;
static bool listener_paused;                      /* LINKS_MAX connections are open */
static uint8_t in[HEAD + PAYLOAD_MAX], out[HEAD + PAYLOAD_MAX];
static size_t in_length;

static void write_all(const uint8_t *data, size_t length)
{
    while (length) {
        ssize_t written = write(STDOUT_FILENO, data, length);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            _exit(1);
        data += written;
        length -= (size_t)written;
    }
}

static void put32(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(value >> (8 * i));
}

static uint32_t get32(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* The caller has put the payload into `out`, after the head. */
static void send_frame(uint32_t id, uint8_t kind, uint32_t length)
{
    put32(out, id);
    out[4] = kind;
    put32(out + 5, length);
    write_all(out, HEAD + length);
}

static struct link *find(uint32_t id)
{
    struct link *link = buckets[id % BUCKETS];
    while (link && link->id != id)
        link = link->next;
    return link;
}

static void watch(struct link *link)
{
    uint32_t wanted = 0;
    if (link->fd < 0)
        return;
    if (link->connecting || link->length)
        wanted |= EPOLLOUT;
    if (!link->connecting && !link->program_ended && !link->closing && link->credit)
        wanted |= EPOLLIN;
    if (wanted == link->watched)
        return;
    /* Remove a socket that waits for nothing: epoll would report its hang-up again and again. */
    struct epoll_event event = {.events = wanted, .data.ptr = link};
    epoll_ctl(epoll_fd, !wanted ? EPOLL_CTL_DEL : link->watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, link->fd, &event);
    link->watched = wanted;
}

static void set_socket(struct link *link, int fd)
{
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    link->fd = fd;
    link->watched = 0;
}

static struct link *add(uint32_t id)
{
    struct link *link = calloc(1, sizeof *link);
    if (!link)
        return NULL;
    link->id = id;
    link->fd = -1;
    link->credit = HOST_WINDOW;
    link->next = buckets[id % BUCKETS];
    buckets[id % BUCKETS] = link;
    links++;
    return link;
}

static void pause_listener(bool paused)
{
    struct epoll_event event = {.events = paused ? 0 : EPOLLIN, .data.ptr = &listener};
    if (listener >= 0)
        epoll_ctl(epoll_fd, EPOLL_CTL_MOD, listener, &event);
    listener_paused = paused;
}

static void drop(struct link *link)
{
    struct link **at = &buckets[link->id % BUCKETS];
    while (*at != link)
        at = &(*at)->next;
    *at = link->next;
    if (link->fd >= 0)
        close(link->fd);
    free(link->queue);
    free(link);
    links--;
    if (listener_paused)
        pause_listener(false);
}

/* Close our side. The id is free once the host has closed, too. */
static void finish(struct link *link)
{
    if (link->fd >= 0)
        close(link->fd);
    link->fd = -1;
    link->length = 0;
    if (!link->close_sent) {
        link->close_sent = true;
        send_frame(link->id, CLOSE, 0);
    }
    if (link->closing)
        drop(link);
}

static void advance(struct link *link)
{
    if (!link->length && !link->connecting) {
        if (link->closing) {
            finish(link);
            return;
        }
        if (link->host_ended && !link->write_shut) {
            link->write_shut = true;
            shutdown(link->fd, SHUT_WR);
        }
        if (link->write_shut && link->program_ended) {
            finish(link);
            return;
        }
    }
    watch(link);
}

static void credit_host(struct link *link, uint32_t count)
{
    link->uncredited += count;
    if (link->uncredited < OUR_WINDOW / 4 || link->closing)
        return;
    put32(out + HEAD, link->uncredited);
    link->uncredited = 0;
    send_frame(link->id, CREDIT, 4);
}

static void flush(struct link *link)
{
    while (link->length) {
        ssize_t sent = send(link->fd, link->queue + link->at, link->length, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && errno == EAGAIN)
            break;
        if (sent < 0) {
            finish(link);
            return;
        }
        link->at += (size_t)sent;
        link->length -= (size_t)sent;
        credit_host(link, (uint32_t)sent);
    }
    advance(link);
}

static bool queue(struct link *link, const uint8_t *data, size_t length)
{
    if (link->length + length > OUR_WINDOW)
        return false;
    if (link->at + link->length + length > link->size) {
        size_t size = link->size ? link->size : 4096;
        while (size < link->length + length)
            size *= 2;
        uint8_t *bigger = malloc(size);
        if (!bigger)
            return false;
        if (link->length)
            memcpy(bigger, link->queue + link->at, link->length);
        free(link->queue);
        link->queue = bigger;
        link->size = size;
        link->at = 0;
    }
    memcpy(link->queue + link->at + link->length, data, length);
    link->length += length;
    return true;
}

static void dial(struct link *link);

static void connect_failed(struct link *link)
{
    if (link->fd >= 0)
        close(link->fd);
    link->fd = -1;
    if (!link->second_try) {
        link->second_try = true;
        dial(link);
        return;
    }
    link->connecting = false;
    finish(link);
}

/* Tries 127.0.0.1, then ::1: servers listen on either. */
static void dial(struct link *link)
{
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(link->port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(link->port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    bool first = !link->second_try;
    int fd = socket(first ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        connect_failed(link);
        return;
    }
    set_socket(link, fd);
    link->connecting = true;
    int result = first ? connect(fd, (struct sockaddr *)&four, sizeof four) : connect(fd, (struct sockaddr *)&six, sizeof six);
    if (result < 0 && errno != EINPROGRESS)
        connect_failed(link);
    else
        watch(link);
}

static void on_connected(struct link *link)
{
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0 || error) {
        connect_failed(link);
        return;
    }
    link->connecting = false;
    flush(link);
}

static void on_readable(struct link *link)
{
    size_t room = link->credit < PAYLOAD_MAX ? link->credit : PAYLOAD_MAX;
    ssize_t got = recv(link->fd, out + HEAD, room, 0);
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (got < 0) {
        finish(link);
        return;
    }
    if (got == 0) {
        link->program_ended = true;
        send_frame(link->id, END, 0);
    } else {
        link->credit -= (uint32_t)got;
        send_frame(link->id, DATA, (uint32_t)got);
    }
    advance(link);
}

static void on_connection(void)
{
    if (links >= LINKS_MAX) {
        pause_listener(true);
        return;
    }
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0)
        return;
    while (find(next_id))
        next_id += 2;
    struct link *link = add(next_id);
    if (!link) {
        close(fd);
        return;
    }
    set_socket(link, fd);
    next_id = next_id > 1u << 30 ? 1 : next_id + 2;
    out[HEAD] = out[HEAD + 1] = 0;
    send_frame(link->id, OPEN, 2);
    watch(link);
}

/* False: the host broke the protocol. */
static bool on_frame(uint32_t id, uint8_t kind, const uint8_t *payload, uint32_t length)
{
    struct link *link = find(id);
    if (kind == OPEN) {
        if (link || id & 1 || length != 2 || links >= LINKS_MAX || !(link = add(id)))
            return false;
        link->port = (uint16_t)(payload[0] | payload[1] << 8);
        dial(link);
        return true;
    }
    if (!link)
        return false;
    if (kind == CLOSE) {
        link->closing = true;
        if (link->fd < 0)
            drop(link);
        else
            advance(link);
        return true;
    }
    if (link->fd < 0)
        return true; /* the host sent this before it got our CLOSE */
    if (kind == CREDIT && length == 4) {
        link->credit += get32(payload);
        watch(link);
    } else if (kind == END) {
        link->host_ended = true;
        advance(link);
    } else if (kind == DATA && !link->host_ended) {
        if (!queue(link, payload, length))
            return false;
        if (!link->connecting)
            flush(link);
    } else {
        return false;
    }
    return true;
}

static bool on_host(void)
{
    ssize_t got = read(STDIN_FILENO, in + in_length, sizeof in - in_length);
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return true;
    if (got <= 0)
        return false;
    in_length += (size_t)got;
    size_t at = 0;
    while (in_length - at >= HEAD) {
        uint32_t length = get32(in + at + 5);
        if (length > PAYLOAD_MAX)
            return false;
        if (in_length - at < HEAD + length)
            break;
        if (!on_frame(get32(in + at), in[at + 4], in + at + HEAD, length))
            return false;
        at += HEAD + length;
    }
    memmove(in, in + at, in_length - at);
    in_length -= at;
    return true;
}

static bool listen_on(uint16_t port)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &listener};
    int on = 1;
    listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (listener < 0)
        return false;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    return bind(listener, (struct sockaddr *)&here, sizeof here) == 0 && listen(listener, 1024) == 0 &&
           epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &event) == 0;
}

int relay_main(int argc, char **argv)
{
    struct epoll_event events[EVENTS], host = {.events = EPOLLIN, .data.ptr = in};
    prctl(PR_SET_DUMPABLE, 0);
    signal(SIGPIPE, SIG_IGN);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_fd < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, STDIN_FILENO, &host) < 0)
        return 1;
    uint16_t port = argc > 1 ? (uint16_t)atoi(argv[1]) : 0;
    if (port && !listen_on(port))
        return 98;
    out[HEAD] = (uint8_t)port;
    out[HEAD + 1] = (uint8_t)(port >> 8);
    send_frame(0, READY, 2);
    for (;;) {
        int count = epoll_wait(epoll_fd, events, EVENTS, -1);
        for (int i = 0; i < count; i++) {
            void *who = events[i].data.ptr;
            if (who == in) {
                if (!on_host())
                    return 0;
                break; /* later events may be of connections that it has freed */
            }
            if (who == &listener) {
                on_connection();
                continue;
            }
            struct link *link = who;
            if (link->connecting)
                on_connected(link);
            else if (events[i].events & EPOLLOUT)
                flush(link);
            else if (events[i].events & EPOLLIN)
                on_readable(link);
            else
                finish(link);
        }
    }
}
