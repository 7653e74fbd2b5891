/* tests/support/promise.h: a fuzzer's check of what the code promises for any input. */
#ifndef KVANT_TESTS_PROMISE_H
#define KVANT_TESTS_PROMISE_H

#include <stdio.h>
#include <stdlib.h>

#define PROMISE(cond)                                                                                                  \
    do {                                                                                                               \
        if (!(cond)) {                                                                                                 \
            fprintf(stderr, "broken promise: %s\n", #cond);                                                            \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

#endif
