/* The interfaces between the parts of PID 1. */
#ifndef BELLJAR_INIT_H
#define BELLJAR_INIT_H

#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "frame.h"
#include "proc.h"
#include "ring.h"

#define WORKSPACE "/workspace"
#define CONNECTIONS_MAX 64
#define MS 1000000ull      /* clocks are in nanoseconds */
#define NEVER UINT64_MAX

/* Every object that epoll watches begins with one of these. */
struct source {
    enum { AT_SIGNAL, AT_NOTICE, AT_LISTENER, AT_CONNECTION, AT_STREAM, AT_SINK } kind;
};

/* One connection to a host. */
struct connection {
    struct source source;
    int fd;
    bool greeted;             /* a valid HELLO came */
    bool readable, hup, blocked, doomed;
    bool stopped_clock; /* it asked us to stop it, and has not let it go on */
    uint64_t inode, since, last_received, hold_until;
    uint8_t *in, *out;       /* `out` holds bytes that are not sent yet */
    size_t in_length, in_size, out_at, out_length, out_size;
};

/* Memory shared with a keeper, which writes it; PID 1 reads it. A slot is free again once its keeper was reaped. */
enum slot_state { SLOT_FREE, SLOT_STARTING, SLOT_RUNNING, SLOT_FAILED, SLOT_DONE };
enum slot_claim { UNCLAIMED, CLAIMED, SPOILT };
struct slot {
    _Atomic uint32_t state;
    _Atomic uint32_t claim; /* of a waiting shell: whether PID 1 gave it a command or its keeper discarded it; the first one wins */
    _Atomic uint32_t condemned; /* set by PID 1: kill the tree now */
    _Atomic uint32_t progress; /* increases while the tree is being killed */
    uint32_t error, stage;
    pid_t main;
    int status;
    uint32_t survivors;
    struct rusage usage;
};

static inline bool slot_claim(struct slot *slot, enum slot_claim claim)
{
    uint32_t unclaimed = UNCLAIMED;
    return atomic_compare_exchange_strong(&slot->claim, &unclaimed, claim);
}

/* Output of a command: stdout, stderr or control. */
struct stream {
    struct source source;
    struct command *command;
    int fd; /* -1: at its end */
    uint8_t number;
    bool ready, hup, widened;
    bool passed; /* the host reads the pipe itself */
    uint64_t credit;
    uint64_t left; /* of a dead command: how much is still to be read */
    struct ring ring; /* only background commands keep bytes in it; ring.total counts the bytes of all */
};

/* Input of a command: stdin or control. */
struct sink {
    struct source source;
    struct command *command;
    int fd;
    uint8_t number;
    bool finished; /* EOF follows the buffered bytes */
    bool passed;
    uint8_t *bytes;
    size_t at, length, size;
    uint64_t received, delivered, acknowledged;
};

/* A READ request that waits for output. */
struct reader {
    struct reader *next;
    struct connection *connection;
    struct read_request wanted;
    uint64_t until;
};

enum phase { WAITING, STARTING, RUNNING, ORPHANED, DRAINING, OVER, GONE };

struct command {
    struct command *next, **back;
    uint64_t id;
    uint32_t flags, tag_length, live_slot;
    enum phase phase;
    enum cause forced; /* TIMEOUT or KILLED, once we have begun to kill it */
    struct connection *owner; /* receives its output and its end */
    struct connection *control_owner; /* receives its control stream and input acknowledgements */
    pid_t keeper, main;
    struct stream streams[3];
    struct sink sinks[2];
    uint64_t gate[2]; /* offsets that stdout and stderr must reach before the next control bytes go out */
    size_t gated; /* how many control bytes wait for that */
    uint64_t started, started_ms, deadline, grace, kill_at, overdue_at, nudge_at;
    uint32_t progress_seen;
    uint64_t oom_before;
    uint64_t cwd_dev, cwd_ino;
    int feed; /* of a waiting shell: the pipe that its command is written to */
    struct reader *readers;
    uint8_t ended[WIRE_ENDED];
    char *tag;
};

/* init.c */
extern uint64_t now;
extern int epoll;
extern uint64_t boot_id;
extern uint8_t scratch[WIRE_CHUNK];
uint64_t clock_now(int clock);
void clock_stop(void);
void clock_go_on(void);
void watch(int fd, struct source *source, uint32_t events);
_Noreturn void leave(const char *why);

/* connection.c */
void connection_admit(int fd, uint64_t inode);
bool connection_known(uint64_t inode);
void connection_event(struct connection *connection, uint32_t events);
void connections_serve(void);
bool connections_flush(void);
bool connections_pending(void);
void connections_expire(uint64_t *next);
unsigned connections_greeted(void);
/* Returns room for a frame's payload, after writing its header. Without memory it returns NULL and dooms the connection. */
uint8_t *connection_frame(struct connection *connection, uint32_t length, uint8_t type, uint8_t stream, uint64_t id);
void connection_hold(struct connection *connection);
/* Sends now as much as the kernel accepts. */
void connection_flush(struct connection *connection);
/* Large output is sent at once, without a copy if the kernel accepts it. */
void connection_output(struct connection *connection, uint8_t stream, uint64_t id, uint64_t offset, const uint8_t *data, size_t length);
extern uint64_t lease, lease_from;
void lease_set(uint32_t milliseconds);

/* listener.c */
void listener_dial(const char *directory);
void listener_listen(const char *token, bool same_user);
void listener_event(void);
void listener_tend(uint64_t *next);
bool token_matches(const uint8_t *token, size_t length);

/* request.c */
bool request_handle(struct connection *connection, const struct frame *frame);

/* command.c */
extern struct command *live, *retained;
extern unsigned live_count, retained_count;
struct command *command_new(void);
struct command *command_find(uint64_t id);
bool command_known(uint64_t id);
void command_remember(uint64_t id);
uint64_t micros(struct timeval time);
void command_free(struct command *command);
void commands_bury(void);
void command_start(struct command *command);
void command_begun(struct command *command);
void command_refused(struct command *command, uint32_t error, uint32_t stage);
void command_end(struct command *command, enum cause cause, uint32_t grace_ms);
void command_dead(struct command *command);
void command_tend(struct command *command, uint64_t *next);
/* `received`: how much of stdout and stderr the host has, including what it read from passed pipes. */
void command_background(struct command *command, uint32_t ring_bytes, const uint64_t received[2]);
void commands_lose(struct connection *connection);
bool commands_pump(void);

/* stream.c */
bool stream_pump(struct stream *stream);
void stream_close(struct stream *stream);
void stream_finish(struct stream *stream);
/* How much of a held command's output its host has not confirmed. */
uint64_t stream_unconfirmed(const struct stream *stream);
void stream_event(struct stream *stream, uint32_t events);
bool sink_put(struct sink *sink, const uint8_t *data, size_t length);
void sink_pump(struct sink *sink);
void sink_close(struct sink *sink);

/* fd_pass.c */
bool stream_pass(struct stream *stream);
bool shell_pass(struct command *command);
void input_pass(struct command *command);
void stream_return(struct stream *stream, uint64_t received);

/* answer.c */
void reader_add(struct command *command, struct connection *connection, const struct read_request *wanted);
void readers_serve(struct command *command, uint64_t *next);
void readers_drop(struct command *command, const struct connection *connection);
void answer_list(struct connection *connection);
void answer_error(struct connection *connection, uint64_t id, uint32_t error, const char *text);
void answer_ended(struct command *command);
void answer_state(struct connection *connection, const struct command *command);

/* testimony.c */
void answer_testimony(struct connection *connection, const struct frame *frame);

/* spawn.c */
bool spawn_request(struct connection *connection, const struct frame *frame);
bool spawn_waiting(struct command *command);
const char *bash_path(void);
/* What a keeper starts. The pointers point into the SPAWN frame. */
struct plan {
    char **argv, **envp;
    const char *program, *cwd, *user; /* user: "uid:gid:group…", or NULL for our own */
    int in, out, err, control_in, control_out, memory; /* -1: none */
    int jobs; /* the socket over which the keeper gets its next job; -1: it serves once */
    bool pty;
};

/* prefork.c */
void prefork_enable(void);
bool prefork_wanting(void);
void prefork_refill(void);
void prefork_trim(uint64_t *next);
void prefork_discard(struct command *command);
struct command *prefork_claim(const char *text);
void prefork_begun(struct command *command);
bool prefork_fits(const char *text);

/* keepers.c: PID 1's side */
extern struct slot *slots;
#define NOTICE_FD 3
#define JOBS_FD 4
#define RULESET_FD 5
#define CONTROL_FD 9
#define RESERVED_FDS 10 /* a command may need 0, 1, 2, 6, 8 and 9: our own descriptors are higher, so dup2 never closes one */
#define JOB_PIPES 3
void keepers_prepare(void);
bool keeper_start(struct command *command, const struct plan *plan);
void keeper_order(const struct command *command);
void keeper_abandon(struct command *command);
struct slot *keeper_slot(const struct command *command);
bool keeper_is(pid_t pid);
void keepers_collect(void);
void keepers_reap(void);
void orphans_purge(uint64_t *next);

/* keeper.c: the keeper's own */
_Noreturn void keeper_run(const struct plan *plan, struct slot *slot);

/* isolation.c */
void isolation_prepare(void);
uint32_t isolation_level(void);
bool isolation_enter(void);

/* bridge.c */
int bridge_run(void);

#endif
