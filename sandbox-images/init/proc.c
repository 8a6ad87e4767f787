/*
 * Finds a tree by parent pids in a snapshot of /proc. A snapshot is not atomic and may miss new processes, so the caller repeats until
 * nothing is left (a keeper until ECHILD, PID 1 until the tree is empty).
 *
 * A fork bomb is stopped first and killed afterwards: a stopped process still counts against the pids limit, so the bomb runs out of
 * room, while a killed one would make room for the next.
 */
#include "proc.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SEEN_MAX 8192
#define KILL_AT_ONCE 8 /* a tree of at most so many is killed without being stopped first */
#define STOP_PASSES 64 /* then kill, even if some did not stop (they may get SIGCONT from inside) */
#define KILL_PASSES 16 /* then stop again */
#define DEPTH_MAX 64   /* generations whose use is counted */

static struct {
    pid_t pid, ppid;
    char state;
    bool marked;
} seen[SEEN_MAX];
static size_t snapshot_count;

static bool read_stat(int proc, const char *name, pid_t *ppid, char *state)
{
    char path[32], stat[512];
    snprintf(path, sizeof path, "%.24s/stat", name);
    int fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, stat, sizeof stat - 1);
    close(fd);
    if (n <= 0)
        return false;
    stat[n] = 0;
    char *after = strrchr(stat, ')'); /* the name before it may contain any character */
    return after && sscanf(after + 1, " %c %d", state, ppid) == 2;
}

static void snapshot(void)
{
    snapshot_count = 0;
    DIR *proc = opendir("/proc");
    if (!proc)
        return;
    for (struct dirent *entry; snapshot_count < SEEN_MAX && (entry = readdir(proc));) {
        pid_t pid = atoi(entry->d_name), ppid;
        char state;
        if (pid <= 0 || !read_stat(dirfd(proc), entry->d_name, &ppid, &state))
            continue;
        seen[snapshot_count].pid = pid;
        seen[snapshot_count].ppid = ppid;
        seen[snapshot_count].state = state;
        seen[snapshot_count++].marked = false;
    }
    closedir(proc);
}

/* /proc lists in ascending order. */
static ssize_t find(pid_t pid)
{
    size_t low = 0, high = snapshot_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (seen[middle].pid < pid)
            low = middle + 1;
        else
            high = middle;
    }
    return low < snapshot_count && seen[low].pid == pid ? (ssize_t)low : -1;
}

static struct tree mark(pid_t root, bool (*skip)(pid_t))
{
    struct tree tree = {0};
    bool changed = true;
    snapshot();
    for (bool first = true; changed; first = false) {
        changed = false;
        for (size_t i = 0; i < snapshot_count; i++) {
            if (seen[i].marked || seen[i].ppid == 0 || (skip && skip(seen[i].pid)))
                continue;
            ssize_t parent = seen[i].ppid == root ? -1 : find(seen[i].ppid);
            if (seen[i].ppid != root && parent < 0 && first)
                tree.incomplete = true;
            if (seen[i].ppid != root && (parent < 0 || !seen[parent].marked))
                continue;
            seen[i].marked = changed = true;
            tree.found++;
            tree.running += !strchr("TtZX", seen[i].state);
        }
    }
    return tree;
}

static void signal_marked(int signal)
{
    for (size_t i = 0; i < snapshot_count; i++)
        if (seen[i].marked)
            kill(seen[i].pid, signal);
}

struct tree proc_signal_tree(pid_t root, bool (*skip)(pid_t), int signal)
{
    struct tree tree = mark(root, skip);
    signal_marked(signal);
    return tree;
}

struct tree proc_purge(struct purge *purge, pid_t root, bool (*skip)(pid_t))
{
    struct tree tree = mark(root, skip);
    if (purge->passes == 0)
        purge->killing = tree.found <= KILL_AT_ONCE;
    else if (purge->killing && purge->passes % KILL_PASSES == 0)
        purge->killing = tree.found <= KILL_AT_ONCE;
    else if (!purge->killing && (!tree.running || purge->passes % STOP_PASSES == 0))
        purge->killing = true;
    purge->passes++;
    signal_marked(purge->killing ? SIGKILL : SIGSTOP);
    return tree;
}

static ssize_t read_proc_file(pid_t pid, const char *file, char *text, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = 0;
    return n;
}

static uint64_t resident_now(pid_t pid)
{
    char text[128];
    unsigned long long pages = 0;
    read_proc_file(pid, "statm", text, sizeof text);
    return sscanf(text, "%*u %llu", &pages) == 1 ? pages * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

static uint64_t resident_peak(pid_t pid)
{
    char text[2048];
    unsigned long long kilobytes = 0;
    read_proc_file(pid, "status", text, sizeof text);
    const char *peak = strstr(text, "\nVmHWM:");
    return peak && sscanf(peak, " VmHWM: %llu", &kilobytes) == 1 ? kilobytes << 10 : 0;
}

static void add_used(pid_t pid, bool now, struct used *used)
{
    char text[1024];
    unsigned long long ticks[4] = {0};
    read_proc_file(pid, "stat", text, sizeof text);
    const char *after = strrchr(text, ')');
    if (after && sscanf(after + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %llu %llu", ticks, ticks + 1, ticks + 2,
                        ticks + 3) == 4)
        used->cpu_us += (ticks[0] + ticks[1] + ticks[2] + ticks[3]) * 1000000 / (unsigned long long)sysconf(_SC_CLK_TCK);
    if (now)
        used->stopped = after && strncmp(after, ") T", 3) == 0;
    uint64_t resident = now ? resident_now(pid) : resident_peak(pid);
    if (resident > used->peak)
        used->peak = resident;
}

/* Uses the kernel's list of children; false: this kernel has none. */
static bool add_children(pid_t parent, pid_t shell, unsigned depth, struct used *used)
{
    char file[48], text[2048];
    snprintf(file, sizeof file, "task/%d/children", parent);
    ssize_t n = read_proc_file(parent, file, text, sizeof text);
    if (n < 0)
        return false;
    for (char *at = text, *end; depth && (end = strchr(at, ' ')); at = end + 1) {
        pid_t pid = atoi(at);
        add_used(pid, pid == shell, used);
        add_children(pid, shell, depth - 1, used);
    }
    return true;
}

void proc_used(pid_t root, pid_t shell, struct used *used)
{
    if (add_children(root, shell, DEPTH_MAX, used))
        return;
    mark(root, NULL);
    for (size_t i = 0; i < snapshot_count; i++)
        if (seen[i].marked)
            add_used(seen[i].pid, seen[i].pid == shell, used);
}

size_t proc_cwd(pid_t pid, char *path, size_t size)
{
    char link[32];
    snprintf(link, sizeof link, "/proc/%d/cwd", pid);
    ssize_t n = readlink(link, path, size);
    return n > 0 ? (size_t)n : 0;
}

bool proc_reads(pid_t pid, int fd)
{
    char text[256];
    long call = -1;
    unsigned long long first = 0;
    if (read_proc_file(pid, "syscall", text, sizeof text) <= 0)
        return true;
    return sscanf(text, "%ld %llx", &call, &first) == 2 && call == SYS_read && first == (unsigned long long)fd;
}

static int open_oom_counter(void)
{
    static const char *const paths[] = {
        "/sys/fs/cgroup/memory.events.local",
        "/sys/fs/cgroup/memory.events",
        "/sys/fs/cgroup/memory/memory.oom_control",
    };
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        int fd = open(paths[i], O_RDONLY | O_CLOEXEC);
        if (fd >= 0)
            return fd;
    }
    return -2;
}

uint64_t oom_kills_known;

uint64_t proc_oom_kills(void)
{
    static int counter = -1;
    char text[512];
    if (counter == -1)
        counter = open_oom_counter();
    ssize_t n = counter < 0 ? -1 : pread(counter, text, sizeof text - 1, 0);
    if (n <= 0)
        return 0;
    text[n] = 0;
    const char *at = strstr(text, "oom_kill ");
    oom_kills_known = at ? strtoull(at + strlen("oom_kill "), NULL, 10) : 0;
    return oom_kills_known;
}
