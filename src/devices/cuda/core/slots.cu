/* slots.cu: weights whose rows come anew for every prompt (device.h, slots): experts that this machine's memory has.
 * Copies have a stream of their own and wait there, not here, for the last list that read the slot; the device's stream
 * waits for them.  So one slot is filled while the GPU multiplies with the other. */
#include <stdlib.h>
#include "devices/cuda/core/device.cuh"

struct cuda_slot_room {
    cudaStream_t stream;
    cudaEvent_t used[KVANT_SLOTS], filled;
    struct cuda_uploader *uploader;
};

static int room_fill(cuda_slot_room *r, kvant_diag *diag)
{
    CUDA_TRY(cuda_check(diag, cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking), "making a stream"));
    for (int i = 0; i < KVANT_SLOTS; i++)
        CUDA_TRY(cuda_check(diag, cudaEventCreateWithFlags(&r->used[i], cudaEventDisableTiming), "making an event"));
    return cuda_check(diag, cudaEventCreateWithFlags(&r->filled, cudaEventDisableTiming), "making an event");
}

static int room_open(cuda_device *d, kvant_diag *diag)
{
    if (d->slots)
        return KVANT_OK;
    d->slots = (cuda_slot_room *)calloc(1, sizeof *d->slots);
    if (!d->slots)
        return cuda_fail(diag, KVANT_ENOMEM, "device cuda: out of memory");
    const int rc = room_fill(d->slots, diag);
    if (rc < 0)
        cuda_slots_close(d);
    return rc;
}

void cuda_slots_close(cuda_device *d)
{
    cuda_slot_room *r = d->slots;
    if (!r)
        return;
    if (r->stream)
        cudaStreamSynchronize(r->stream);
    cuda_uploader_free(r->uploader);
    for (int i = 0; i < KVANT_SLOTS; i++)
        if (r->used[i])
            cudaEventDestroy(r->used[i]);
    if (r->filled)
        cudaEventDestroy(r->filled);
    if (r->stream)
        cudaStreamDestroy(r->stream);
    cudaGetLastError();
    free(r);
    d->slots = NULL;
}

static int slot_bytes(kvant_device *, const kvant_weight *w, size_t *bytes, kvant_diag *diag)
{
    return cuda_weight_bytes(w, bytes, diag);
}

static int slot_make(kvant_device *base, kvant_weight *w, void *at, kvant_diag *diag)
{
    return cuda_weight_at((cuda_device *)base, w, at, diag);
}

static void slot_drop(kvant_device *base, kvant_weight *w)
{
    cuda_weight *c = (cuda_weight *)w->packed;
    if (!c)
        return;
    cuda_free(base, c->scale);
    free(c);
    w->packed = NULL;
}

static int slot_fill(kvant_device *base, kvant_weight *w, int slot, const copy_piece *list, int n, kvant_diag *diag)
{
    cuda_device *d = (cuda_device *)base;
    CUDA_TRY(cuda_use(d, diag));
    CUDA_TRY(room_open(d, diag));
    cuda_slot_room *r = d->slots;
    const size_t bytes = ((cuda_weight *)w->packed)->bytes;
    const int wrong = copy_pieces_beyond(list, n, bytes, CUDA_UPLOAD_BLOCK);
    if (wrong >= 0)
        return cuda_fail(diag, KVANT_EINVAL, "device cuda: %zu bytes of rows at %zu, wanted at most %d within %zu",
                         list[wrong].bytes, (size_t)list[wrong].to, (int)CUDA_UPLOAD_BLOCK, bytes);
    CUDA_TRY(cuda_check(diag, cudaStreamWaitEvent(r->stream, r->used[slot], 0), "waiting for a slot"));
    CUDA_TRY(cuda_upload_pieces(d, &r->uploader, r->stream, ((cuda_weight *)w->packed)->data, list, n, diag));
    CUDA_TRY(cuda_check(diag, cudaEventRecord(r->filled, r->stream), "marking a slot"));
    return cuda_check(diag, cudaStreamWaitEvent(d->stream, r->filled, 0), "waiting for rows");
}

static int slot_used(kvant_device *base, int slot, kvant_diag *diag)
{
    cuda_device *d = (cuda_device *)base;
    CUDA_TRY(cuda_use(d, diag));
    CUDA_TRY(room_open(d, diag));
    return cuda_check(diag, cudaEventRecord(d->slots->used[slot], d->stream), "marking a slot");
}

const kvant_slots_vt cuda_slots = { slot_bytes, slot_make, slot_drop, slot_fill, slot_used };
