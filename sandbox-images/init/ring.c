#include "ring.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_SIZE 4096

uint64_t ring_start(const struct ring *ring) { return ring->total - ring->length; }

static void copy_out(const struct ring *ring, size_t skip, uint8_t *to, size_t length)
{
    size_t at = (ring->head + skip) % ring->size;
    size_t first = ring->size - at < length ? ring->size - at : length;
    memcpy(to, ring->bytes + at, first);
    memcpy(to + first, ring->bytes, length - first);
}

/* Without memory the ring stays as it is and drops old bytes sooner. */
static void grow(struct ring *ring, size_t wanted)
{
    size_t size = ring->size ? ring->size : FIRST_SIZE;
    while (size < wanted && size < ring->cap)
        size *= 2;
    if (size > ring->cap)
        size = ring->cap;
    uint8_t *bytes = size > ring->size ? malloc(size) : NULL;
    if (!bytes)
        return;
    if (ring->length)
        copy_out(ring, 0, bytes, ring->length);
    free(ring->bytes);
    ring->bytes = bytes;
    ring->size = size;
    ring->head = 0;
}

void ring_put(struct ring *ring, const uint8_t *data, size_t length)
{
    ring->total += length;
    if (ring->length + length > ring->size && ring->size < ring->cap)
        grow(ring, ring->length + length);
    if (!ring->size) {
        ring->length = 0;
        return;
    }
    if (length > ring->size) {
        data += length - ring->size;
        length = ring->size;
    }
    if (ring->length + length > ring->size) {
        size_t drop = ring->length + length - ring->size;
        ring->head = (ring->head + drop) % ring->size;
        ring->length -= drop;
    }
    size_t tail = (ring->head + ring->length) % ring->size;
    size_t first = ring->size - tail < length ? ring->size - tail : length;
    memcpy(ring->bytes + tail, data, first);
    memcpy(ring->bytes, data + first, length - first);
    ring->length += length;
}

size_t ring_get(const struct ring *ring, uint64_t offset, uint8_t *to, size_t most)
{
    if (offset < ring_start(ring) || offset >= ring->total)
        return 0;
    size_t length = (size_t)(ring->total - offset);
    if (length > most)
        length = most;
    copy_out(ring, (size_t)(offset - ring_start(ring)), to, length);
    return length;
}

void ring_fit(struct ring *ring)
{
    uint8_t *bytes = ring->length && ring->length < ring->size ? malloc(ring->length) : NULL;
    if (!ring->length)
        ring_free(ring);
    if (!bytes)
        return;
    copy_out(ring, 0, bytes, ring->length);
    free(ring->bytes);
    ring->bytes = bytes;
    ring->size = ring->length;
    ring->head = 0;
}

void ring_free(struct ring *ring)
{
    free(ring->bytes);
    ring->bytes = NULL;
    ring->size = ring->length = 0;
}
