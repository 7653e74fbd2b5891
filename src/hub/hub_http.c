/* hub_http.c: GET, by libcurl.  The token goes to the hub alone, never to where it redirects to; from https nothing
 * leads to http.  Without libcurl every request is an error that says so. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/mem.h"
#include "hub/hub_impl.h"

#ifndef KVANT_HAVE_CURL

int hub_get(const char *url, hub_sink *to, int *again, kvant_diag *diag)
{
    (void)to;
    *again = 0;
    return kvant_fail(diag, KVANT_EUNSUPPORTED, "%.200s: this build fetches nothing: libcurl was not found when it was made "
                      "(Debian: libcurl4-openssl-dev)", url);
}

#else

#include <curl/curl.h>
#include "kvant/kvant.h"

enum { CONNECT_S = 30, STALL_S = 60, HOPS = 8 };

/* Returns fewer bytes than it got to end the transfer. */
static size_t take(char *data, size_t one, size_t n, void *user)
{
    hub_sink *to = user;

    (void)one;
    if (to->at + (int64_t)n > to->most)
        return 0;
    if (to->fd < 0)
        sbuf_put(to->text, data, n);
    for (size_t done = 0; to->fd >= 0 && done < n;) {
        const ssize_t k = write(to->fd, data + done, n - done);
        if (k <= 0)
            return 0;
        done += (size_t)k;
    }
    to->at += (int64_t)n;
    return to->fd < 0 && to->text->error ? 0 : n;
}

static int tell(void *user, curl_off_t total, curl_off_t now, curl_off_t up_total, curl_off_t up)
{
    hub_sink *to = user;

    (void)total, (void)now, (void)up_total, (void)up;
    return to->progress && to->progress(to->user, to->at);
}

static struct curl_slist *head_of(void)
{
    char buf[512], line[600];
    const char *token = hub_token(buf);

    if (!token)
        return NULL;
    snprintf(line, sizeof line, "Authorization: Bearer %.512s", token);
    return curl_slist_append(NULL, line);
}

static void set(CURL *c, const char *url, const hub_sink *to, char why[CURL_ERROR_SIZE])
{
    const char *safe = strncmp(url, "https:", 6) == 0 ? "https" : "http,https";

    curl_easy_setopt(c, CURLOPT_URL, url);
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c, CURLOPT_REDIR_PROTOCOLS_STR, safe);
    curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(c, CURLOPT_MAXREDIRS, (long)HOPS);
    curl_easy_setopt(c, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, (long)STALL_S);
    curl_easy_setopt(c, CURLOPT_USERAGENT, "kvant/" KVANT_VERSION_TEXT);
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, why);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, to);
    curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, tell);
    curl_easy_setopt(c, CURLOPT_XFERINFODATA, to);
    curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
    if (to->at)
        curl_easy_setopt(c, CURLOPT_RESUME_FROM_LARGE, (curl_off_t)to->at);
}

static int judge(CURLcode code, long status, const char *url, const char *why, int *again, kvant_diag *diag)
{
    *again = code == CURLE_PARTIAL_FILE || code == CURLE_RECV_ERROR || code == CURLE_GOT_NOTHING ||
             code == CURLE_OPERATION_TIMEDOUT || code == CURLE_RANGE_ERROR ||
             (code == CURLE_HTTP_RETURNED_ERROR && status >= 500);
    if (code == CURLE_OK)
        return KVANT_OK;
    if (code == CURLE_ABORTED_BY_CALLBACK)
        return kvant_fail(diag, KVANT_ECANCELED, "interrupted; the next attempt goes on from here");
    if (status == 401 || status == 403)
        return kvant_fail(diag, KVANT_EIO, "%.200s: %ld: it is not there, or wants a token that may read it: HF_TOKEN", url,
                          status);
    if (status == 404)
        return kvant_fail(diag, KVANT_ENOENT, "%.200s: 404: it is not there", url);
    return kvant_fail(diag, KVANT_EIO, "%.200s: %.150s", url, why[0] ? why : curl_easy_strerror(code));
}

int hub_get(const char *url, hub_sink *to, int *again, kvant_diag *diag)
{
    char why[CURL_ERROR_SIZE] = "";
    long status = 0;

    *again = 0;
    if (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0)
        return kvant_fail(diag, KVANT_EINVAL, "HF_ENDPOINT: found \"%.100s\", wanted a URL with http or https", url);
    CURL *c = curl_easy_init();
    struct curl_slist *head = head_of();
    if (!c) {
        curl_slist_free_all(head);
        return kvant_fail(diag, KVANT_ENOMEM, "hub: out of memory");
    }
    set(c, url, to, why);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, head);
    const CURLcode code = curl_easy_perform(c);
    curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_cleanup(c);
    curl_slist_free_all(head);
    if (code == CURLE_RANGE_ERROR && to->fd >= 0 && ftruncate(to->fd, 0) == 0) /* no ranges there: from the beginning */
        to->at = lseek(to->fd, 0, SEEK_SET);
    return judge(code, status, url, why, again, diag);
}

#endif
