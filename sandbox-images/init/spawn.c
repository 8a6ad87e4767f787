/*
 * From a SPAWN frame to a keeper.
 *
 * A shell command runs in one of two ways, and which one depends on its text alone, never on whether a shell is waiting:
 *  - one plain line goes to a bash that reads it from a pipe and evals it. That bash may have been waiting already (prefork.c),
 *    which makes a command cheaper than a fork and exec;
 *  - text that would behave differently under eval (set -x prints one more `+`, line numbers in syntax errors, $SECONDS …) goes to
 *    `bash -c`. If it is too long for an argument, bash reads it from a file in memory and evals it after all.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "init.h"

#define ARGUMENT_MAX (128u << 10) /* the kernel's MAX_ARG_STRLEN */
#define IMAGE_VARIABLES 128
#define SCREEN (64u << 10) /* recent terminal output that is kept */
#define BASE_VARIABLES (8 + IMAGE_VARIABLES)

/* The text ends up in the variable in which `bash -c` keeps it, too. */
static char bootstrap[] = "IFS= read -rd '' -u9 BASH_EXECUTION_STRING;exec 9<&-;eval -- \"$BASH_EXECUTION_STRING\"";

static bool pipe_for(struct stream *stream, int *end)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    stream->fd = ends[0];
    *end = ends[1];
    watch(ends[0], &stream->source, EPOLLIN | EPOLLET);
    return true;
}

static bool pipe_from(struct sink *sink, int *end)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    sink->fd = ends[1];
    *end = ends[0];
    watch(ends[1], &sink->source, EPOLLOUT | EPOLLET);
    return true;
}

static bool open_terminal(struct command *command, struct plan *plan, struct winsize size)
{
    int terminal = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK), unlock = 0;
    if (terminal < 0)
        return false;
    command->streams[0].fd = terminal;
    command->streams[0].ring.cap = SCREEN;
    ioctl(terminal, TIOCSPTLCK, &unlock);
    ioctl(terminal, TIOCSWINSZ, &size);
    plan->in = ioctl(terminal, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    command->sinks[0].fd = fcntl(terminal, F_DUPFD_CLOEXEC, 0);
    if (plan->in < 0 || command->sinks[0].fd < 0)
        return false;
    plan->out = fcntl(plan->in, F_DUPFD_CLOEXEC, 0);
    plan->err = fcntl(plan->in, F_DUPFD_CLOEXEC, 0);
    plan->pty = true;
    watch(terminal, &command->streams[0].source, EPOLLIN | EPOLLET);
    watch(command->sinks[0].fd, &command->sinks[0].source, EPOLLOUT | EPOLLET);
    return plan->out >= 0 && plan->err >= 0;
}

static bool open_streams(struct command *command, struct plan *plan, struct winsize size)
{
    if (command->flags & FLAG_CONTROL &&
        !(pipe_for(&command->streams[2], &plan->control_out) && pipe_from(&command->sinks[1], &plan->control_in) &&
          (plan->memory = memfd_create("scratch", MFD_CLOEXEC)) >= 0))
        return false;
    if (command->flags & FLAG_PTY)
        return open_terminal(command, plan, size);
    if (command->flags & FLAG_STDIN && !pipe_from(&command->sinks[0], &plan->in))
        return false;
    if (!pipe_for(&command->streams[0], &plan->out))
        return false;
    if (command->flags & FLAG_COMBINED)
        return (plan->err = fcntl(plan->out, F_DUPFD_CLOEXEC, 0)) >= 0;
    return pipe_for(&command->streams[1], &plan->err);
}

static void close_plan(struct plan *plan)
{
    int fds[] = {plan->in, plan->out, plan->err, plan->control_in, plan->control_out, plan->memory};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

const char *bash_path(void)
{
    static const char *found;
    if (found)
        return found;
    static const char *const candidates[] = {"/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"};
    for (size_t i = 0; i < sizeof candidates / sizeof *candidates; i++)
        if (!found && access(candidates[i], X_OK) == 0)
            found = candidates[i];
    return found;
}

static bool has_variable(char **env, const char *variable)
{
    size_t name = (size_t)(strchr(variable, '=') - variable) + 1;
    for (; *env; env++)
        if (!strncmp(*env, variable, name))
            return true;
    return false;
}

static void add_variable(char **env, char *variable)
{
    if (!strchr(variable, '=') || has_variable(env, variable))
        return;
    while (*env)
        env++;
    env[0] = variable;
    env[1] = NULL;
}

/* Adds the base environment; variables that are set already win. First the fixed ones, then the container's (its user's HOME, its image's
   PATH …), then defaults. */
static void add_base_environment(char **env, char *pwd, bool pty)
{
    char *always[] = {
        "SHELL=/bin/bash",
        pty ? "TERM=xterm-256color" : "TERM=dumb",
        pwd,
    };
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        add_variable(env, always[i]);
    for (int i = 0; i < IMAGE_VARIABLES && environ[i]; i++)
        if (strncmp(environ[i], "HOSTNAME=", 9) && strncmp(environ[i], "KUBERNETES_", 11)) /* a kubelet tells where the API server is */
            add_variable(env, environ[i]);
    add_variable(env, "HOME=/home/sandbox");
    add_variable(env, "USER=sandbox");
    add_variable(env, "LOGNAME=sandbox");
    add_variable(env, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    add_variable(env, "LC_CTYPE=C.UTF-8");
}

/* Starts a bash that waits for its text on `feed`. */
bool spawn_waiting(struct command *command)
{
    struct plan plan = {.cwd = "", .in = -1, .out = -1, .err = -1, .control_in = -1, .control_out = -1, .memory = -1};
    char *argv[] = {"bash", "--noprofile", "--norc", "-c", bootstrap, NULL}, *env[BASE_VARIABLES + 1] = {NULL};
    int ends[2];
    add_base_environment(env, "PWD=" WORKSPACE, false);
    plan.argv = argv;
    plan.envp = env;
    plan.program = bash_path();
    bool started = false;
    if (plan.program && pipe2(ends, O_CLOEXEC) == 0) {
        plan.control_in = ends[0];
        command->feed = ends[1];
        started = open_streams(command, &plan, (struct winsize){0}) && keeper_start(command, &plan);
    }
    close_plan(&plan);
    return started;
}

static int text_in_memory(const char *text)
{
    size_t length = strlen(text) + 1;
    int fd = memfd_create("command", MFD_CLOEXEC);
    for (size_t at = 0; fd >= 0 && at < length;) {
        ssize_t n = write(fd, text + at, length - at);
        if (n < 0) {
            close(fd);
            return -1;
        }
        at += (size_t)n;
    }
    if (fd >= 0)
        lseek(fd, 0, SEEK_SET);
    return fd;
}

static int text_in_pipe(const char *text)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    (void)!write(ends[1], text, strlen(text) + 1);
    close(ends[1]);
    return ends[0];
}

/* Replaces the text in argv by the bash that runs it. argv has room for five more entries. */
static int plan_shell(struct plan *plan, bool control)
{
    char *text = plan->argv[0];
    size_t length = strlen(text);
    bool long_text = length >= ARGUMENT_MAX;
    plan->program = bash_path();
    if (!plan->program)
        return ENOENT;
    if (long_text && control)
        return E2BIG; /* the control stream uses the descriptor that would carry the text */
    bool by_eval = !control && (long_text || prefork_fits(text));
    char *argv[] = {"bash", "--noprofile", "--norc", "-c", by_eval ? bootstrap : "--", by_eval ? NULL : text, NULL};
    memcpy(plan->argv, argv, sizeof argv);
    if (by_eval)
        plan->control_in = long_text ? text_in_memory(text) : text_in_pipe(text);
    return by_eval && plan->control_in < 0 ? errno : 0;
}

static void refuse(struct connection *connection, uint64_t id, int error, enum stage stage, const char *text)
{
    uint32_t length = (uint32_t)strlen(text);
    uint8_t *to = connection_frame(connection, 8 + length, SPAWN_ERROR, 0, id);
    if (to)
        put_bytes(put_u32(put_u32(to, (uint32_t)error), stage), text, length);
}

/* Points argv and envp into the frame. */
static char **string_vector(const struct spawn_request *request, char ***env)
{
    size_t argv_room = request->argc + 7;
    char **vector = calloc(argv_room + request->envc + BASE_VARIABLES + 1, sizeof *vector);
    const char *at = request->strings;
    if (!vector)
        return NULL;
    *env = vector + argv_room;
    for (uint32_t i = 0; i < request->argc + request->envc; i++) {
        *(i < request->argc ? vector + i : *env + (i - request->argc)) = (char *)at;
        at += strlen(at) + 1;
    }
    return vector;
}

static void spawn_on_demand(struct command *command, const struct spawn_request *request)
{
    struct plan plan = {.cwd = request->cwd, .in = -1, .out = -1, .err = -1, .control_in = -1, .control_out = -1, .memory = -1};
    char pwd[PATH_MAX + 32];
    int error = 0;
    char **strings = plan.argv = string_vector(request, &plan.envp);
    if (!strings)
        return command_refused(command, ENOMEM, STAGE_RESOURCES);
    snprintf(pwd, sizeof pwd, "PWD=%s%s%.4096s", *request->cwd == '/' ? "" : WORKSPACE,
             *request->cwd && *request->cwd != '/' ? "/" : "", request->cwd);
    if (command->flags & FLAG_DEFAULT_ENV)
        add_base_environment(plan.envp, pwd, command->flags & FLAG_PTY);
    if (command->flags & FLAG_USER)
        plan.user = *plan.argv++;
    plan.program = plan.argv[0];
    if (command->flags & FLAG_SHELL)
        error = plan_shell(&plan, command->flags & FLAG_CONTROL);
    struct winsize size = {.ws_row = request->rows, .ws_col = request->cols};
    if (error)
        command_refused(command, (uint32_t)error, error == ENOENT || error == E2BIG ? STAGE_EXEC : STAGE_RESOURCES);
    else if (!open_streams(command, &plan, size) || !keeper_start(command, &plan))
        command_refused(command, (uint32_t)errno, STAGE_RESOURCES);
    close_plan(&plan);
    free(strings);
}

static bool fits_waiting_shell(const struct spawn_request *request)
{
    return (request->flags & ~(uint32_t)(FLAG_BACKGROUND | FLAG_HELD)) == (FLAG_SHELL | FLAG_DEFAULT_ENV) && !request->envc &&
           !*request->cwd && prefork_fits(request->strings);
}

static bool check_request(struct connection *connection, uint64_t id, const struct spawn_request *request)
{
    bool shell = request->flags & FLAG_SHELL;
    uint32_t words = request->argc - !!(request->flags & FLAG_USER);
    if (!id || request->flags & ~(uint32_t)FLAGS_KNOWN || !request->argc || !words || (shell && words != 1))
        refuse(connection, id, EINVAL, STAGE_REQUEST, "not a command that can be run");
    else if (command_known(id))
        refuse(connection, id, EEXIST, STAGE_DUPLICATE, "this id was used before");
    else if (live_count >= WIRE_LIVE_MAX)
        refuse(connection, id, EAGAIN, STAGE_RESOURCES, "too many commands in this sandbox");
    else if (shell && !bash_path())
        refuse(connection, id, ENOENT, STAGE_EXEC, "no bash in this image");
    else
        return true;
    return false;
}

static void adopt(struct command *command, struct connection *connection, uint64_t id, const struct spawn_request *request)
{
    command->id = id;
    command->flags = request->flags;
    command->owner = command->control_owner = connection;
    command->deadline = request->deadline_ms ? now + request->deadline_ms * MS : NEVER;
    command->grace = request->grace_ms * MS;
    for (int i = 0; i < 3; i++)
        command->streams[i].credit = request->credit;
    command->tag = malloc(request->tag_length + 1);
    if (command->tag)
        memcpy(command->tag, request->tag, command->tag_length = request->tag_length);
    if (command->flags & FLAG_BACKGROUND)
        command_background(command, request->ring_bytes, (uint64_t[]){0, 0});
    command_start(command);
}

bool spawn_request(struct connection *connection, const struct frame *frame)
{
    struct spawn_request request;
    if (!frame_parse_spawn(frame, &request))
        return false;
    if (!check_request(connection, frame->id, &request))
        return true;
    struct command *command = fits_waiting_shell(&request) ? prefork_claim(request.strings) : NULL;
    if (command) {
        bool alone = !connection->out_length || connection->hold_until > now;
        command->phase = STARTING;
        adopt(command, connection, frame->id, &request);
        if (command->main)
            command_begun(command);
        if (command->main && alone && !(command->flags & FLAG_BACKGROUND))
            connection_hold(connection); /* its output will follow soon */
        return true;
    }
    command = command_new();
    if (!command) {
        refuse(connection, frame->id, ENOMEM, STAGE_RESOURCES, "no memory");
        return true;
    }
    command->phase = STARTING;
    adopt(command, connection, frame->id, &request);
    spawn_on_demand(command, &request);
    return true;
}
