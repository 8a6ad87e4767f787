/* Handles one frame from a host. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/ioctl.h>

#include "init.h"

static bool hello(struct connection *connection, const struct frame *frame)
{
    if (!token_matches(frame->payload + 4, frame->length - 4))
        return false;
    uint8_t *to = connection_frame(connection, 24, WELCOME, 0, 0);
    if (to)
        put_u32(put_u32(put_u64(put_u32(put_u32(to, PROTOCOL_VERSION), 1), boot_id), live_count), isolation_level());
    if (get_u32(frame->payload) != PROTOCOL_VERSION) {
        connection_flush(connection); /* tell the host our version before we close */
        return false;
    }
    connection->greeted = true;
    prefork_enable();
    return true;
}

static bool input(struct connection *connection, struct command *command, const struct frame *frame)
{
    command->control_owner = connection;
    return sink_put(&command->sinks[frame->stream == CONTROL], frame->payload, frame->length);
}

static void credit(struct command *command, const struct frame *frame)
{
    uint64_t offset = get_u64(frame->payload);
    if (frame->stream < STDOUT || frame->stream > CONTROL)
        return;
    struct stream *stream = &command->streams[frame->stream - STDOUT];
    if (offset > stream->credit)
        stream->credit = offset;
}

static void send_signal(struct connection *connection, struct command *command, const struct frame *frame)
{
    uint32_t signal = get_u32(frame->payload);
    if (signal < 1 || signal > 64)
        answer_error(connection, frame->id, EINVAL, "no such signal");
    else if (command->keeper)
        proc_signal_tree(command->keeper, NULL, (int)signal);
}

static void resize(struct command *command, const struct frame *frame)
{
    struct winsize size = {.ws_row = get_u16(frame->payload), .ws_col = get_u16(frame->payload + 2)};
    if (command->flags & FLAG_PTY && command->streams[0].fd >= 0)
        ioctl(command->streams[0].fd, TIOCSWINSZ, &size);
}

static void deadline(struct command *command, const struct frame *frame)
{
    uint32_t after = get_u32(frame->payload);
    if (command->phase != STARTING && command->phase != RUNNING)
        return;
    command->deadline = after ? now + after * MS : NEVER;
    command->grace = get_u32(frame->payload + 4) * MS;
}

static void handle_command_request(struct connection *connection, struct command *command, const struct frame *frame)
{
    struct read_request wanted;
    switch (frame->type) {
    case SIGNAL:
        send_signal(connection, command, frame);
        break;
    case RESIZE:
        resize(command, frame);
        break;
    case DEADLINE:
        deadline(command, frame);
        break;
    case KILL:
        command_end(command, KILLED, get_u32(frame->payload));
        break;
    case READ:
        frame_parse_read(frame, &wanted);
        reader_add(command, connection, &wanted);
        break;
    case STATE:
        answer_state(connection, command);
        break;
    case BACKGROUND:
        command_background(command, get_u32(frame->payload), (uint64_t[]){get_u64(frame->payload + 4), get_u64(frame->payload + 12)});
        break;
    }
}

static void find_and_handle(struct connection *connection, const struct frame *frame)
{
    struct command *command = command_find(frame->id);
    if (command)
        handle_command_request(connection, command, frame);
    else
        answer_error(connection, frame->id, ENOENT, "no such command");
}

/* These may arrive after the command has ended, so an unknown id is no error. */
static bool handle_unacknowledged(struct connection *connection, const struct frame *frame)
{
    struct command *command = command_find(frame->id);
    if (!command)
        return true;
    if (frame->type == INPUT)
        return input(connection, command, frame);
    if (frame->type == CREDIT)
        credit(command, frame);
    else if (command->phase == OVER)
        command_free(command);
    return true;
}

static void pong(struct connection *connection, const struct frame *frame)
{
    uint8_t *to = connection_frame(connection, 8, PONG, 0, 0);
    if (to)
        put_bytes(to, frame->payload, 8);
}

static void set_clock(struct connection *connection, bool runs)
{
    connection->stopped_clock = !runs;
    if (runs)
        clock_go_on();
    else
        clock_stop();
}

/* False: close the connection. */
bool request_handle(struct connection *connection, const struct frame *frame)
{
    switch (frame->type) {
    case HELLO:
        return hello(connection, frame);
    case SPAWN:
        return spawn_request(connection, frame);
    case INPUT:
    case CREDIT:
    case FORGET:
        return handle_unacknowledged(connection, frame);
    case LIST:
        answer_list(connection);
        return true;
    case PING:
        pong(connection, frame);
        return true;
    case TESTIFY:
        answer_testimony(connection, frame);
        return true;
    case HEARTBEAT:
        return true;
    case CLOCK:
        set_clock(connection, get_u32(frame->payload) != 0);
        return true;
    case LEASE:
        lease_set(get_u32(frame->payload));
        return true;
    case SHUTDOWN:
        leave(NULL);
    default:
        find_and_handle(connection, frame);
        return true;
    }
}
