/*
 * PID 1's side of the keepers: their slots, their deaths, and the trees of keepers that were killed. All children of PID 1 are keepers;
 * any other child has lost its keeper, and is killed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "init.h"

#define SLOTS (WIRE_LIVE_MAX + 64) /* some for keepers of ended commands that are not reaped yet */
#define PURGE_EVERY (1 * MS)
#define IDLE_MOST 2 /* keepers that stay for the next shells */

static struct {
    pid_t pid;
    int jobs;
    struct command *command;
} keepers[SLOTS];
static unsigned slots_used; /* slots beyond it were never used */
static bool orphans;
static int oom_score = -1;
static char own_score[8];
static struct purge purge;
struct slot *slots;

/*
 * The kernel's OOM killer must choose a command before PID 1. So each keeper is forked with the highest score, which its processes
 * inherit. A process that is not dumpable cannot open this file; we open it before there is any other process.
 */
static void open_oom_score(void)
{
    prctl(PR_SET_DUMPABLE, 1);
    oom_score = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
    prctl(PR_SET_DUMPABLE, 0);
    if (oom_score >= 0 && read(oom_score, own_score, sizeof own_score - 1) <= 0)
        memcpy(own_score, "0", 2);
}

static void set_oom_score(const char *score)
{
    int saved = errno;
    if (oom_score >= 0)
        (void)!pwrite(oom_score, score, strlen(score), 0);
    errno = saved;
}

void keepers_prepare(void)
{
    open_oom_score();
    slots = mmap(NULL, SLOTS * sizeof *slots, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (slots == MAP_FAILED)
        leave("no memory for the slots");
}

struct slot *keeper_slot(const struct command *command) { return &slots[command->live_slot]; }

bool keeper_is(pid_t pid)
{
    for (unsigned i = 0; i < slots_used; i++)
        if (keepers[i].pid == pid)
            return true;
    return false;
}

static int free_slot(void)
{
    for (unsigned i = 0; i < SLOTS; i++)
        if (!keepers[i].pid)
            return (int)i;
    return -1;
}

static void bind_slot(unsigned at, struct command *command)
{
    keepers[at].command = command;
    command->live_slot = at;
    command->keeper = keepers[at].pid;
}

static void prepare_slot(unsigned at, const struct command *command)
{
    memset(&slots[at], 0, sizeof slots[at]);
    slots[at].state = SLOT_STARTING;
    slots[at].claim = command->phase == WAITING ? UNCLAIMED : CLAIMED;
}

/* Lets the keeper exit after its current job. */
static void retire(unsigned at)
{
    if (keepers[at].jobs >= 0)
        close(keepers[at].jobs);
    keepers[at].jobs = -1;
}

static bool idle(unsigned at) { return keepers[at].pid && !keepers[at].command && keepers[at].jobs >= 0; }

static bool send_job(int to, const struct plan *plan)
{
    int pipes[JOB_PIPES] = {plan->control_in, plan->out, plan->err};
    struct iovec part = {"", 1};
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof pipes)];
    } rights = {.header = {.cmsg_len = CMSG_LEN(sizeof pipes), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    memcpy(CMSG_DATA(&rights.header), pipes, sizeof pipes);
    struct msghdr message = {
        .msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = rights.space,
        .msg_controllen = sizeof rights.space,
    };
    return sendmsg(to, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
}

/* Gives the next waiting shell to an idle keeper; all waiting shells are alike. */
static bool reuse(struct command *command, const struct plan *plan)
{
    for (unsigned i = 0; i < slots_used; i++) {
        if (!idle(i))
            continue;
        prepare_slot(i, command);
        if (send_job(keepers[i].jobs, plan)) {
            bind_slot(i, command);
            return true;
        }
        atomic_store(&slots[i].state, SLOT_DONE);
        retire(i);
    }
    return false;
}

bool keeper_start(struct command *command, const struct plan *plan)
{
    struct plan own = *plan;
    int jobs[2] = {-1, -1}, at = free_slot();
    if (command->phase == WAITING && reuse(command, plan))
        return true;
    if (at < 0 || (command->phase == WAITING && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, jobs) != 0))
        return false;
    own.jobs = jobs[1];
    prepare_slot((unsigned)at, command);
    set_oom_score("1000");
    pid_t pid = fork();
    if (pid == 0)
        keeper_run(&own, &slots[at]);
    set_oom_score(own_score);
    keepers[at].jobs = jobs[0];
    if (jobs[1] >= 0)
        close(jobs[1]);
    if (pid < 0) {
        retire((unsigned)at);
        return false;
    }
    keepers[at].pid = pid;
    if ((unsigned)at >= slots_used)
        slots_used = (unsigned)at + 1;
    bind_slot((unsigned)at, command);
    return true;
}

/* Orders a keeper to kill its tree. The signal only wakes it: a command could send one, too. */
void keeper_order(const struct command *command)
{
    atomic_store(&keeper_slot(command)->condemned, 1);
    kill(command->keeper, SIGTERM);
}

/* Kills the tree of a discarded command without a report. */
void keeper_abandon(struct command *command)
{
    if (!command->keeper)
        return;
    keepers[command->live_slot].command = NULL;
    retire(command->live_slot);
    keeper_order(command);
    command->keeper = 0;
}

static unsigned idle_count(void)
{
    unsigned count = 0;
    for (unsigned i = 0; i < slots_used; i++)
        count += idle(i);
    return count;
}

static void collect(unsigned at)
{
    struct command *command = keepers[at].command;
    uint32_t state = command ? atomic_load(&slots[at].state) : SLOT_FREE;
    if ((state == SLOT_RUNNING || state == SLOT_DONE) && !command->main) {
        command->main = slots[at].main;
        if (command->phase == STARTING)
            command_begun(command);
    }
    if (state < SLOT_FAILED)
        return;
    if (state == SLOT_FAILED || command->phase == WAITING || idle_count() >= IDLE_MOST)
        retire(at);
    keepers[at].command = NULL;
    command->keeper = 0;
    if (command->phase == WAITING)
        prefork_discard(command);
    else if (state == SLOT_FAILED)
        command_refused(command, slots[at].error, slots[at].stage);
    else if (command->phase == RUNNING || command->phase == STARTING)
        command_dead(command);
}

/* Reads all slots: the keepers share one eventfd, which does not say whose changed. */
void keepers_collect(void)
{
    for (unsigned i = 0; i < slots_used; i++)
        collect(i);
}

static void keeper_died(unsigned at)
{
    collect(at);
    retire(at);
    struct command *command = keepers[at].command;
    keepers[at].pid = 0;
    keepers[at].command = NULL;
    if (atomic_load(&slots[at].state) >= SLOT_FAILED)
        return;
    /* It did not report, so a command killed it. Its tree is now ours to kill. */
    orphans = true;
    purge.passes = 0;
    if (!command)
        return;
    command->keeper = 0;
    if (command->phase == WAITING)
        prefork_discard(command);
    else
        command->phase = ORPHANED;
}

void keepers_reap(void)
{
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0;)
        for (unsigned i = 0; i < slots_used; i++)
            if (keepers[i].pid == pid) {
                if (WIFSTOPPED(status))
                    kill(pid, SIGCONT);
                else
                    keeper_died(i);
                break;
            }
}

/* Kills everything without a keeper. We cannot tell which command a process belonged to, so all must be gone. */
void orphans_purge(uint64_t *next)
{
    if (!orphans)
        return;
    struct tree tree = proc_purge(&purge, 1, keeper_is);
    if (tree.found || tree.incomplete) {
        if (*next > now + PURGE_EVERY)
            *next = now + PURGE_EVERY;
        return;
    }
    orphans = false;
    for (struct command *command = live, *after; command; command = after) {
        after = command->next;
        if (command->phase == ORPHANED)
            command_dead(command);
    }
}
