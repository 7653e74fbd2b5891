/* gdn_chunk.glsl: chunks of prompts, for gdn_prep and gdn_scan.  A chunk is the tokens of a sequence whose positions lie in
 * the same CHUNK places; what gdn_prep makes of it lies in a slot: T diag(beta), P, gates.  Rows of a chunk that are no
 * tokens of the batch read one that is, with beta 0: they change nothing.
 * The shader has DK, VEC. */
const uint CHUNK = 32u;                                    /* vk_gdn.c; a part of PAGE: states are rounded at its end */
const uint SQUARE = CHUNK * CHUNK, AT_P = SQUARE, AT_FROM = 2u * SQUARE, AT_SCALED = AT_FROM + CHUNK,
           AT_LEFT = AT_SCALED + CHUNK, SLOT_WORDS = AT_LEFT + CHUNK;

/* Tokens begin .. end-1 of the batch; row r of the chunk is token zero + r. */
struct chunk { uint begin, end; int zero; };

/* Chunks of sequence s. */
uint chunks_of(PTR q0, PTR pos0, PTR prompt, uint s)
{
    const uint n = ld(q0, s + 1u) - ld(q0, s), pos = ld(pos0, s);
    return ld(prompt, s) == 0u || n == 0u ? 0u : (pos + n - 1u) / CHUNK - pos / CHUNK + 1u;
}

/* Slot of its first one: no more chunks can lie before. */
uint first_slot(PTR q0, uint s)
{
    return ld(q0, s) / CHUNK + 2u * s;
}

chunk chunk_of(PTR q0, PTR pos0, uint s, uint number)
{
    const uint begin = ld(q0, s), end = ld(q0, s + 1u), pos = ld(pos0, s);
    const int zero = int(begin) + int((pos / CHUNK + number) * CHUNK) - int(pos);
    return chunk(uint(max(zero, int(begin))), min(uint(zero + int(CHUNK)), end), zero);
}

bool is_token(chunk c, uint r)
{
    return c.zero + int(r) >= int(c.begin) && c.zero + int(r) < int(c.end);
}

/* Token of row r, or the one nearest to it. */
uint token(chunk c, uint r)
{
    return uint(clamp(c.zero + int(r), int(c.begin), int(c.end) - 1));
}

/* Four values from value i on. */
vec4 quad(PTR p, uint i)
{
    if (VEC != 0u)
        return uintBitsToFloat(ld4(p, i / 4u));
    return vec4(ldf(p, i), ldf(p, i + 1u), ldf(p, i + 2u), ldf(p, i + 3u));
}
