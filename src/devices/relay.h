/* relay.h: the calling thread's side of a relay (device.h) that a device runs by itself: rows pass through memory that
 * both sides see, and two flags there say whose turn it is.
 *
 *   OUT   the device waits for out == 0, writes the parts, then out = 1; the thread takes them, then out = 0
 *   IN    the thread waits for in == 0, writes the parts, then in = 1; the device takes them, then in = 0
 *
 * So each flag has one writer at a time, a list that comes again needs no new numbers, and neither side can overtake
 * the other by more than one message each way.  Parts lie one behind the other, each on a line of its own.  After an
 * error the flags keep the values that they have: the device clears them before the next list.
 * Read by C and by CUDA's C++: one owner thread, no state but the struct's. */
#ifndef KVANT_DEVICES_RELAY_H
#define KVANT_DEVICES_RELAY_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "base/error.h"
#include "devices/device.h"

typedef struct relay_side {
    uint32_t *out, *in;            /* the flags, on lines of their own; both 0 before the first list */
    unsigned char *out_rows, *in_rows;
    /* Asked now and then while a flag is waited for: KVANT_OK, or why it will never come. */
    int (*alive)(void *device, kvant_diag *diag);
    void *device;
    int64_t limit_ns;              /* a flag that has not come by then will not: KVANT_EDEVICE */
} relay_side;

enum { RELAY_LINE = 64, RELAY_LOOKS = 1 << 14 };   /* looks at a flag between two questions: about half a millisecond */

static inline size_t relay_part_room(size_t bytes)
{
    return (bytes + RELAY_LINE - 1) & ~(size_t)(RELAY_LINE - 1);
}

/* Bytes of rows that an OUT or IN takes. */
static inline size_t relay_room(const kvant_relay *r)
{
    size_t room = 0;

    for (int i = 0; i < KVANT_RELAY_PARTS; i++)
        room += relay_part_room(r->bytes[i]);
    return room;
}

/* The most that an entry of one kind takes. */
static inline size_t relay_most(const kvant_relay *list, int n, int kind)
{
    size_t most = 0;

    for (int i = 0; i < n; i++)
        if (list[i].kind == kind && relay_room(&list[i]) > most)
            most = relay_room(&list[i]);
    return most;
}

static inline int64_t relay_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Asks whether a flag may still come.  Late is only who has not come after the limit either: this process may have been
 * stopped meanwhile. */
static inline int relay_ask(const relay_side *s, const uint32_t *flag, uint32_t value, int64_t begin, kvant_diag *diag)
{
    KVANT_TRY(s->alive(s->device, diag));
    if (relay_now() - begin < s->limit_ns || __atomic_load_n(flag, __ATOMIC_ACQUIRE) == value)
        return KVANT_OK;
    if (diag)
        snprintf(diag->text, sizeof diag->text, "device: no rows came, and none were taken, for %.1f s",
                 (double)s->limit_ns / 1e9);
    return KVANT_EDEVICE;
}

static inline int relay_wait(const relay_side *s, uint32_t *flag, uint32_t value, kvant_diag *diag)
{
    int64_t begin = 0;

    for (unsigned looks = 1; __atomic_load_n(flag, __ATOMIC_ACQUIRE) != value; looks++) {
        if (looks % RELAY_LOOKS == 0) {
            begin = begin ? begin : relay_now();
            KVANT_TRY(relay_ask(s, flag, value, begin, diag));
        }
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    return KVANT_OK;
}

static inline int relay_take(const relay_side *s, const kvant_relay *r, kvant_diag *diag)
{
    const unsigned char *at = s->out_rows;

    KVANT_TRY(relay_wait(s, s->out, 1, diag));
    for (int i = 0; i < KVANT_RELAY_PARTS; at += relay_part_room(r->bytes[i++]))
        if (r->bytes[i])
            memcpy(r->dst[i], at, r->bytes[i]);
    __atomic_store_n(s->out, 0u, __ATOMIC_RELEASE);
    return KVANT_OK;
}

static inline int relay_give(const relay_side *s, const kvant_relay *r, kvant_diag *diag)
{
    unsigned char *at = s->in_rows;

    KVANT_TRY(relay_wait(s, s->in, 0, diag));
    for (int i = 0; i < KVANT_RELAY_PARTS; at += relay_part_room(r->bytes[i++]))
        if (r->bytes[i])
            memcpy(at, r->src[i], r->bytes[i]);
    __atomic_store_n(s->in, 1u, __ATOMIC_RELEASE);
    return KVANT_OK;
}

/* The thread's part of a list that the device has begun.  After an error of run the rest is still answered, with rows
 * that nobody will read: a device cannot be called back.  An error of the device ends it at once. */
static inline int relay_attend(const relay_side *s, const kvant_relay *list, int n, kvant_relay_fn run, void *user,
                               kvant_diag *diag)
{
    kvant_diag later = { "" };
    int code = KVANT_OK;

    for (int i = 0; i < n; i++) {
        kvant_diag *why = code == KVANT_OK ? diag : &later;
        int one = KVANT_OK;
        if (list[i].kind == KVANT_RELAY_OUT)
            one = relay_take(s, &list[i], why);
        else if (list[i].kind == KVANT_RELAY_IN)
            one = relay_give(s, &list[i], why);
        else if (list[i].kind == KVANT_RELAY_HOST && code == KVANT_OK)
            code = run(user, list[i].n, diag);
        if (one != KVANT_OK)
            return code == KVANT_OK ? one : code;
    }
    return code;
}

#endif
