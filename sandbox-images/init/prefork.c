/*
 * Preforked shells: a few bash processes, each with its own keeper and pipes, that wait for the one command they will run.
 * They are started as every other command is, so nothing of an earlier command is in them. A text counts as given once it
 * is in a shell's pipe, and is then given to no other, whatever becomes of that shell: no command runs twice.
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
#define BACK_OFF (1000 * MS)     /* after a shell that died before its time */
#define OOM_BACK_OFF (5000 * MS) /* memory is short: leave it to the commands */
#define PAUSE (3 * MS)
#define CALM (2000 * MS)         /* without a miss for so long, FEWEST are enough */

static struct command *pool[MOST];
static unsigned count, target = FEWEST;
static bool enabled;
static uint64_t not_before, last_miss, ooms_seen;

/* Only where waiting shells are out of the commands' reach. */
void prefork_enable(void) { enabled = isolation_level() != 0; }

static bool cwd_of_now(uint64_t *dev, uint64_t *ino)
{
    struct stat cwd;
    if (stat(WORKSPACE, &cwd) != 0)
        return false;
    *dev = cwd.st_dev;
    *ino = cwd.st_ino;
    return true;
}

/* Only text that cannot tell whether it is evalled. One atomic write to a pipe must hold it. */
bool prefork_fits(const char *text)
{
    static const char *const telling[] = {"\n",         "set", "xtrace", "BASH",  "LINENO", "SECONDS",
                                          "PIPESTATUS", "$_",  "${_",    "shopt", "caller"};
    if (strlen(text) >= PIPE_BUF)
        return false;
    for (size_t i = 0; i < sizeof telling / sizeof *telling; i++)
        if (strstr(text, telling[i]))
            return false;
    return true;
}

/* A command that has just begun has the processor to itself, unless the next would find no shell waiting. The youngest
 * counts, which comes first: others, as a server or the network door's relay, may go on for hours. */
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
    if (cwd_of_now(&command->cwd_dev, &command->cwd_ino) && spawn_waiting(command)) {
        pool[count++] = command;
        return;
    }
    command_free(command);
    not_before = now + BACK_OFF;
}

static void take_out(unsigned at)
{
    count--;
    memmove(pool + at, pool + at + 1, (count - at) * sizeof *pool);
}

/* It died, or failed to start. */
void prefork_discard(struct command *command)
{
    for (unsigned i = 0; i < count; i++)
        if (pool[i] == command)
            take_out(i);
    keeper_abandon(command);
    command_free(command);
    not_before = now + BACK_OFF;
}

/* One that is still starting will do: it reads its text when it gets there, sooner than another started now would. */
static bool in_time(const struct command *command)
{
    uint32_t state = atomic_load(&keeper_slot(command)->state);
    return state == SLOT_RUNNING || state == SLOT_STARTING;
}

/* An earlier command may have killed the shell or its keeper, stopped the keeper, or put another directory in place of its own. */
static bool still_good(const struct command *command)
{
    uint64_t dev, ino;
    siginfo_t changed = {0};
    waitid(P_PID, (id_t)command->keeper, &changed, WEXITED | WSTOPPED | WNOHANG | WNOWAIT);
    return !changed.si_pid && in_time(command) && cwd_of_now(&dev, &ino) && dev == command->cwd_dev && ino == command->cwd_ino;
}

/* Or it may have stopped the shell, now or in a moment: a signal is sent before it is felt, and can only be taken back by
 * SIGCONT. Not once the text was read, though: then it is the command that stopped itself. */
static bool hand_over(struct command *command, const char *text)
{
    size_t length = strlen(text) + 1;
    struct slot *slot = keeper_slot(command);
    if (!slot_claim(slot, CLAIMED)) /* else, from here on, its keeper says when it runs, and does not end it */
        return false;
    if (atomic_load(&slot->state) == SLOT_RUNNING)
        kill(command->main = slot->main, SIGCONT);
    return write(command->feed, text, length) == (ssize_t)length;
}

/* The same for one that was given its text while it was starting. */
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

static void missed(void)
{
    last_miss = now;
    if (enabled && target < MOST)
        target++;
}

struct command *prefork_claim(const char *text)
{
    while (count) {
        struct command *command = pool[0];
        if (still_good(command) && hand_over(command, text)) {
            take_out(0);
            if (!command->main)
                missed();
            return command;
        }
        prefork_discard(command);
        not_before = now;
    }
    missed();
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
