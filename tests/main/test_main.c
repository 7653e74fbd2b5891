/* test_main.c: all tests in C as one program, which is linked once.  It runs the test that it is called as: every
 * bin/check_NAME is a link to bin/kvant-tests; `kvant-tests check_NAME ...` runs the same.  cmake makes the list. */
#include <stdio.h>
#include <string.h>

#define KVANT_TEST(name) int main_##name(int argc, char **argv);
#include "test_list.inc"
#undef KVANT_TEST

static const struct test {
    const char *name;
    int (*run)(int argc, char **argv);
} tests[] = {
#define KVANT_TEST(name) { #name, main_##name },
#include "test_list.inc"
#undef KVANT_TEST
};
enum { TESTS = sizeof tests / sizeof tests[0] };

static const struct test *find(const char *path)
{
    const char *slash = strrchr(path, '/');

    for (int i = 0; i < TESTS; i++)
        if (strcmp(tests[i].name, slash ? slash + 1 : path) == 0)
            return &tests[i];
    return NULL;
}

int main(int argc, char **argv)
{
    const struct test *called = argc > 0 ? find(argv[0]) : NULL;

    if (called)
        return called->run(argc, argv);
    called = argc > 1 ? find(argv[1]) : NULL;
    if (called)
        return called->run(argc - 1, argv + 1);
    fprintf(stderr, "usage: kvant-tests TEST [ARGUMENTS]; tests:\n");
    for (int i = 0; i < TESTS; i++)
        fprintf(stderr, "  %s\n", tests[i].name);
    return 2;
}
