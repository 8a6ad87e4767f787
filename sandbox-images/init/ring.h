/* The last bytes of a stream, with absolute offsets: [total - length, total) can be read. */
#ifndef BELLJAR_RING_H
#define BELLJAR_RING_H

#include <stddef.h>
#include <stdint.h>

struct ring {
    uint8_t *bytes;
    size_t size;   /* allocated, grows up to cap */
    size_t cap;
    size_t head;   /* where the oldest byte is */
    size_t length;
    uint64_t total; /* every byte ever put in, dropped ones too */
};

void ring_put(struct ring *ring, const uint8_t *data, size_t length);
uint64_t ring_start(const struct ring *ring);
/* Copies up to `most` bytes from `offset` (not before ring_start) and returns how many. */
size_t ring_get(const struct ring *ring, uint64_t offset, uint8_t *to, size_t most);
/* Frees unused room; call it when no more bytes will come. */
void ring_fit(struct ring *ring);
void ring_free(struct ring *ring);

#endif
