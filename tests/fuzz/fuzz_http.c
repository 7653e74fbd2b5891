/* fuzz_http.c: bytes of a connection against the whole server: a loop thread without a model, over a socket pair
 * that the daemon takes as a client.  The first byte cuts the input into pieces; afterwards the server must still
 * answer /health. */
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "server/server_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static server *s;
static int n_inputs;

static void open_server(void)
{
    server_params p = server_defaults();
    static auth keys;
    kvant_diag diag = { "" };

    p.port = 0;
    p.max_body = 4096;
    p.keys = &keys;
    p.cors.origins = "*";
    if (auth_add(&keys, "key", 3, &diag) != KVANT_OK || server_open(&p, &s, &diag) != KVANT_OK) {
        fprintf(stderr, "fuzz_http: %s\n", diag.text);
        exit(1);
    }
}

static void turn(void)
{
    MHD_UNSIGNED_LONG_LONG wait = 1;
    int rounds = 0;

    do
        MHD_run(s->daemon);
    while (++rounds < 16 && MHD_get_timeout(s->daemon, &wait) == MHD_YES && wait == 0);
}

/* Hands one end to the daemon, sends the pieces, reads what comes back. */
static size_t talk(const uint8_t *data, size_t size, unsigned cut, char *answer, size_t cap)
{
    struct sockaddr_storage address = { .ss_family = AF_INET };
    int pair[2];
    size_t got = 0;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) != 0)
        exit(1);
    if (MHD_add_connection(s->daemon, pair[0], (struct sockaddr *)&address, sizeof(struct sockaddr_in)) != MHD_YES) {
        close(pair[1]);
        return 0;
    }
    for (size_t at = 0; at < size;) {
        size_t n = cut ? 1 + (at * 31 + cut) % (cut * 4) : size;
        n = n < size - at ? n : size - at;
        ssize_t sent = send(pair[1], data + at, n, MSG_NOSIGNAL);
        turn();
        at += sent > 0 ? (size_t)sent : size;
        ssize_t k = recv(pair[1], answer + got, cap - 1 - got, 0);
        got += k > 0 ? (size_t)k : 0;
    }
    for (int i = 0; i < 4; i++) {
        turn();
        ssize_t k = recv(pair[1], answer + got, cap - 1 - got, 0);
        got += k > 0 ? (size_t)k : 0;
    }
    close(pair[1]);
    turn();
    turn();
    answer[got] = 0;
    return got;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char health[] = "GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    static char answer[65536];

    if (!s)
        open_server();
    if (!size)
        return 0;
    talk(data + 1, size - 1, data[0] & 31, answer, sizeof answer);
    if (strstr(answer, "\"status\":\"ok\"") || strstr(answer, "HTTP/1.1 5") == answer)
        if (!strstr(answer, " 501 ") && !strstr(answer, " 503 ") && !strstr(answer, " 505 "))
            abort(); /* no model: nothing is healthy, and nothing fails in the server itself */
    if (++n_inputs % 256 == 0) {
        talk((const uint8_t *)health, sizeof health - 1, 0, answer, sizeof answer);
        if (!strstr(answer, "Loading model"))
            abort();
    }
    return 0;
}
