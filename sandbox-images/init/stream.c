/*
 * The bytes of commands. Output of a foreground command goes from its pipe straight to its host. It stays in the pipe while the host
 * grants no credit or does not read: that is the back-pressure, for this command alone. Output of a background command goes into its
 * rings. The rings of a held command drop nothing: its output stays in the pipe until the host confirms (CREDIT) that it has the oldest.
 *
 * All descriptors are watched edge-triggered: `ready` is set by an event and cleared when the kernel says EAGAIN.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "init.h"

#define RING_TURN (64u << 10)
#define CONTROL_ACK (64 << 10) /* a quarter of what a host may send ahead */
#define WIDE_PIPE (256 << 10) /* fits the cache; wider is slower */
#define WIDEN_AFTER (64u << 10) /* small commands do not pay for a wide pipe */
#define TERMINAL_HOLDS (1u << 20) /* more than a terminal does; it does not tell how much */
#define END_OF_TRANSMISSION 4

void stream_close(struct stream *stream)
{
    if (stream->fd >= 0)
        close(stream->fd);
    stream->fd = -1;
    stream->ready = false;
}

void stream_event(struct stream *stream, uint32_t events)
{
    stream->ready = true;
    stream->hup |= (events & (EPOLLHUP | EPOLLERR)) != 0;
}

static void widen(struct stream *stream)
{
    if (!stream->widened && stream->ring.total > WIDEN_AFTER && !(stream->command->flags & FLAG_PTY)) {
        stream->widened = true;
        fcntl(stream->fd, F_SETPIPE_SZ, WIDE_PIPE);
    }
}

static uint64_t unread(const struct stream *stream)
{
    int bytes = 0;
    if (stream->fd >= 0)
        ioctl(stream->fd, FIONREAD, &bytes);
    return (uint64_t)bytes;
}

/* The tree is dead, so what is in the pipe now is the rest. If the pipe is still open, a process of another command holds it, and may
 * write for ever. */
void stream_finish(struct stream *stream)
{
    stream->left = stream->command->flags & FLAG_PTY ? TERMINAL_HOLDS : unread(stream);
    stream->ready = stream->fd >= 0;
    if (stream->command->flags & FLAG_HELD && stream->fd >= 0)
        stream->ring.cap += stream->left; /* nobody needs to confirm anything for the end to be known */
}

/* 0: nothing to read now, or the end. */
static size_t read_into_scratch(struct stream *stream, size_t most)
{
    bool last = stream->command->phase == DRAINING;
    if (last && most > stream->left)
        most = stream->left;
    ssize_t n = most ? read(stream->fd, scratch, most) : 0;
    if (n > 0) {
        stream->left -= last ? (uint64_t)n : 0;
        if ((size_t)n < most && !stream->hup && !(stream->command->flags & FLAG_PTY))
            stream->ready = last; /* the pipe was emptied: the next byte is a new event */
        return (size_t)n;
    }
    if (n < 0 && errno == EINTR)
        return 0;
    if (n < 0 && errno == EAGAIN) {
        stream->ready = false;
        if (last)
            stream_close(stream);
        return 0;
    }
    stream_close(stream);
    return 0;
}

uint64_t stream_unconfirmed(const struct stream *stream)
{
    return stream->ring.total > stream->credit ? stream->ring.total - stream->credit : 0;
}

static size_t ring_room(const struct stream *stream)
{
    uint64_t kept = stream_unconfirmed(stream), cap = stream->ring.cap;
    if (!(stream->command->flags & FLAG_HELD) || kept + RING_TURN <= cap)
        return RING_TURN;
    return kept < cap ? (size_t)(cap - kept) : 0;
}

static bool pump_ring(struct stream *stream)
{
    size_t room = ring_room(stream);
    if (!room && stream->command->phase != DRAINING)
        return false;
    size_t n = read_into_scratch(stream, room);
    ring_put(&stream->ring, scratch, n);
    widen(stream);
    return n > 0 && stream->ready;
}

static bool pump_owner(struct stream *stream)
{
    struct connection *owner = stream->command->owner;
    if (stream->passed || !owner || owner->blocked || stream_pass(stream) || stream->ring.total >= stream->credit)
        return false;
    uint64_t room = stream->credit - stream->ring.total;
    size_t n = read_into_scratch(stream, room < WIRE_CHUNK ? (size_t)room : WIRE_CHUNK);
    if (n) {
        connection_output(owner, stream->number, stream->command->id, stream->ring.total, scratch, n);
        ring_put(&stream->ring, scratch, n); /* only a terminal's ring has room, for a host that attaches later */
        widen(stream);
    }
    return n > 0 && stream->ready;
}

static uint64_t total_with_unread(const struct stream *stream) { return stream->ring.total + unread(stream); }

/* A message on the control stream must not overtake output that was written before it. So first count the waiting control bytes, then
 * the unread output, and send the control bytes when that much output was sent. */
static bool pump_control(struct stream *stream)
{
    struct command *command = stream->command;
    int waiting = 0;
    if (stream->passed || !command->control_owner || command->control_owner->blocked || shell_pass(command))
        return false;
    if (!command->gated) {
        ioctl(stream->fd, FIONREAD, &waiting);
        for (int i = 0; i < 2; i++) {
            command->gate[i] = total_with_unread(&command->streams[i]);
            command->streams[i].ready |= command->streams[i].fd >= 0;
        }
        command->gated = waiting > 0 ? (size_t)waiting : 1;
    }
    for (int i = 0; i < 2; i++)
        if (command->streams[i].fd >= 0 && command->streams[i].ring.total < command->gate[i])
            return false;
    uint64_t room = stream->credit - stream->ring.total;
    if (stream->ring.total >= stream->credit)
        return false;
    room = room < command->gated ? room : command->gated;
    size_t n = read_into_scratch(stream, room < WIRE_CHUNK ? (size_t)room : WIRE_CHUNK);
    command->gated = 0;
    if (n) {
        stream->ready = true; /* there may be more */
        connection_output(command->control_owner, CONTROL, command->id, stream->ring.total, scratch, n);
        stream->ring.total += n;
    }
    return n > 0;
}

bool stream_pump(struct stream *stream)
{
    if (!stream->ready || stream->fd < 0)
        return false;
    if (stream->number == CONTROL)
        return pump_control(stream);
    return stream->command->flags & FLAG_BACKGROUND ? pump_ring(stream) : pump_owner(stream);
}

void sink_close(struct sink *sink)
{
    if (sink->fd >= 0)
        close(sink->fd);
    sink->fd = -1;
    free(sink->bytes);
    sink->bytes = NULL;
    sink->at = sink->length = sink->size = 0;
}

static void acknowledge(struct sink *sink, uint64_t delivered)
{
    if (delivered == sink->delivered)
        return;
    sink->delivered = delivered;
    if (sink->number == CONTROL && delivered - sink->acknowledged < CONTROL_ACK)
        return; /* a control message has its own answer; this one would wake the host for nothing */
    sink->acknowledged = delivered;
    struct command *command = sink->command;
    uint8_t *to = command->control_owner ? connection_frame(command->control_owner, 8, INPUT_ACK, sink->number, command->id) : NULL;
    if (to)
        put_u64(to, delivered);
}

/* Its reader is gone: the rest is dropped and counts as delivered. */
static void sink_break(struct sink *sink)
{
    sink_close(sink);
    acknowledge(sink, sink->received);
}

static void sink_end(struct sink *sink)
{
    static const char eot = END_OF_TRANSMISSION;
    sink->finished = false;
    if (sink->number == STDIN && sink->command->flags & FLAG_PTY)
        (void)!write(sink->fd, &eot, 1); /* a terminal stays open after end of file */
    else
        sink_close(sink);
}

void sink_pump(struct sink *sink)
{
    uint64_t delivered = sink->delivered;
    while (sink->fd >= 0 && sink->length) {
        ssize_t n = write(sink->fd, sink->bytes + sink->at, sink->length);
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0)
            return sink_break(sink);
        sink->at += (size_t)n;
        sink->length -= (size_t)n;
        delivered += (uint64_t)n;
    }
    acknowledge(sink, delivered);
    if (!sink->length && sink->fd >= 0) {
        free(sink->bytes);
        sink->bytes = NULL;
        sink->at = sink->size = 0;
        if (sink->finished)
            sink_end(sink);
    }
}

static bool make_room(struct sink *sink, size_t length)
{
    if (sink->at && sink->length)
        memmove(sink->bytes, sink->bytes + sink->at, sink->length);
    sink->at = 0;
    if (sink->length + length <= sink->size)
        return true;
    uint8_t *bytes = realloc(sink->bytes, sink->length + length);
    if (!bytes)
        return false;
    sink->bytes = bytes;
    sink->size = sink->length + length;
    return true;
}

/* False: the host sent more than its window allows. */
bool sink_put(struct sink *sink, const uint8_t *data, size_t length)
{
    sink->received += length;
    if (sink->fd < 0) {
        acknowledge(sink, sink->received);
        return true;
    }
    if (sink->length + length > WIRE_INPUT_MAX)
        return false;
    if (length == 0)
        sink->finished = true;
    else if (!make_room(sink, length))
        sink_break(sink);
    else
        sink->length += length, memcpy(sink->bytes + sink->length - length, data, length);
    sink_pump(sink);
    return true;
}
