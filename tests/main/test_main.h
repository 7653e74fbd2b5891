/* tests/main/test_main.h: included before every tests/check_NAME.c by the build (-include), with
 * KVANT_TEST_NAME=main_check_NAME.  All tests are one program (test_main.c): the main of a test becomes the function
 * main_check_NAME, called with the arguments of the program.  `int main(void)` and `int main(int argc, char **argv)`
 * may both be written; nothing else calls main. */
#ifndef KVANT_TESTS_TEST_MAIN_H
#define KVANT_TESTS_TEST_MAIN_H

#define TEST_PASTE_(a, b) a##b
#define TEST_PASTE(a, b) TEST_PASTE_(a, b)
#define TEST_BODY TEST_PASTE(KVANT_TEST_NAME, _body)
#define TEST_MAIN_WITH(...) KVANT_TEST_NAME(__VA_ARGS__); int KVANT_TEST_NAME(__VA_ARGS__)
#define TEST_MAIN_VOID(none)                             \
    TEST_BODY(none);                                     \
    int KVANT_TEST_NAME(int argc, char **argv);          \
    int KVANT_TEST_NAME(int argc, char **argv)           \
    {                                                    \
        (void)argc;                                      \
        (void)argv;                                      \
        return TEST_BODY();                              \
    }                                                    \
    int TEST_BODY(none)
#define TEST_CHOOSE(one, two, chosen, ...) chosen
#define main(...) TEST_CHOOSE(__VA_ARGS__, TEST_MAIN_WITH, TEST_MAIN_VOID, 0)(__VA_ARGS__)

#endif
