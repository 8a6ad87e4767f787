/* The life of a command: waiting → starting → running → (orphaned) → draining → over. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "init.h"

#define SLOW_START (50 * MS) /* a start that takes longer may have been stopped by another command */
#define OVERDUE (1000 * MS) /* a keeper that makes no progress for so long was stopped, and is killed */
#define RETAINED_BYTES (16u << 20) /* output that all ended commands together may keep */
#define RING_DEFAULT (256u << 10)

struct command *live, *retained;
unsigned live_count, retained_count;
static struct command *dead; /* freed at the end of the loop's turn: pending events may still point to them */
static uint64_t past[WIRE_RETAINED_MAX];
static unsigned past_at;

static void enlist(struct command *command, struct command **list)
{
    command->next = *list;
    command->back = list;
    if (*list)
        (*list)->back = &command->next;
    *list = command;
}

static void delist(struct command *command)
{
    *command->back = command->next;
    if (command->next)
        command->next->back = command->back;
}

struct command *command_new(void)
{
    struct command *command = calloc(1, sizeof *command);
    if (!command)
        return NULL;
    command->feed = -1;
    command->deadline = command->kill_at = command->overdue_at = command->nudge_at = NEVER;
    for (int i = 0; i < 3; i++)
        command->streams[i] = (struct stream){.source.kind = AT_STREAM, .command = command, .fd = -1, .number = (uint8_t)(STDOUT + i)};
    for (int i = 0; i < 2; i++)
        command->sinks[i] = (struct sink){.source.kind = AT_SINK, .command = command, .fd = -1, .number = i ? CONTROL : STDIN};
    return command;
}

/* From now on the command counts as live and is found by its id. */
void command_start(struct command *command)
{
    command->started = now;
    command->nudge_at = now + SLOW_START;
    command->started_ms = clock_now(CLOCK_REALTIME) / MS;
    command->oom_before = proc_oom_kills();
    enlist(command, &live);
    live_count++;
}

struct command *command_find(uint64_t id)
{
    for (struct command *command = live; command; command = command->next)
        if (command->id == id)
            return command;
    for (struct command *command = retained; command; command = command->next)
        if (command->id == id)
            return command;
    return NULL;
}

void command_remember(uint64_t id) { past[past_at++ % WIRE_RETAINED_MAX] = id; }

bool command_known(uint64_t id)
{
    unsigned count = past_at < WIRE_RETAINED_MAX ? past_at : WIRE_RETAINED_MAX;
    for (unsigned i = 0; i < count; i++)
        if (past[i] == id)
            return true;
    return command_find(id) != NULL;
}

static void close_all(struct command *command)
{
    for (int i = 0; i < 3; i++)
        stream_close(&command->streams[i]);
    for (int i = 0; i < 2; i++)
        sink_close(&command->sinks[i]);
    if (command->feed >= 0)
        close(command->feed);
    command->feed = -1;
}

void command_free(struct command *command)
{
    if (command->back) {
        delist(command);
        if (command->phase == OVER)
            retained_count--;
        else
            live_count--;
    }
    readers_drop(command, NULL);
    close_all(command);
    command->phase = GONE;
    command->next = dead;
    dead = command;
}

void commands_bury(void)
{
    for (struct command *command; (command = dead);) {
        dead = command->next;
        for (int i = 0; i < 3; i++)
            ring_free(&command->streams[i].ring);
        free(command->tag);
        free(command);
    }
}

void command_begun(struct command *command)
{
    command->phase = RUNNING;
    command->nudge_at = NEVER;
    prefork_begun(command);
    uint8_t *to = command->owner ? connection_frame(command->owner, 4, STARTED, 0, command->id) : NULL;
    if (to)
        put_u32(to, (uint32_t)command->main);
    if (command->flags & FLAG_BACKGROUND)
        command->owner = NULL;
}

void command_refused(struct command *command, uint32_t error, uint32_t stage)
{
    const char *text = strerror((int)error);
    uint32_t length = (uint32_t)strlen(text);
    uint8_t *to = command->owner ? connection_frame(command->owner, 8 + length, SPAWN_ERROR, 0, command->id) : NULL;
    if (to)
        put_bytes(put_u32(put_u32(to, error), stage), text, length);
    command_free(command);
}

static void kill_now(struct command *command)
{
    command->kill_at = command->deadline = NEVER;
    if (!command->keeper)
        return;
    keeper_order(command);
    command->overdue_at = now + OVERDUE;
    command->progress_seen = atomic_load(&keeper_slot(command)->progress);
}

/* SIGTERM to the whole tree, SIGKILL after the grace; without grace SIGKILL at once. */
void command_end(struct command *command, enum cause cause, uint32_t grace_ms)
{
    if (command->phase != STARTING && command->phase != RUNNING)
        return;
    if (!command->forced)
        command->forced = cause;
    command->deadline = NEVER;
    if (!grace_ms)
        return kill_now(command);
    proc_signal_tree(command->keeper, NULL, SIGTERM);
    proc_signal_tree(command->keeper, NULL, SIGCONT);
    uint64_t at = now + grace_ms * MS;
    if (at < command->kill_at)
        command->kill_at = at;
}

static void check_keeper(struct command *command)
{
    uint32_t progress = atomic_load(&keeper_slot(command)->progress);
    command->overdue_at = NEVER;
    if (!command->keeper || command->phase == DRAINING)
        return;
    if (progress == command->progress_seen)
        kill(command->keeper, SIGKILL);
    else
        command->overdue_at = now + OVERDUE;
    command->progress_seen = progress;
}

/* An earlier command may have stopped it before it could exec. */
static void resume_if_stopped(struct command *command)
{
    command->nudge_at = NEVER;
    if (command->phase != STARTING || !command->keeper)
        return;
    proc_signal_tree(command->keeper, NULL, SIGCONT);
    command->nudge_at = now + SLOW_START;
}

static void earlier(uint64_t *next, uint64_t at)
{
    if (at < *next)
        *next = at;
}

void command_tend(struct command *command, uint64_t *next)
{
    if (command->deadline <= now)
        command_end(command, TIMEOUT, (uint32_t)(command->grace / MS));
    if (command->kill_at <= now)
        kill_now(command);
    if (command->overdue_at <= now)
        check_keeper(command);
    if (command->nudge_at <= now)
        resume_if_stopped(command);
    earlier(next, command->nudge_at);
    earlier(next, command->deadline);
    earlier(next, command->kill_at);
    earlier(next, command->overdue_at);
    readers_serve(command, next);
}

uint64_t micros(struct timeval time) { return (uint64_t)time.tv_sec * 1000000 + (uint64_t)time.tv_usec; }

/* If the keeper was killed there is no status; the command then counts as killed, too. */
static void write_ended(struct command *command)
{
    static const struct slot nothing = {.status = SIGKILL};
    bool orphaned = command->phase == ORPHANED;
    const struct slot *slot = orphaned ? &nothing : keeper_slot(command);
    uint32_t signal = WIFSIGNALED(slot->status) ? (uint32_t)WTERMSIG(slot->status) : 0;
    uint32_t code = signal ? 128 + signal : (uint32_t)WEXITSTATUS(slot->status);
    uint64_t ooms = proc_oom_kills() - command->oom_before;
    uint32_t cause = signal ? SIGNALLED : EXITED;
    if (command->forced || orphaned)
        cause = command->forced ? command->forced : KILLED;
    if (ooms && code == 128 + SIGKILL && !command->forced)
        cause = OUT_OF_MEMORY;
    uint8_t *to = put_u32(put_u32(command->ended, cause), code);
    to = put_u32(put_u32(to, signal), slot->survivors);
    to = put_u64(put_u64(to, micros(slot->usage.ru_utime)), micros(slot->usage.ru_stime));
    to = put_u64(put_u64(to, (uint64_t)slot->usage.ru_maxrss << 10), (now - command->started) / 1000);
    put_u32(put_u32(put_u64(put_u64(to, 0), 0), (uint32_t)ooms), 0);
}

/* Its whole tree is dead; output may still be in the pipes. */
void command_dead(struct command *command)
{
    write_ended(command);
    command->phase = DRAINING;
    command->keeper = 0;
    command->deadline = command->kill_at = command->overdue_at = NEVER;
    for (int i = 0; i < 2; i++)
        sink_close(&command->sinks[i]);
    for (int i = 0; i < 3; i++) {
        if (command->streams[i].passed)
            stream_close(&command->streams[i]); /* the host reads the rest */
        stream_finish(&command->streams[i]);
    }
}

static bool drained(const struct command *command)
{
    for (int i = 0; i < 3; i++)
        if (command->streams[i].fd >= 0)
            return false;
    return true;
}

static bool is_unconfirmed(const struct command *command)
{
    return command->flags & FLAG_HELD && stream_unconfirmed(&command->streams[0]) + stream_unconfirmed(&command->streams[1]) > 0;
}

static size_t kept_bytes(const struct command *command) { return command->streams[0].ring.size + command->streams[1].ring.size; }

/*
 * Ended background commands are kept until the host forgets them, within limits. Beyond those the oldest lose their output (a reader
 * sees how much is missing), and then are forgotten. The newest always keeps its output, and a held one what its host has not confirmed.
 */
static void evict(void)
{
    size_t bytes = 0;
    unsigned place = 0;
    for (struct command *command = retained, *after; command; command = after) {
        after = command->next;
        bytes += kept_bytes(command);
        if (place && bytes > RETAINED_BYTES && !is_unconfirmed(command)) {
            bytes -= kept_bytes(command);
            for (int i = 0; i < 2; i++)
                ring_free(&command->streams[i].ring);
        }
        if (place++ >= WIRE_RETAINED_MAX)
            command_free(command);
    }
}

static void finish(struct command *command)
{
    put_u64(put_u64(command->ended + 48, command->streams[0].ring.total), command->streams[1].ring.total);
    command_remember(command->id);
    if (!(command->flags & FLAG_BACKGROUND)) {
        answer_ended(command);
        command_free(command);
        return;
    }
    delist(command);
    live_count--;
    command->phase = OVER;
    enlist(command, &retained);
    retained_count++;
    for (int i = 0; i < 2; i++)
        ring_fit(&command->streams[i].ring);
    evict();
    uint64_t never = NEVER;
    readers_serve(command, &never);
}

static void set_rings(struct command *command, uint32_t bytes)
{
    for (int i = 0; i < 2; i++)
        command->streams[i].ring.cap = bytes == 0 ? RING_DEFAULT : bytes > WIRE_RING_MAX ? WIRE_RING_MAX : bytes;
}

/* From now on it outlives its connection, and READ fetches its output. */
void command_background(struct command *command, uint32_t ring_bytes, const uint64_t received[2])
{
    set_rings(command, ring_bytes);
    command->flags |= FLAG_BACKGROUND;
    if (command->phase != STARTING)
        command->owner = NULL;
    for (int i = 0; i < 2; i++) {
        stream_return(&command->streams[i], received[i]);
        command->streams[i].ready = command->streams[i].fd >= 0;
    }
}

void commands_lose(struct connection *connection)
{
    for (struct command *command = live; command; command = command->next) {
        readers_drop(command, connection);
        if (command->control_owner == connection)
            command->control_owner = NULL;
        if (command->owner != connection)
            continue;
        command->owner = NULL;
        if (command->flags & FLAG_BACKGROUND)
            continue;
        command_end(command, KILLED, 0);
        close_all(command);
    }
    for (struct command *command = retained; command; command = command->next)
        readers_drop(command, connection);
}

/* Copies one chunk of each stream; true: there may be more. */
bool commands_pump(void)
{
    bool more = false;
    for (struct command *command = live, *after; command; command = after) {
        after = command->next;
        if (command->phase == STARTING)
            continue; /* STARTED must be sent before any output */
        if (command->phase == DRAINING && !command->control_owner)
            stream_close(&command->streams[2]);
        input_pass(command);
        for (int i = 0; i < 3; i++)
            while (stream_pump(&command->streams[i]) && !(more |= command->phase != DRAINING))
                ; /* a dead command is drained in one turn: at most a full pipe */
        if (command->phase == DRAINING && drained(command))
            finish(command);
    }
    return more;
}
