/* The processes of the sandbox, as /proc shows them. */
#ifndef BELLJAR_PROC_H
#define BELLJAR_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Sends a signal to every descendant of `root`, except those that `skip` selects and their descendants. */
struct tree {
    size_t found;    /* descendants, including zombies */
    size_t running;  /* those that are neither stopped nor dead */
    bool incomplete; /* a parent vanished during the scan: scan again before concluding that nothing is left */
};
struct tree proc_signal_tree(pid_t root, bool (*skip)(pid_t), int signal);

/* Kills a tree that may fork as fast as we kill it. Call it until nothing is left. */
struct purge {
    unsigned passes;
    bool killing;
};
struct tree proc_purge(struct purge *purge, pid_t root, bool (*skip)(pid_t));

/* What a process's descendants have used so far, including dead ones that were waited for. */
struct used {
    uint64_t cpu_us, peak; /* peak: resident bytes of the largest living process */
    bool stopped;          /* a signal stopped the shell */
};
/* `shell` outlives one command, so only its current memory counts, not its peak. */
void proc_used(pid_t root, pid_t shell, struct used *used);
/* The length of a process's working directory; 0: unknown. */
size_t proc_cwd(pid_t pid, char *path, size_t size);
/* Whether a process waits in read(2) on this descriptor. Also true if the kernel does not show it. */
bool proc_reads(pid_t pid, int fd);

/* How many processes the kernel's OOM killer has killed in this container. */
uint64_t proc_oom_kills(void);
extern uint64_t oom_kills_known; /* the result of the last call */

#endif
