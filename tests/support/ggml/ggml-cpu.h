/* ggml-cpu.h: as ggml.h beside it. */
#ifndef KVANT_TESTS_GGML_CPU_H
#define KVANT_TESTS_GGML_CPU_H

#include "ggml.h"

enum ggml_status { GGML_STATUS_SUCCESS = 0 };
struct ggml_threadpool;
struct ggml_cplan {
    size_t work_size;
    uint8_t *work_data;
    int n_threads;
    struct ggml_threadpool *threadpool;
};
struct ggml_cplan ggml_graph_plan(const struct ggml_cgraph *g, int n_threads, struct ggml_threadpool *pool);
enum ggml_status ggml_graph_compute(struct ggml_cgraph *g, struct ggml_cplan *plan);

#endif
