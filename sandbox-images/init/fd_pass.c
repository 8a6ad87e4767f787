/*
 * Passes pipes to the host. PID 1 would have to copy all that a command prints; instead a host on this machine gets the reading end of
 * the pipe and reads at full speed, while we only keep our own end open. The full pipe then holds the command back. When the command
 * goes to the background, the host returns the pipe by telling how far it has read.
 *
 * With FLAG_DIRECT the host also exchanges messages with a shell directly, which saves waking PID 1 for each. For a command without
 * a control stream it gets the writing end of stdin, and writes nothing before it has it. We keep our own end open, so that the death of
 * the host does not look like the end of input.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "init.h"

#define ENDS 4
#define PASSED (WIRE_HEADER + 8)
#define PASS_AFTER (512u << 10) /* not worth a descriptor for less output */

/* The frames must be sent completely or not at all, since the descriptors go with the first byte. */
static bool pass(struct connection *connection, const uint8_t *frames, size_t length, const int *fds, size_t count)
{
    struct iovec part = {(void *)frames, length};
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(ENDS * sizeof(int))];
    } rights = {.header = {.cmsg_len = CMSG_LEN(count * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    memcpy(CMSG_DATA(&rights.header), fds, count * sizeof(int));
    struct msghdr message = {
        .msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = rights.space,
        .msg_controllen = CMSG_SPACE(count * sizeof(int)),
    };
    ssize_t sent = sendmsg(connection->fd, &message, MSG_NOSIGNAL);
    if (sent > 0 && sent < (ssize_t)length)
        connection->doomed = true;
    return sent == (ssize_t)length;
}

static uint8_t *put_passed(uint8_t *to, uint8_t number, const struct command *command, uint64_t offset)
{
    return put_u64(put_header(to, 8, PIPE, number, command->id), offset);
}

/* Only if no earlier frame is still queued: it must not be overtaken. */
static bool may_pass(const struct command *command)
{
    return command->phase == RUNNING && command->owner && command->owner->inode && !command->owner->out_length;
}

static void passed(struct stream *stream)
{
    stream->passed = true;
    stream->ready = false;
    epoll_ctl(epoll, EPOLL_CTL_DEL, stream->fd, NULL); /* else each write would wake us too */
}

bool stream_pass(struct stream *stream)
{
    struct command *command = stream->command;
    uint8_t frame[PASSED];
    if (stream->ring.total < PASS_AFTER || command->flags & (FLAG_PTY | FLAG_CONTROL | FLAG_BACKGROUND) || !may_pass(command))
        return false;
    put_passed(frame, stream->number, command, stream->ring.total);
    if (!pass(command->owner, frame, sizeof frame, &stream->fd, 1))
        return false;
    passed(stream);
    return true;
}

/* Passes all pipes of a shell with a control stream at once, so that the host can read output before reports. */
bool shell_pass(struct command *command)
{
    uint8_t frames[ENDS * PASSED], *to = frames;
    int fds[ENDS];
    const struct sink *control = &command->sinks[1];
    if (!(command->flags & FLAG_DIRECT) || !may_pass(command) || command->gated || control->fd < 0 || control->length)
        return false;
    for (int i = 0; i < 3; i++) {
        if ((fds[i] = command->streams[i].fd) < 0)
            return false;
        to = put_passed(to, command->streams[i].number, command, command->streams[i].ring.total);
    }
    fds[3] = control->fd;
    put_passed(to, STDIN, command, control->delivered); /* the writing end */
    if (!pass(command->owner, frames, sizeof frames, fds, ENDS))
        return false;
    for (int i = 0; i < 3; i++)
        passed(&command->streams[i]);
    return true;
}

void input_pass(struct command *command)
{
    struct sink *input = &command->sinks[0];
    uint8_t frame[PASSED];
    if ((command->flags & (FLAG_DIRECT | FLAG_CONTROL | FLAG_PTY)) != FLAG_DIRECT || input->fd < 0 || input->passed || !command->owner)
        return;
    if (!command->owner->blocked)
        connection_flush(command->owner); /* STARTED goes first */
    if (!may_pass(command))
        return;
    put_passed(frame, STDIN, command, input->received);
    if (!pass(command->owner, frame, sizeof frame, &input->fd, 1))
        return;
    input->passed = true;
    epoll_ctl(epoll, EPOLL_CTL_DEL, input->fd, NULL); /* closing our end would not, while the host holds a copy */
}

void stream_return(struct stream *stream, uint64_t received)
{
    if (!stream->passed || stream->fd < 0)
        return;
    stream->passed = false;
    watch(stream->fd, &stream->source, EPOLLIN | EPOLLET);
    if (received > stream->ring.total)
        stream->ring.total = received;
}
