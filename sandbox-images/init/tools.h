/* Small tools inside the init's binary. They work in any image and run as ordinary commands.
 *
 *   get ROOT PATH [OFFSET LENGTH]     a file's bytes to stdout
 *   put ROOT PATH MODE                stdin into a file, completely or not at all
 *   append ROOT PATH                  stdin to the end of a file
 *   list ROOT PATH DEPTH              the entries of a directory (see tools.c: records)
 *   stat ROOT PATH                    one record
 *   remove ROOT PATH                  a file, a link or a whole directory
 *   mkdir ROOT PATH                   with its parents
 *   pack ROOT PATH                    a directory as an archive to stdout (see archive.c)
 *   unpack ROOT PATH                  an archive from stdin into a directory
 *   search ROOT PATH EXPRESSION MOST  lines that match
 *   relay [PORT]                      see relay.c
 *
 * PATH is resolved beneath the directory ROOT: no link leads out of it. On failure a tool prints "ERRNO text" to stderr and
 * exits with 1. */
#ifndef BELLJAR_TOOLS_H
#define BELLJAR_TOOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

int tools_main(int argc, char **argv);
int tool_pack(int root, const char *path);
int tool_unpack(int root, const char *path);
int tool_search(int root, const char *path, const char *expression, long most);

/* Shared among the tools. */
#define TOOL_DEPTH 128
int tool_failed(void);
int open_beneath(int root, const char *path, int flags, mode_t mode);
int open_parent(int root, const char *path, const char **name);
bool write_out(int fd, const void *data, size_t length);
bool read_in(int fd, void *data, size_t length);
char entry_type(mode_t mode);
bool put_record(const char *path, const struct stat *status, const char *target);

#endif
