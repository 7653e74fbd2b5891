/* pages.glsl: page_seal of the formats of page scope (src/formats/ptcq/ptcq.c), in three shaders over units,
 * a unit 128 values of the 64 rows of a head of a page:
 *   pages_mean   rotates the rows, and finds the mean that the page holds
 *   pages_walk   takes the mean away, walks a row through the trellis, as it is and 1/.94 times larger, and keeps
 *                the path that fits better, with its scale
 *   pages_pack   adds to the mean what the rows' errors have in common, and writes the page
 * Sums are pairs of f32. */
#include "exact.glsl"

const uint GROUP_VALUES = 128u;
/* Words of a unit in `work`: rows, mean, scales, 1 for each row that is finite; in `states`: of each value. */
const uint MEAN_AT = PAGE * GROUP_VALUES, SCALE_AT = MEAN_AT + GROUP_VALUES, FINITE_AT = SCALE_AT + PAGE,
           WORK = FINITE_AT + PAGE;
const uint STATES = PAGE * GROUP_VALUES;

/* Unit u as the arguments count them: 128 values from `value` on, of a head of page number i. */
struct page_unit { uint value, head, i; };

page_unit unit_of(uint u)
{
    return page_unit(u % args.groups * GROUP_VALUES, u / args.groups % args.h, u / args.groups / args.h);
}

/* The step that holds the means of all threads, one each. */
float mean_step(float m)
{
    precise float top = div_exact(group_max(abs(m)), 127.0) + 1e-9;
    return half_of(to_half(top));
}

/* A mean in steps. */
float mean_steps(float m, float step)
{
    return step > 0.0 ? clamp(roundEven(div_exact(m, step)), -127.0, 127.0) : 0.0;
}
