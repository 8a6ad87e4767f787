/*
 * The keeper: a fork of PID 1, one for each command, and the ancestor of all its processes. It is a child subreaper, so a process
 * that loses its parent, even by setsid and double fork, becomes the keeper's child. That needs no privilege, and no process below can
 * undo it. When wait returns ECHILD, the command's whole tree is gone.
 *
 * The keeper of a preforked shell then serves the next shell, with new pipes, which saves a fork.
 *
 * It has the uid of the commands, so they may signal it. It is not dumpable (inherited from PID 1) and blocks all signals that can be
 * blocked; PID 1 handles SIGKILL and SIGSTOP. Orders are in the slot: SIGTERM only wakes the keeper.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "init.h"

#define CHILD_STACK (64 << 10)
#define PATIENT_PASSES 200
#define GROUPS_MAX 32

static struct plan plan;
static struct slot *slot;

static _Noreturn void child_fail(enum stage stage)
{
    slot->error = (uint32_t)errno;
    slot->stage = stage;
    _exit(127);
}

static void enter_cwd(void)
{
    if (plan.cwd[0] != '/' && chdir(WORKSPACE) != 0)
        child_fail(STAGE_CWD);
    if (plan.cwd[0] && chdir(plan.cwd) != 0)
        child_fail(STAGE_CWD);
}

static void duplicate_to(int from, int to)
{
    if (from >= 0 && dup2(from, to) < 0)
        child_fail(STAGE_RESOURCES);
}

static const char *search_path(void)
{
    for (char **env = plan.envp; *env; env++)
        if (!strncmp(*env, "PATH=", 5))
            return *env + 5;
    return "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
}

/* Like execvpe, but without its fallback to a shell, so that we can report what is not executable. */
static void exec_along_path(const char *name)
{
    char path[4096];
    bool forbidden = false;
    size_t name_length = strlen(name);
    errno = ENOENT;
    for (const char *at = search_path(), *end;; at = end + 1) {
        end = strchrnul(at, ':');
        size_t length = (size_t)(end - at);
        if (length + name_length + 2 <= sizeof path) {
            memcpy(path, at, length);
            path[length] = '/';
            memcpy(path + (length ? length + 1 : 0), name, name_length + 1);
            execve(path, plan.argv, plan.envp);
        }
        forbidden |= errno == EACCES;
        if (!*end || (errno != ENOENT && errno != ENOTDIR && errno != EACCES && errno != ENAMETOOLONG))
            break;
    }
    if (forbidden && errno == ENOENT)
        errno = EACCES;
}

/* Raw system calls, since a C library would do it for all threads of the keeper, whose memory we share. */
static void become_user(void)
{
    uint32_t ids[2 + GROUPS_MAX]; /* user, group, further groups */
    size_t count = 0;
    char *end = NULL;
    for (const char *at = plan.user; count < 2 + GROUPS_MAX; at = end + 1) {
        ids[count++] = (uint32_t)strtoul(at, &end, 10);
        if (*end != ':')
            break;
    }
    errno = EINVAL;
    if (count < 2 || *end || (plan.pty && fchown(0, ids[0], (gid_t)-1) != 0) || syscall(SYS_setgroups, count - 2, ids + 2) != 0 ||
        syscall(SYS_setresgid, ids[1], ids[1], ids[1]) != 0 || syscall(SYS_setresuid, ids[0], ids[0], ids[0]) != 0)
        child_fail(STAGE_USER);
}

/* Shares the keeper's memory until it execs (like vfork), so errors can be stored in the slot. */
static int child(void *unused)
{
    (void)unused;
    setsid();
    duplicate_to(plan.in, 0);
    duplicate_to(plan.out, 1);
    duplicate_to(plan.err, 2);
    duplicate_to(plan.memory, 6);
    duplicate_to(plan.control_out, 8);
    duplicate_to(plan.control_in, 9);
    if (plan.pty && ioctl(0, TIOCSCTTY, 0) != 0)
        child_fail(STAGE_RESOURCES);
    if (!isolation_enter())
        child_fail(STAGE_RESOURCES);
    if (plan.user)
        become_user();
    enter_cwd();
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (strchr(plan.program, '/'))
        execve(plan.program, plan.argv, plan.envp);
    else
        exec_along_path(plan.program);
    child_fail(STAGE_EXEC);
}

static void notify(enum slot_state state)
{
    static const uint64_t one = 1;
    atomic_store(&slot->state, state);
    (void)!write(NOTICE_FD, &one, sizeof one);
}

/* Closes the copies of other commands' pipes that the fork made, which would keep them open. */
static void close_inherited(void)
{
    if (syscall(SYS_close_range, RESERVED_FDS, ~0u, 0) != 0)
        for (long fd = RESERVED_FDS, end = sysconf(_SC_OPEN_MAX); fd < end; fd++)
            close((int)fd);
}

static void start(void)
{
    static char stack[CHILD_STACK] __attribute__((aligned(16)));
    pid_t pid = clone(child, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
    if (pid < 0) {
        slot->error = (uint32_t)errno;
        slot->stage = STAGE_RESOURCES;
    }
    if (slot->stage) {
        notify(SLOT_FAILED);
        _exit(0);
    }
    slot->main = pid;
    atomic_store(&slot->state, SLOT_RUNNING);
    if (atomic_load(&slot->claim) == CLAIMED) /* read after the state was set: a claim before that waits for this notice */
        notify(SLOT_RUNNING);
    close_inherited();
}

static void tally(const struct rusage *usage)
{
    struct rusage *sum = &slot->usage;
    timeradd(&sum->ru_utime, &usage->ru_utime, &sum->ru_utime);
    timeradd(&sum->ru_stime, &usage->ru_stime, &sum->ru_stime);
    if (usage->ru_maxrss > sum->ru_maxrss)
        sum->ru_maxrss = usage->ru_maxrss;
}

/* Reaps ended processes; false: no child is left. */
static bool reap(bool *ending)
{
    struct rusage usage;
    int status;
    pid_t pid;
    while ((pid = wait4(-1, &status, WNOHANG | (atomic_load(&slot->claim) ? 0 : WUNTRACED), &usage)) > 0) {
        if (WIFSTOPPED(status)) {
            *ending |= slot_claim(slot, SPOILT); /* a waiting shell that was stopped is useless */
            continue;
        }
        tally(&usage);
        if (pid == slot->main) {
            slot->status = status;
            *ending = true;
        } else if (*ending && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
            slot->survivors++;
        }
    }
    return pid == 0;
}

static void wait_until_nothing_is_left(void)
{
    struct timespec pause = {.tv_nsec = 1000000};
    struct purge purge = {0};
    bool ending = false;
    sigset_t awaited;
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGCHLD);
    sigaddset(&awaited, SIGTERM);
    while (reap(&ending)) {
        if (ending) {
            proc_purge(&purge, getpid(), NULL);
            atomic_fetch_add(&slot->progress, 1);
            if (purge.passes > PATIENT_PASSES)
                pause.tv_nsec = 20000000; /* a process is stuck in the kernel: do not spin */
        }
        sigtimedwait(&awaited, NULL, ending ? &pause : NULL);
        ending |= atomic_load(&slot->condemned);
    }
}

/* Receives new pipes for another waiting shell. False: this keeper is no longer needed. */
static bool next_job(void)
{
    int pipes[JOB_PIPES];
    char word;
    struct iovec part = {&word, 1};
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof pipes)];
    } rights;
    struct msghdr message = {
        .msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = rights.space,
        .msg_controllen = sizeof rights.space,
    };
    if (recvmsg(JOBS_FD, &message, MSG_CMSG_CLOEXEC) != 1 || message.msg_controllen < CMSG_LEN(sizeof pipes))
        return false;
    memcpy(pipes, CMSG_DATA(&rights.header), sizeof pipes);
    plan.control_in = pipes[0];
    plan.out = pipes[1];
    plan.err = pipes[2];
    return true;
}

_Noreturn void keeper_run(const struct plan *what, struct slot *where)
{
    plan = *what;
    slot = where;
    if (plan.jobs >= 0)
        dup3(plan.jobs, JOBS_FD, O_CLOEXEC);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    setsid();
    do {
        start();
        wait_until_nothing_is_left();
        notify(SLOT_DONE);
    } while (plan.jobs >= 0 && next_job());
    _exit(0);
}
