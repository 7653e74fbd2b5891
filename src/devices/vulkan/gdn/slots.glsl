/* slots.glsl: a sequence reads its state where it lies, scratch (state_gather) else: no sequence of the batch writes that
 * slot before. */
bool reads_in_place(int slot_in, int slot_out)
{
    return slot_in >= 0 && (slot_in == slot_out || slot_out < 0);
}
