/*
 * PID 1 of a sandbox. Theory of operation:
 *
 *   host ═══ connection ═══ PID 1 ─── keeper ─── command ─── whatever it starts
 *                              ├───── keeper ─── …
 *                              └───── keeper ─── bash, waiting (prefork.c)
 *
 * PID 1 is one epoll loop. It receives frames (listener.c, connection.c, request.c), takes commands through their phases (command.c)
 * and copies bytes in both directions (stream.c). Each command has a keeper, the parent of its whole tree (keeper.c), which
 * reports through shared memory (keepers.c).
 *
 * All processes have the same uid, so PID 1 protects itself. It is not dumpable. The kernel drops signals from inside the namespace
 * unless PID 1 asks for them; it asks for SIGCHLD and SIGTERM, and obeys SIGTERM only from outside. It never signals -1 or a group:
 * when it exits, the kernel kills the whole namespace. It refuses to run as anything but PID 1.
 *
 * Where the engine cannot set limits for its processes, it sets them on itself (--limit), and every command inherits them.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "init.h"
#include "tools.h"

#define EVENTS 64
#define USAGE 64

uint64_t now, boot_id;
int epoll;
uint8_t scratch[WIRE_CHUNK];
static int signals;
static struct source at_signal = {.kind = AT_SIGNAL}, at_notice = {.kind = AT_NOTICE};

uint64_t clock_now(int clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000 * MS + (uint64_t)time.tv_nsec;
}

/*
 * `now` stands still while the sandbox is paused, so that no deadline and no lease runs out meanwhile. The host stops it before it
 * freezes us, and lets it go on afterwards; if that host is gone, its connection's end does.
 */
static uint64_t stopped_at, time_paused; /* stopped_at: by the machine's clock; 0: the clock runs */

static uint64_t awake_now(void) { return (stopped_at ? stopped_at : clock_now(CLOCK_MONOTONIC)) - time_paused; }

void clock_stop(void)
{
    if (!stopped_at)
        stopped_at = now + time_paused;
}

void clock_go_on(void)
{
    if (stopped_at)
        time_paused += clock_now(CLOCK_MONOTONIC) - stopped_at;
    stopped_at = 0;
}

/* When PID 1 exits, the kernel kills everything else in the namespace. */
_Noreturn void leave(const char *why)
{
    if (why)
        fprintf(stderr, "belljar-init: %s\n", why);
    _exit(why ? 70 : 0);
}

void watch(int fd, struct source *source, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = source};
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

static void on_signal(void)
{
    struct signalfd_siginfo pending[4];
    bool child = false;
    ssize_t length = read(signals, pending, sizeof pending);
    for (struct signalfd_siginfo *info = pending; length > 0 && info < pending + (size_t)length / sizeof *info; info++) {
        child |= info->ssi_signo == SIGCHLD;
        /* Pid 0: sent from outside the namespace. sigqueue could forge the pid, but not SI_USER. */
        if (info->ssi_signo == SIGTERM && info->ssi_code == SI_USER && info->ssi_pid == 0)
            leave(NULL);
    }
    if (child)
        keepers_reap();
}

static void on_notice(void)
{
    uint64_t ignored;
    (void)!read(NOTICE_FD, &ignored, sizeof ignored);
    keepers_collect();
}

static void dispatch(struct source *source, uint32_t events)
{
    switch (source->kind) {
    case AT_SIGNAL:
        on_signal();
        break;
    case AT_NOTICE:
        on_notice();
        break;
    case AT_LISTENER:
        listener_event();
        break;
    case AT_CONNECTION:
        connection_event((struct connection *)source, events);
        break;
    case AT_STREAM:
        stream_event((struct stream *)source, events);
        break;
    case AT_SINK:
        sink_pump((struct sink *)source);
        break;
    }
}

static uint64_t tend(uint64_t next)
{
    for (struct command *command = live, *after; command; command = after) {
        after = command->next;
        command_tend(command, &next);
    }
    prefork_trim(&next);
    listener_tend(&next);
    connections_expire(&next);
    return next;
}

static int milliseconds_until(uint64_t at)
{
    uint64_t wait = at <= now ? 0 : (at - now + MS - 1) / MS;
    return at == NEVER ? -1 : wait > 60000 ? 60000 : (int)wait;
}

static _Noreturn void serve(void)
{
    struct epoll_event events[EVENTS];
    int timeout = 0;
    for (;;) {
        int count = epoll_wait(epoll, events, EVENTS, timeout);
        now = awake_now();
        for (int i = 0; i < count; i++)
            dispatch(events[i].data.ptr, events[i].events);
        uint64_t next = NEVER;
        connections_serve();
        orphans_purge(&next);
        bool busy = commands_pump();
        busy |= connections_flush(); /* first: a lost connection kills its commands, and tend() sets the timers for that */
        next = tend(next);
        busy |= connections_flush();
        commands_bury();
        if (count <= 0 && !busy && prefork_wanting()) /* only when idle */
            prefork_refill();
        busy |= connections_pending() || prefork_wanting();
        timeout = busy ? 0 : milliseconds_until(next);
    }
}

static void reserve_fds(void)
{
    int fd;
    while ((fd = open("/dev/null", O_RDWR | O_CLOEXEC)) >= 0 && fd < RESERVED_FDS)
        ;
    if (fd < 0)
        leave("no /dev/null");
    dup2(fd, 0); /* stdin of commands without input; unlike `fd`, it stays open across exec */
    close(fd);
}

/* Keepers and commands inherit all of this. */
static void prepare(void)
{
    sigset_t all;
    prctl(PR_SET_DUMPABLE, 0);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); /* set by the engine already; Landlock requires it */
    umask(022);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    for (int signal = 1; signal < 65; signal++) /* by system call: libc does not let us reset 32 to 34 */
        syscall(SYS_rt_sigaction, signal, (uint64_t[4]){0}, NULL, sizeof(uint64_t));
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    reserve_fds();
    isolation_prepare();
    if (chdir("/") != 0 || getrandom(&boot_id, sizeof boot_id, 0) != sizeof boot_id)
        leave("cannot start");
}

static void prepare_loop(void)
{
    sigset_t awaited;
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGCHLD);
    sigaddset(&awaited, SIGTERM);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    signals = signalfd(-1, &awaited, SFD_CLOEXEC | SFD_NONBLOCK);
    int notice = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (epoll < 0 || signals < 0 || notice < 0 || dup3(notice, NOTICE_FD, O_CLOEXEC) < 0)
        leave("cannot start");
    close(notice);
    watch(signals, &at_signal, EPOLLIN);
    watch(NOTICE_FD, &at_notice, EPOLLIN);
    now = lease_from = awake_now();
    keepers_prepare();
}

static int usage(void)
{
    fprintf(stderr, "usage: belljar-init (--dial DIRECTORY | --listen [--same-user]) --lease MILLISECONDS [--limit NAME=NUMBER]…\n"
                    "     | --bridge | --install FILE | --version\n");
    return USAGE;
}

/* Copies this program, for an image that has no other (a Pod's init container). Whoever does not own the copy may run it, but not read
 * it: such a process cannot be looked into by others of its user, from its first instruction on. */
static int install(const char *path)
{
    ssize_t n = -1;
    int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), to = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0711);
    while (from >= 0 && to >= 0 && (n = read(from, scratch, sizeof scratch)) > 0)
        if (write(to, scratch, (size_t)n) != n)
            return 1;
    return n != 0 || fchmod(to, 0711) != 0;
}

static bool limit(const char *text)
{
    static const struct {
        const char *name;
        int resource;
    } limits[] = {
        {"core", RLIMIT_CORE}, {"nofile", RLIMIT_NOFILE}, {"fsize", RLIMIT_FSIZE}, {"memlock", RLIMIT_MEMLOCK}, {"nproc", RLIMIT_NPROC},
    };
    const char *value = strchr(text, '=');
    for (size_t i = 0; value && i < sizeof limits / sizeof *limits; i++)
        if (strlen(limits[i].name) == (size_t)(value - text) && !strncmp(limits[i].name, text, (size_t)(value - text))) {
            rlim_t most = strtoull(value + 1, NULL, 10);
            struct rlimit now_set, wanted = {most, most};
            if (getrlimit(limits[i].resource, &now_set) == 0 && now_set.rlim_max < most)
                wanted.rlim_cur = wanted.rlim_max = now_set.rlim_max; /* a lower one stays */
            return setrlimit(limits[i].resource, &wanted) == 0;
        }
    return false;
}

struct options {
    const char *directory, *lease;
    bool listen, same_user;
};

static bool parse(char **word, struct options *options)
{
    for (; *word; word++) {
        if (!strcmp(*word, "--listen"))
            options->listen = true;
        else if (!strcmp(*word, "--same-user"))
            options->same_user = true;
        else if (!word[1])
            return false;
        else if (!strcmp(*word, "--dial"))
            options->directory = *++word;
        else if (!strcmp(*word, "--lease"))
            options->lease = *++word;
        else if (strcmp(*word, "--limit") || !limit(*++word))
            return false;
    }
    return options->lease && options->listen == !options->directory;
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "--version"))
        return printf("belljar-init %d\n", PROTOCOL_VERSION) < 0;
    if (argc == 2 && !strcmp(argv[1], "--bridge"))
        return bridge_run();
    if (argc == 3 && !strcmp(argv[1], "--install"))
        return install(argv[2]);
    if (argc > 2 && !strcmp(argv[1], "--tool"))
        return tools_main(argc - 2, argv + 2);
    if (getpid() != 1) {
        fprintf(stderr, "belljar-init: refusing to run: not PID 1 of a sandbox\n");
        return USAGE;
    }
    struct options options = {0};
    char *token = getenv("BELLJAR_TOKEN");
    if (!parse(argv + 1, &options) || (options.listen && (!token || strlen(token) != WIRE_TOKEN)))
        return usage();
    prepare();
    prepare_loop();
    lease_set((uint32_t)strtoul(options.lease, NULL, 10));
    if (options.directory)
        listener_dial(options.directory);
    else
        listener_listen(token, options.same_user);
    if (token) /* gVisor shows /proc/1/environ to everybody */
        memset(token, 0, strlen(token));
    unsetenv("BELLJAR_TOKEN");
    serve();
}
