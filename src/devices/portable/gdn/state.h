/* state.h: values of a recurrent state: f32, or bf16 where the host defines STATE_BF16. */
#ifndef KVANT_PORTABLE_STATE_H
#define KVANT_PORTABLE_STATE_H

#ifdef STATE_BF16
#define STATE uint16_t
#else
#define STATE float
#endif

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
