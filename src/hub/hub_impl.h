/* hub/hub_impl.h: what the files of hub/ share. */
#ifndef KVANT_HUB_IMPL_H
#define KVANT_HUB_IMPL_H

#include "base/text/sbuf.h"
#include "hub/hub.h"

enum { HUB_NAME = 128, HUB_FILE = 256, HUB_FILES = 4096, HUB_OID = 65, HUB_SHARDS = 1000 };

/* A file of a repository, as the hub lists it. */
typedef struct hub_file {
    char name[HUB_FILE]; /* its path in the repository, checked: no "..", no empty part */
    char oid[HUB_OID];   /* names its bytes: SHA-256, or the hash of git; "": none */
    int64_t size;        /* -1: not known */
    int is_sha256;
} hub_file;

typedef struct hub_list {
    char commit[HUB_OID];
    hub_file *files; /* kvant_free */
    int n;
} hub_list;

/* ---- hub_list.c ---- */
int hub_is_model(const char *name);                                  /* a model's only or first file */
int hub_is_shard(const char *name, int *i, int *n); /* "NAME-00001-of-00003.gguf": the numbers; 0: it is none */
int hub_name_ok(const char *name);                                   /* a path that stays in its folder */
int hub_list_read(const char *json, size_t n, hub_list *l, kvant_diag *diag);
/* The GGUF files of one model: indices of its shards in order -> which[HUB_SHARDS], *n.  quant: "" for any. */
int hub_choose(const hub_list *l, const char *quant, const char *file, int *which, int *n, kvant_diag *diag);

/* ---- hub_cache.c ---- */
typedef struct hub_repo {
    char name[HUB_NAME]; /* USER/NAME */
    char quant[HUB_NAME];
    char folder[HUB_PATH]; /* of the cache: .../models--USER--NAME */
} hub_repo;
int hub_root(char path[HUB_PATH], kvant_diag *diag); /* the cache's folder */
int hub_repo_open(const char *text, hub_repo *r, kvant_diag *diag);
/* "FOLDER/a/b" -> path; KVANT_EINVAL: too long.  Makes the folders that it stands in. */
int hub_path(const hub_repo *r, const char *rest, char path[HUB_PATH], kvant_diag *diag);
/* The files of the commit that the cache calls main.  KVANT_ENOENT: none. */
int hub_cached(const hub_repo *r, hub_list *l, kvant_diag *diag);
/* Makes the snapshot's file a link to its bytes. */
int hub_link(const hub_repo *r, const hub_list *l, const hub_file *f, kvant_diag *diag);
int hub_write_ref(const hub_repo *r, const char *commit, kvant_diag *diag);
const char *hub_token(char buf[512]); /* NULL: none */
const char *hub_endpoint(void);

/* ---- hub_http.c ---- */
typedef struct hub_sink {
    int fd;        /* a file that the bytes are added to, from `at` on; -1: into text */
    int64_t at, most;
    sbuf *text;
    int (*progress)(void *user, int64_t done);
    void *user;
} hub_sink;
/* GET url.  KVANT_ENOENT (404), KVANT_EIO, KVANT_ECANCELED; *again: another attempt may help. */
int hub_get(const char *url, hub_sink *to, int *again, kvant_diag *diag);

#endif
