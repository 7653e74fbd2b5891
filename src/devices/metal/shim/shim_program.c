/* shim_program.c: a kernel's text to a function: the C++ compiler ($CXX, else c++) makes a shared library of it in a
 * folder that is gone when it is loaded.  Two steps, for with -fsanitize=thread the linker would add that sanitizer's
 * runtime. */
#include "devices/metal/shim/shim.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/file/file.h"
#include "base/mem.h"

extern char **environ;

static const unsigned char stdlib_text[] = {
#include "metal_stdlib.inc"
};

typedef struct folder { char path[64], stdlib[80], text[80], object[80], library[80], log[80]; } folder;

static int folder_make(folder *f, kvant_diag *diag)
{
    const char *base = getenv("TMPDIR");

    if (snprintf(f->path, sizeof f->path, "%s/kvant-shim-XXXXXX", base ? base : "/tmp") >= (int)sizeof f->path ||
        !mkdtemp(f->path))
        return kvant_fail(diag, KVANT_EIO, "metal-shim: cannot make a folder %.40s", f->path);
    snprintf(f->stdlib, sizeof f->stdlib, "%s/metal_stdlib", f->path);
    snprintf(f->text, sizeof f->text, "%s/kernel.cpp", f->path);
    snprintf(f->object, sizeof f->object, "%s/kernel.o", f->path);
    snprintf(f->library, sizeof f->library, "%s/kernel.so", f->path);
    snprintf(f->log, sizeof f->log, "%s/log", f->path);
    return KVANT_OK;
}

static void folder_drop(const folder *f)
{
    const char *const files[] = { f->stdlib, f->text, f->object, f->library, f->log };

    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        unlink(files[i]);
    rmdir(f->path);
}

static int put(const char *path, const void *a, size_t n_a, const char *b, kvant_diag *diag)
{
    FILE *out = fopen(path, "w");
    const size_t n_b = strlen(b);
    const int bad = !out || fwrite(a, 1, n_a, out) != n_a || fwrite(b, 1, n_b, out) != n_b;

    if ((out && fclose(out) != 0) || bad)
        return kvant_fail(diag, KVANT_EIO, "metal-shim: cannot write %s", path);
    return KVANT_OK;
}

/* The first error of the compiler's log, or its first line. */
static int failed(const folder *f, const char *kernel, const char *compiler, kvant_diag *diag)
{
    char *log = NULL;
    size_t n;
    kvant_diag local;

    if (file_read(f->log, 1 << 20, &log, &n, &local) != KVANT_OK)
        return kvant_fail(diag, KVANT_EDEVICE, "metal-shim: %s: cannot run the C++ compiler %.60s", kernel, compiler);
    const char *error = strstr(log, "error"), *from = error ? error : log;
    const int code = kvant_fail(diag, KVANT_EDEVICE, "metal-shim: %s: %.60s: %.*s", kernel, compiler,
                                (int)strcspn(from, "\n"), from);
    kvant_free(log);
    return code;
}

/* Runs argv with its messages in the log; 0: it went well. */
static int run(const folder *f, const char *const *argv)
{
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status = -1;

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 2, f->log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const int code = posix_spawnp(&pid, argv[0], &actions, NULL, (char *const *)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return code == 0 && waitpid(pid, &status, 0) == pid && status == 0 ? 0 : -1;
}

static int compile(const folder *f, const char *kernel, kvant_diag *diag)
{
    const char *cxx = getenv("CXX"), *name = cxx && *cxx ? cxx : "c++";
    const char *const compile[] = { name, "-std=c++17", "-O1", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off",
                                    "-fno-strict-aliasing", "-fno-exceptions", "-fno-rtti", "-fno-stack-protector",
                                    "-fsanitize=thread", "-w", "-D__METAL_VERSION__=300", "-DKVANT_SHIM", "-I", f->path,
                                    "-c", f->text, "-o", f->object, NULL };
    const char *const link[] = { name, "-shared", "-o", f->library, f->object, "-lm", NULL };

    return run(f, compile) == 0 && run(f, link) == 0 ? KVANT_OK : failed(f, kernel, name, diag);
}

static int load(shim_program *p, const folder *f, const char *kernel, kvant_diag *diag)
{
    p->library = dlopen(f->library, RTLD_NOW | RTLD_LOCAL);
    if (!p->library)
        return kvant_fail(diag, KVANT_EDEVICE, "metal-shim: %s: %s", kernel, dlerror());
    const int *n = dlsym(p->library, "kvant_shim_args");
    const uintptr_t *image = dlsym(p->library, "kvant_shim_image");
    const shim_hooks **hooks = dlsym(p->library, "kvant_shim_hooks");
    *(void **)&p->entry = dlsym(p->library, "kvant_shim_entry");
    if (!n || !image || !hooks || !p->entry)
        return kvant_fail(diag, KVANT_EDEVICE, "metal-shim: %s: the compiled library lacks its entry", kernel);
    *hooks = &shim_hooks_here;
    p->n_args = *n;
    p->begin = image[0];
    p->end = image[1];
    return KVANT_OK;
}

int shim_program_load(shim_program *p, const char *kernel, const char *text, kvant_diag *diag)
{
    folder f;
    char entry[96];

    memset(p, 0, sizeof *p);
    KVANT_TRY(folder_make(&f, diag));
    snprintf(entry, sizeof entry, "\nSHIM_ENTRY(%s)\n", kernel);
    int code = put(f.stdlib, stdlib_text, sizeof stdlib_text, "", diag);
    if (code == KVANT_OK)
        code = put(f.text, text, strlen(text), entry, diag);
    if (code == KVANT_OK)
        code = compile(&f, kernel, diag);
    if (code == KVANT_OK)
        code = load(p, &f, kernel, diag);
    folder_drop(&f);
    return code;
}

void shim_program_free(shim_program *p)
{
    if (p->library)
        dlclose(p->library);
    p->library = NULL;
}
