/* check_ids.c: folders with a tokenizer, converted and asked for ids, against ids of `tokenizers`.
 *
 *   check_ids           tests/golden/ids/golden.txt, written by tools/check_tokenizer_json.py
 *   check_ids serve     reads from stdin, for that tool: "T <vocab_size> <folder>" opens a folder, answered by "ok" or
 *                       "refused <why>"; "X <flags> <bytes>" and the bytes after the line end are a text, answered by
 *                       its ids */
#include <sys/stat.h>
#include <unistd.h>
#include "base/file/file.h"
#include "base/mem.h"
#include "base/text/sbuf.h"
#include "kvant/engine.h"
#include "make/convert/hf_vocab.h"
#include "support/check.h"
#include "support/text_file.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

/* The keys that convert writes for a folder, as a file of nothing else. */
static int write_keys(const char *folder, uint32_t n_tokens, sbuf *file, kvant_diag *d)
{
    const uint32_t version = 3;
    const uint64_t tensors = 0;
    hf_vocab v = { 0 };
    gguf_keys keys = { 0 };
    gjson none = { NULL, 0 };
    int rc = hf_vocab_open(folder, n_tokens, NULL, 0, &v, d);

    if (rc == KVANT_OK)
        rc = hf_vocab_put(&v, &keys);
    if (rc == KVANT_OK)
        rc = hf_vocab_put_special(&v, none, NULL, &keys, d);
    if (rc == KVANT_OK) {
        sbuf_put(file, "GGUF", 4);
        sbuf_put(file, (const char *)&version, 4);
        sbuf_put(file, (const char *)&tensors, 8);
        sbuf_put(file, (const char *)&keys.n, 8);
        sbuf_put(file, keys.bytes.s, keys.bytes.n);
    }
    gguf_keys_free(&keys);
    hf_vocab_close(&v);
    return rc;
}

static tokenizer *open_folder(const char *folder, uint32_t n_tokens, kvant_diag *d)
{
    sbuf file = { 0 };
    gguf *g = NULL;
    tokenizer *t = NULL;

    d->text[0] = 0;
    if (write_keys(folder, n_tokens, &file, d) == KVANT_OK && gguf_open_mem((uint8_t *)file.s, file.n, &g, d) == 0 &&
        tokenizer_open(g, &t, d) < 0)
        t = NULL;
    gguf_close(g);
    sbuf_free(&file);
    return t;
}

/* Ids of a text, malloc'd. */
static int32_t *encode(const tokenizer *t, const char *s, size_t len, int flags, int *n, kvant_diag *d)
{
    const int cap = (int)(8 * len) + 64;
    int32_t *ids = malloc((size_t)cap * 4);

    *n = -1;
    tokenizer_encode(t, s, len, flags, ids, cap, n, d);
    return ids;
}

/* ---- serve ---- */

static void answer(const tokenizer *t, int flags, size_t len)
{
    char *s = malloc(len + 1);
    int n = -1;
    kvant_diag d = { "" };

    if (fread(s, 1, len, stdin) != len)
        exit(2);
    int32_t *ids = t ? encode(t, s, len, flags, &n, &d) : NULL;
    if (n < 0)
        printf("error %s", d.text);
    for (int i = 0; i < n; i++)
        printf("%d ", ids[i]);
    printf("\n");
    free(ids);
    free(s);
}

static int serve(void)
{
    tokenizer *t = NULL;
    char line[4200], folder[4096];
    unsigned n;
    size_t len;
    int flags;

    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "T %u %4095[^\n]", &n, folder) == 2) {
            kvant_diag d = { "" };
            tokenizer_close(t);
            t = open_folder(folder, n, &d);
            printf("%s%s\n", t ? "ok" : "refused ", t ? "" : d.text);
        } else if (sscanf(line, "X %d %zu", &flags, &len) == 2) {
            answer(t, flags, len);
        }
        fflush(stdout);
    }
    tokenizer_close(t);
    return 0;
}

/* ---- the golden ids ---- */

/* tokenizer.json with the 256 bytes of the alphabet for "@BYTES":0. */
static int write_json(const char *folder, const char *json)
{
    char path[512];
    const char *at = strstr(json, "\"@BYTES\":0");
    uint32_t next = 256;

    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    FILE *f = fopen(path, "wb");
    if (!f)
        return 0;
    fwrite(json, 1, at ? (size_t)(at - json) : strlen(json), f);
    for (uint32_t b = 0; at && b < 256; b++) {
        uint8_t text[4];
        const int plain = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        const int n = utf8_encode(plain ? b : next++, text);
        fprintf(f, "%s\"%s%.*s\":%u", b ? "," : "", b == '"' || b == '\\' ? "\\" : "", n, (char *)text, b);
    }
    if (at)
        fputs(at + strlen("\"@BYTES\":0"), f);
    return fclose(f) == 0;
}

static tokenizer *open_golden(const char *folder, char *line, int no)
{
    char *json = NULL;
    const uint32_t n = (uint32_t)strtoul(line + 2, &json, 10);
    kvant_diag d = { "" };

    CHECK(write_json(folder, json + 1), "line %d: cannot write", no);
    tokenizer *t = open_folder(folder, n, &d);
    CHECK(t, "line %d: %s", no, d.text);
    return t;
}

static void check_text(const tokenizer *t, char *line, int no)
{
    char *hex = strchr(line + 2, ' '), *want = hex ? strchr(hex + 1, ' ') : NULL;
    const int flags = atoi(line + 2);
    kvant_diag d = { "" };
    int n;

    if (!want || !t)
        return;
    const size_t digits = (size_t)(want - hex - 1);
    char *text = malloc(digits / 2 + 1);
    const int len = text_from_hex(hex + 1, digits, text);
    int32_t *ids = encode(t, text, (size_t)len, flags, &n, &d);
    int same = len >= 0 && n >= 0;
    for (int i = 0; same && i < n; i++)
        same = *want && strtol(want, &want, 10) == ids[i];
    while (*want == ' ')
        want++;
    CHECK(same && !*want, "line %d: %d ids %s, flags %d, text %.*s", no, n, d.text, flags, (int)digits, hex + 1);
    free(ids);
    free(text);
}

/* "R <size> <what> <json>": convert names `what` and writes nothing. */
static void check_refused(const char *folder, char *line, int no)
{
    char *what = NULL, *json;
    const uint32_t n = (uint32_t)strtoul(line + 2, &what, 10);
    kvant_diag d = { "" };

    what++;
    json = strchr(what, ' ');
    *json++ = 0;
    CHECK(write_json(folder, json), "line %d: cannot write", no);
    tokenizer *t = open_folder(folder, n, &d);
    CHECK(!t && strstr(d.text, what), "line %d: '%s', want '%s'", no, d.text, what);
    tokenizer_close(t);
}

static void test_golden(const char *folder)
{
    size_t n;
    char *file = text_file_read("tests/golden/ids/golden.txt", &n), *save = NULL;
    tokenizer *t = NULL;
    int no = 0, texts = 0, refused = 0;

    for (char *line = strtok_r(file, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        no++;
        if (*line == 'T') {
            tokenizer_close(t);
            t = open_golden(folder, line, no);
        } else if (*line == 'X') {
            check_text(t, line, no);
            texts++;
        } else if (*line == 'R') {
            check_refused(folder, line, no);
            refused++;
        }
    }
    CHECK(texts > 400 && refused > 10, "%d texts, %d refused", texts, refused);
    tokenizer_close(t);
    free(file);
}

int main(int argc, char **argv)
{
    char folder[] = "/tmp/kvant-ids-XXXXXX", path[64];

    if (argc > 1 && strcmp(argv[1], "serve") == 0)
        return serve();
    if (!mkdtemp(folder))
        return 2;
    test_golden(folder);
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    unlink(path);
    rmdir(folder);
    return check_end("check_ids");
}
