/* simd_rep.h: repetition macros: how a tile's registers get names.  C has no arrays of registers, and a loop over an
 * array of vectors stays in memory at -O2, so tiles are unrolled by the preprocessor.
 *
 *   REP3(M)      M(0) M(1) M(2)
 *   ROW3(M, j)   M(j, 0) M(j, 1) M(j, 2)
 *   GRID2x3(M)   ROW3(M, 0) ROW3(M, 1) */
#ifndef KVANT_FORMATS_SIMD_REP_H
#define KVANT_FORMATS_SIMD_REP_H

#define REP1(M) M(0)
#define REP2(M) REP1(M) M(1)
#define REP3(M) REP2(M) M(2)
#define REP4(M) REP3(M) M(3)
#define REP5(M) REP4(M) M(4)
#define REP6(M) REP5(M) M(5)
#define REP7(M) REP6(M) M(6)
#define REP8(M) REP7(M) M(7)

#define ROW1(M, j) M(j, 0)
#define ROW2(M, j) ROW1(M, j) M(j, 1)
#define ROW3(M, j) ROW2(M, j) M(j, 2)
#define ROW4(M, j) ROW3(M, j) M(j, 3)
#define ROW8(M, j) ROW4(M, j) M(j, 4) M(j, 5) M(j, 6) M(j, 7)

#define GRID1x1(M) ROW1(M, 0)
#define GRID1x2(M) ROW2(M, 0)
#define GRID1x4(M) ROW4(M, 0)
#define GRID1x8(M) ROW8(M, 0)
#define GRID2x1(M) GRID1x1(M) ROW1(M, 1)
#define GRID2x2(M) ROW2(M, 0) ROW2(M, 1)
#define GRID2x4(M) GRID1x4(M) ROW4(M, 1)
#define GRID3x2(M) ROW2(M, 0) ROW2(M, 1) ROW2(M, 2)
#define GRID3x1(M) GRID2x1(M) ROW1(M, 2)
#define GRID3x4(M) GRID2x4(M) ROW4(M, 2)
#define GRID4x1(M) GRID3x1(M) ROW1(M, 3)
#define GRID4x4(M) ROW4(M, 0) ROW4(M, 1) ROW4(M, 2) ROW4(M, 3)
#define GRID4x2(M) ROW2(M, 0) ROW2(M, 1) ROW2(M, 2) ROW2(M, 3)
#define GRID4x3(M) ROW3(M, 0) ROW3(M, 1) ROW3(M, 2) ROW3(M, 3)
#define GRID6x4(M) GRID4x4(M) ROW4(M, 4) ROW4(M, 5)
#define GRID6x1(M) GRID4x1(M) ROW1(M, 4) ROW1(M, 5)
#define GRID6x2(M) GRID4x2(M) ROW2(M, 4) ROW2(M, 5)

#endif
