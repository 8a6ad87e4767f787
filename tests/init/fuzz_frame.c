/*
 * Fuzz target for the init's frame parser and its ring. Briefly in `make test` (test_fuzz.py), at length by
 * `make fuzz FUZZ='10 init'`: with clang guided by coverage, with gcc by the rounds of main() below.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frame.h"
#include "ring.h"

#define REQUIRE(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            abort(); \
        } \
    } while (0)

static void check_strings(const struct frame *frame, const struct spawn_request *request)
{
    const char *end = (const char *)frame->payload + frame->length, *at = request->strings;
    REQUIRE(request->cwd < end && request->tag + request->tag_length == request->cwd);
    for (uint64_t i = 0; i < (uint64_t)request->argc + request->envc; i++)
        at += strlen(at) + 1;
    REQUIRE(at == end);
}

static void check_frames(const uint8_t *bytes, size_t length)
{
    struct frame frame;
    struct spawn_request spawn;
    struct read_request read;
    while (frame_parse(bytes, length, &frame) == FRAME_WHOLE) {
        REQUIRE(frame.payload == bytes + WIRE_HEADER && frame.length <= length - WIRE_HEADER && frame.length <= WIRE_TO_INIT_MAX);
        if (frame.type == SPAWN && frame_parse_spawn(&frame, &spawn))
            check_strings(&frame, &spawn);
        if (frame.type == READ)
            frame_parse_read(&frame, &read);
        bytes += WIRE_HEADER + frame.length;
        length -= WIRE_HEADER + frame.length;
    }
}

/* A ring holds the end of all that was put in, byte for byte. */
static void check_ring(const uint8_t *bytes, size_t length)
{
    struct ring ring = {.cap = length ? 1 + bytes[0] * 64u : 1};
    uint8_t got[64 * 256], *all = malloc(length + 1);
    size_t put = 0;
    REQUIRE(all);
    while (put < length) {
        size_t part = 1 + bytes[put] % 200;
        if (part > length - put)
            part = length - put;
        memcpy(all + put, bytes + put, part);
        ring_put(&ring, bytes + put, part);
        put += part;
        REQUIRE(ring.total == put && ring.length <= ring.cap && ring.length == (put < ring.cap ? put : ring.cap));
        size_t n = ring_get(&ring, ring_start(&ring), got, sizeof got);
        REQUIRE(n == ring.length && !memcmp(got, all + put - n, n));
    }
    ring_free(&ring);
    free(all);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *exact = malloc(size ? size : 1); /* so that a sanitizer sees the first byte too many */
    REQUIRE(exact);
    if (size)
        memcpy(exact, data, size);
    check_frames(exact, size);
    check_ring(exact, size);
    free(exact);
    return 0;
}

#ifdef STANDALONE
static uint64_t state = 88172645463325252ull;

static uint32_t chance(uint32_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 32) % below;
}

/* A plausible frame, mostly right. */
static size_t compose(uint8_t *to)
{
    uint8_t payload[512];
    size_t length = chance(8) ? (size_t[]){0, 4, 8, 20, 24, 41, 48}[chance(7)] : chance(200);
    for (size_t i = 0; i < sizeof payload; i++)
        payload[i] = (uint8_t)(chance(3) ? 0 : chance(256));
    uint8_t type = (uint8_t)(1 + chance(15));
    if (type == SPAWN) {
        uint32_t argc = chance(4), envc = chance(4), tag = chance(5);
        put_u32(put_u32(put_u32(payload + 28, argc), envc), tag);
        uint8_t *at = payload + 40;
        for (uint32_t i = 0; i < tag; i++)
            *at++ = 'T';
        for (uint32_t i = 0; i < 1 + argc + envc; i++) {
            for (uint32_t n = chance(5); n; n--)
                *at++ = (uint8_t)(1 + chance(255));
            *at++ = 0;
        }
        length = (size_t)(at - payload);
    }
    return (size_t)(put_bytes(put_header(to, (uint32_t)length, type, (uint8_t)chance(4), chance(100)), payload, length) - to);
}

int main(int argc, char **argv)
{
    uint8_t input[4096];
    for (long rounds = argc > 1 ? atol(argv[1]) : 100000; rounds > 0; rounds--) {
        size_t size = 0;
        while (size < 2000 && chance(4))
            size += compose(input + size);
        for (uint32_t flips = chance(4); size && flips; flips--)
            input[chance((uint32_t)size)] = (uint8_t)chance(256);
        if (size && !chance(4))
            size -= chance((uint32_t)size);
        LLVMFuzzerTestOneInput(input, size);
    }
    return 0;
}
#endif
