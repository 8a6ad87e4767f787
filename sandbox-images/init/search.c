/* Prints lines that match an extended regular expression as "path\0number\0line\0", up to a limit. Skips binary files. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools.h"

#define LARGEST (64u << 20)
#define LONGEST 1000u /* bytes of a line that are shown */

static regex_t expression;
static long left;

static void search_text(const char *path, char *text, size_t size)
{
    long number = 0;
    if (memchr(text, 0, size < 8000 ? size : 8000))
        return;
    for (char *at = text, *end = text + size; at < end && left > 0;) {
        char *stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop)
            stop = end;
        *stop = 0; /* the buffer is a byte longer than the text */
        number++;
        if (regexec(&expression, at, 0, NULL, 0) == 0) {
            size_t length = strnlen(at, LONGEST);
            printf("%s%c%ld%c", path, 0, number, 0);
            fwrite(at, 1, length, stdout);
            putchar(0);
            left--;
        }
        at = stop + 1;
    }
}

static void search_file(int fd, const char *path)
{
    struct stat status;
    if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode) || !status.st_size || status.st_size > LARGEST)
        return;
    char *text = malloc((size_t)status.st_size + 1);
    ssize_t got = text ? read(fd, text, (size_t)status.st_size) : -1;
    if (got > 0) {
        text[got] = 0;
        search_text(path, text, (size_t)got);
    }
    free(text);
}

static void search_all(int directory, const char *prefix, int depth)
{
    DIR *entries = fdopendir(directory);
    struct dirent *entry;
    while (entries && left > 0 && (entry = readdir(entries))) {
        char *path, *deeper;
        struct stat status;
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") || !strcmp(entry->d_name, ".git"))
            continue;
        int fd = openat(dirfd(entries), entry->d_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0)
            continue;
        if (asprintf(&path, "%s%s", prefix, entry->d_name) < 0)
            exit(tool_failed());
        if (fstat(fd, &status) == 0 && S_ISDIR(status.st_mode) && depth && asprintf(&deeper, "%s/", path) >= 0) {
            search_all(fd, deeper, depth - 1);
            free(deeper);
        } else {
            search_file(fd, path);
            close(fd);
        }
        free(path);
    }
    if (entries)
        closedir(entries);
}

int tool_search(const char *path, const char *pattern, long most)
{
    if (regcomp(&expression, pattern, REG_EXTENDED | REG_NOSUB)) {
        errno = EINVAL;
        return tool_failed();
    }
    struct stat status;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status) < 0)
        return tool_failed();
    left = most;
    if (S_ISDIR(status.st_mode))
        search_all(fd, "", TOOL_DEPTH);
    else
        search_file(fd, path);
    return fflush(stdout) ? tool_failed() : 0;
}
