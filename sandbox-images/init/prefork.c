/*
 * Preforked shells: a few bash processes, each with its own keeper and pipes, that wait for the one command they will run. They are
 * started like every other command, so they hold nothing of an earlier one. Once a command's text is in a shell's pipe it is given to
 * no other shell, even if this one dies: no command runs twice.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "init.h"

#define FEWEST 2
#define MOST 4
#define BACK_OFF (1000 * MS)     /* after a waiting shell died */
#define OOM_BACK_OFF (5000 * MS) /* memory is short: leave it to the commands */
#define PAUSE (3 * MS)
#define CALM (2000 * MS)         /* after so long without a miss, FEWEST are enough */

static struct command *pool[MOST];
static unsigned count, target = FEWEST;
static bool enabled;
static uint64_t not_before, last_miss, ooms_seen;

/* Only with Landlock: otherwise commands could reach the waiting shells. */
void prefork_enable(void) { enabled = isolation_level() != 0; }

static bool workspace_identity(uint64_t *dev, uint64_t *ino)
{
    struct stat cwd;
    if (stat(WORKSPACE, &cwd) != 0)
        return false;
    *dev = cwd.st_dev;
    *ino = cwd.st_ino;
    return true;
}

/* Only text that behaves the same under eval, and that fits into one atomic write to a pipe. */
bool prefork_fits(const char *text)
{
    static const char *const revealing[] = {"\n",         "set", "xtrace", "BASH",  "LINENO", "SECONDS",
                                            "PIPESTATUS", "$_",  "${_",    "shopt", "caller"};
    if (strlen(text) >= PIPE_BUF)
        return false;
    for (size_t i = 0; i < sizeof revealing / sizeof *revealing; i++)
        if (strstr(text, revealing[i]))
            return false;
    return true;
}

/* Leaves the processor to a command that has just begun, unless no shell is left for the next one. Only the youngest counts, which is
 * first in the list: others, like a server or the relay, may run for hours. */
static uint64_t refill_at(void)
{
    uint64_t pause = count && live ? live->started + PAUSE : 0;
    if (!enabled || count >= target)
        return NEVER;
    return pause > not_before ? pause : not_before;
}

bool prefork_wanting(void) { return refill_at() <= now; }

void prefork_refill(void)
{
    struct command *command = oom_kills_known == ooms_seen ? command_new() : NULL;
    if (oom_kills_known != ooms_seen)
        not_before = now + OOM_BACK_OFF;
    ooms_seen = oom_kills_known;
    if (!command)
        return;
    command->phase = WAITING;
    if (workspace_identity(&command->cwd_dev, &command->cwd_ino) && spawn_waiting(command)) {
        pool[count++] = command;
        return;
    }
    command_free(command);
    not_before = now + BACK_OFF;
}

static void remove_from_pool(unsigned at)
{
    count--;
    memmove(pool + at, pool + at + 1, (count - at) * sizeof *pool);
}

/* It died, or failed to start. */
void prefork_discard(struct command *command)
{
    for (unsigned i = 0; i < count; i++)
        if (pool[i] == command)
            remove_from_pool(i);
    keeper_abandon(command);
    command_free(command);
    not_before = now + BACK_OFF;
}

/* One that is still starting is accepted: it will read its text sooner than one that we start now. */
static bool is_starting_or_running(const struct command *command)
{
    uint32_t state = atomic_load(&keeper_slot(command)->state);
    return state == SLOT_RUNNING || state == SLOT_STARTING;
}

/* An earlier command may have killed the shell or its keeper, stopped the keeper, or replaced the workspace directory. */
static bool is_usable(const struct command *command)
{
    uint64_t dev, ino;
    siginfo_t changed = {0};
    waitid(P_PID, (id_t)command->keeper, &changed, WEXITED | WSTOPPED | WNOHANG | WNOWAIT);
    return !changed.si_pid && is_starting_or_running(command) && workspace_identity(&dev, &ino) && dev == command->cwd_dev &&
           ino == command->cwd_ino;
}

/* It may also have stopped the shell, with a signal that may not have arrived yet; SIGCONT undoes both. Send it only before the text is
 * read: afterwards the command may have stopped itself. */
static bool hand_over(struct command *command, const char *text)
{
    size_t length = strlen(text) + 1;
    struct slot *slot = keeper_slot(command);
    if (!slot_claim(slot, CLAIMED)) /* once claimed, its keeper reports when it runs, and does not discard it */
        return false;
    if (atomic_load(&slot->state) == SLOT_RUNNING)
        kill(command->main = slot->main, SIGCONT);
    return write(command->feed, text, length) == (ssize_t)length;
}

/* The same for a shell that got its text while it was starting. */
void prefork_begun(struct command *command)
{
    int unread = 0;
    if (command->feed < 0)
        return;
    if (ioctl(command->feed, FIONREAD, &unread) == 0 && unread)
        kill(command->main, SIGCONT);
    close(command->feed);
    command->feed = -1;
}

static void note_miss(void)
{
    last_miss = now;
    if (enabled && target < MOST)
        target++;
}

struct command *prefork_claim(const char *text)
{
    while (count) {
        struct command *command = pool[0];
        if (is_usable(command) && hand_over(command, text)) {
            remove_from_pool(0);
            if (!command->main)
                note_miss();
            return command;
        }
        prefork_discard(command);
        not_before = now;
    }
    note_miss();
    return NULL;
}

void prefork_trim(uint64_t *next)
{
    if (target > FEWEST && last_miss + CALM <= now) {
        target = FEWEST;
        while (count > target)
            prefork_discard(pool[count - 1]);
        not_before = now;
    }
    uint64_t at = target > FEWEST ? last_miss + CALM : NEVER;
    if (refill_at() > now && refill_at() < at)
        at = refill_at();
    if (at < *next)
        *next = at;
}
