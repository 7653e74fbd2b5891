/* check_gguf_files.c: the GGUF reader on files: paths that are no models, files that shrink while mapped (SIGBUS),
 * shards, failed allocations, and the real models when they are there.  Names G-xx: the reliability test list. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/file/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "model/gguf/gguf.h"
#include "support/check.h"
#include "support/gguf_build.h"

static char temp_dir[256];
static kvant_diag diag;
static const int64_t shape_a[] = { 64, 4 };

static const char *temp_path(const char *name)
{
    static char path[4][512];
    static int next;
    char *p = path[next++ % 4];

    snprintf(p, sizeof path[0], "%s/%s", temp_dir, name);
    return p;
}

static void check_memory_faults(void)
{
    gb b = { 0 };
    gguf *g = NULL;
    int n, rc = KVANT_ENOMEM;

    gb_good_model(&b, 3, 0);
    CHECK(gb_write(&b, temp_path("fault.gguf")) == 0, "write");
    for (n = 0; n < 100 && rc == KVANT_ENOMEM; n++) {
        mem_fail_after(n, 0);
        rc = gguf_open(temp_path("fault.gguf"), &g, &diag);
        mem_fail_after(-1, 0);
        CHECK(rc == KVANT_OK || (rc == KVANT_ENOMEM && diag.text[0]), "allocation %d: %s", n, kvant_error_name(rc));
    }
    CHECK(rc == KVANT_OK && n > 5, "opened after %d failed allocations", n - 1);
    gguf_close(g);
    gb_free(&b);
}

/* A second file beside the first: where an allocation fails, the tensors of the first are still there. */
static void check_add_faults(void)
{
    gb b = { 0 };
    gguf *g = NULL;
    int n, rc = KVANT_ENOMEM;

    gb_begin(&b, 3, 1, 1);
    gb_kv_str(&b, "general.architecture", "qwen3");
    gb_tensor(&b, "more", 2, shape_a, 0, 0);
    gb_pad(&b, 32);
    gb_fill(&b, 1024, 7);
    CHECK(gb_write(&b, temp_path("more.gguf")) == 0, "write");
    for (n = 0; n < 100 && rc == KVANT_ENOMEM; n++) {
        CHECK(gguf_open(temp_path("fault.gguf"), &g, &diag) == KVANT_OK, "%s", diag.text);
        mem_fail_after(n, 0);
        rc = gguf_add(g, temp_path("more.gguf"), &diag);
        mem_fail_after(-1, 0);
        CHECK(rc == KVANT_OK || (rc == KVANT_ENOMEM && diag.text[0]), "allocation %d: %s", n, kvant_error_name(rc));
        for (int i = 0; i < gguf_tensor_count(g); i++)
            CHECK(gguf_tensor_at(g, i) && gguf_tensor_at(g, i)->name.n > 0, "allocation %d: tensor %d is lost", n, i);
        CHECK(gguf_tensor_find(g, "c") && (rc != KVANT_OK || gguf_tensor_find(g, "more")), "allocation %d", n);
        gguf_close(g);
    }
    CHECK(rc == KVANT_OK && n > 5, "added after %d failed allocations", n - 1);
    gb_free(&b);
}

/* ---- files (G-10, G-11, G-13, G-14) ------------------------------------------------------------ */

static void path_refused(const char *path, int want, const char *says)
{
    gguf *g = NULL;
    const int rc = gguf_open(path, &g, &diag);

    CHECK(rc == want && !g && strstr(diag.text, says), "%s: %s (%s)", path, kvant_error_name(rc), diag.text);
    gguf_close(g);
}

static void check_paths(void)
{
    char long_name[5000], *data = NULL;
    size_t size = 0;

    memset(long_name, 'x', sizeof long_name);
    long_name[sizeof long_name - 1] = 0;
    path_refused(temp_path("absent.gguf"), KVANT_ENOENT, "no such file");
    path_refused(temp_path("no/dir.gguf"), KVANT_ENOENT, "no such file");
    path_refused(temp_dir, KVANT_EFORMAT, "is a directory");
    path_refused("/dev/zero", KVANT_EFORMAT, "is a device");
    path_refused("/dev/null", KVANT_EFORMAT, "is a device");
    path_refused("", KVANT_EINVAL, "empty");
    path_refused(long_name, KVANT_ENOENT, "cannot open");
    CHECK(mkfifo(temp_path("fifo"), 0600) == 0, "mkfifo");
    path_refused(temp_path("fifo"), KVANT_EFORMAT, "is a FIFO");
    CHECK(symlink(temp_path("loop"), temp_path("loop")) == 0, "symlink");
    path_refused(temp_path("loop"), KVANT_ENOENT, "cannot open");
    FILE *f = fopen(temp_path("empty.gguf"), "w");
    CHECK(f && fclose(f) == 0, "empty file");
    path_refused(temp_path("empty.gguf"), KVANT_EFORMAT, "is empty");
    CHECK(gguf_open(NULL, NULL, &diag) == KVANT_EINVAL, "NULL");
    CHECK(file_read(temp_path("fault.gguf"), 16, &data, &size, &diag) == KVANT_EFORMAT && !data, "file_read, too big");
    CHECK(file_read(temp_path("empty.gguf"), 16, &data, &size, &diag) == 0 && size == 0 && data[0] == 0,
          "file_read, empty");
    kvant_free(data);
    CHECK(file_read(temp_path("fault.gguf"), 1 << 20, &data, &size, &diag) == 0 && !memcmp(data, "GGUF", 4) &&
              data[size] == 0,
          "file_read");
    kvant_free(data);
    CHECK(file_read(temp_dir, 16, &data, &size, &diag) == KVANT_EFORMAT, "file_read of a directory");
}

static void check_truncated_while_mapped(void)
{
    gb b = { 0 };
    gguf *g = NULL;

    gb_good_model(&b, 3, 1 << 20);
    CHECK(gb_write(&b, temp_path("shrink.gguf")) == 0 && gb_write(&b, temp_path("stays.gguf")) == 0, "write");
    gguf *other = NULL;
    CHECK(gguf_open(temp_path("shrink.gguf"), &g, &diag) == 0, "%s", diag.text);
    CHECK(gguf_open(temp_path("stays.gguf"), &other, &diag) == 0, "%s", diag.text);
    if (!g || !other)
        return;
    const gguf_tensor *t = gguf_tensor_find(g, "d");
    CHECK(gb_walk(g) == gb_walk(other) && !gguf_poisoned(g), "before");
    CHECK(truncate(temp_path("shrink.gguf"), 100) == 0, "truncate");
    uint64_t sum = 0;
    for (size_t i = 0; i < t->bytes; i++)
        sum += t->data[i];
    CHECK(sum == 0 && gguf_poisoned(g), "after: sum %llu, poisoned %d", (unsigned long long)sum, gguf_poisoned(g));
    CHECK(gb_walk(g) > 0 && !gguf_poisoned(other), "the other model is poisoned too");
    gguf_close(g);
    g = NULL;
    path_refused(temp_path("shrink.gguf"), KVANT_EFORMAT, "76 bytes left");
    CHECK(gguf_open(temp_path("stays.gguf"), &g, &diag) == 0 && !gguf_poisoned(g), "a fresh map is not poisoned");
    gguf_close(g);
    gguf_close(other);
    gb_free(&b);
}

static sigjmp_buf foreign_jump;

static void foreign_handler(int sig)
{
    siglongjmp(foreign_jump, sig);
}

/* A mapping of a file that ends before its first byte: touching it raises SIGBUS. */
static volatile const uint8_t *foreign_map(void)
{
    const int fd = open(temp_path("foreign"), O_RDWR | O_CREAT, 0600);
    void *p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);

    close(fd);
    return p == MAP_FAILED ? NULL : p;
}

/* SIGBUS in somebody else's map goes to the handler that was there before ours. */
static void check_foreign_fault(void)
{
    volatile const uint8_t *p = foreign_map();
    volatile int sig = sigsetjmp(foreign_jump, 1);

    if (sig == 0 && p)
        sig = -(int)p[0] - 1;
    CHECK(sig == SIGBUS, "the previous handler saw %d", sig);
    if (p)
        munmap((void *)(uintptr_t)p, 4096);
}

/* ... and ends the process when there was none. */
static void check_foreign_default(void)
{
    gb b = { 0 };
    int status = 0;

    gb_good_model(&b, 3, 0);
    CHECK(gb_write(&b, temp_path("child.gguf")) == 0, "write");
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        mapped_file m;
        const struct rlimit no_core = { 0, 0 };
        setrlimit(RLIMIT_CORE, &no_core);
        signal(SIGBUS, SIG_DFL);
        if (file_map(temp_path("child.gguf"), &m, NULL) != KVANT_OK)
            _exit(1);
        volatile const uint8_t *p = foreign_map();
        _exit(p && p[0] ? 2 : 3);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child, "fork");
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS, "the child ended with status %#x", status);
    gb_free(&b);
}

static void one_tensor(gb *b, const int64_t *ne, size_t bytes)
{
    gb_begin(b, 3, 1, 0);
    gb_tensor(b, "the.tensor", 2, ne, 0, 0);
    gb_pad(b, 32);
    gb_fill(b, bytes, 2);
}

/* A 1 GiB hole loads without reading it; a replaced file keeps its bytes for whoever has it open. */
static void check_sparse_and_replaced(void)
{
    const int64_t ne[] = { 1 << 14, 1 << 14 };
    struct rusage before, after;
    gb b = { 0 }, c = { 0 };
    gguf *g = NULL;

    getrusage(RUSAGE_SELF, &before);
    one_tensor(&b, ne, 0);
    CHECK(gb_write(&b, temp_path("sparse.gguf")) == 0, "write");
    if (truncate(temp_path("sparse.gguf"), (off_t)b.n + (1 << 30)) == 0) {
        CHECK(gguf_open(temp_path("sparse.gguf"), &g, &diag) == 0, "%s", diag.text);
        CHECK(g && gguf_tensor_at(g, 0)->data[12345] == 0, "hole");
        getrusage(RUSAGE_SELF, &after);
        CHECK(after.ru_maxrss - before.ru_maxrss < 65536, "%ld KiB for a hole", after.ru_maxrss - before.ru_maxrss);
        gguf_close(g);
        g = NULL;
    }
    gb_good_model(&b, 3, 0);
    one_tensor(&c, shape_a, 1024);
    CHECK(gb_write(&b, temp_path("old.gguf")) == 0 && gb_write(&c, temp_path("new.gguf")) == 0, "write");
    CHECK(gguf_open(temp_path("old.gguf"), &g, &diag) == 0, "%s", diag.text);
    CHECK(rename(temp_path("new.gguf"), temp_path("old.gguf")) == 0, "rename");
    CHECK(g && gguf_tensor_count(g) == GB_GOOD_TENSORS && gb_walk(g) && !gguf_poisoned(g), "the old file");
    gguf_close(g);
    unlink(temp_path("sparse.gguf"));
    gb_free(&b);
    gb_free(&c);
}

/* ---- shards (G-11) ------------------------------------------------------------ */

typedef struct part {
    int no, count, tensors; /* count 0: neither is said */
    const char *arch; /* NULL: left out, as converters do in later parts */
    const char *tensor; /* NULL: none */
} part;

static void write_part(const char *name, part p)
{
    gb b = { 0 };

    gb_begin(&b, 3, p.tensor != NULL, 1 + (p.arch != NULL) + 2 * (p.count > 0));
    gb_kv_u16(&b, "split.no", (uint16_t)p.no);
    const int32_t total = p.tensors;
    if (p.count > 0) {
        gb_kv_u16(&b, "split.count", (uint16_t)p.count);
        gb_kv(&b, "split.tensors.count", 5, &total, 4);
    }
    if (p.arch)
        gb_kv_str(&b, "general.architecture", p.arch);
    if (p.tensor) {
        gb_tensor(&b, p.tensor, 2, shape_a, 0, 0);
        gb_pad(&b, 32);
        gb_fill(&b, 1024, (uint64_t)p.no + 10);
    }
    CHECK(gb_write(&b, temp_path(name)) == 0, "write %s", name);
    gb_free(&b);
}

static void write_good_parts(void)
{
    write_part("m-00001-of-00003.gguf", (part){ 0, 3, 3, "qwen3", "one" });
    write_part("m-00002-of-00003.gguf", (part){ 1, 3, 3, NULL, "two" });
    write_part("m-00003-of-00003.gguf", (part){ 2, 3, 3, "qwen3", "three" });
}

/* Parts that say their number alone, and parts without tensors, first, last or between. */
static void check_odd_shards(void)
{
    for (int without = 0; without < 3; without++) {
        gguf *g = NULL;
        char name[40];
        for (int i = 0; i < 3; i++) {
            static const char *const tensors[] = { "one", "two", "three" };
            snprintf(name, sizeof name, "odd-0000%d-of-00003.gguf", i + 1);
            write_part(name, (part){ i, i ? 0 : 3, 2, i ? NULL : "qwen3", i == without ? NULL : tensors[i] });
        }
        CHECK(gguf_open(temp_path("odd-00001-of-00003.gguf"), &g, &diag) == 0 && gguf_tensor_count(g) == 2,
              "no tensors in part %d: %s", without + 1, diag.text);
        gguf_close(g);
    }
}

static void check_shards(void)
{
    const char *first = "m-00001-of-00003.gguf", *second = "m-00002-of-00003.gguf";
    gguf *g = NULL;

    write_good_parts();
    CHECK(gguf_open(temp_path(first), &g, &diag) == 0, "%s", diag.text);
    if (g) {
        const gguf_tensor *t = gguf_tensor_find(g, "three");
        CHECK(gguf_tensor_count(g) == 3 && t && t->shard == 2 && gguf_file_bytes(g) > 3 * 1024, "three parts");
        CHECK(gb_walk(g) > 0 && !gguf_poisoned(g), "walk");
        CHECK(truncate(temp_path("m-00003-of-00003.gguf"), 10) == 0 && t->data[5000 % 1024] == 0, "shrink a part");
        CHECK(gguf_poisoned(g), "a poisoned part poisons the model");
    }
    gguf_close(g);
    path_refused(temp_path(first), KVANT_EFORMAT, "m-00003-of-00003.gguf: truncated");
    unlink(temp_path("m-00003-of-00003.gguf"));
    path_refused(temp_path(first), KVANT_ENOENT, "part 3 of 3 is missing");
    CHECK(mkfifo(temp_path("m-00003-of-00003.gguf"), 0600) == 0, "mkfifo");
    path_refused(temp_path(first), KVANT_EFORMAT, "is a FIFO");
    unlink(temp_path("m-00003-of-00003.gguf"));
    write_good_parts();
    path_refused(temp_path(second), KVANT_EFORMAT, "open part 1");
    write_part(second, (part){ 1, 3, 3, "llama", "two" });
    path_refused(temp_path(first), KVANT_EFORMAT, "another model");
    write_part(second, (part){ 1, 4, 3, NULL, "two" });
    path_refused(temp_path(first), KVANT_EFORMAT, "split.count 4");
    write_part(second, (part){ 2, 3, 3, NULL, "two" });
    path_refused(temp_path(first), KVANT_EFORMAT, "split.no 2");
    write_part(second, (part){ 1, 3, 9, NULL, "two" });
    path_refused(temp_path(first), KVANT_EFORMAT, "split.tensors.count 9");
    write_part(second, (part){ 1, 3, 3, NULL, "one" });
    path_refused(temp_path(first), KVANT_EFORMAT, "tensor one: found twice");
    write_good_parts();
    write_part(first, (part){ 0, 3, 4, "qwen3", "one" });
    write_part(second, (part){ 1, 3, 4, NULL, "two" });
    write_part("m-00003-of-00003.gguf", (part){ 2, 3, 4, NULL, "three" });
    path_refused(temp_path(first), KVANT_EFORMAT, "3 tensors in 3 parts");
    write_part(first, (part){ 0, 65535, 3, "qwen3", "one" });
    path_refused(temp_path(first), KVANT_EFORMAT, "split.count 65535");
    write_part("renamed.gguf", (part){ 0, 3, 3, "qwen3", "one" });
    path_refused(temp_path("renamed.gguf"), KVANT_EFORMAT, "-00001-of-00003.gguf wanted");
    write_part("single.gguf", (part){ 0, 1, 1, "qwen3", "one" });
    g = NULL;
    CHECK(gguf_open(temp_path("single.gguf"), &g, &diag) == 0, "split.count 1: %s", diag.text);
    gguf_close(g);
}

/* ---- real models, when they are there ------------------------------------------------------------ */

static void check_real(const char *name)
{
    char path[512];
    gguf *g = NULL;
    gguf_str arch = { "", 0 };
    mapped_file m;
    rng r = { 5 };

    if (!check_model_path(name, path, sizeof path))
        return;
    CHECK(gguf_open(path, &g, &diag) == 0, "%s", diag.text);
    if (!g)
        return;
    CHECK(gguf_string(g, "general.architecture", 1, &arch, &diag) == 0 && gguf_tensor_find(g, "token_embd.weight"),
          "%s", name);
    printf("  %s: %.*s, %d keys, %d tensors\n", name, (int)arch.n, arch.s, gguf_kv_count(g), gguf_tensor_count(g));
    gguf_close(g);
    if (file_map(path, &m, &diag) != KVANT_OK)
        return;
    for (int i = 0; i < 20; i++) {
        const size_t n = (size_t)(rng_unit(&r) * (double)m.size);
        g = NULL;
        CHECK(gguf_open_mem(m.data, n, &g, &diag) == KVANT_EFORMAT && !g, "%s cut at %zu", name, n);
    }
    file_unmap(&m);
}

static void remove_temp(void)
{
    char command[400];

    snprintf(command, sizeof command, "rm -rf '%s'", temp_dir);
    if (system(command) != 0)
        printf("could not remove %s\n", temp_dir);
}

int main(void)
{
    const char *tmp = getenv("TMPDIR");
    struct sigaction sa;

    snprintf(temp_dir, sizeof temp_dir, "%.200s/kvant-gguf-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(temp_dir))
        return 1;
    check_foreign_default(); /* before this process maps its first file */
    memset(&sa, 0, sizeof sa);
    sa.sa_handler = foreign_handler;
    sigaction(SIGBUS, &sa, NULL);
    check_memory_faults();
    check_add_faults();
    check_paths();
    check_truncated_while_mapped();
    check_foreign_fault();
    check_sparse_and_replaced();
    check_shards();
    check_odd_shards();
    check_real("novella-dense-bf16.gguf");
    check_real("novella-hybrid-bf16.gguf");
    check_real("novella-moe-bf16.gguf");
    remove_temp();
    return check_end("check_gguf_files");
}
