/*
 * Puts each command into its own Landlock domain before exec. All commands have the same uid; without this any of them could open
 * another's /proc/PID/{environ,mem,fd,cwd}, write into its pipes, or feed its own text to a waiting shell. A domain reaches only itself
 * and the domains made inside it.
 *
 * The ruleset forbids nothing else. With ABI 6 it only scopes signals. Older ABIs require a ruleset to handle some access to files,
 * so it handles REFER and allows it everywhere. ABI 1 always denies REFER, so we do not use it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "init.h"

#define CREATE_RULESET 444
#define ADD_RULE 445
#define RESTRICT_SELF 446
#define VERSION_OF 1u
#define PATH_BENEATH 1
#define ACCESS_REFER (1ull << 13)
#define SCOPE_SIGNAL (1ull << 1)
#define ABI_REFER 2
#define ABI_SCOPE 6

static uint32_t level;

uint32_t isolation_level(void) { return level; }

static int scoping_ruleset(void)
{
    struct {
        uint64_t files, net, scoped;
    } wanted = {.scoped = SCOPE_SIGNAL};
    return (int)syscall(CREATE_RULESET, &wanted, sizeof wanted, 0);
}

static int refer_ruleset(void)
{
    uint64_t handled = ACCESS_REFER;
    int ruleset = (int)syscall(CREATE_RULESET, &handled, sizeof handled, 0);
    struct {
        uint64_t allowed;
        int32_t parent;
    } __attribute__((packed)) everywhere = {
        .allowed = ACCESS_REFER,
        .parent = open("/", O_PATH | O_CLOEXEC),
    };
    bool ready = ruleset >= 0 && everywhere.parent >= 0 && syscall(ADD_RULE, ruleset, PATH_BENEATH, &everywhere, 0) == 0;
    close(everywhere.parent);
    if (ready || ruleset < 0)
        return ruleset;
    close(ruleset);
    return -1;
}

void isolation_prepare(void)
{
    long abi = syscall(CREATE_RULESET, NULL, 0, VERSION_OF);
    int ruleset = abi >= ABI_SCOPE ? scoping_ruleset() : abi >= ABI_REFER ? refer_ruleset() : -1;
    if (ruleset < 0)
        return;
    if (dup3(ruleset, RULESET_FD, O_CLOEXEC) == RULESET_FD)
        level = (uint32_t)abi;
    close(ruleset);
}

/* Called just before exec. False: the domain could not be entered, so the command must not run. */
bool isolation_enter(void) { return !level || syscall(RESTRICT_SELF, RULESET_FD, 0) == 0; }
