/* state.h: values of a recurrent state: f32, or bf16 where the host defines STATE_BF16. */
#ifndef KVANT_PORTABLE_STATE_H
#define KVANT_PORTABLE_STATE_H

#ifdef STATE_BF16
#define STATE uint16_t
#else
#define STATE float
#endif

/* A sequence reads its state where it lies, else a copy (gather.k): no sequence of the batch writes that slot. */
FN int reads_in_place(int slot_in, int slot_out)
{
    return slot_in >= 0 && (slot_in == slot_out || slot_out < 0);
}

FN float state_load(GLOBAL const STATE *s)
{
#ifdef STATE_BF16
    return port_bits((uint32_t)*s << 16);
#else
    return *s;
#endif
}

FN void state_store(GLOBAL STATE *s, float v)
{
#ifdef STATE_BF16
    *s = port_to_bf16(v);
#else
    *s = v;
#endif
}

/* Rounds a value as storing and reading it would. */
FN float state_round(float v)
{
#ifdef STATE_BF16
    return port_bits((uint32_t)port_to_bf16(v) << 16);
#else
    return v;
#endif
}

#endif
