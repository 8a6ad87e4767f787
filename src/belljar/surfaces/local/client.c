/*
 * The program `belljar`. If the user's local server runs, a worker of it carries our command line out, and we wait for
 * its status. Else, and whenever anything is in the way, we become belljar-python beside us: as if there were no server.
 *
 * What both say is in meeting.py. The worker uses our own stdin, stdout and stderr; we pass signals on. It begins only
 * when we say so, and we say so last: until then nothing has run, and after it nothing is run here.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define STREAMS 3
#define SIZE_DIGITS 8
#define COUNT_ROOM 12
#define LINE_ROOM 4096
#define TAKEN_MS 2000 /* a server that is slower than that is of no use */
#define LOST 125

static const char PROTOCOL[] = "belljar 1";
static const char BESIDE[] = "belljar-python";
static const char *const RELAYED[] = {"run", "check", "call", "start", "logs", "ps"};

struct call {
    int connection;
    int worker; /* pidfd */
    int signals; /* signalfd */
    sigset_t mask; /* what was blocked when we began */
    long long deadline;
    char line[LINE_ROOM];
};

static char launcher[PATH_MAX]; /* the path of belljar-python */
static const char *reason; /* why no server carries it out; NULL: there is none */

static bool because(const char *text)
{
    reason = text;
    return false;
}

static void say(const char *words, const char *more) { dprintf(STDERR_FILENO, "belljar: %s%s\n", words, more); }

/* Without a server. */

static bool find_launcher(void)
{
    ssize_t length = readlink("/proc/self/exe", launcher, sizeof(launcher) - 1);
    if (length < 0) { /* no /proc here */
        const char *name = (const char *)getauxval(AT_EXECFN);
        length = name ? (ssize_t)strnlen(name, sizeof(launcher)) : 0;
        if (length >= (ssize_t)sizeof(launcher))
            return false;
        memcpy(launcher, name ? name : "", (size_t)length);
    }
    launcher[length] = 0;
    char *slash = strrchr(launcher, '/');
    char *name = slash ? slash + 1 : launcher;
    if (name + sizeof(BESIDE) > launcher + sizeof(launcher))
        return false;
    memcpy(name, BESIDE, sizeof(BESIDE));
    return true;
}

static _Noreturn void run_here(char **argv)
{
    execv(launcher, argv);
    dprintf(STDERR_FILENO, "belljar: %s: %s\n", launcher, strerror(errno));
    _exit(LOST);
}

static bool is_relayed(const char *word)
{
    for (size_t each = 0; word && each < sizeof(RELAYED) / sizeof(*RELAYED); each++)
        if (!strcmp(word, RELAYED[each]))
            return true;
    return false;
}

static bool is_verbose(char **argv)
{
    for (; *argv && strcmp(*argv, "--"); argv++)
        if (!strcmp(*argv, "-v") || !strcmp(*argv, "--verbose"))
            return true;
    return false;
}

/* The meeting place. */

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* As environment.run_place. */
static bool meeting_place(char path[PATH_MAX])
{
    const char *run = variable("BELLJAR_RUN"), *runtime = variable("XDG_RUNTIME_DIR");
    unsigned user = geteuid();
    int length;
    if (run)
        length = snprintf(path, PATH_MAX, "%s/local", run);
    else if (user == 0)
        length = snprintf(path, PATH_MAX, "/run/belljar/local");
    else if (runtime)
        length = snprintf(path, PATH_MAX, "%s/belljar/local", runtime);
    else
        length = snprintf(path, PATH_MAX, "/tmp/belljar-%u/local", user);
    return length > 0 && length < PATH_MAX;
}

/* A descriptor of the place, if nobody else can put a socket there; -1 with the reason. */
static int enter(void)
{
    char path[PATH_MAX];
    struct stat status;
    if (!meeting_place(path))
        return because("its place has too long a name"), -1;
    int place = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (place < 0)
        return because(errno == ENOENT ? NULL : strerror(errno)), -1;
    if (fstat(place, &status) || status.st_uid != geteuid() || status.st_mode & 077) {
        close(place);
        return because("its place is not a directory that only you can enter"), -1;
    }
    return place;
}

static bool is_of_this_user(int connection)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);
    if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size))
        return because(strerror(errno));
    if (peer.uid != geteuid() || peer.pid <= 0)
        return because("it is of another user, or of another world of processes");
    return true;
}

static bool connected(struct call *call)
{
    const struct timeval patience = {TAKEN_MS / 1000, 0};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int place = enter();
    if (place < 0)
        return false;
    snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/socket", place);
    call->connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(call->connection, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)); /* for connect */
    if (call->connection < 0 || connect(call->connection, (struct sockaddr *)&address, sizeof(address)))
        return because(errno == ENOENT ? NULL : strerror(errno));
    close(place);
    return is_of_this_user(call->connection);
}

/* What is said. */

static long long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static bool in_time(const struct call *call, short events)
{
    struct pollfd ready = {call->connection, events, 0};
    for (;;) {
        long long left = call->deadline - now_ms();
        if (left <= 0)
            return because("it does not answer");
        if (poll(&ready, 1, (int)left) > 0)
            return true;
    }
}

static char *text(char *at, const char *words) { return stpcpy(at, words) + 1; }

static char *list(char *at, size_t count) { return at + sprintf(at, "%zu", count) + 1; }

static bool is_variable(const char *entry)
{
    const char *sign = strchr(entry, '=');
    return sign && sign != entry;
}

static size_t room_of(char **words)
{
    size_t room = COUNT_ROOM;
    for (; *words; words++)
        room += strlen(*words) + 1;
    return room;
}

static char *words_into(char *at, char **words, bool (*wanted)(const char *))
{
    size_t count = 0;
    for (char **each = words; *each; each++)
        count += !wanted || wanted(*each);
    at = list(at, count);
    for (; *words; words++)
        if (!wanted || wanted(*words))
            at = text(at, *words);
    return at;
}

/* As meeting.packed: who we are, which streams are terminals, what stands in for us; argv; variables. */
static char *request(char **argv, size_t *size)
{
    char terminals[STREAMS + 1] = "", digits[SIZE_DIGITS + 1];
    for (int each = 0; each < STREAMS; each++)
        terminals[each] = isatty(each) ? '1' : '0';
    char *own[] = {(char *)PROTOCOL, terminals, launcher, NULL};
    char *data = malloc(SIZE_DIGITS + room_of(own) + room_of(argv) + room_of(environ));
    if (!data)
        return NULL;
    char *at = words_into(data + SIZE_DIGITS, own, NULL);
    at = words_into(at, argv, NULL);
    at = words_into(at, environ, is_variable);
    *size = (size_t)(at - data);
    snprintf(digits, sizeof(digits), "%08zx", *size - SIZE_DIGITS);
    memcpy(data, digits, SIZE_DIGITS);
    return data;
}

static bool send_request(const struct call *call, char **argv)
{
    size_t size, sent = 0;
    char *data = request(argv, &size);
    if (!data)
        return because(strerror(errno));
    while (sent < size) {
        if (!in_time(call, POLLOUT))
            return false;
        ssize_t more = send(call->connection, data + sent, size - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (more < 0 && errno != EAGAIN && errno != EINTR)
            break; /* it may have said why */
        sent += more > 0 ? (size_t)more : 0;
    }
    free(data);
    return true;
}

/* False: it is not whole yet. What ends without an end of line is none. */
static bool receive_line(struct call *call)
{
    size_t held = strlen(call->line);
    ssize_t more = recv(call->connection, call->line + held, sizeof(call->line) - 1 - held, MSG_DONTWAIT);
    if (more < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    char *end = strchr(call->line, '\n');
    if (end)
        *end = 0;
    else if (more > 0 && held + (size_t)more < sizeof(call->line) - 1)
        return false;
    else
        call->line[0] = 0;
    return true;
}

/* The number behind a word; -1 if the line says something else. */
static long number_in(const char *line, const char *word)
{
    size_t length = strlen(word);
    char *end;
    if (strncmp(line, word, length) || line[length] < '0' || line[length] > '9')
        return -1;
    errno = 0;
    long number = strtol(line + length, &end, 10);
    return errno || *end || number > INT_MAX ? -1 : number;
}

static bool is_taken(struct call *call)
{
    do
        if (!in_time(call, POLLIN))
            return false;
    while (!receive_line(call));
    long pid = number_in(call->line, "taken ");
    if (pid <= 0) {
        for (char *each = call->line; *each; each++)
            *each = *each < ' ' || *each > '~' ? '?' : *each;
        return because(!strncmp(call->line, "refused ", 8) ? call->line + 8 : "it has hung up");
    }
    call->worker = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
    return call->worker >= 0 || because(strerror(errno));
}

/* Signals. */

static bool may_pass(int number, const sigset_t *mask)
{
    struct sigaction action;
    return !sigismember(mask, number) && !sigaction(number, NULL, &action) && action.sa_handler != SIG_IGN;
}

/* From now on they wait for us. On a terminal, the keys that would stop or end us mean nothing (terminal/host.py). */
static bool hold_signals(struct call *call)
{
    static const int passed[] = {SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGCONT, SIGTSTP};
    bool terminal = isatty(STDIN_FILENO);
    sigset_t held;
    sigemptyset(&held);
    sigprocmask(SIG_BLOCK, NULL, &call->mask);
    for (size_t each = 0; each < sizeof(passed) / sizeof(*passed); each++)
        if (may_pass(passed[each], &call->mask) && !(terminal && passed[each] == SIGTSTP))
            sigaddset(&held, passed[each]);
    call->signals = signalfd(-1, &held, SFD_CLOEXEC | SFD_NONBLOCK);
    if (call->signals < 0)
        return because(strerror(errno));
    if (terminal) {
        sigaddset(&held, SIGTSTP);
        sigaddset(&held, SIGQUIT);
    }
    sigprocmask(SIG_BLOCK, &held, NULL);
    return true;
}

static void pass_on(const struct call *call)
{
    struct signalfd_siginfo got;
    while (read(call->signals, &got, sizeof(got)) == sizeof(got)) {
        bool stops = got.ssi_signo == SIGTSTP;
        int number = stops ? SIGSTOP : (int)got.ssi_signo;
        syscall(SYS_pidfd_send_signal, call->worker, number, NULL, 0);
        if (stops)
            raise(SIGSTOP);
    }
}

/* The beginning: with this, the worker has our streams. */
static bool go(const struct call *call)
{
    static const char word[] = "go\n";
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int) * STREAMS)];
    } rights = {.head = {.cmsg_len = CMSG_LEN(sizeof(int) * STREAMS), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    struct iovec words = {(char *)word, sizeof(word) - 1};
    struct msghdr message = {.msg_iov = &words, .msg_iovlen = 1, .msg_control = &rights, .msg_controllen = sizeof(rights)};
    for (int each = 0; each < STREAMS; each++)
        memcpy(CMSG_DATA(&rights.head) + (size_t)each * sizeof(int), &each, sizeof(int));
    return sendmsg(call->connection, &message, MSG_NOSIGNAL) > 0 || because(strerror(errno));
}

static bool begun(struct call *call, char **argv)
{
    struct stat status;
    for (int each = 0; each < STREAMS; each++)
        if (fstat(each, &status))
            return because("a standard stream is closed");
    if (isatty(STDIN_FILENO) && tcgetpgrp(STDIN_FILENO) != getpgrp())
        return because("we are in the background of the terminal");
    if (!connected(call) || !send_request(call, argv) || !is_taken(call) || !hold_signals(call))
        return false;
    if (go(call))
        return true;
    sigprocmask(SIG_SETMASK, &call->mask, NULL);
    return false;
}

static int status_of(struct call *call)
{
    struct pollfd ready[] = {{call->connection, POLLIN, 0}, {call->signals, POLLIN, 0}};
    if (isatty(STDIN_FILENO)) {
        signal(SIGTSTP, SIG_IGN);
        signal(SIGQUIT, SIG_IGN);
    }
    memset(call->line, 0, sizeof(call->line));
    do {
        poll(ready, 2, -1);
        pass_on(call);
    } while (!ready[0].revents || !receive_line(call));
    long status = number_in(call->line, "status ");
    if (status >= 0 && status <= UCHAR_MAX)
        return (int)status;
    say("the local server's worker was lost while the command ran", "");
    return LOST;
}

int main(int argc, char **argv)
{
    static struct call call;
    if (!find_launcher()) {
        say("the path of this program is too long", "");
        return LOST;
    }
    if (argc < 2 || !is_relayed(argv[1]))
        run_here(argv);
    call.deadline = now_ms() + TAKEN_MS;
    if (begun(&call, argv + 1))
        _exit(status_of(&call));
    if (reason && is_verbose(argv + 1))
        say("not by the local server: ", reason);
    run_here(argv);
}
