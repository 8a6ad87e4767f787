/*
 * Fuzz target for the init's unpacking of archives: any bytes are unpacked or refused. Links in an archive may lead
 * anywhere that the user may go, so this runs as root, and each input in a root directory of its own.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <ftw.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tools.h"

#define REQUIRE(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            abort(); \
        } \
    } while (0)

static char place[] = "/dev/shm/belljar-fuzz-XXXXXX";

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *where)
{
    (void)status, (void)kind, (void)where;
    return remove(path);
}

static void leave(void) { nftw(place, remove_one, 64, FTW_DEPTH | FTW_PHYS); }

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    REQUIRE(mkdtemp(place));
    atexit(leave);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int root = open("/", O_PATH), here = open(".", O_PATH), input = memfd_create("input", MFD_CLOEXEC);
    REQUIRE(input >= 0 && write(input, data, size) == (ssize_t)size && lseek(input, 0, SEEK_SET) == 0);
    REQUIRE(dup2(input, STDIN_FILENO) == STDIN_FILENO && close(input) == 0);
    REQUIRE(chroot(place) == 0 && chdir("/") == 0 && mkdir("target", 0700) == 0);
    tool_unpack("target");
    close_range((unsigned)here + 1, ~0u, 0); /* the tool leaves its own to the end of its process */
    REQUIRE(fchdir(root) == 0 && chroot(".") == 0 && fchdir(here) == 0);
    REQUIRE(close(root) == 0 && close(here) == 0);
    leave();
    REQUIRE(mkdir(place, 0700) == 0);
    return 0;
}
