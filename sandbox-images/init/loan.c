/*
 * Lent pipes. A command that prints a lot would make PID 1 copy all of it; instead its host, once it is on this machine, gets
 * the reading end of the pipe itself and reads at the full speed of a pipe, while we only keep our own end open. Back-pressure is
 * then the pipe's. The host gives a pipe back by saying how far it has read, when the command becomes a background one.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "init.h"

#define LEND_AFTER (512u << 10) /* by then it is a flood; small commands do not pay for another descriptor */

/* The whole frame or nothing, since the descriptor goes with its first byte. */
static bool pass(struct connection *connection, struct stream *stream)
{
    uint8_t frame[FRAME_HEADER + 8];
    put_u64(put_header(frame, 8, PIPE, stream->number, stream->command->id), stream->ring.total);
    struct iovec part = {frame, sizeof frame};
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } rights = {.header = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    memcpy(CMSG_DATA(&rights.header), &stream->fd, sizeof(int));
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = rights.space, .msg_controllen = sizeof rights.space,
    };
    ssize_t sent = sendmsg(connection->fd, &message, MSG_NOSIGNAL);
    if (sent > 0 && sent < (ssize_t)sizeof frame)
        connection->doomed = true;
    return sent == (ssize_t)sizeof frame;
}

bool stream_lend(struct stream *stream)
{
    struct connection *owner = stream->command->owner;
    bool suits = stream->ring.total >= LEND_AFTER && !(stream->command->flags & (FLAG_PTY | FLAG_CONTROL | FLAG_BACKGROUND))
        && stream->command->phase == RUNNING && owner->inode && !owner->out_length;
    if (!suits || !pass(owner, stream))
        return false;
    stream->lent = true;
    stream->ready = false;
    epoll_ctl(epoll, EPOLL_CTL_DEL, stream->fd, NULL); /* else each write would wake us too */
    return true;
}

void stream_return(struct stream *stream, uint64_t taken)
{
    if (!stream->lent || stream->fd < 0)
        return;
    stream->lent = false;
    watch(stream->fd, &stream->source, EPOLLIN | EPOLLET);
    if (taken > stream->ring.total)
        stream->ring.total = taken;
}
