/* The processes around us, as /proc shows them. */
#ifndef BELLJAR_PROC_H
#define BELLJAR_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Sends a signal to every living descendant of `root`; `skip` names processes that, with their own, are left alone. */
struct tree {
    size_t found;  /* descendants seen, zombies too */
    size_t moving; /* of these, the ones that were neither stopped nor dead */
    bool hazy;     /* somebody's parent vanished while we looked: look again before believing that nobody is left */
};
struct tree proc_signal_tree(pid_t root, bool (*skip)(pid_t), int signal);

/* Kills a tree that may fork as fast as we kill it: call until nothing is left. */
struct purge {
    unsigned passes;
    bool killing;
};
struct tree proc_purge(struct purge *purge, pid_t root, bool (*skip)(pid_t));

/* What a process's descendants have used so far, the dead ones that were waited for included. */
struct used {
    uint64_t cpu_us, peak; /* peak: resident bytes of the largest that lives */
    bool stopped;          /* the shell, by a signal */
};
/* `shell` goes on from call to call, so of it only what it holds now counts. */
void proc_used(pid_t root, pid_t shell, struct used *used);
/* The directory that a process is in; 0 if that cannot be told. */
size_t proc_cwd(pid_t pid, char *path, size_t size);
/* Whether a process waits to read from one of its descriptors; also true where the kernel does not tell. */
bool proc_reads(pid_t pid, int fd);

/* How many times the kernel's OOM killer struck in this container. */
uint64_t proc_oom_kills(void);
extern uint64_t oom_kills_known; /* when we last looked */

#endif
