/*
 * The keeper: a fork of PID 1, one for each command, and the parent of all that the command starts. It is a child subreaper,
 * so a process that loses its parent, by setsid and double fork too, becomes the keeper's child; no privilege is needed, and nothing
 * below can undo it. When the keeper's wait says ECHILD nothing of the command is left: that is the receipt.
 *
 * It runs with the uid of the commands, so these may signal it. It is not dumpable (a fork keeps that), blocks everything
 * that can be blocked, and PID 1 deals with SIGKILL and SIGSTOP. Orders come in the slot; SIGTERM is only the knock on the door.
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
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "init.h"

#define CHILD_STACK (64 << 10)
#define PATIENT_PASSES 200

static const struct plan *plan;
static struct slot *slot;

static _Noreturn void child_fail(enum stage stage)
{
    slot->error = (uint32_t)errno;
    slot->stage = stage;
    _exit(127);
}

static void enter_cwd(void)
{
    if (plan->cwd[0] != '/' && chdir(WORKSPACE) != 0)
        child_fail(STAGE_CWD);
    if (plan->cwd[0] && chdir(plan->cwd) != 0)
        child_fail(STAGE_CWD);
}

static void place(int from, int to)
{
    if (from >= 0 && dup2(from, to) < 0)
        child_fail(STAGE_RESOURCES);
}

static const char *search_path(void)
{
    for (char **env = plan->envp; *env; env++)
        if (!strncmp(*env, "PATH=", 5))
            return *env + 5;
    return "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
}

/* As execvpe, but without its fallback to a shell: what is not executable is said to be so. */
static void exec_along_path(const char *name)
{
    char path[4096];
    bool forbidden = false;
    size_t name_length = strlen(name);
    errno = ENOENT;
    for (const char *at = search_path(), *end; ; at = end + 1) {
        end = strchrnul(at, ':');
        size_t length = (size_t)(end - at);
        if (length + name_length + 2 <= sizeof path) {
            memcpy(path, at, length);
            path[length] = '/';
            memcpy(path + (length ? length + 1 : 0), name, name_length + 1);
            execve(path, plan->argv, plan->envp);
        }
        forbidden |= errno == EACCES;
        if (!*end || (errno != ENOENT && errno != ENOTDIR && errno != EACCES && errno != ENAMETOOLONG))
            break;
    }
    if (forbidden && errno == ENOENT)
        errno = EACCES;
}

/* Shares the keeper's memory until it execs (as vfork does), which is how errors come back. */
static int child(void *unused)
{
    (void)unused;
    setsid();
    place(plan->in, 0);
    place(plan->out, 1);
    place(plan->err, 2);
    place(plan->control_out, 8);
    place(plan->control_in, 9);
    if (plan->pty && ioctl(0, TIOCSCTTY, 0) != 0)
        child_fail(STAGE_RESOURCES);
    enter_cwd();
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (strchr(plan->program, '/'))
        execve(plan->program, plan->argv, plan->envp);
    else
        exec_along_path(plan->program);
    child_fail(STAGE_EXEC);
}

static void notify(enum slot_state state)
{
    static const uint64_t one = 1;
    atomic_store(&slot->state, state);
    (void)!write(NOTICE_FD, &one, sizeof one);
}

/* Copies of other commands' pipes came along with the fork: they would keep those open. */
static void close_inherited(void)
{
    for (int fd = 0; fd < NOTICE_FD; fd++)
        close(fd);
    if (syscall(SYS_close_range, NOTICE_FD + 1, ~0u, 0) != 0)
        for (long fd = NOTICE_FD + 1, end = sysconf(_SC_OPEN_MAX); fd < end; fd++)
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
    notify(SLOT_RUNNING);
    close_inherited();
}

/* Reaps what has ended; false when there is nobody left to wait for. */
static bool reap(bool *ending)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG | (atomic_load(&slot->claimed) ? 0 : WUNTRACED))) > 0) {
        if (WIFSTOPPED(status)) {
            *ending |= !atomic_load(&slot->claimed); /* a waiting shell that was stopped is of no use */
        } else if (pid == slot->main) {
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
                pause.tv_nsec = 20000000; /* somebody is stuck in the kernel: no need to spin */
        }
        sigtimedwait(&awaited, NULL, ending ? &pause : NULL);
        ending |= atomic_load(&slot->condemned);
    }
}

_Noreturn void keeper_run(const struct plan *what, struct slot *where)
{
    plan = what;
    slot = where;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    setsid();
    start();
    wait_until_nothing_is_left();
    getrusage(RUSAGE_CHILDREN, &slot->usage);
    notify(SLOT_DONE);
    _exit(0);
}
