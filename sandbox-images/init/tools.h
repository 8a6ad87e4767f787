/* Small tools inside the init's binary. They work in any image and run as ordinary commands.
 *
 *   get PATH [OFFSET LENGTH]     a file's bytes to stdout
 *   put PATH MODE MARK           stdin into a file, completely or not at all; makes its directory
 *   append PATH                  stdin to the end of a file; makes its directory
 *   list PATH DEPTH              the entries of a directory (see tools.c: records)
 *   stat PATH                    one record
 *   remove PATH                  a file, a link or a whole directory
 *   mkdir PATH                   with its parents
 *   pack PATH                    a directory as an archive to stdout (see archive.c)
 *   unpack PATH                  an archive from stdin into a directory
 *   search PATH EXPRESSION MOST  lines that match
 *   relay [PORT]                 see relay.c
 *
 * PATH is relative to the tool's directory, /workspace, or absolute: the kernel resolves it with the user's rights. On failure
 * a tool prints "ERRNO text" to stderr and exits with 1. */
#ifndef BELLJAR_TOOLS_H
#define BELLJAR_TOOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

int tools_main(int argc, char **argv);
int tool_pack(const char *path);
int tool_unpack(const char *path);
int tool_search(const char *path, const char *expression, long most);

/* Shared among the tools. */
#define TOOL_DEPTH 128
int tool_failed(void);
int open_parent(int from, const char *path, const char **name);
bool write_out(int fd, const void *data, size_t length);
bool read_in(int fd, void *data, size_t length);
char entry_type(mode_t mode);
bool put_record(const char *path, const struct stat *status, const char *target);

#endif
