/* Answers to a host about its commands. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "init.h"

#define READ_FIXED (16 + 4 + 16 + 4 + 4 + WIRE_ENDED)
#define LISTED_FIXED (8 + 4 + 4 + 4 + 8 + 8 + 8 + WIRE_ENDED + 4)
#define READERS_MAX 64

void answer_error(struct connection *connection, uint64_t id, uint32_t error, const char *text)
{
    uint32_t length = (uint32_t)strlen(text);
    uint8_t *to = connection_frame(connection, 4 + length, ERROR, 0, id);
    if (to)
        put_bytes(put_u32(to, error), text, length);
}

void answer_ended(struct command *command)
{
    uint8_t *to = command->owner ? connection_frame(command->owner, WIRE_ENDED, ENDED, 0, command->id) : NULL;
    if (to)
        put_bytes(to, command->ended, WIRE_ENDED);
}

/* While a command runs its end is sent as zeros, even if it is partly filled in. */
static uint8_t *put_end(uint8_t *to, const struct command *command)
{
    static const uint8_t running[WIRE_ENDED];
    return put_bytes(to, command->phase == OVER ? command->ended : running, WIRE_ENDED);
}

static size_t readable(const struct ring *ring, uint64_t from, uint32_t most)
{
    uint64_t length = ring->total - from;
    return length < most ? (size_t)length : most;
}

static void answer_read(struct command *command, struct connection *connection, const struct read_request *wanted)
{
    uint32_t most = wanted->max_each, share = (WIRE_FROM_INIT_MAX - READ_FIXED) / 2;
    uint64_t from[2];
    size_t length[2];
    if (most > share)
        most = share;
    for (int i = 0; i < 2; i++) {
        const struct ring *ring = &command->streams[i].ring;
        from[i] = wanted->from[i] > ring->total ? ring->total : wanted->from[i];
        if (from[i] < ring_start(ring))
            from[i] = ring_start(ring);
        length[i] = readable(ring, from[i], most);
    }
    uint8_t *to = connection_frame(connection, (uint32_t)(READ_FIXED + length[0] + length[1]), READ_REPLY, wanted->tag, command->id);
    if (!to)
        return;
    for (int i = 0; i < 2; i++)
        to = put_u32(put_u64(put_u64(to, from[i]), command->streams[i].ring.total), (uint32_t)length[i]);
    to = put_end(put_u32(to, command->phase == OVER), command);
    for (int i = 0; i < 2; i++)
        to += ring_get(&command->streams[i].ring, from[i], to, length[i]);
}

static bool satisfied(const struct command *command, const struct reader *reader)
{
    if (command->phase == OVER || reader->until <= now || !(command->flags & FLAG_BACKGROUND))
        return true;
    for (int i = 0; i < 2; i++)
        if (command->streams[i].ring.total > reader->wanted.from[i])
            return true;
    return false;
}

void reader_add(struct command *command, struct connection *connection, const struct read_request *wanted)
{
    struct reader reader = {.connection = connection, .wanted = *wanted, .until = now + wanted->wait_ms * MS}, *kept;
    unsigned count = 0;
    for (kept = command->readers; kept; kept = kept->next)
        count++;
    if (satisfied(command, &reader) || count >= READERS_MAX || !(kept = malloc(sizeof *kept))) {
        answer_read(command, connection, wanted);
        return;
    }
    reader.next = command->readers;
    *kept = reader;
    command->readers = kept;
}

void readers_serve(struct command *command, uint64_t *next)
{
    for (struct reader **at = &command->readers, *reader; (reader = *at);) {
        if (satisfied(command, reader)) {
            *at = reader->next;
            answer_read(command, reader->connection, &reader->wanted);
            free(reader);
            continue;
        }
        if (reader->until < *next)
            *next = reader->until;
        at = &reader->next;
    }
}

/* Drops the readers of one connection; NULL: all. */
void readers_drop(struct command *command, const struct connection *connection)
{
    for (struct reader **at = &command->readers, *reader; (reader = *at);) {
        if (connection && reader->connection != connection) {
            at = &reader->next;
            continue;
        }
        *at = reader->next;
        free(reader);
    }
}

/* The next command of the list: first the live ones, then those that ended. */
static const struct command *listed_after(const struct command *command)
{
    if (!command)
        return live ? live : retained;
    return command->next || command->phase == OVER ? command->next : retained;
}

static size_t listed_size(const struct command *command) { return LISTED_FIXED + command->tag_length; }

static uint8_t *put_listed(uint8_t *to, const struct command *command)
{
    to = put_u32(put_u32(put_u64(to, command->id), command->phase == OVER), command->flags);
    to = put_u64(put_u32(to, (uint32_t)command->main), command->started_ms);
    to = put_u64(put_u64(to, command->streams[0].ring.total), command->streams[1].ring.total);
    to = put_end(to, command);
    return put_bytes(put_u32(to, command->tag_length), command->tag, command->tag_length);
}

/* As many as fit into one frame, the newest of each kind first. */
void answer_list(struct connection *connection)
{
    uint32_t count = 0;
    size_t size = 4;
    const struct command *end = NULL;
    while ((end = listed_after(end)) && size + listed_size(end) <= WIRE_FROM_INIT_MAX) {
        size += listed_size(end);
        count++;
    }
    uint8_t *to = connection_frame(connection, (uint32_t)size, LIST_REPLY, 0, 0);
    if (!to)
        return;
    to = put_u32(to, count);
    for (const struct command *command = listed_after(NULL); command != end; command = listed_after(command))
        to = put_listed(to, command);
}

/* What the kernel shows of a command: its main process's directory, and what its tree has used so far. */
void answer_state(struct connection *connection, const struct command *command)
{
    static const struct slot nothing;
    char cwd[PATH_MAX];
    size_t length = command->main && command->keeper ? proc_cwd(command->main, cwd, sizeof cwd) : 0;
    const struct slot *slot = command->keeper ? keeper_slot(command) : &nothing;
    struct used used = {.cpu_us = micros(slot->usage.ru_utime) + micros(slot->usage.ru_stime)};
    if (command->keeper)
        proc_used(command->keeper, command->main, &used);
    uint8_t *to = connection_frame(connection, 24 + (uint32_t)length, STATE_REPLY, 0, command->id);
    if (!to)
        return;
    to = put_u64(put_u64(to, used.cpu_us), used.peak);
    bool waits = length && proc_reads(command->main, CONTROL_FD);
    to = put_u32(put_u32(to, (uint32_t)proc_oom_kills()), used.stopped ? DOES_STOPPED : waits ? DOES_WAITS : DOES_OTHER);
    put_bytes(to, cwd, length);
}
