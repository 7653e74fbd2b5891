/* cl_program.c: programs, built when an op first needs them.  Drivers keep what they compile in caches of their own. */
#include "devices/opencl/cl_dev.h"

#include "base/mem.h"

static const char OPTIONS[] = "-cl-std=CL1.2";

/* A message is one line. */
static void flatten(char *text)
{
    for (; *text; text++)
        if (*text == '\n')
            *text = ' ';
}

/* Says the compiler's log from its first error on. */
static int built_wrong(cl_device *d, cl_program p, const port_call *c, int32_t code, kvant_diag *diag)
{
    size_t size = 0;
    d->api.GetProgramBuildInfo(p, d->id, CL_PROGRAM_BUILD_LOG, 0, NULL, &size);
    char *log = kvant_calloc(size + 1, 1);
    if (log)
        d->api.GetProgramBuildInfo(p, d->id, CL_PROGRAM_BUILD_LOG, size, log, NULL);
    const char *found = log ? strstr(log, "error:") : NULL;
    const int rc = kvant_fail(diag, KVANT_EDEVICE, "device opencl: %.40s does not compile here (code %d): %.200s; %.160s",
                              port_kernels[c->kernel].file, (int)code, found ? found : log ? log : "", c->defines);
    if (diag)
        flatten(diag->text);
    kvant_free(log);
    return rc;
}

static int build(cl_device *d, const port_call *c, cl_program *out, kvant_diag *diag)
{
    char *text = NULL;
    int32_t rc;
    KVANT_TRY(port_source(port_kernels[c->kernel].file, c->defines, &text, diag));
    cl_program p = d->api.CreateProgramWithSource(d->context, 1, (const char **)&text, NULL, &rc);
    kvant_free(text);
    KVANT_TRY(cl_check(d, rc, "making a program", diag));
    rc = d->api.BuildProgram(p, 1, &d->id, OPTIONS, NULL, NULL);
    if (rc != CL_SUCCESS) {
        rc = built_wrong(d, p, c, rc, diag);
        d->api.ReleaseProgram(p);
        return rc;
    }
    *out = p;
    return KVANT_OK;
}

static int program_get(cl_device *d, const port_call *c, const cl_built **out, kvant_diag *diag)
{
    const char *file = port_kernels[c->kernel].file;
    cl_built b = { .file = file };
    for (int i = 0; i < d->n_programs; i++)
        if (strcmp(d->programs[i].file, file) == 0 && strcmp(d->programs[i].defines, c->defines) == 0) {
            *out = &d->programs[i];
            return KVANT_OK;
        }
    void *more = cl_grow(d->programs, d->n_programs, &d->cap_programs, sizeof b);
    if (more)
        d->programs = more;
    b.defines = more ? kvant_strdup(c->defines) : NULL;
    if (!b.defines)
        return kvant_fail(diag, KVANT_ENOMEM, "device opencl: out of memory");
    const int rc = build(d, c, &b.program, diag);
    if (rc < 0) {
        kvant_free(b.defines);
        return rc;
    }
    d->programs[d->n_programs] = b;
    *out = &d->programs[d->n_programs++];
    return KVANT_OK;
}

static int kernel_make(cl_device *d, const port_call *c, cl_kernel *out, kvant_diag *diag)
{
    const cl_built *b = NULL;
    char name[64] = "k_";
    int32_t rc;
    void *more = cl_grow(d->kernels, d->n_kernels, &d->cap_kernels, sizeof *d->kernels);
    if (!more)
        return kvant_fail(diag, KVANT_ENOMEM, "device opencl: out of memory");
    d->kernels = more;
    KVANT_TRY(program_get(d, c, &b, diag));
    strncat(name, port_kernels[c->kernel].name, sizeof name - 3);
    *out = d->api.CreateKernel(b->program, name, &rc);
    KVANT_TRY(cl_check(d, rc, port_kernels[c->kernel].name, diag));
    d->kernels[d->n_kernels++] = (cl_ready){ c->kernel, b->defines, *out };
    return KVANT_OK;
}

int cl_kernel_get(cl_device *d, const port_call *c, cl_kernel *out, kvant_diag *diag)
{
    for (int i = 0; i < d->n_kernels; i++)
        if (d->kernels[i].kernel == c->kernel && strcmp(d->kernels[i].defines, c->defines) == 0) {
            *out = d->kernels[i].handle;
            return KVANT_OK;
        }
    return kernel_make(d, c, out, diag);
}

void cl_programs_drop(cl_device *d)
{
    for (int i = 0; i < d->n_kernels; i++)
        d->api.ReleaseKernel(d->kernels[i].handle);
    for (int i = 0; i < d->n_programs; i++) {
        d->api.ReleaseProgram(d->programs[i].program);
        kvant_free(d->programs[i].defines);
    }
    kvant_free(d->kernels);
    kvant_free(d->programs);
}
