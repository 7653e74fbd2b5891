/* check_store_folder.c: the folder of blocks and its thread.  What is forgotten while it waits or is being written is
 * not there afterwards; put again it is.  The end does not wait for a slow folder: what is left is counted and told.
 * Blocks of another kind of device have other ids. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/blocks/store_folder.h"
#include "engine/session_impl.h"
#include "support/check.h"
#include "support/log_seen.h"
#include "support/serve_rig.h"

enum { PAGES = 32, ROUNDS = 16 };

static char folder[64];

/* Files that are whole, which are removed. */
static int take_files(void)
{
    DIR *d = opendir(folder);
    int n = 0;

    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        n += strstr(e->d_name, ".kvb") != NULL && unlink(path) == 0;
    }
    if (d)
        closedir(d);
    return n;
}

static unsigned char *id_of(int i)
{
    static unsigned char id[PREFIX_ID];

    memset(id, i, sizeof id);
    return id;
}

static int open_folder(store_folder *f, const kvant_engine *e)
{
    const store_key key = { .vocab = 256 };
    kvant_diag diag = { "" };

    memset(f, 0, sizeof *f);
    const int code = store_folder_open(f, &e->kv, &key, folder, 0, &diag);
    CHECK(code == KVANT_OK, "%s", diag.text);
    return code == KVANT_OK;
}

static void put_all(store_folder *f)
{
    for (int i = 0; i < PAGES; i++)
        store_folder_put(f, id_of(i), BLOCK_PAGE, i);
}

static void check_forgotten(const kvant_engine *e)
{
    store_folder f;

    for (int round = 0; round < ROUNDS; round++) {
        if (!open_folder(&f, e))
            return;
        put_all(&f);
        for (int i = 0; i < PAGES; i++) {
            store_folder_remove(&f, id_of(i), BLOCK_PAGE);
            CHECK(!store_folder_has(&f, id_of(i), BLOCK_PAGE), "block %d is forgotten, and there", i);
        }
        if (round % 2)
            put_all(&f);
        store_folder_close(&f);
        const int n = take_files(), wanted = round % 2 ? PAGES : 0;
        CHECK(n == wanted, "round %d: %d files of blocks that were forgotten, %d wanted", round, n, wanted);
    }
}

static void check_end_in_time(const kvant_engine *e)
{
    int n = PAGES;
    store_folder f;

    log_seen_begin();
    for (int round = 0; round < ROUNDS && n == PAGES; round++) {
        if (!open_folder(&f, e))
            return;
        f.close_ns = 0;
        put_all(&f);
        store_folder_close(&f);
        n = take_files();
    }
    CHECK(n < PAGES && log_seen("blocks are not written"), "the end waited for all %d blocks, or told nothing", n);
}

static void check_devices(kvant_engine *e)
{
    const kvant_device_vt *vt = e->place[0].dev->vt;
    kvant_device_vt other = *vt;
    const uint64_t here = snapshot_devices(e);

    other.name = "gpu";
    e->place[0].dev->vt = &other;
    CHECK(snapshot_devices(e) != here, "blocks of a GPU have the ids of the CPU's");
    e->place[0].dev->vt = vt;
    CHECK(snapshot_devices(e) == here, "blocks of one device have two ids");
}

int main(void)
{
    kvant_engine_params p = kvant_engine_defaults();
    serve_rig r;

    p.threads = 1;
    p.max_seqs = 1;
    p.n_ctx = 320;
    p.pool_tokens = PAGES * KVANT_PAGE;
    snprintf(folder, sizeof folder, "/tmp/check_store_folder.%d", (int)getpid());
    mkdir(folder, 0700);
    if (serve_open(&r, "tests/golden/tiny/qwen3.gguf", p, kvant_session_defaults())) {
        check_forgotten(r.e);
        check_end_in_time(r.e);
        check_devices(r.e);
        serve_close(&r);
    }
    rmdir(folder);
    return check_end("check_store_folder");
}
